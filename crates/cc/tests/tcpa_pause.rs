//! Runs a tcpa flow beside another flow, whose queue holds many times as much as the path.

mod pipe;

use cc::{Ack, Algorithm, CongestionControl, Path, Tcpa};
use pipe::Pipe;
use units::{Bytes, Rate, Share, Span, Time};

const MSS: u64 = 1448;
const PATH: Span = Span::from_millis(20);
const QUEUE: Span = Span::from_millis(280);

/// The window in bytes at which the test reports an overflow of the queue.
const MOST: u64 = 700 * MSS;

/// A path on which one ACK acknowledges a whole window. Each ACK ends a round, so each pause begins
/// with an ACK that ends a round. The other flow comes after two seconds.
struct Shared {
    tcpa: Tcpa,
    now: Time,
    delivered: u64,
}

impl Shared {
    const BEGINS: Time = Time::from_nanos(1_000_000_000);

    fn new() -> Self {
        let tcpa = Tcpa::new(&Path {
            mss: Bytes::new(MSS),
            initial_window: Bytes::new(10 * MSS),
            handshake_rtt: Some(PATH),
            now: Self::BEGINS,
            seed: 1,
            memory: None,
            caqm: None,
        });
        Self { tcpa, now: Self::BEGINS, delivered: 0 }
    }

    /// Sends a window, and returns the windows before and after its ACK.
    fn send_window(&mut self) -> (u64, u64) {
        let (before, window) = (self.delivered, self.tcpa.cwnd());
        let is_shared = self.now.since(Self::BEGINS) > Span::from_secs(2);
        // 100 Mbit/s
        let own = Span::from_nanos(window.count() * 80);
        let rtt = own.max(if is_shared { PATH + QUEUE } else { PATH });
        let lost = if is_shared && window.count() > MOST { window.count() / 16 } else { 0 };
        self.now += rtt;
        self.delivered += window.count();
        self.tcpa.on_ack(&Ack {
            now: self.now,
            rtt: Some(rtt),
            min_rtt: Some(PATH),
            acked: window,
            lost: Bytes::new(lost),
            marked: Bytes::new(0),
            inflight: Bytes::new(0),
            delivered: Bytes::new(self.delivered),
            prior_delivered: Bytes::new(before),
            sent_inflight: window,
            lost_since: Bytes::new(lost),
            interval: rtt,
            app_limited: false,
            window_limited: true,
            in_recovery: false,
        });
        (window.count(), self.tcpa.cwnd().count())
    }
}

/// In a pause the flow keeps half of its window, because the other flow takes the rest of the
/// queue.
#[test]
fn a_pause_in_a_deep_queue_keeps_half_of_the_window() {
    let mut path = Shared::new();
    let mut pauses = 0;
    while path.now.since(Shared::BEGINS) < Span::from_secs(60) {
        let (before, after) = path.send_window();
        // After six seconds, the flow has detected the other flow.
        let is_known = path.now.since(Shared::BEGINS) > Span::from_secs(6);
        if is_known && after < before * 6 / 10 {
            pauses += 1;
            assert!(after > before * 4 / 10, "{before} to {after} bytes at {:?}", path.now);
        }
    }
    assert!(pauses >= 3, "{pauses} pauses");
}

/// The path carries 100 Mbit/s, and no other flow comes in the first two seconds.
#[test]
fn the_next_connection_learns_the_rate_and_the_round_trip_of_the_path() {
    let mut path = Shared::new();
    assert_eq!(path.tcpa.note(), None, "before the first round");
    while path.now.since(Shared::BEGINS) < Span::from_millis(1900) {
        path.send_window();
    }
    let noted = path.tcpa.note().expect("a full path");
    assert_eq!((noted.min_rtt, noted.age), (PATH, Span::ZERO));
    assert!((90.0..101.0).contains(&noted.rate.mbit_per_second()), "{}", noted.rate);
}

/// The path loses one packet in fifty, and has no queue that could drop packets.
#[test]
fn the_loss_of_the_path_itself_is_reported() {
    let mut pipe = Pipe::new(Algorithm::Tcpa, Rate::from_mbit(100), Span::from_millis(40));
    assert_eq!(pipe.algorithm.path_loss(), Some(Share::ZERO));
    pipe.lose_every = Some(50);
    pipe.run(Span::from_secs(10), |_| {});
    let loss = pipe.algorithm.path_loss().map_or(0.0, Share::fraction);
    assert!((0.01..0.04).contains(&loss), "{loss}");
    let rate = pipe.delivered() as f64 * 8.0 / 10.0 / 1e6;
    assert!(rate > 60.0 && pipe.pacing() > 60.0, "{rate} Mbit/s");
}
