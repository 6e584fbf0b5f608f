//! A generator with one CPU, whose sending thread also receives.
#![allow(clippy::unwrap_used)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use generator::run::{self, Job, Lane, Outcome, Pace, Snapshot};
use generator::{Capture, LaneAddresses, Plan, PlanOptions, Profile};
use port::{Frame, Port, PortCounters, PortError, SendReport};
use units::{Bytes, Span, Time};

const ADDRESSES: LaneAddresses =
    LaneAddresses { source: [2, 0, 0, 0, 0, 1], destination: [2, 0, 0, 0, 0, 2], vlan: None };

fn run_on_one_cpu(
    mut lanes: Vec<Lane>,
    rate: f64,
    duration: Span,
    watch: impl Fn(&Snapshot, &AtomicBool) + Send + Sync,
) -> Outcome {
    let text = format!(
        "- duration : 1\n  generator :\n    distribution : seq\n    clients_start : 16.0.0.1\n    \
         clients_end : 16.0.0.9\n    servers_start : 48.0.0.1\n    servers_end : 48.0.0.9\n    \
         dual_port_mask : 1.0.0.0\n  cap_info :\n   - name : cap2/udp_64B.pcap\n     cps : {rate}\n     \
         ipg : 1000\n     rtt : 5000\n     w : 1\n"
    );
    let profile = Profile::parse("p.yaml", &text).unwrap();
    let captures = [Capture::built_in("cap2/udp_64B.pcap").unwrap()];
    let options = PlanOptions::default();
    let plan = Arc::new(Plan::new(&profile, &captures, &[ADDRESSES; 2], options).unwrap());
    let job = Job {
        plan,
        multiplier: 1.0,
        duration,
        threads: 1,
        pace: Pace::Complete { at_most: duration * 400 },
        drain: Span::from_millis(100),
        probes: Vec::new(),
        first_stream: 0,
        late_after: None,
        real_time: false,
    };
    let pinned = move || {
        host::pin_to(&host::online_cpus()[..1]).unwrap();
        assert_eq!(host::online_cpus().len(), 1);
        let cancel = AtomicBool::new(false);
        run::run(&mut lanes, &job, &cancel, |now| watch(now, &cancel)).unwrap()
    };
    std::thread::scope(|scope| scope.spawn(pinned).join().unwrap())
}

#[test]
fn every_packet_that_leaves_one_port_arrives_at_the_other() {
    let (left, right) = port::pair().unwrap();
    let lanes = vec![
        Lane::over("left", Box::new(left), ADDRESSES),
        Lane::over("right", Box::new(right), ADDRESSES),
    ];
    let outcome = run_on_one_cpu(lanes, 20_000.0, Span::from_millis(500), |_, _| {});
    assert_eq!(outcome.error, None);
    assert_eq!((outcome.sent(), outcome.received()), (10_000, 10_000));
    assert_eq!(outcome.lanes[1].received, 10_000, "{:?}", outcome.lanes);
    assert!(!outcome.cancelled);
}

#[test]
fn a_cancelled_run_ends_despite_a_port_that_floods() {
    let lanes = vec![
        Lane::over("left", Box::new(Flood), ADDRESSES),
        Lane::over("right", Box::new(Flood), ADDRESSES),
    ];
    let hour = Span::from_secs(3600);
    let outcome = run_on_one_cpu(lanes, 0.01, hour, |now, cancel| {
        let received: u64 = now.lanes.iter().map(|lane| lane.received).sum();
        cancel.store(received > 0, Ordering::Relaxed);
    });
    assert!(outcome.cancelled && outcome.received() > 0 && outcome.actual < hour);
}

#[test]
fn a_run_continues_and_reports_a_port_that_fails() {
    let (left, right) = port::pair().unwrap();
    let lanes = vec![
        Lane::over("left", Box::new(left), ADDRESSES),
        Lane::over("right", Box::new(Deaf(Box::new(right))), ADDRESSES),
    ];
    let outcome = run_on_one_cpu(lanes, 20_000.0, Span::from_millis(200), |_, _| {});
    assert_eq!((outcome.sent(), outcome.received()), (4_000, 0));
    assert!(outcome.error.unwrap().contains("receiving"));
}

/// A run begins only after the generator has emptied its ports. If a packet left before, the gaps
/// between the first packets would be wrong.
#[test]
fn the_first_packet_leaves_after_the_ports_were_emptied() {
    let times = Times::default();
    let lane = |name| Lane::over(name, Box::new(Watched(Arc::clone(&times))), ADDRESSES);
    run_on_one_cpu(vec![lane("left"), lane("right")], 100.0, Span::from_millis(50), |_, _| {});
    let [emptied, sent] = *times.lock().unwrap();
    assert!(sent.unwrap().duration_since(emptied.unwrap()) >= Duration::from_millis(10));
}

/// The time of the first call that receives, and the time of the first call that sends.
type Times = Arc<Mutex<[Option<Instant>; 2]>>;

#[derive(Debug)]
struct Watched(Times);

impl Port for Watched {
    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> Result<usize, PortError> {
        self.0.lock().unwrap()[0].get_or_insert_with(Instant::now);
        Ok(0)
    }

    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        self.0.lock().unwrap()[1].get_or_insert_with(Instant::now);
        Ok(SendReport { sent: frames.len(), ..SendReport::default() })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn mtu(&self) -> Bytes {
        Bytes::new(1500)
    }

    fn counters(&mut self) -> PortCounters {
        PortCounters::default()
    }

    fn describe(&self) -> String {
        "a watched port".to_owned()
    }
}

#[derive(Debug)]
struct Flood;

impl Port for Flood {
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        // The frame carries an IPv4 packet of an unassigned protocol.
        let mut bytes = [0; 60];
        bytes[..15].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45]);
        (bytes[17], bytes[23]) = (20, 253);
        batch.extend((0..limit).map(|_| Frame::from_bytes(&bytes, Time::ZERO)));
        Ok(limit)
    }

    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        Ok(SendReport { sent: frames.len(), ..SendReport::default() })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn mtu(&self) -> Bytes {
        Bytes::new(1500)
    }

    fn counters(&mut self) -> PortCounters {
        PortCounters::default()
    }

    fn describe(&self) -> String {
        "a flood".to_owned()
    }
}

/// A port that fails to receive once a run has begun.
#[derive(Debug)]
struct Deaf(Box<dyn Port>);

impl Port for Deaf {
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        let before = batch.len();
        let count = self.0.receive(batch, limit)?;
        if count == 0 {
            return Ok(0);
        }
        batch.truncate(before);
        let source = std::io::ErrorKind::BrokenPipe.into();
        Err(PortError::Io { doing: "receiving".to_owned(), source })
    }

    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        self.0.send(frames)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd()
    }

    fn mtu(&self) -> Bytes {
        self.0.mtu()
    }

    fn counters(&mut self) -> PortCounters {
        self.0.counters()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}
