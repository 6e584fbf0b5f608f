//! tcpa on randomly drawn paths. The bounds are tcpa's goals or wider bounds. No test judges a
//! single run.

#![allow(clippy::unwrap_used)]

use cc::{Algorithm, Memory};
use link::{LinkConfig, Stream};
use sim::{
    Demand, Dumbbell, FlowOutcome, FlowSpec, Opening, Policer, ReceiveWindow, TcpConfig, World,
    WorldConfig, jain,
};
use std::sync::Arc;
use units::{Bytes, Rate, Span, Time};

/// One bottleneck.
#[derive(Debug, Clone)]
struct PathConfig {
    rate: Rate,
    rtt: Span,
    /// The buffer in bandwidth-delay products.
    buffer: f64,
    loss: f64,
    policer: Option<Policer>,
    lasts: Span,
    seed: u64,
}

/// The results of flows on a path.
struct Ended {
    flows: Vec<FlowOutcome>,
    /// The peak of the queue in the opening, in round trips.
    peak: f64,
}

impl PathConfig {
    /// Draws rates and round trips log-uniformly.
    fn drawn(from: &mut Stream, seed: u64) -> Self {
        let mut spread = |low: f64, high: f64| low * (high / low).powf(from.unit());
        let rate = Rate::from_bits_per_second(spread(2e6, 100e6) as u64);
        let rtt = Span::from_micros(spread(10e3, 200e3) as u64);
        let lasts = Span::from_secs(10);
        Self { rate, rtt, buffer: 1.0, loss: 0.0, policer: None, lasts, seed }
    }

    fn memory(&self, times: f64) -> Memory {
        let rate = self.rate.bits_per_second() as f64 * times;
        Memory { rate: Rate::from_bits_per_second(rate as u64), min_rtt: self.rtt, age: Span::ZERO }
    }

    fn product(&self) -> f64 {
        self.rate.bytes_in(self.rtt).count() as f64
    }

    /// Runs flows in which the server sends, as in answer to a client's request.
    fn run(&self, flows: usize, demand: Demand, memory: Option<Memory>) -> Ended {
        self.run_with(flows, demand, TcpConfig { memory, ..hosts() })
    }

    fn run_with(&self, flows: usize, demand: Demand, hosts: TcpConfig) -> Ended {
        self.run_beside(None, flows, demand, hosts)
    }

    /// Runs flows like [`Self::run`], with the algorithm `other` for the first flow.
    fn run_beside(
        &self,
        other: Option<Algorithm>,
        flows: usize,
        demand: Demand,
        hosts: TcpConfig,
    ) -> Ended {
        let delay = self.rtt / 2;
        let queue = format!("droptail:{}", ((self.product() * self.buffer) as u64).max(4 * 1514));
        let bottleneck = LinkConfig {
            rate: link::Capacity::Fixed(self.rate),
            delay,
            queue: queue.parse().unwrap(),
            loss: format!("{}%", self.loss * 100.0).parse().unwrap(),
            ..LinkConfig::default()
        };
        let back = LinkConfig { delay, ..LinkConfig::default() };
        let mut shape = Dumbbell::new(&vec![LinkConfig::default(); flows], &bottleneck, &back);
        if let Some(policer) = self.policer {
            shape.topology.police(shape.bottleneck, policer);
        }
        let hosts = Arc::new(hosts);
        let specs = (0..flows).map(|number| {
            let (from, to) = (shape.senders[number], shape.receivers[number]);
            let algorithm = other.filter(|_| number == 0).unwrap_or(Algorithm::Tcpa);
            FlowSpec::tcp(from, to, algorithm, demand, Arc::clone(&hosts))
                .starting(Time::ZERO + Span::from_millis(130) * number as u64)
        });
        let config = WorldConfig {
            seed: self.seed,
            until: Time::ZERO + self.lasts,
            measure_from: Time::ZERO + self.lasts / 3,
            opening_until: Time::ZERO + self.rtt * 30,
            ..WorldConfig::default()
        };
        let outcome = World::new(&shape.topology, specs.collect(), config).unwrap().run();
        let peak = outcome.opening_peak(shape.bottleneck).unwrap();
        let peak = self.rate.time_for(peak).secs_f64() / self.rtt.secs_f64();
        Ended { flows: outcome.flows, peak }
    }

    /// Returns the flows' goodput as a share of the possible goodput.
    fn share(&self, ended: &Ended) -> f64 {
        let goodput: f64 = ended.flows.iter().map(|flow| flow.goodput.mbit_per_second()).sum();
        let rate = self.policer.map_or(self.rate, |policer| policer.rate);
        goodput / (rate.mbit_per_second() * 1448.0 / 1514.0 * (1.0 - self.loss))
    }
}

