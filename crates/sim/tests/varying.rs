//! Links whose rate varies: tcpa's goodput is close to the goodput of the better algorithm of CUBIC
//! and BBR.
#![allow(clippy::unwrap_used)]

use cc::Algorithm;
use link::{Capacity, LinkConfig, Stream, Trace};
use sim::{Demand, Dumbbell, FlowSpec, TcpConfig, World, WorldConfig};
use std::sync::Arc;
use units::{Rate, Span, Time};

/// A bottleneck that repeats a sequence of rates.
#[derive(Debug)]
struct Varying {
    /// The rates in Mbit/s.
    rates: Vec<f64>,
    each: Span,
    rtt: Span,
    /// The buffer in bytes.
    queue: u64,
}

impl Varying {
    fn new(rates: &[f64], each_ms: u64, rtt_ms: u64, queue: u64) -> Self {
        let (each, rtt) = (Span::from_millis(each_ms), Span::from_millis(rtt_ms));
        Self { rates: rates.to_vec(), each, rtt, queue }
    }

    /// Draws two alternating rates, several rates, or a random walk between two rates.
    fn drawn(from: &mut Stream, kind: u64) -> Self {
        let mut spread = |low: f64, high: f64| low * (high / low).powf(from.unit());
        let (each_ms, rtt_ms) = (spread(300.0, 4000.0) as u64, spread(10.0, 150.0) as u64);
        let high = spread(5.0, 80.0);
        let low = high / spread(2.0, 30.0);
        let queue = high * 1e6 / 8.0 * rtt_ms as f64 / 1e3 * spread(0.4, 6.0);
        let mut walk = spread(low, high);
        let rates: Vec<f64> = match kind {
            0 => vec![high, low],
            1 => (0..10).map(|_| spread(low, high)).collect(),
            _ => (0..30)
                .map(|_| {
                    walk = (walk * spread(0.6, 1.0 / 0.6)).clamp(low, high);
                    walk
                })
                .collect(),
        };
        Self::new(&rates, each_ms, rtt_ms, (queue as u64).max(9 * 1514))
    }

    /// Returns the mean goodput in Mbit/s over several start times of the flow.
    fn goodput(&self, algorithm: Algorithm) -> f64 {
        let begins = [1, 310, 790];
        begins.iter().map(|at| self.run(algorithm, Span::from_millis(*at))).sum::<f64>()
            / begins.len() as f64
    }

    fn run(&self, algorithm: Algorithm, begins: Span) -> f64 {
        let rates: Vec<(Rate, Span)> = self
            .rates
            .iter()
            .map(|rate| (Rate::from_bits_per_second((rate * 1e6) as u64), self.each))
            .collect();
        let delay = self.rtt / 2;
        let bottleneck = LinkConfig {
            rate: Capacity::Trace(Arc::new(Trace::of_rates(&rates).unwrap())),
            delay,
            queue: format!("droptail:{}", self.queue).parse().unwrap(),
            overhead: "-10".parse().unwrap(),
            ..LinkConfig::default()
        };
        let back = LinkConfig { delay, ..LinkConfig::default() };
        let shape = Dumbbell::new(&[LinkConfig::default()], &bottleneck, &back);
        let (from, to) = (shape.senders[0], shape.receivers[0]);
        let hosts = Arc::new(TcpConfig::default());
        let flow =
            FlowSpec::tcp(from, to, algorithm, Demand::Bulk, hosts).starting(Time::ZERO + begins);
        let config = WorldConfig {
            measure_from: Time::ZERO + Span::from_secs(3),
            until: Time::ZERO + Span::from_secs(23),
            ..WorldConfig::default()
        };
        let outcome = World::new(&shape.topology, vec![flow], config).unwrap().run();
        outcome.flows[0].goodput.mbit_per_second()
    }

    /// Returns tcpa's goodput, relative to the better of CUBIC's and BBR's.
    fn share(&self) -> f64 {
        let better = self.goodput(Algorithm::Cubic).max(self.goodput(Algorithm::Bbr));
        self.goodput(Algorithm::Tcpa) / better
    }
}

#[test]
fn tcpa_follows_a_returning_rate() {
    for path in [
        Varying::new(&[40.0, 1.0, 20.0, 5.0, 10.0, 2.0], 1000, 30, 150_000),
        Varying::new(&[40.0, 1.0], 1000, 30, 150_000),
        Varying::new(&[40.0, 1.0], 4000, 30, 150_000),
        Varying::new(&[100.0, 10.0], 1000, 20, 250_000),
        Varying::new(&[100.0, 25.0], 3000, 100, 1_250_000),
    ] {
        let share = path.share();
        assert!(share >= 0.9, "{share} of the better of CUBIC and BBR on {path:?}");
    }
}

/// The rate is low for several round trips each time.
#[test]
fn a_window_kept_through_a_slump_fills_the_path_when_the_rate_returns() {
    for path in [
        Varying::new(&[40.0, 1.0], 200, 30, 150_000),
        Varying::new(&[40.0, 20.0], 200, 30, 150_000),
        Varying::new(&[20.0, 2.0], 300, 40, 200_000),
    ] {
        let share = path.share();
        assert!(share >= 0.8, "{share} of the better of CUBIC and BBR on {path:?}");
    }
}

#[test]
fn tcpa_follows_random_rates() {
    let mut stream = Stream::new(1, "varying");
    let mut shares: Vec<f64> =
        (0..24).map(|number| Varying::drawn(&mut stream, number % 3).share()).collect();
    shares.sort_by(f64::total_cmp);
    assert!(shares[shares.len() / 2] >= 0.92, "{shares:?}");
    assert!(shares[shares.len() / 6] >= 0.8, "{shares:?}");
    assert!(shares[0] >= 0.6, "{shares:?}");
}
