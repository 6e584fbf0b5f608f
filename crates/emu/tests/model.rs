//! Checks that the model makes the same decisions with real packets and ports as alone.
#![allow(clippy::unwrap_used)]

mod support;

use emu::{Access, Cable, Direction, EmuError, Emulator};
use port::{Frame, PairPort, Port, PortCounters, PortError, SendReport, pair};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use support::*;
use units::{Bytes, Span};

const LOSSES: [&str; 2] = ["loss=5%", "loss=gilbert:p=2%,r=30%,h=10%"];

#[test]
fn equal_seeds_give_equal_drops_in_the_model_alone_and_over_packets() {
    const COUNT: u32 = 2000;
    for loss in LOSSES {
        let config = config(&[loss, "seed=7", "rate=100mbit", "delay=1ms"]);
        let alone = model_alone(&config, COUNT);
        assert!(alone.len() < COUNT as usize);
        for _ in 0..2 {
            let Some(testbed) = testbed(&config, &Default::default()) else { return };
            let (mut a, mut b) = (testbed.port(0), testbed.port(1));
            let handle = testbed.emulator.handle();
            send_paced(&mut a, &handle, 0..COUNT);
            assert_eq!(receive(&mut b, alone.len()), alone, "{loss}");
            drained(&handle);
            let seen = forward(&handle);
            assert_eq!(seen.dropped_loss.frames, u64::from(COUNT) - alone.len() as u64);
            assert_eq!((seen.dropped_overflow.frames, seen.lost_outside_model), (0, 0));
        }
    }
}

#[test]
fn different_seeds_give_different_drops() {
    let with = |seed: &str| model_alone(&config(&["loss=5%", seed]), 2000);
    assert_ne!(with("seed=7"), with("seed=8"));
}

/// Uses ports in memory, so that the test also runs on machines without network namespaces.
#[test]
fn equal_seeds_give_equal_drops_over_ports_in_memory() {
    for loss in LOSSES {
        let config = config(&[loss, "seed=7", "rate=100mbit"]);
        let alone = model_alone(&config, 2000);
        let (mut outer_a, inner_a) = pair().unwrap();
        let (mut outer_b, inner_b) = pair().unwrap();
        let cable = Cable {
            name: "memory".to_owned(),
            a: Box::new(inner_a),
            b: Box::new(inner_b),
            forward: config,
            backward: Default::default(),
            interrupts: Span::ZERO,
            access: None,
            tpid: None,
        };
        let emulator = Emulator::start(vec![cable], ordinary()).unwrap();
        send_paced(&mut outer_a, &emulator.handle(), 0..2000);
        assert_eq!(receive(&mut outer_b, alone.len()), alone, "{loss}");
    }
}

#[test]
fn frame_counters_add_up_under_loss_duplication_and_reordering() {
    const COUNT: u32 = 4000;
    let config = config(&[
        "rate=20mbit",
        "queue=droptail:20KB",
        "loss=3%",
        "duplicate=5%",
        "reorder=2%,3ms",
        "delay=2ms",
        "seed=3",
    ]);
    let Some(testbed) = testbed(&config, &Default::default()) else { return };
    let (mut a, mut b) = (testbed.port(0), testbed.port(1));
    let handle = testbed.emulator.handle();
    let mut frames = Vec::new();
    // Send far faster than the link, so that the link's queue overflows.
    for few in (0..COUNT).collect::<Vec<_>>().chunks(64) {
        let few: Vec<_> = few.iter().map(|&number| numbered(number)).collect();
        assert_eq!(a.send(&few).unwrap().dropped, 0);
    }
    until("all frames are in the link", || forward(&handle).arrived.frames == u64::from(COUNT));
    // The counts must add up during the run as well as at the end.
    for _ in 0..50 {
        let seen = forward(&handle);
        assert_eq!(
            seen.arrived.frames + seen.duplicated.frames,
            seen.delivered.frames + seen.dropped() + seen.queued.frames + seen.in_flight
        );
    }
    drained(&handle);
    let delivered = forward(&handle).delivered.frames;
    let mut came = Vec::new();
    until("what was delivered is received", || {
        b.receive(&mut frames, 256).unwrap();
        came.extend(numbers(&frames));
        frames.clear();
        came.len() as u64 >= delivered
    });
    let end = testbed.emulator.finish().unwrap().cables.swap_remove(0).forward;
    assert_eq!(end.arrived.frames, u64::from(COUNT));
    assert_eq!(end.arrived.frames + end.duplicated.frames, end.delivered.frames + end.dropped());
    assert_eq!(came.len() as u64, end.delivered.frames);
    let distinct: BTreeSet<_> = came.iter().collect();
    assert!(end.dropped_overflow.frames > 0 && end.dropped_loss.frames > 0);
    assert!(end.duplicated.frames > 0 && end.reordered.frames > 0);
    assert!(distinct.len() < came.len(), "no duplicate arrived");
    assert!(!came.is_sorted(), "no frame arrived out of order");
    assert_eq!(end.lost_outside_model, 0);
    assert!(end.trace.is_some_and(|trace| !trace.points().is_empty()));
}