impl Ended {
    fn retransmitted(&self) -> f64 {
        let sum = |of: fn(&FlowOutcome) -> Bytes| {
            self.flows.iter().map(|flow| of(flow).count() as f64).sum::<f64>()
        };
        sum(|flow| flow.retransmitted) / sum(|flow| flow.sent)
    }

    fn completion(&self) -> Span {
        self.flows[0].completion.unwrap()
    }
}

fn hosts() -> TcpConfig {
    TcpConfig {
        opening: Opening::ByReceiver,
        receive_window: ReceiveWindow::Fixed(Bytes::kib(64 * 1024)),
        ..TcpConfig::default()
    }
}

fn paths(name: &str, count: u64) -> Vec<PathConfig> {
    let mut stream = Stream::new(1, name);
    (0..count).map(|seed| PathConfig::drawn(&mut stream, seed)).collect()
}

#[test]
fn a_wrong_memory_costs_a_round_trip_of_queue_at_most() {
    let mut factors = Stream::new(1, "factors");
    for path in paths("wrong memory", 60) {
        let path = PathConfig { buffer: 100.0, lasts: path.rtt * 40, ..path };
        let times = 10_f64.powf(factors.unit());
        let without = path.run(1, Demand::Bulk, None).peak;
        for times in [times, 10.0] {
            let with = path.run(1, Demand::Bulk, Some(path.memory(times))).peak;
            assert!(with - without <= 1.0, "{times}: {with} after {without} on {path:?}");
        }
    }
}

#[test]
fn a_valid_memory_slows_no_flow_and_shortens_the_queue() {
    for path in paths("right memory", 40) {
        let path = PathConfig { lasts: Span::from_secs(300), ..path };
        for size in [100_000, 640_000, 8_000_000] {
            let size = Demand::Size(Bytes::new(size));
            let without = path.run(1, size, None);
            let with = path.run(1, size, Some(path.memory(1.0)));
            let (cold, warm) = (without.completion(), with.completion());
            assert!(warm <= cold + cold / 10, "{warm} after {cold} on {path:?}");
            let (warm, cold) = (with.peak, without.peak);
            assert!(warm <= cold + 0.2, "{warm} after {cold} round trips of queue on {path:?}");
        }
    }
}

#[test]
fn a_memory_of_another_rtt_is_not_used() {
    for path in paths("another path", 10) {
        let size = Demand::Size(Bytes::new(640_000));
        let path = PathConfig { lasts: Span::from_secs(60), ..path };
        let afresh = path.run(1, size, None).completion();
        for min_rtt in [path.rtt * 3, path.rtt / 3, Span::ZERO] {
            let memory = Memory { min_rtt, ..path.memory(4.0) };
            assert_eq!(path.run(1, size, Some(memory)).completion(), afresh, "{min_rtt} {path:?}");
        }
        // On an established connection, the flow does not know the round-trip time.
        let unknown = |memory| TcpConfig { opening: Opening::Established, memory, ..hosts() };
        let afresh = path.run_with(1, size, unknown(None)).completion();
        let memory = Some(path.memory(4.0));
        assert_eq!(path.run_with(1, size, unknown(memory)).completion(), afresh, "{path:?}");
    }
}

#[test]
fn the_noted_memory_matches_the_path() {
    for path in paths("noted", 20) {
        let noted = path.run(1, Demand::Bulk, None).flows[0].noted.unwrap();
        let share = noted.rate.mbit_per_second() / path.rate.mbit_per_second();
        assert!((0.6..1.1).contains(&share), "{share} {path:?}");
        // The shortest round trip includes the serialisation of two handshake packets and one data
        // packet.
        let most = path.rtt + path.rtt / 5 + path.rate.time_for(Bytes::new(1514));
        assert!((path.rtt..=most).contains(&noted.min_rtt), "{} {path:?}", noted.min_rtt);
        assert_eq!(noted.age, Span::ZERO);
    }
}

#[test]
fn a_flow_that_never_fills_its_window_notes_no_memory() {
    for path in paths("little to say", 10) {
        let size = Bytes::new((path.product() / 8.0) as u64 + 1);
        let trickle = Demand::Pieces { size, every: path.rtt };
        assert_eq!(path.run(1, trickle, None).flows[0].noted, None, "{path:?}");
        let one = Demand::Size(Bytes::new(20_000));
        assert_eq!(path.run(1, one, None).flows[0].noted, None, "{path:?}");
    }
}

/// If a first window exceeds the path, its ACKs show the overflow, and the flow sends no more.
#[test]
fn an_overflow_of_a_short_queue_does_not_recur() {
    let mut again = Vec::new();
    for path in paths("short queue", 24) {
        let rate = path.rate.min(Rate::from_mbit(40));
        let rtt = rate.time_for(Bytes::new(40 * 1514));
        let path = PathConfig { rate, rtt, buffer: 0.75, lasts: Span::from_secs(60), ..path };
        let size = Bytes::kib(640);
        let ended = path.run(1, Demand::Size(size), None);
        let least = rtt * 2 + rate.time_for(Bytes::new(size.count() * 1514 / 1448));
        let took = ended.completion();
        assert!(took <= least + least / 5, "{took} of {least} on {path:?}");
        again.push(ended.retransmitted());
    }
    let mean = again.iter().sum::<f64>() / again.len() as f64;
    assert!(mean < 0.1, "{mean}: {again:?}");
}

