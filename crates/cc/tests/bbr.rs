//! Compares BBR with numbers computed by hand for a path of 100 Mbit/s and 40 ms, which holds
//! 500 KB.

mod pipe;

use cc::Algorithm;
use pipe::{MSS, Pipe};
use units::{Rate, Span};

const BDP: f64 = 500_000.0;

fn bbr() -> Pipe {
    Pipe::new(Algorithm::Bbr, Rate::from_mbit(100), Span::from_millis(40))
}

#[test]
fn start_up_doubles_the_window_each_round_and_ends_after_three_rounds_without_growth() {
    let mut pipe = bbr();
    assert!(pipe.algorithm.in_slow_start());
    // The window has ten segments, then twenty, forty, …, and fills the pipe (333) in the sixth
    // round. Three rounds follow, each with a queue of up to 1.9 round trips.
    let mut ended = None;
    let begin = pipe.now;
    pipe.run(Span::from_secs(2), |pipe| {
        if !pipe.algorithm.in_slow_start() && ended.is_none() {
            ended = Some(pipe.now.since(begin).millis_f64() / 40.0);
        }
    });
    let rounds = ended.unwrap();
    assert!((9.0..17.0).contains(&rounds), "{rounds}");
}

#[test]
fn probe_bandwidth_has_gains_of_1_25_then_0_75_then_six_of_1() {
    let mut pipe = bbr();
    pipe.run(Span::from_secs(3), |_| {});
    let mut seen: Vec<(f64, f64)> = Vec::new();
    pipe.run(Span::from_secs(4), |pipe| {
        let gain = (pipe.pacing() / 99.0 * 100.0).round() / 100.0;
        let now = pipe.now.nanos() as f64 / 1e6;
        if seen.last().is_none_or(|last| (last.0 - gain).abs() > 0.1) {
            seen.push((gain, now));
        }
    });
    let probes: Vec<usize> = (1..seen.len() - 2).filter(|i| seen[*i].0 > 1.2).collect();
    assert!(probes.len() >= 8, "{seen:?}");
    for probe in probes {
        assert!((seen[probe].0 - 1.25).abs() < 0.02, "{:?}", seen[probe]);
        assert!((seen[probe + 1].0 - 0.75).abs() < 0.02, "{:?}", seen[probe + 1]);
        assert!((seen[probe + 2].0 - 1.0).abs() < 0.02, "{:?}", seen[probe + 2]);
        // Six phases of one round trip each follow.
        if let Some(next) = seen.get(probe + 3) {
            let cruise = (next.1 - seen[probe + 2].1) / 40.0;
            assert!((5.8..7.5).contains(&cruise), "{cruise} of {seen:?}");
        }
    }
}

#[test]
fn at_most_two_bandwidth_delay_products_are_in_flight() {
    let mut pipe = bbr();
    pipe.run(Span::from_secs(3), |_| {});
    let mut most = 0;
    pipe.run(Span::from_secs(20), |pipe| most = most.max(pipe.inflight()));
    assert!(most as f64 <= 2.1 * BDP, "{most}");
}

#[test]
fn probe_rtt_holds_four_segments_for_200_ms_every_ten_seconds() {
    let mut pipe = bbr();
    let mut low = Vec::new();
    pipe.run(Span::from_secs(35), |pipe| {
        if pipe.algorithm.cwnd().count() <= 4 * MSS {
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
    assert_eq!(visits.len(), 3, "{visits:?}");
    for pair in visits.windows(2) {
        let gap = pair[1].0 - pair[0].1;
        assert!((9.5..10.6).contains(&gap), "{visits:?}");
    }
    for (from, until) in visits {
        assert!((0.2..0.4).contains(&(until - from)), "{from} {until}");
    }
}

/// On a short path ProbeRTT outlasts the ten rounds of the bandwidth filter.
#[test]
fn probe_rtt_does_not_lower_the_bandwidth_estimate() {
    let mut pipe = Pipe::new(Algorithm::Bbr, Rate::from_mbit(100), Span::from_millis(10));
    pipe.run(Span::from_secs(9), |_| {});
    let mut least = f64::INFINITY;
    pipe.run(Span::from_secs(3), |pipe| least = least.min(pipe.pacing()));
    assert!(least > 70.0, "{least} Mbit/s");
}

/// The path loses one packet in fifty, so that one recovery follows another.
#[test]
fn steady_random_loss_costs_no_rate() {
    let mut pipe = bbr();
    pipe.lose_every = Some(50);
    pipe.run(Span::from_secs(3), |_| {});
    let before = pipe.delivered();
    pipe.run(Span::from_secs(20), |_| {});
    let rate = (pipe.delivered() - before) as f64 * 8.0 / 20.0 / 1e6;
    assert!(rate > 95.0, "{rate} Mbit/s");
}
