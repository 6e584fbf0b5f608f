use super::Effort;
use crate::{
    Demand, Dumbbell, FIRST_DATA_WITHIN, Flaw, FlowSpec, LinkId, Outcome, TcpConfig, World,
    WorldConfig,
};
use cc::Algorithm;
use link::{Capacity, LinkConfig, Loss, LossTrace, QueueConfig};
use std::sync::Arc;
use units::{Bytes, Rate, Share, Span, Time};

/// Pairs of hosts with one bottleneck between them.
#[derive(Debug, Clone)]
pub(super) struct PathConfig {
    pub(super) rate: Rate,
    pub(super) rtt: Span,
    /// The queue of the bottleneck and of the return path.
    pub(super) queue: QueueConfig,
    /// The random loss of the forward path and of the return path.
    pub(super) loss: [f64; 2],
    /// The number of packets of which the forward path loses one.
    pub(super) loses_every: Option<usize>,
    /// Whether the return path has the bottleneck's rate. If not, the rate of the return path has
    /// no limit.
    pub(super) symmetric: bool,
    pub(super) hosts: TcpConfig,
    pub(super) flows: usize,
    /// The interval between points of the traces.
    pub(super) sample_every: Span,
}

/// The measured time of a world.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Span,
    pub(super) until: Span,
}

impl PathConfig {
    pub(super) fn new(rate: Rate, rtt: Span) -> Self {
        Self {
            rate,
            rtt,
            queue: droptail(rate.bytes_in(rtt)),
            loss: [0.0; 2],
            loses_every: None,
            symmetric: false,
            hosts: TcpConfig::default(),
            flows: 1,
            sample_every: Span::from_millis(10),
        }
    }

    pub(super) fn bdp(&self) -> Bytes {
        self.rate.bytes_in(self.rtt)
    }

    pub(super) fn shape(&self, flaw: Option<Flaw>) -> Dumbbell {
        let rtt = match flaw {
            Some(Flaw::LongDelay) => self.rtt + self.rtt / 20,
            _ => self.rtt,
        };
        let loss = |p: f64| Share::new(p).map_or(Loss::NONE, Loss::Bernoulli);
        let there = LinkConfig {
            rate: Capacity::Fixed(self.rate),
            delay: rtt / 2,
            queue: self.queue,
            loss: self.loses_every.and_then(regular).unwrap_or_else(|| loss(self.loss[0])),
            ..LinkConfig::default()
        };
        let back = LinkConfig {
            rate: if self.symmetric { there.rate.clone() } else { Capacity::Unlimited },
            loss: loss(self.loss[1]),
            ..there.clone()
        };
        Dumbbell::new(&vec![LinkConfig::default(); self.flows], &there, &back)
    }

    /// Runs endless flows, traced. `effort` sets the seed.
    pub(super) fn run(&self, algorithm: Algorithm, when: Window, effort: Effort) -> Option<Run> {
        let (from, until) = (Time::ZERO + when.from, Time::ZERO + when.until);
        let (world, bottleneck) = self.world(algorithm, Demand::Bulk, (from, until), effort)?;
        Some(Run { outcome: world.run(), bottleneck, from })
    }

    /// Runs the flows like the lab's workload `bulk`: data begins when all connections are open,
    /// and the measured time begins when all flows have delivered their first data.
    pub(super) fn run_from_first_data(
        &self,
        algorithm: Algorithm,
        when: Window,
        effort: Effort,
    ) -> Option<Run> {
        let measured = (Time::NEVER, Time::ZERO + FIRST_DATA_WITHIN + when.until);
        let demand = Demand::BulkTogether;
        let (mut world, bottleneck) = self.world(algorithm, demand, measured, effort)?;
        let at = world.run_to_first_data()?;
        let from = at + when.from;
        Some(Run { outcome: world.measure_between(from, at + when.until), bottleneck, from })
    }