#[test]
fn changed_settings_take_effect_without_a_loss() {
    let cut = config(&["loss=100%"]);
    let Some(testbed) = testbed(&cut, &Default::default()) else { return };
    let (mut a, mut b) = (testbed.port(0), testbed.port(1));
    let handle = testbed.emulator.handle();
    send_paced(&mut a, &handle, 0..100);
    drained(&handle);
    assert_eq!(forward(&handle).dropped_loss.frames, 100);

    handle.change(0, Direction::Forward, config(&["delay=300ms"])).unwrap();
    send_paced(&mut a, &handle, 100..200);
    handle.change(0, Direction::Forward, config(&["rate=50mbit", "queue=codel"])).unwrap();
    send_paced(&mut a, &handle, 200..300);
    // Frames in flight keep their delivery times, and later frames do not overtake frames in
    // flight.
    assert_eq!(receive(&mut b, 200), (100..300).collect::<Vec<_>>());
    let seen = forward(&handle);
    assert_eq!((seen.dropped(), seen.delivered.frames), (100, 200));
}

#[test]
fn an_invalid_setting_or_cable_changes_nothing() {
    let Some(testbed) = testbed(&config(&["rate=10mbit"]), &Default::default()) else { return };
    let handle = testbed.emulator.handle();
    let nothing = link::LinkConfig {
        rate: link::Capacity::Fixed(units::Rate::from_bits_per_second(0)),
        ..Default::default()
    };
    let refused = handle.change(0, Direction::Forward, nothing).unwrap_err();
    assert!(refused.to_string().contains("rate is 0"), "{refused}");
    let refused = handle.change(1, Direction::Forward, Default::default());
    assert!(matches!(refused, Err(EmuError::NoSuchCable(1))));
    let mut a = testbed.port(0);
    send_paced(&mut a, &handle, 0..10);
    drop(testbed.emulator);
    assert!(matches!(handle.statistics(), Err(EmuError::Ended)));
}

