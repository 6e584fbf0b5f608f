//! Compares Reno and DCTCP with numbers computed by hand.

use cc::{Ack, CongestionControl, Dctcp, Loss, Path, Reno};
use units::{Bytes, Span, Time};

const MSS: u64 = 1000;

fn path() -> Path {
    Path {
        mss: Bytes::new(MSS),
        initial_window: Bytes::new(10 * MSS),
        handshake_rtt: Some(Span::from_millis(100)),
        now: Time::ZERO,
        seed: 1,
        memory: None,
        caqm: None,
    }
}

struct Feed {
    delivered: u64,
}

impl Feed {
    /// Acknowledges a window of segments one by one; the first `marked` segments carry a mark.
    fn round(&mut self, algorithm: &mut dyn CongestionControl, marked: u64) {
        let begin = self.delivered;
        let segments = algorithm.cwnd().count() / MSS;
        for index in 0..segments {
            let marked = if index < marked { MSS } else { 0 };
            self.acknowledge(algorithm, begin, MSS, marked);
        }
    }

    /// Acknowledges `bytes` that left when `begin` bytes had been delivered.
    fn acknowledge(
        &mut self,
        algorithm: &mut dyn CongestionControl,
        begin: u64,
        bytes: u64,
        marked: u64,
    ) {
        self.delivered += bytes;
        algorithm.on_ack(&Ack {
            now: Time::from_nanos(self.delivered),
            rtt: Some(Span::from_millis(100)),
            min_rtt: Some(Span::from_millis(100)),
            acked: Bytes::new(bytes),
            lost: Bytes::new(0),
            marked: Bytes::new(marked),
            inflight: algorithm.cwnd(),
            delivered: Bytes::new(self.delivered),
            prior_delivered: Bytes::new(begin),
            sent_inflight: algorithm.cwnd(),
            lost_since: Bytes::new(0),
            interval: Span::from_millis(100),
            app_limited: false,
            window_limited: true,
            in_recovery: false,
        });
    }
}

fn loss(inflight: u64, repeated: bool) -> Loss {
    let (lost, inflight) = (Bytes::new(MSS), Bytes::new(inflight));
    Loss { now: Time::ZERO, lost, inflight, repeated }
}

#[test]
fn reno_doubles_then_adds_a_segment_a_round_and_halves_at_a_loss() {
    let (mut reno, mut feed) = (Reno::new(&path()), Feed { delivered: 0 });
    for expected in [20, 40, 80] {
        feed.round(&mut reno, 0);
        assert_eq!(reno.cwnd().count(), expected * MSS);
    }
    reno.on_loss(&loss(80 * MSS, false));
    reno.on_recovered(Time::ZERO);
    assert_eq!(reno.cwnd().count(), 40 * MSS);
    for expected in 41..45 {
        feed.round(&mut reno, 0);
        assert_eq!(reno.cwnd().count(), expected * MSS);
    }
    // Reno halves in whole segments: half of 44 is 22, half of 23 is 11.
    reno.on_loss(&loss(44 * MSS, false));
    reno.on_recovered(Time::ZERO);
    feed.round(&mut reno, 0);
    reno.on_loss(&loss(23 * MSS, false));
    assert_eq!(reno.ssthresh().count(), 11 * MSS);
}

#[test]
fn reno_repeats_slow_start_up_to_half_the_window_after_a_timeout() {
    let (mut reno, mut feed) = (Reno::new(&path()), Feed { delivered: 0 });
    feed.round(&mut reno, 0);
    reno.on_timeout(&loss(20 * MSS, false));
    assert_eq!((reno.cwnd().count(), reno.ssthresh().count()), (MSS, 10 * MSS));
    // A timeout of a retransmission does not change the threshold (RFC 5681, 3.1).
    reno.on_timeout(&loss(MSS, true));
    assert_eq!(reno.ssthresh().count(), 10 * MSS);
    for expected in [2, 4, 8, 10, 11] {
        feed.round(&mut reno, 0);
        assert_eq!(reno.cwnd().count(), expected * MSS);
    }
    reno.on_loss(&loss(2 * MSS, false));
    assert_eq!(reno.ssthresh().count(), 5 * MSS, "half of the window, whatever is in flight");
    reno.on_undo(Time::ZERO);
    assert_eq!(reno.cwnd().count(), 11 * MSS);
    for _ in 0..4 {
        reno.on_loss(&loss(2 * MSS, false));
        reno.on_recovered(Time::ZERO);
    }
    assert_eq!(reno.ssthresh().count(), 2 * MSS, "never below two segments");
}

/// An ACK of four segments crosses the threshold with its first segment. The other three segments
/// count towards the segment that congestion avoidance adds.
#[test]
fn reno_counts_the_bytes_of_an_ack_beyond_the_threshold() {
    let (mut reno, mut feed) = (Reno::new(&path()), Feed { delivered: 0 });
    feed.round(&mut reno, 0);
    reno.on_timeout(&loss(20 * MSS, false));
    let mut window_after = |segments| {
        feed.acknowledge(&mut reno, 0, segments * MSS, 0);
        reno.cwnd().count() / MSS
    };
    assert_eq!(window_after(8), 9);
    assert_eq!(window_after(4), 10);
    assert_eq!(window_after(6), 10);
    assert_eq!(window_after(1), 11);
    // 16 segments are a window of 11 and 5 further segments, and another 7 segments fill the next
    // window of 12.
    assert_eq!(window_after(16), 12);
    assert_eq!(window_after(6), 12);
    assert_eq!(window_after(1), 13);
}

/// RFC 8257, 3.3: alpha = (1 - g) alpha + g F with g = 1/16.
#[test]
fn dctcp_alpha_moves_by_a_sixteenth_a_round_to_the_marked_share() {
    let (mut dctcp, mut feed) = (Dctcp::new(&path()), Feed { delivered: 0 });
    dctcp.on_loss(&loss(10 * MSS, false));
    dctcp.on_recovered(Time::ZERO);
    assert_eq!(dctcp.alpha(), 1.0);
    feed.round(&mut dctcp, 0);
    let before = dctcp.alpha();
    for _ in 0..16 {
        feed.round(&mut dctcp, 0);
    }
    let forgotten = (15.0_f64 / 16.0).powi(16);
    assert!((dctcp.alpha() / before - forgotten).abs() < 0.001, "{}", dctcp.alpha());
    for _ in 0..400 {
        let marked = dctcp.cwnd().count() / MSS / 4;
        feed.round(&mut dctcp, marked);
    }
    // The path marks every fourth segment, or fewer if the window is not a multiple of four.
    assert!((0.0..0.26).contains(&dctcp.alpha()), "{}", dctcp.alpha());
}

#[test]
fn dctcp_reduces_by_half_of_alpha_once_per_window() {
    let (mut dctcp, mut feed) = (Dctcp::new(&path()), Feed { delivered: 0 });
    feed.round(&mut dctcp, 0);
    let (window, alpha) = (dctcp.cwnd().count() as f64, dctcp.alpha());
    feed.round(&mut dctcp, 20);
    // The previous round had no marks, and the round after the reduction adds a segment.
    let expected = window * (1.0 - alpha * 15.0 / 16.0 / 2.0) + MSS as f64;
    let measured = dctcp.cwnd().count() as f64;
    assert!((measured - expected).abs() <= 0.02 * expected, "{measured}, not {expected}");
}
