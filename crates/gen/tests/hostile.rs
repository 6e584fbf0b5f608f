//! Misbehaving devices: the generator must count every frame, and every run must end.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use generator::ndr::{PortTester, Tester};
use generator::run::{self, Job, Lane, Outcome, Pace};
use generator::{Capture, Frequency, LaneAddresses, Plan, PlanOptions, Profile, neighbour};
use port::{Frame, Port, PortCounters, PortError, SendReport};
use units::{Bytes, Span, Time};

const ADDRESSES: LaneAddresses =
    LaneAddresses { source: [2, 0, 0, 0, 0, 1], destination: [2, 0, 0, 0, 0, 2], vlan: None };
const OWN: &str = "192.168.10.2";
const SENT: u64 = 2_000;

/// Returns the frames with which a device responds to packet `number`. A frame with `true` goes
/// back to the port that sent the packet.
type Mood = fn(number: u64, frame: &[u8]) -> Vec<(bool, Vec<u8>)>;

#[derive(Debug)]
struct Device {
    name: &'static str,
    mood: Mood,
    seen: u64,
    own: Queue,
    peer: Queue,
    /// The number of received frames after which the port sends no ARP reply.
    mute_after: u64,
    /// The number of received frames after which the port takes no more packets.
    full_after: u64,
    /// The port has no peer, and refuses every packet.
    is_alone: bool,
    /// The port fails after the generator has received this number of frames from it.
    dies_after: u64,
    received: u64,
}

type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

impl Port for Device {
    fn receive(&mut self, batch: &mut Vec<Frame>, limit: usize) -> Result<usize, PortError> {
        let mut queue = self.own.lock().unwrap();
        let left = (self.dies_after - self.received).min(limit as u64) as usize;
        let count = queue.len().min(left);
        batch.extend(queue.drain(..count).map(|bytes| Frame::from_bytes(&bytes, now())));
        self.received += count as u64;
        if self.received == self.dies_after {
            return Err(gone("receiving"));
        }
        Ok(count)
    }

    fn send(&mut self, frames: &[Frame]) -> Result<SendReport, PortError> {
        if self.is_alone {
            return Ok(SendReport { sent: 0, dropped: frames.len() });
        }
        for frame in frames {
            if is_arp(frame.bytes()) && self.seen >= self.mute_after {
                return Err(gone("answering"));
            }
            if self.seen >= self.full_after {
                return Err(gone("sending"));
            }
            for (is_back, bytes) in (self.mood)(self.seen, frame.bytes()) {
                let queue = if is_back { &self.own } else { &self.peer };
                queue.lock().unwrap().push_back(bytes);
            }
            self.seen += 1;
        }
        Ok(SendReport { sent: frames.len(), dropped: 0 })
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
        self.name.to_owned()
    }
}

fn gone(doing: &str) -> PortError {
    PortError::Io { doing: doing.to_owned(), source: std::io::ErrorKind::BrokenPipe.into() }
}

fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn is_arp(frame: &[u8]) -> bool {
    frame.len() >= 42 && neighbour::is_arp(frame)
}

/// Creates the generator's ports, connected to the device.
fn lanes(mood: Mood, change: impl Fn(&mut Device)) -> Vec<Lane> {
    let queues: [Queue; 2] = [Queue::default(), Queue::default()];
    let port = |number: usize| {
        let [own, peer] = [number, number ^ 1].map(|number| Arc::clone(&queues[number]));
        let mut device = Device {
            name: ["left", "right"][number],
            mood,
            seen: 0,
            own,
            peer,
            mute_after: u64::MAX,
            full_after: u64::MAX,
            is_alone: false,
            dies_after: u64::MAX,
            received: 0,
        };
        let name = device.name;
        change(&mut device);
        Lane::over(name, Box::new(device), ADDRESSES).answering(OWN.parse().unwrap())
    };
    vec![port(0), port(1)]
}

