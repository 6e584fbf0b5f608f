//! Undocumented behaviour of quinn-proto on which this crate relies.

#![allow(clippy::unwrap_used)]

mod world;

use std::collections::BTreeMap;
use units::{Span, Time};
use world::{
    CLIENT, Change, PathConfig, SERVER, Transfer, Windows, World, millis, packet, seconds, settings,
};

const BULK: Transfer = Transfer { up: 1 << 40, down: 0, reset_after: None, stop_after: None };

#[test]
fn equal_seeds_give_the_same_hash_of_all_packets() {
    let run = |seed| {
        let path = PathConfig::new("50mbit", "20ms", "droptail:100p")
            .loss("1%")
            .jitter("3ms,uniform,reorder");
        let mut world = World::new(seed, settings("tcpa"), &path);
        world.transfer(CLIENT, Transfer { up: 3_000_000, down: 1_000_000, ..Transfer::default() });
        assert!(world.run_to_the_end(seconds(60)), "{:?}", world.lost());
        assert_eq!(world.hosts[SERVER].application.received, 3_000_000);
        assert_eq!(world.hosts[CLIENT].application.received, 1_000_000);
        (world.hash(), world.now())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// The engine leaves pacing to this crate, and asks before each packet whether the packet may
/// leave.
#[test]
fn a_fixed_rate_leaves_in_trains_of_a_millisecond_or_two_packets() {
    for (rate, bits) in [("1mbit", 1_000_000), ("20mbit", 20_000_000), ("300mbit", 300_000_000)] {
        for slack in [Span::ZERO, Span::from_micros(800)] {
            let path = PathConfig::new("1gbit", "20ms", "droptail:1000p");
            let mut world = World::new(5, settings(&format!("fixed {rate}")), &path);
            world.transfer(CLIENT, BULK);
            world.run_until(seconds(2));
            world.hosts[CLIENT].slack = slack;
            world.hosts[CLIENT].trains = Some(Vec::new());
            let before = world.ways[CLIENT].sent.bytes;
            world.run_until(seconds(6));
            let sent = (world.ways[CLIENT].sent.bytes - before) * 8 / 4;
            let kept = sent as f64 / bits as f64;
            assert!((0.97..1.02).contains(&kept), "{rate} with timers {slack} late: {kept}");
            let mut trains = BTreeMap::<Time, usize>::new();
            for (at, lengths) in world.hosts[CLIENT].trains.take().unwrap() {
                *trains.entry(at).or_default() += lengths.iter().sum::<usize>();
            }
            // A sender that wakes up late catches up at twice the rate.
            let most = (bits / 8000).max(2 * PACKET) * if slack.nanos() > 0 { 2 } else { 1 };
            let longest = *trains.values().max().unwrap();
            assert!(longest <= most + PACKET, "{rate} with timers {slack} late: {longest} at once");
        }
    }
}

/// The server sends only acknowledgements, over a saturated return path.
#[test]
fn a_full_window_delays_no_acknowledgement() {
    let path = PathConfig::new("50mbit", "20ms", "droptail:200p");
    let mut world = World::of(3, [settings("tcpa"), settings("fixed 100kbit")], &path);
    world.transfer(CLIENT, Transfer { up: 1 << 40, down: 60_000, ..Transfer::default() });
    world.run_until(seconds(10));
    let before = world.hosts[SERVER].application.received;
    world.run_until(seconds(15));
    let goodput = (world.hosts[SERVER].application.received - before) * 8 / 5;
    assert!(goodput > 45_000_000, "{goodput}");
}

/// The engine writes acknowledgements after data that waits for the window or the pacer, so they
/// leave with the next packet. If the endpoint sends some packets per RTT, this delay reduces the
/// goodput only a little.
#[test]
fn acknowledgements_behind_data_leave_with_the_next_packet() {
    let path = PathConfig::new("20mbit", "20ms", "droptail:500KB");
    let mut world = World::of(3, [settings("tcpa"), settings("fixed 2mbit")], &path);
    world.transfer(CLIENT, Transfer { down: 1 << 40, ..BULK });
    world.run_until(seconds(5));
    let before = world.hosts[SERVER].application.received;
    world.run_until(seconds(10));
    let goodput = (world.hosts[SERVER].application.received - before) * 8 / 5;
    assert!(goodput > 17_000_000, "{goodput}");
}

#[test]
fn loss_probes_leave_despite_a_full_window() {
    for congestion in ["fixed 20mbit", "tcpa", "bbr", "cubic"] {
        let open = PathConfig::new("20mbit", "20ms", "droptail:100p");
        let mut world = World::new(3, settings(congestion), &open);
        world.transfer(CLIENT, BULK);
        world.change_at(seconds(2), Change::PathConfig(Box::new(open.clone().loss("100%"))));
        world.change_at(seconds(5), Change::PathConfig(Box::new(open)));
        // By now, the endpoint has sent all data that the window allows.
        world.run_until(millis(3000));
        let before = world.ways[CLIENT].sent.datagrams;
        world.run_until(millis(4990));
        let probes = world.ways[CLIENT].sent.datagrams - before;
        assert!((2..=24).contains(&probes), "{congestion}: {probes} probes in two seconds");
        let received = world.hosts[SERVER].application.received;
        world.run_until(seconds(12));
        let goodput = (world.hosts[SERVER].application.received - received) * 8 / 7;
        assert!(goodput > 8_000_000, "{congestion}: {goodput} after the outage");
    }
}

/// The engine reports only how many bytes it counts as lost. This crate attributes these bytes to
/// the oldest outstanding packets. If this attribution were wrong, delivered packets would still
/// count as lost, and lost packets would never count as lost.
#[test]
fn the_engine_counts_the_oldest_packets_as_lost() {
    for (loss, queue) in [("5%", "droptail:1000p"), ("0%", "droptail:20p"), ("2%", "droptail:40p")]
    {
        let path = PathConfig::new("40mbit", "30ms", queue).loss(loss);
        // Use one packet size: a lost size probe is in neither sum.
        let settings = quic::Settings { largest_packet: 1200, ..settings("bbr") };
        let mut world = World::new(9, settings, &path);
        world.transfer(CLIENT, Transfer { up: 20_000_000, ..Transfer::default() });
        assert!(world.run_to_the_end(seconds(120)), "{:?}", world.lost());
        world.run_for(Span::from_secs(2));
        let dropped = world.ways[CLIENT].sent.bulk - world.ways[CLIENT].arrived.bulk;
        let quic::Statistics { bytes_lost: reported, bytes_mistaken, .. } =
            world.statistics(CLIENT);
        assert!(bytes_mistaken <= 4 * 1200, "{loss} {queue}: {bytes_mistaken} bytes arrived");
        assert!(dropped > 20_000, "{loss} {queue}: only {dropped} dropped");
        // Permit a difference of a few packets. No later packet reveals the loss of the last
        // packets, and the first packets carry no data.
        assert!(reported.abs_diff(dropped) <= 4 * 1200, "{loss} {queue}: {reported} of {dropped}");
    }
}

/// The kernel splits a batch into packets of equal length, except for the last packet, which may be
/// shorter. If the kernel split a batch at a wrong offset, the packets would fail their checksums.
#[test]
fn send_batches_are_split_at_packet_boundaries() {
    for congestion in ["tcpa", "fixed 80mbit"] {
        let path = PathConfig::new("100mbit", "20ms", "droptail:60p").loss("3%");
        let mut world = World::new(4, settings(congestion), &path);
        world.hosts[CLIENT].trains = Some(Vec::new());
        world.ways[CLIENT].log = Some(Vec::new());
        for _ in 0..20 {
            world.transfer(CLIENT, Transfer { up: 1_000_000, down: 100_000, ..BULK });
        }
        // Outages cause probes while streams begin and end.
        for outage in 1..6 {
            let at = |open: u64| millis(outage * 300 + open);
            world.change_at(at(0), Change::PathConfig(Box::new(path.clone().loss("100%"))));
            world.change_at(at(120), Change::PathConfig(Box::new(path.clone())));
        }
        assert!(world.run_to_the_end(seconds(60)), "{:?}", world.lost());
        assert_eq!(world.refused(), 0);
        let trains = world.hosts[CLIENT].trains.take().unwrap();
        assert!(trains.iter().any(|(_, lengths)| lengths.len() > 1), "no batches");
        for (at, lengths) in trains {
            let (last, others) = lengths.split_last().unwrap();
            assert!(others.iter().all(|length| *length == lengths[0]), "{at}: {lengths:?}");
            assert!(*last <= lengths[0], "{at}: {lengths:?}");
        }
    }
}

/// The keys count the bytes in flight, so the engine must pass each packet to them once and in the
/// order of the numbers.
#[test]
fn each_packet_is_encrypted_once_and_numbers_rise() {
    let path = PathConfig::new("50mbit", "20ms", "droptail:50p").loss("2%");
    let mut world = World::new(6, settings("tcpa"), &path);
    let before = world.sealed();
    world.ways[CLIENT].log = Some(Vec::new());
    world.ways[SERVER].log = Some(Vec::new());
    world.transfer(CLIENT, Transfer { up: 4_000_000, down: 4_000_000, ..BULK });
    assert!(world.run_to_the_end(seconds(60)), "{:?}", world.lost());
    let mut packets = 0;
    for way in &mut world.ways {
        let mut numbers = BTreeMap::new();
        for (at, datagram) in way.log.take().unwrap() {
            for found in packet::headers(&datagram, &mut numbers) {
                packets += 1;
                assert!(found.rises, "{at}: {found:?}");
            }
        }
        // The engine skips only a few numbers. It does so to detect peers that acknowledge packets
        // that were never sent.
        let last = numbers[&packet::Space::Application];
        assert!(last > 2500, "{last}");
    }
    assert_eq!(packets, world.sealed() - before);
}

/// Each packet takes 10 to 20 ms in each direction.
#[test]
fn a_reordering_path_is_used_with_few_needless_retransmissions() {
    for congestion in ["tcpa", "bbr"] {
        let path = PathConfig::new("50mbit", "30ms", "droptail:250p").jitter("5ms,uniform,reorder");
        let mut world = World::new(7, settings(congestion), &path);
        world.transfer(CLIENT, BULK);
        world.run_until(seconds(3));
        let link = world.ways[CLIENT].stats().clone();
        let before = world.statistics(CLIENT);
        world.run_until(seconds(10));
        let after = world.statistics(CLIENT);
        let delivered =
            (world.ways[CLIENT].stats().delivered.bytes.count() - link.delivered.bytes.count()) * 8;
        let dropped =
            world.ways[CLIENT].stats().dropped.total().packets - link.dropped.total().packets;
        let sent = (after.packets_sent - before.packets_sent) as f64;
        let needless = (after.packets_lost - before.packets_lost) as f64 - dropped as f64;
        assert!(delivered > 50_000_000 * 7 * 9 / 10, "{congestion}: {delivered}");
        assert!(needless < sent * 0.02, "{congestion}: {needless} of {sent}");
        assert!(after.packets_late > 100, "{congestion}: {}", after.packets_late);
    }
}

/// Streams that are stopped or reset midway leave unread bytes. In the end, all these bytes must
/// count as consumed; otherwise they would use up the connection's credit.
#[test]
fn credit_of_stopped_and_reset_streams_is_returned() {
    let path = PathConfig::new("100mbit", "10ms", "droptail:200p").loss("0.5%");
    let windows = Windows { receive: 256 * 1024, stream: 64 * 1024, send: 512 * 1024 };
    let mut world = World::new(8, settings("tcpa"), &path).with_windows(windows);
    for number in 0..5000_u64 {
        let transfer = Transfer { up: 30_000, down: 3000, ..Transfer::default() };
        let cut = number * 7 % 30_000;
        world.transfer(
            CLIENT,
            match number % 3 {
                0 => Transfer { stop_after: Some(cut), ..transfer },
                1 => Transfer { reset_after: Some(cut), ..transfer },
                _ => transfer,
            },
        );
    }
    assert!(world.run_to_the_end(seconds(300)), "{:?} {:?}", world.lost(), world.progress());
    assert!(world.hosts[SERVER].application.given_up > 1000);
    // Transfer many times the initial credit of the connection.
    let before = world.hosts[SERVER].application.received;
    world.transfer(CLIENT, Transfer { up: 20_000_000, ..Transfer::default() });
    assert!(world.run_to_the_end(seconds(600)), "{:?} {:?}", world.lost(), world.progress());
    assert_eq!(world.hosts[SERVER].application.received - before, 20_000_000);
}

const PACKET: usize = 1472;
