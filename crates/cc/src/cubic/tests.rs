use super::*;
use crate::tests::{LOSS, MSS, ack, path};

fn at_window(mut cubic: Cubic, window: f64) -> Cubic {
    cubic.cwnd = window;
    cubic.on_loss(&LOSS);
    cubic.on_recovered(Time::ZERO);
    cubic
}

/// Acknowledges a window each round trip, at even intervals, for `span`.
fn live(cubic: &mut Cubic, from: Time, span: Span, rtt: Span) -> Time {
    let (mut now, end) = (from, from + span);
    while now < end {
        now += Span::from_secs_f64(rtt.secs_f64() / cubic.cwnd);
        cubic.on_ack(&ack(now, rtt));
    }
    now
}

/// The window falls from 100 segments to 70, and returns to 100 after K = cbrt(30 / 0.4) = 4.217 s
/// (RFC 9438, 4.2).
#[test]
fn cubic_returns_to_its_plateau_after_k() {
    let rtt = Span::from_millis(200);
    for make in [Cubic::new as fn(&Path) -> Cubic, Cubic::rfc9438] {
        let mut cubic = at_window(make(&path(rtt)), 100.0);
        assert_eq!((cubic.cwnd, cubic.w_max), (70.0, 100.0));
        assert!((time_to_plateau(100.0, 70.0) - 4.217).abs() < 0.001);
        let now = live(&mut cubic, Time::ZERO, Span::from_millis(2100), rtt);
        // After half of K, the window has regained 7/8 of the reduction.
        assert!((cubic.cwnd - 96.2).abs() < 1.5, "{}", cubic.cwnd);
        let now = live(&mut cubic, now, Span::from_millis(2117), rtt);
        assert!((cubic.cwnd - 100.0).abs() < 1.0, "{}", cubic.cwnd);
        // The window leaves the plateau along the same curve: 0.4 · 3³ segments in 3 s.
        live(&mut cubic, now, Span::from_secs(3), rtt);
        assert!((cubic.cwnd - 110.8).abs() < 2.5, "{}", cubic.cwnd);
    }
}

/// RFC 9438, 4.3: on a short path the window is W_est, which grows by 0.529 segments a round trip.
#[test]
fn cubic_grows_like_reno_where_reno_is_faster() {
    let rtt = Span::from_millis(10);
    let mut cubic = at_window(Cubic::rfc9438(&path(rtt)), 40.0);
    let now = live(&mut cubic, Time::ZERO, Span::from_millis(150), rtt);
    assert!((cubic.cwnd - (28.0 + 15.0 * ALPHA)).abs() < 0.6, "{}", cubic.cwnd);
    // Above the window before the loss, the window grows by a whole segment a round trip.
    let now = live(&mut cubic, now, Span::from_millis(100), rtt);
    let before = cubic.cwnd;
    live(&mut cubic, now, Span::from_millis(100), rtt);
    assert!((cubic.cwnd - before - 10.0).abs() < 1.0, "{before} {}", cubic.cwnd);
    // Linux continues at 8/15 of a segment, one round trip late.
    let mut linux = at_window(Cubic::new(&path(rtt)), 40.0);
    live(&mut linux, Time::ZERO, Span::from_millis(600), rtt);
    let grown = linux.cwnd - 28.0;
    assert!((24.0..33.0).contains(&grown), "{grown} of 32");
}

/// Fast convergence (RFC 9438, 4.7).
#[test]
fn a_flow_whose_window_shrank_since_its_last_loss_lowers_its_plateau() {
    let cubic = at_window(Cubic::rfc9438(&path(Span::from_millis(50))), 100.0);
    let cubic = at_window(cubic, 70.0);
    assert_eq!(cubic.w_max, 59.5);
    assert_eq!(cubic.cwnd, 49.0);
}

#[test]
fn linux_cubic_grows_by_whole_segments() {
    let cubic = at_window(Cubic::new(&path(Span::from_millis(50))), 5.0);
    assert_eq!(cubic.cwnd, 3.0);
    let cubic = at_window(cubic, 2.0);
    assert_eq!(cubic.cwnd, 2.0);
}

/// The first `price` lets the window grow by a segment a round trip, because Linux truncates the
/// distance from the plateau to whole segments. This price holds for a jiffy, which is four round
/// trips. The next price holds for 32 ms.
#[test]
fn linux_recomputes_the_price_32_times_a_second() {
    let rtt = Span::from_millis(1);
    let mut cubic = at_window(Cubic::new(&path(rtt)), 40.0);
    let now = live(&mut cubic, Time::ZERO, Span::from_millis(4), rtt);
    assert!((31.0..=32.0).contains(&cubic.cwnd), "{}", cubic.cwnd);
    let before = cubic.cwnd;
    let now = live(&mut cubic, now, Span::from_millis(26), rtt);
    assert!(cubic.cwnd <= before + 1.0, "{before} {}", cubic.cwnd);
    live(&mut cubic, now, Span::from_millis(40), rtt);
    assert!(cubic.cwnd > 35.0, "{}", cubic.cwnd);
}

#[test]
fn a_timeout_resets_cubic() {
    let mut cubic = at_window(Cubic::new(&path(Span::from_millis(50))), 100.0);
    cubic.on_timeout(&LOSS);
    assert_eq!((cubic.cwnd, cubic.ssthresh, cubic.w_max), (1.0, 49.0, 0.0));
    cubic.on_undo(Time::ZERO);
    // An undo restores the window but not W_max.
    assert_eq!((cubic.cwnd, cubic.ssthresh, cubic.w_max), (70.0, 70.0, 0.0));
}

#[test]
fn the_factor_of_a_reduction_can_be_chosen() {
    let made = Cubic::new(&path(Span::from_millis(50)));
    assert_eq!(at_window(made.clone(), 100.0).ssthresh(), Bytes::new(70 * MSS));
    assert_eq!(at_window(made.with_beta(0.5), 100.0).ssthresh(), Bytes::new(50 * MSS));
}

/// The threshold of slow start is 10 segments.
#[test]
fn slow_start_ends_at_the_threshold_within_an_ack() {
    let rtt = Span::from_millis(50);
    let mut cubic = at_window(Cubic::new(&path(rtt)), 15.0);
    assert_eq!(cubic.ssthresh, 10.0);
    cubic.cwnd = 8.0;
    let ack = |segments| Ack { acked: Bytes::new(segments * MSS), ..ack(Time::ZERO + rtt, rtt) };
    cubic.on_ack(&ack(1));
    assert_eq!(cubic.cwnd, 9.0);
    cubic.on_ack(&ack(4));
    assert!((10.0..=11.0).contains(&cubic.cwnd), "{}", cubic.cwnd);
}