/// Returns a plan of 10,000 stamped packets per second, which leave by the first port.
fn plan() -> Arc<Plan> {
    let text = "- duration : 1\n  generator :\n    distribution : seq\n    clients_start : 16.0.0.1\n    \
         clients_end : 16.0.0.9\n    servers_start : 48.0.0.1\n    servers_end : 48.0.0.9\n    \
         dual_port_mask : 1.0.0.0\n  cap_info :\n   - name : cap2/udp_64B.pcap\n     cps : 10000\n     \
         ipg : 1000\n     rtt : 5000\n     w : 1\n";
    let profile = Profile::parse("p.yaml", text).unwrap();
    let captures = [Capture::built_in("cap2/udp_64B.pcap").unwrap()];
    let options = PlanOptions { stamped: true, ..PlanOptions::default() };
    Arc::new(Plan::new(&profile, &captures, &[ADDRESSES; 2], options).unwrap())
}

fn run(mood: Mood, change: impl Fn(&mut Device)) -> Outcome {
    let job = Job {
        plan: plan(),
        multiplier: 1.0,
        duration: Span::from_millis(200),
        threads: 1,
        pace: Pace::Complete { at_most: Span::from_secs(20) },
        drain: Span::from_millis(50),
        probes: Vec::new(),
        first_stream: 3,
        late_after: None,
        real_time: false,
    };
    run::run(&mut lanes(mood, change), &job, &AtomicBool::new(false), |_| {}).unwrap()
}

fn unique(outcome: &Outcome) -> u64 {
    outcome.streams.iter().map(|stream| stream.unique()).sum()
}

fn whole(_: u64, frame: &[u8]) -> Vec<(bool, Vec<u8>)> {
    vec![(false, frame.to_vec())]
}

/// Sends an ARP request for the port's own address before every hundredth packet.
fn asks(number: u64, frame: &[u8]) -> Vec<(bool, Vec<u8>)> {
    if is_arp(frame) {
        return Vec::new();
    }
    let question = || {
        let asker = "192.168.10.1".parse().unwrap();
        neighbour::request([2, 0, 0, 0, 0, 9], asker, OWN.parse().unwrap()).unwrap()
    };
    let mut out: Vec<_> =
        number.is_multiple_of(100).then(|| (false, question())).into_iter().collect();
    out.extend(whole(number, frame));
    out
}

#[test]
fn arp_requests_get_replies_during_a_run() {
    let outcome = run(asks, |_| {});
    assert_eq!(outcome.error, None);
    assert_eq!((unique(&outcome), outcome.received()), (SENT, SENT));
    let lane = &outcome.lanes[1];
    assert_eq!((lane.arp_received, lane.arp_sent, lane.housekeeping), (20, 20, 20));
}

/// If the port cannot send an ARP reply, the generator must still count the other packets in the
/// batch and all later packets.
#[test]
fn a_port_that_cannot_send_an_arp_reply_still_counts_packets() {
    let outcome = run(asks, |device| device.mute_after = 0);
    assert!(outcome.error.as_ref().is_some_and(|error| error.contains("answering")));
    assert_eq!((unique(&outcome), outcome.received()), (SENT, SENT));
    assert_eq!((outcome.lanes[1].arp_received, outcome.lanes[1].arp_sent), (20, 0));
}

#[test]
fn packets_that_arrived_before_a_port_failed_are_counted() {
    for dies_after in [1, 777, SENT] {
        let outcome = run(whole, |device| {
            device.dies_after = if device.name == "right" { dies_after } else { u64::MAX };
        });
        assert!(outcome.error.as_ref().is_some_and(|error| error.contains("receiving")));
        assert_eq!((unique(&outcome), outcome.received()), (dies_after, dies_after));
    }
}

/// The run ends with the reason, and every packet counts either as sent or as a send error.
#[test]
fn packets_that_a_failed_port_did_not_take_are_send_errors() {
    let outcome = run(whole, |device| device.full_after = 500);
    assert!(outcome.error.as_ref().is_some_and(|error| error.contains("sending")));
    let planned: u64 = outcome.streams.iter().map(|stream| stream.sent).sum();
    assert!(outcome.lanes[0].send_errors > 0);
    assert_eq!(outcome.sent() + outcome.lanes[0].send_errors, planned);
    assert!(outcome.sent() <= 500 && unique(&outcome) <= 500);
}