    /// Builds the world. `measured`: the beginning and the end of the measured time.
    fn world(
        &self,
        algorithm: Algorithm,
        demand: Demand,
        measured: (Time, Time),
        effort: Effort,
    ) -> Option<(World, LinkId)> {
        let shape = self.shape(effort.flaw);
        let hosts = Arc::new(TcpConfig { flaw: effort.flaw, ..self.hosts.clone() });
        let flows = (0..self.flows)
            .map(|i| {
                let (from, to) = (shape.senders[i], shape.receivers[i]);
                FlowSpec::tcp(from, to, algorithm, demand, hosts.clone()).traced()
            })
            .collect();
        let config = WorldConfig {
            seed: effort.seed,
            until: measured.1,
            measure_from: measured.0,
            sample_every: self.sample_every,
            sample_limit: 1 << 16,
            traced: vec![shape.bottleneck],
            ..WorldConfig::default()
        };
        Some((World::new(&shape.topology, flows, config).ok()?, shape.bottleneck))
    }
}

/// A completed world.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) outcome: Outcome,
    pub(super) bottleneck: LinkId,
    from: Time,
}

impl Run {
    /// Returns the goodput of all flows together, in Mbit/s.
    pub(super) fn goodput(&self) -> f64 {
        self.outcome.flows.iter().map(|flow| flow.goodput.mbit_per_second()).sum()
    }

    /// Returns the queued bytes at each point of the measured time.
    pub(super) fn queue(&self) -> Vec<f64> {
        let trace = self.outcome.link(self.bottleneck).and_then(|link| link.trace.as_ref());
        let points = trace.into_iter().flat_map(|trace| trace.points());
        points.filter(|p| p.at >= self.from).map(|p| p.queued.count() as f64).collect()
    }

    /// Returns the first flow's window in segments over time.
    pub(super) fn windows(&self, mss: Bytes) -> Vec<(Time, f64)> {
        let trace = self.outcome.flows.first().and_then(|flow| flow.trace.as_ref());
        let points = trace.into_iter().flat_map(|trace| trace.points());
        points.map(|p| (p.at, p.window.count() as f64 / mss.count() as f64)).collect()
    }
}

impl Window {
    pub(super) fn seconds(from: u64, length: u64) -> Self {
        Self { from: Span::from_secs(from), until: Span::from_secs(from + length) }
    }
}

/// Builds a deterministic loss of one packet in `every`, as the formulas assume.
fn regular(every: usize) -> Option<Loss> {
    let text = format!("{}1", "0".repeat(every.saturating_sub(1)));
    LossTrace::parse(&text).ok().map(|trace| Loss::Trace(Arc::new(trace)))
}

pub(super) fn droptail(limit: Bytes) -> QueueConfig {
    QueueConfig::DropTail(link::DropTailConfig { limit: link::Limit::Bytes(limit) })
}

/// Returns hosts that acknowledge every segment at once, and send each segment as soon as the
/// window allows. The formulas assume such hosts. [`PLAIN`] is the description of these hosts.
pub(super) fn plain_hosts(effort: Effort) -> TcpConfig {
    match effort.own {
        true => TcpConfig::default(),
        false => TcpConfig { delayed_ack: None, offload: false, ..TcpConfig::default() },
    }
}

pub(super) const PLAIN: &str = "each segment acknowledged, no offload";

/// The share of payload in a frame.
pub(super) const EFFICIENCY: f64 = 1448.0 / 1514.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_time_begins_with_the_first_data_of_all_flows() {
        let mut path = PathConfig::new(Rate::from_mbit(600), Span::from_millis(100));
        path.flows = 2;
        let effort = Effort { seed: 1, own: false, flaw: None };
        let when = Window { from: Span::ZERO, until: Span::from_millis(300) };
        let run = path.run_from_first_data(Algorithm::Cubic, when, effort).unwrap();
        // The handshake takes a round trip, and the data with its acknowledgement takes another
        // round trip.
        let opened = run.from.since(Time::ZERO) - when.from;
        assert!((200.0..210.0).contains(&opened.millis_f64()), "{opened:?}");
        let same = Window { from: opened + when.from, until: opened + when.until };
        let expected = path.run(Algorithm::Cubic, same, effort).unwrap();
        let (goodput, expected) = (run.goodput(), expected.goodput());
        assert!((goodput / expected - 1.0).abs() < 0.01, "{goodput} {expected}");
    }

    #[test]
    fn a_path_that_carries_no_data_has_no_measured_time() {
        let mut path = PathConfig::new(Rate::from_mbit(600), Span::from_millis(100));
        path.loss = [1.0, 0.0];
        let effort = Effort { seed: 1, own: false, flaw: None };
        let when = Window::seconds(1, 1);
        assert!(path.run_from_first_data(Algorithm::Cubic, when, effort).is_none());
    }
}