#[test]
fn random_loss_is_not_treated_as_congestion() {
    for path in paths("loss", 16) {
        let rtt = path.rtt.max(Span::from_millis(20));
        let path = PathConfig { rtt, loss: 0.05, buffer: 4.0, lasts: Span::from_secs(20), ..path };
        let ended = path.run(1, Demand::Bulk, None);
        let share = path.share(&ended);
        assert!(share >= 0.9, "{share} of what loss leaves, on {path:?}");
    }
}

/// After a pause without a loss, a flow must not answer the next random losses as overflows, with
/// one reduction after another.
#[test]
fn random_loss_keeps_no_connection_at_half_of_the_path() {
    for (rate, rtt, loss) in [(50, 30, 0.02), (100, 20, 0.01)] {
        for seed in 0..40 {
            let (rate, rtt) = (Rate::from_mbit(rate), Span::from_millis(rtt));
            let (policer, lasts) = (None, Span::from_secs(10));
            let path = PathConfig { rate, rtt, buffer: 1.0, loss, policer, lasts, seed };
            let share = path.share(&path.run(1, Demand::Bulk, None));
            assert!(share >= 0.85, "{share} of what loss leaves, on {path:?}");
        }
    }
}

#[test]
fn a_policer_costs_tcpa_few_retransmissions() {
    let mut again = Vec::new();
    for path in paths("policer", 16) {
        let rate = Rate::from_bits_per_second(path.rate.bits_per_second() / 2);
        let burst = rate.bytes_in(path.rtt).max(Bytes::new(15_140));
        let policer = Some(Policer { rate, burst });
        let path = PathConfig { policer, buffer: 2.0, lasts: Span::from_secs(30), ..path };
        let ended = path.run(1, Demand::Bulk, None);
        let share = path.share(&ended);
        assert!(share >= 0.75, "{share} of the policed rate on {path:?}");
        again.push(ended.retransmitted());
    }
    // The goal is 5 % of retransmissions on every path. Some paths have twice the goal.
    again.sort_by(f64::total_cmp);
    assert!(again[again.len() / 2] < 0.05, "{again:?}");
    assert!(again[again.len() - 1] < 0.12, "{again:?}");
}

#[test]
fn tcpa_flows_share_equally() {
    let mut jains = Vec::new();
    for path in paths("own kind", 8) {
        let path = PathConfig {
            lasts: Span::from_secs(45),
            rate: path.rate.max(Rate::from_mbit(10)),
            ..path
        };
        let ended = path.run(2, Demand::Bulk, None);
        let rates: Vec<f64> = ended.flows.iter().map(|f| f.goodput.mbit_per_second()).collect();
        assert!(jain(&rates) >= 0.8, "{rates:?} on {path:?}");
        jains.push(jain(&rates));
    }
    assert!(jains.iter().sum::<f64>() / jains.len() as f64 >= 0.96, "{jains:?}");
}

/// A flow that joins while CUBIC fills a deep queue ends start-up at a very low rate.
#[test]
fn a_late_flow_reaches_its_share_beside_cubic() {
    for path in paths("late beside cubic", 12) {
        let rate = path.rate.max(Rate::from_mbit(10));
        let (rtt, lasts) = (path.rtt.min(Span::from_millis(40)), Span::from_secs(30));
        let path = PathConfig { rate, rtt, buffer: 4.0, lasts, ..path };
        let ended = path.run_beside(Some(Algorithm::Cubic), 2, Demand::Bulk, hosts());
        let share = 2.0 * ended.flows[1].goodput.mbit_per_second() / rate.mbit_per_second();
        assert!((0.6..1.5).contains(&share), "{share} of the fair share on {path:?}");
    }
}

/// CUBIC's queue makes the round trip twenty times as long. The slumps of such a queue must not
/// starve a flow.
#[test]
fn cubic_in_a_deep_queue_does_not_starve_tcpa() {
    let mut shares: Vec<f64> = paths("deep beside cubic", 12)
        .into_iter()
        .map(|path| {
            let (rtt, lasts) = (path.rtt.min(Span::from_millis(40)), Span::from_secs(30));
            let path = PathConfig { rtt, buffer: 20.0, lasts, ..path };
            let ended = path.run_beside(Some(Algorithm::Cubic), 2, Demand::Bulk, hosts());
            2.0 * ended.flows[1].goodput.mbit_per_second() / path.rate.mbit_per_second()
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    assert!(shares[6] >= 0.4 && shares[11] < 1.5, "{shares:?} of the fair share");
}