/// The reason for an invalid trial must be the port, and not a slow generator.
#[test]
fn a_port_without_a_peer_is_not_reported_as_a_slow_generator() {
    let mut lanes = lanes(whole, |device| device.is_alone = true);
    let mut tester = PortTester::new(&mut lanes, plan(), 1, Arc::default());
    tester.real_time = false;
    // On a busy machine, the generator may send too few packets, which is also a valid reason.
    let mut reasons = (0..10).map(|_| {
        let load = Frequency::per_second(2_000.0);
        let trial = tester.trial(load, Span::from_millis(100)).unwrap();
        trial.invalid.unwrap().to_string()
    });
    assert!(reasons.any(|reason| reason.starts_with("the ports refused")));
}

#[test]
fn loss_is_counted_despite_a_flood_of_duplicates() {
    // The device loses every second packet and sends each other packet 60 times to both ports.
    let outcome = run(
        |number, frame| match number % 2 {
            0 => (0..120).map(|copy| (copy % 2 == 0, frame.to_vec())).collect(),
            _ => Vec::new(),
        },
        |_| {},
    );
    assert_eq!((outcome.sent(), unique(&outcome)), (SENT, SENT / 2));
    assert_eq!(outcome.received(), SENT / 2 * 120);
    let duplicates: u64 = outcome.streams.iter().map(|stream| stream.duplicates).sum();
    assert_eq!(duplicates, SENT / 2 * 59);
    let returned: u64 = outcome.streams.iter().map(|stream| stream.returned).sum();
    assert_eq!(returned, SENT / 2 * 60);
    assert_eq!((outcome.lanes[0].received, outcome.lanes[1].received), (60_000, 60_000));
}

/// A device that sends packets back to the port from which they came does not forward the packets.
/// A looped cable or a wrong forwarding rule must not look like a device without loss.
#[test]
fn packets_that_come_back_at_their_own_port_are_lost() {
    let back: Mood = |_, frame| vec![(true, frame.to_vec())];
    let outcome = run(back, |_| {});
    assert_eq!((outcome.sent(), outcome.received(), unique(&outcome)), (SENT, SENT, 0));
    let mut lanes = lanes(back, |_| {});
    let mut tester = PortTester::new(&mut lanes, plan(), 1, Arc::default());
    tester.real_time = false;
    let trial = tester.trial(Frequency::per_second(2_000.0), Span::from_millis(100)).unwrap();
    assert_eq!((trial.received, trial.foreign), (0, 0));
    assert_eq!((trial.returned, trial.loss()), (trial.sent, 1.0));
}

/// The device sends invalid frames of every kind between the packets. The generator must count
/// these frames separately and find all packets.
#[test]
fn invalid_frames_are_counted_and_hide_no_packet() {
    let outcome = run(
        |number, frame| {
            let mut out = whole(number, frame);
            if is_arp(frame) {
                return Vec::new();
            }
            let mut lie = frame.to_vec();
            match number % 8 {
                // The frame is shorter than a MAC header, or than another header.
                0 => lie.truncate((number / 8 % 50) as usize),
                // The IPv4 header is longer than the frame. The next cases have wrong lengths of
                // the IP packet.
                1 => lie[14] = 0x4f,
                2 => lie[16..18].copy_from_slice(&[0xff, 0xff]),
                3 => lie[16..18].copy_from_slice(&[0, 21]),
                // The length field of UDP is wrong.
                4 => lie[38..40].copy_from_slice(&[0xff, 0xff]),
                // The ARP packet has wrong address lengths, or ends early.
                5 => {
                    lie[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 0xff, 0xff, 0, 1]);
                    lie.truncate(22 + (number / 8 % 20) as usize);
                }
                // VLAN tags fill the frame up to its end.
                6 => lie[12..].chunks_mut(4).for_each(|tag| {
                    tag.copy_from_slice(&[0x81, 0, 0, 0][..tag.len()]);
                }),
                _ => lie.iter_mut().enumerate().for_each(|(at, byte)| {
                    *byte = (number as usize * 31 + at * 17) as u8 & !1;
                }),
            }
            out.push((number.is_multiple_of(3), lie));
            out
        },
        |_| {},
    );
    assert_eq!(outcome.error, None);
    assert_eq!(unique(&outcome), SENT);
    let all: u64 = outcome.lanes.iter().map(|lane| lane.received + lane.housekeeping).sum();
    assert_eq!(all, 2 * SENT, "{:?}", outcome.lanes);
    assert_eq!(outcome.lanes.iter().map(|lane| lane.arp_sent).sum::<u64>(), 0);
}