#[test]
fn the_error_of_a_link_names_its_removed_interface() {
    for side in [0, 1] {
        let Some(testbed) = testbed(&Default::default(), &Default::default()) else { return };
        host::remove_interface(&testbed.hosts[side], "eth0").unwrap();
        until("the emulator notices", || !testbed.emulator.is_running());
        match testbed.emulator.finish() {
            Err(EmuError::Port {
                side: named, source: PortError::InterfaceDown { name }, ..
            }) => {
                assert_eq!((named, name.as_str()), [('a', "a"), ('b', "b")][side]);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Hosts of one side have separate access links, and get the frames for their addresses.
#[test]
fn hosts_behind_access_links_share_the_cable_and_get_only_their_own_frames() {
    const COUNT: u32 = 300;
    const OWN: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    let (mut first, inner_first) = pair().unwrap();
    let (mut second, inner_second) = pair().unwrap();
    let (mut far, inner_far) = pair().unwrap();
    let access = Access {
        link: config(&["rate=250mbit"]),
        first: OWN[0],
        others: vec![(Box::new(inner_second), OWN[1])],
    };
    let cable = Cable {
        name: "memory".to_owned(),
        a: Box::new(inner_first),
        b: Box::new(inner_far),
        forward: config(&["rate=100mbit"]),
        backward: Default::default(),
        interrupts: Span::ZERO,
        access: Some(access),
        tpid: Some(0x88a8),
    };
    let emulator = Emulator::start(vec![cable], ordinary()).unwrap();
    let tagged = |number| {
        let mut frame = numbered(number);
        frame.bytes_mut()[12..18].copy_from_slice(&[0x88, 0xa8, 0x05, 0x80, 0x88, 0xb5]);
        frame
    };
    for number in 0..COUNT {
        assert_eq!(first.send(&[numbered(number)]).unwrap().dropped, 0);
        let frame = if number == 0 { tagged(number) } else { numbered(COUNT + number) };
        assert_eq!(second.send(&[frame]).unwrap().dropped, 0);
    }
    let came: BTreeSet<u32> = receive(&mut far, 2 * COUNT as usize - 1).into_iter().collect();
    assert_eq!(came.len(), 2 * COUNT as usize - 1);
    let to = |address: [u8; 6], number| {
        let mut frame = numbered(number);
        frame.bytes_mut()[..6].copy_from_slice(&address);
        frame
    };
    far.send(&[to(OWN[1], 1), to(OWN[0], 2), to([0xff; 6], 3)]).unwrap();
    assert_eq!(receive(&mut first, 2), [2, 3]);
    assert_eq!(receive(&mut second, 2), [1, 3]);
    let seen = emulator.finish().unwrap().cables.swap_remove(0);
    assert_eq!(seen.access.len(), 2);
    assert!(seen.access.iter().all(|way| way.delivered.frames == u64::from(COUNT)));
    assert_eq!((seen.forward.tagged, seen.backward.tagged), (1, 0));
    assert_eq!(seen.forward.delivered.frames, 2 * u64::from(COUNT));
}

/// Interrupts decide only when frames are delivered, and how many at once. The model alone decides
/// which frames are dropped.
#[test]
fn all_frames_are_delivered_within_the_interrupt_rate() {
    const COUNT: u32 = 2000;
    let every = Span::from_millis(1);
    let config = config(&["loss=5%", "seed=7", "rate=100mbit"]);
    let alone = model_alone(&config, COUNT);
    let (mut outer_a, inner_a) = pair().unwrap();
    let (mut outer_b, inner_b) = pair().unwrap();
    let handed = Arc::new(Mutex::new(Vec::new()));
    let cable = Cable {
        name: "memory".to_owned(),
        a: Box::new(inner_a),
        b: Box::new(Counting { port: inner_b, handed: Arc::clone(&handed) }),
        forward: config,
        backward: Default::default(),
        interrupts: every,
        access: None,
        tpid: None,
    };
    let begun = Instant::now();
    let emulator = Emulator::start(vec![cable], ordinary()).unwrap();
    send_paced(&mut outer_a, &emulator.handle(), 0..COUNT);
    assert_eq!(receive(&mut outer_b, alone.len()), alone);
    let handed = handed.lock().unwrap();
    // After a delivery of fewer than FULL_HAND frames, the next delivery follows at least one
    // interval later, however late the thread is.
    let longest = begun.elapsed().as_nanos() / u128::from(every.nanos()) + 1;
    let full = handed.iter().filter(|&&frames| frames >= FULL_HAND).count();
    assert!((handed.len() - full) as u128 <= longest, "{} in {longest} ms", handed.len());
}

#[derive(Debug)]
struct Counting {
    port: PairPort,
    handed: Arc<Mutex<Vec<usize>>>,
}

impl Port for Counting {
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        self.port.receive(batch, limit)
    }
    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        self.handed.lock().unwrap().push(frames.len());
        self.port.send(frames)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.fd()
    }
    fn mtu(&self) -> Bytes {
        self.port.mtu()
    }
    fn counters(&mut self) -> PortCounters {
        self.port.counters()
    }
    fn describe(&self) -> String {
        self.port.describe()
    }
}

/// Maximum number of frames that the emulator delivers in one call.
const FULL_HAND: usize = 32;
