use super::path::{Path, Window, droptail, plain_hosts};
use super::{Case, Effort, Layer, Measured};
use cc::Algorithm;
use units::{Bytes, Rate, Span};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, p) in [
        ("Mathis, reno, 0.01 %", 0.0001),
        ("Mathis, reno, 0.1 %", 0.001),
        ("Mathis, reno, 1 %", 0.01),
    ] {
        cases.push(Case {
            name,
            layer: Layer::Formula,
            unit: "Mbit/s",
            note: "Mathis et al. 1997: MSS/RTT sqrt(3/2p); an acknowledgement for each segment",
            tolerance: 0.15,
            measure: Box::new(move |effort| {
                let (measured, rtt) = lossy(Algorithm::Reno, 50, p, effort)?;
                Some(Measured { expected: megabits((1.5 / p).sqrt(), rtt), measured })
            }),
        });
    }
    for (name, rtt_ms, p) in [
        ("CUBIC's response, 100 ms, 0.01 %", 100, 0.0001),
        ("CUBIC's response, 200 ms, 0.1 %", 200, 0.001),
        ("CUBIC's response, 400 ms, 0.1 %", 400, 0.001),
    ] {
        cases.push(Case {
            name,
            layer: Layer::Formula,
            unit: "Mbit/s",
            note: "RFC 9438, 5.1: (C (3 + beta) / 4 (1 - beta))^(1/4) (RTT/p)^(3/4)",
            tolerance: 0.15,
            measure: Box::new(move |effort| {
                let (measured, rtt) = lossy(Algorithm::Cubic, rtt_ms, p, effort)?;
                let window = RESPONSE * (rtt / p).powf(0.75);
                Some(Measured { expected: megabits(window, rtt), measured })
            }),
        });
    }
    cases.push(Case {
        name: "BBR's queue alone in a deep buffer",
        layer: Layer::Formula,
        unit: "BDP in flight at most",
        note: "Cardwell et al. 2016: a window of 2 BDP, so a queue of at most one",
        tolerance: 1.0,
        measure: Box::new(|effort| {
            let mut path = Path::new(Rate::from_mbit(100), Span::from_millis(40));
            path.queue = droptail(Bytes::new(8 * path.bdp().count()));
            let window = Window::of(effort, 5, 15, 60);
            let run = path.run(Algorithm::Bbr, window, effort.seed)?;
            let most = run.queue().into_iter().fold(0.0, f64::max);
            Some(Measured { expected: 1.0, measured: most / path.bdp().count() as f64 })
        }),
    });
    cases
}

/// Goodput, and the round-trip time, on a path that loses at random and never fills.
fn lossy(algorithm: Algorithm, rtt_ms: u64, p: f64, effort: Effort) -> Option<(f64, f64)> {
    let path = Path {
        queue: droptail(Bytes::new(1 << 28)),
        loss: [p, 0.0],
        hosts: plain_hosts(),
        ..Path::new(Rate::from_mbit(10_000), Span::from_millis(rtt_ms))
    };
    // Some hundred losses, whatever the rate.
    let cycles = (2.0 / (3.0 * p)).sqrt() * path.rtt.secs_f64();
    let losses = if effort.short { 80.0 } else { 600.0 };
    let settle = (4.0 * cycles).ceil().max(20.0) as u64;
    let length = (losses * cycles).ceil().max(20.0) as u64;
    let run = path.run(algorithm, Window::seconds(settle, length), effort.seed)?;
    Some((run.goodput(), path.rtt.secs_f64()))
}

fn megabits(segments: f64, rtt: f64) -> f64 {
    segments * 1448.0 * 8.0 / rtt / 1e6
}

/// (0.4 · 3.7 / 1.2)^(1/4)
const RESPONSE: f64 = 1.0538;
