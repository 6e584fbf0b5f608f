//! Compares BBR version 3 with the numbers of its draft on a path of 100 Mbit/s and 40 ms.

mod pipe;

use cc::Algorithm;
use pipe::{MSS, Pipe};
use units::{Rate, Span};

fn bbr3() -> Pipe {
    Pipe::new(Algorithm::Bbr3, Rate::from_mbit(100), Span::from_millis(40))
}

/// Returns the times of the UP phases, in which the pacing rate exceeds the model.
fn probes(pipe: &mut Pipe, span: Span) -> Vec<f64> {
    let mut found: Vec<f64> = Vec::new();
    let mut up = false;
    pipe.run(span, |pipe| {
        let above = pipe.pacing() > 115.0;
        if above && !up {
            found.push(pipe.now.nanos() as f64 / 1e9);
        }
        up = above;
    });
    found
}

#[test]
fn bbr3_start_up_ends_and_the_pipe_stays_full() {
    let mut pipe = bbr3();
    pipe.run(Span::from_secs(2), |_| {});
    assert!(!pipe.algorithm.in_slow_start());
    let before = pipe.delivered();
    pipe.run(Span::from_secs(4), |_| {});
    let rate = (pipe.delivered() - before) as f64 * 8.0 / 4.0 / 1e6;
    assert!(rate > 95.0, "{rate} Mbit/s");
}

/// Probes are two to three seconds apart, but at most 63 round trips: 2.52 s on this path.
#[test]
fn probes_wait_two_to_three_seconds_and_63_rounds_at_most() {
    let mut pipe = bbr3();
    pipe.run(Span::from_secs(2), |_| {});
    let found = probes(&mut pipe, Span::from_secs(30));
    assert!(found.len() >= 6, "{found:?}");
    let gaps: Vec<f64> = found.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // ProbeRTT restarts the wait every five seconds.
    assert!(gaps.iter().all(|gap| (1.9..6.0).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap < 3.1), "{gaps:?}");
}

#[test]
fn probe_rtt_runs_every_five_seconds_at_half_the_window() {
    let mut pipe = bbr3();
    pipe.run(Span::from_secs(2), |_| {});
    let mut low: Vec<f64> = Vec::new();
    pipe.run(Span::from_secs(20), |pipe| {
        let cwnd = pipe.algorithm.cwnd().count();
        assert!(cwnd > 4 * MSS);
        // Half a pipe is 250 KB.
        if (230_000..262_000).contains(&cwnd) {
            low.push(pipe.now.nanos() as f64 / 1e9);
        }
    });
    let mut visits: Vec<(f64, f64)> = Vec::new();
    for at in low {
        match visits.last_mut() {
            Some(last) if at - last.1 < 1.0 => last.1 = at,
            _ => visits.push((at, at)),
        }
    }
    assert!((3..=4).contains(&visits.len()), "{visits:?}");
    for pair in visits.windows(2) {
        assert!((4.5..6.0).contains(&(pair[1].0 - pair[0].0)), "{visits:?}");
    }
}

/// A loss of more than 2 % while probing bounds the flight, and BBR leaves 15 % of the bound to
/// other flows.
#[test]
fn loss_above_the_threshold_bounds_the_data_in_flight() {
    let mut clean = bbr3();
    clean.run(Span::from_secs(4), |_| {});
    let mut lossy = bbr3();
    lossy.run(Span::from_secs(2), |_| {});
    lossy.lose_every = Some(20);
    lossy.run(Span::from_secs(4), |_| {});
    let (free, bound) = (clean.algorithm.cwnd().count(), lossy.algorithm.cwnd().count());
    assert!(bound * 10 < free * 7, "{bound} of {free}");
    // Loss below the threshold sets no bound.
    let mut little = bbr3();
    little.run(Span::from_secs(2), |_| {});
    let before = little.delivered();
    little.lose_every = Some(200);
    little.run(Span::from_secs(10), |_| {});
    let rate = (little.delivered() - before) as f64 * 8.0 / 10.0 / 1e6;
    assert!(rate > 75.0, "{rate} Mbit/s");
}

/// A single loss is more than 2 % of the few bytes in flight during ProbeRTT, but does not show
/// that the UP phase before ProbeRTT sent too much.
#[test]
fn losses_between_probes_set_no_bound() {
    let mut pipe = bbr3();
    pipe.run(Span::from_secs(2), |_| {});
    pipe.lose_every = Some(100);
    pipe.run(Span::from_secs(10), |_| {});
    let before = pipe.delivered();
    pipe.run(Span::from_secs(10), |_| {});
    let rate = (pipe.delivered() - before) as f64 * 8.0 / 10.0 / 1e6;
    assert!(rate > 60.0, "{rate} Mbit/s");
}
