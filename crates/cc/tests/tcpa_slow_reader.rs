//! Runs a tcpa flow to a receiver whose application reads slowly, on a path of a few microseconds.

use cc::{Ack, CongestionControl, Path, Tcpa};
use units::{Bytes, Span, Time};

const MSS: u64 = 1448;
const RTT_US: u64 = 5;

/// A path on which one ACK acknowledges a whole window, as between two network namespaces.
struct Veth {
    tcpa: Tcpa,
    now: Time,
    delivered: u64,
}

impl Veth {
    fn new() -> Self {
        let now = Time::from_nanos(1_000_000_000);
        let tcpa = Tcpa::new(&Path {
            mss: Bytes::new(MSS),
            initial_window: Bytes::new(10 * MSS),
            handshake_rtt: Some(Span::from_micros(RTT_US)),
            now,
            seed: 1,
            memory: None,
            caqm: None,
        });
        Self { tcpa, now, delivered: 0 }
    }

    fn send_window(&mut self, rtt_us: u64) {
        let (rtt, before, window) = (Span::from_micros(rtt_us), self.delivered, self.tcpa.cwnd());
        self.now += rtt;
        self.delivered += window.count();
        self.tcpa.on_ack(&Ack {
            now: self.now,
            rtt: Some(rtt),
            min_rtt: Some(Span::from_micros(RTT_US)),
            acked: window,
            lost: Bytes::new(0),
            marked: Bytes::new(0),
            inflight: Bytes::new(0),
            delivered: Bytes::new(self.delivered),
            prior_delivered: Bytes::new(before),
            sent_inflight: window,
            lost_since: Bytes::new(0),
            interval: rtt,
            app_limited: false,
            window_limited: true,
            in_recovery: false,
        });
    }

    /// Returns the time in which the pacing rate sends a window. A host that sends a window at once
    /// is then silent for this time.
    fn window_us(&self) -> u64 {
        let pace = self.tcpa.pacing_rate().expect("tcpa paces");
        pace.time_for(self.tcpa.cwnd()).nanos() / 1000
    }
}

/// Linux delays its ACKs by up to 40 ms while the application reads too slowly for the receive
/// window to grow. Two delayed ACKs look like a slump (a sudden fall of the rate) to tcpa, even if
/// the window grew in haste between them.
#[test]
fn a_slow_reader_does_not_silence_the_sender() {
    for fast in 3..40 {
        let mut veth = Veth::new();
        // Start-up ends at 10 Gbit/s; after that the path carries any rate.
        for _ in 0..20 {
            veth.send_window((veth.tcpa.cwnd().count() * 8 / 10_000).max(RTT_US));
        }
        for delay_us in [10_000, 20_000, 40_000] {
            for _ in 0..fast {
                veth.send_window(RTT_US);
            }
            veth.send_window(delay_us);
            let silent_us = veth.window_us();
            assert!(
                silent_us <= delay_us,
                "silent for {silent_us} us after {fast} windows and an ACK after {delay_us} us"
            );
        }
    }
}
