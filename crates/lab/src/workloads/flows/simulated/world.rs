//! Flows in a network: simulates the world of a cell and collects its results.

use super::network::Network;
use super::scene::Scene;
use super::{memory, metrics};
use crate::bench::Job;
use crate::bench::simulator::Way;
use crate::bench::simulator::carrier::Carrier;
use crate::bench::simulator::{Shared, SimulatorStep, carrier};
use crate::model::{Failure, Measurement};
use crate::workloads::flows::cell::FlowsCell;
use crate::workloads::flows::demand::Demand;
use crate::workloads::flows::settings::{Beside, MOST_ARRIVALS};
use sim::{
    End, FlowCount, FlowOutcome, FlowSpec, LinkOutcome, Node, Outcome, Spacing, TcpConfig, Traffic,
    TunnelOutcome, World, WorldConfig,
};
use std::ops::Range;
use std::sync::Arc;
use units::{Bytes, Share, Span, Time};

/// A world whose simulation has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) network: Network,
    /// The indices of the flows under test, which come after the competing flows.
    pub(super) tested: Range<usize>,
    /// Start time of each flow. `sizes`: the amount of data of each flow.
    pub(super) begun: Vec<Time>,
    pub(super) sizes: Vec<Option<Bytes>>,
    /// The state of each flow at the end of the measured time. Some flows may have continued after
    /// this time.
    pub(super) in_time: Vec<FlowCount>,
    /// Index of the endpoint pair of each flow under test.
    own_ways: Vec<usize>,
    /// The time between two points of the curves.
    pub(super) spacing: Span,
    /// The time of the first data of all flows. `None` unless the flows begin together.
    first_data: Option<Time>,
}

impl Ended {
    pub(super) fn own(&self) -> &[FlowOutcome] {
        &self.outcome.flows[self.tested.clone()]
    }

    pub(super) fn beside(&self) -> &[FlowOutcome] {
        &self.outcome.flows[..self.tested.start]
    }

    /// Returns the endpoints of any TCP flow.
    pub(super) fn way_of(&self, flow: usize) -> Way {
        match flow.checked_sub(self.tested.start) {
            Some(own) => self.network.own(self.own_ways[own]),
            None => self.network.beside(flow),
        }
    }

    /// Returns the tunnels of flows under test.
    pub(super) fn tunnels(&self) -> impl Iterator<Item = &TunnelOutcome> {
        let is_tested =
            |tunnel: &&TunnelOutcome| tunnel.flows.iter().any(|flow| self.tested.contains(flow));
        self.outcome.tunnels.iter().filter(is_tested)
    }

    /// Returns the bytes that the applications under test received in the measured time.
    pub(super) fn received_in_time(&self) -> Bytes {
        let received = |flow: usize| {
            let before = self.outcome.before.get(flow).map_or(Bytes::ZERO, |flow| flow.received);
            self.in_time.get(flow).map_or(Bytes::ZERO, |flow| flow.received) - before
        };
        self.tested.clone().map(received).fold(Bytes::ZERO, |sum, flow| sum + flow)
    }

    /// Returns the flows under test that began in the measured time.
    pub(super) fn measured(&self, scene: &Scene) -> impl Iterator<Item = usize> {
        let measured = scene.measured_from()..=scene.until();
        self.tested.clone().filter(move |flow| measured.contains(&self.begun[*flow]))
    }

    /// Returns the bottleneck with the longest queue.
    pub(super) fn worst_queue(&self) -> Option<&LinkOutcome> {
        let most = Share::from_percent(95.0).unwrap_or_default();
        let links = self.network.bottlenecks.iter().filter_map(|id| self.outcome.link(*id));
        links.max_by_key(|link| link.occupancy.quantile(most))
    }
}

/// Simulates the flows of one cell.
pub(crate) fn simulate(cell: &FlowsCell, step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
    let job = step.job;
    let own_kind = Carrier::of(job.system).map_err(Failure::Workload)?;
    let mut scene = Scene::of(cell, step)?;
    let recalled = memory::of(&scene, own_kind, job)?;
    let ended = scene.play(own_kind, recalled, job)?;
    scene.first_data = ended.first_data;
    let outcome = &ended.outcome;
    if let Some(why) = outcome.tunnels.iter().find_map(|tunnel| tunnel.lost.as_ref()) {
        return Err(Failure::Workload(format!("the tunnel's connection was lost: {why}")));
    }
    match outcome.end {
        End::Finished | End::TimeUp => {}
        End::Unfinished { flows } => {
            let total = scene.patience().since(Time::ZERO).secs_f64();
            let (are, them) = number_of(flows);
            let text = format!("{are} not done after {total:.1} s: give {them} more time");
            return Err(Failure::Workload(text));
        }
        End::Stalled { flows } => {
            let (are, _) = number_of(flows);
            let text = format!("{are} not done and the simulation has no further events");
            return Err(Failure::Workload(text));
        }
        End::EventBudget => {
            return Err(Failure::Workload("more events than allowed".to_owned()));
        }
    }
    if scene.flows.arrivals.is_some() && ended.measured(&scene).next().is_none() {
        return Err(Failure::Workload(NOBODY_CAME.to_owned()));
    }
    let mut result = metrics::of(&scene, &ended);
    if recalled.is_some() {
        memory::record(&scene, &ended, own_kind, job, &mut result)?;
    }
    if let Some(Beside { algorithm, .. }) = scene.flows.beside {
        let other = algorithm.map(Carrier::Tcp);
        result.record("harm", scene.harm(job, other, own_kind, ended.beside(), step.shared)?);
    }
    if scene.traced {
        result.series = super::curves::of(job, &ended);
    }
    result.congestion_control = Some(own_kind.name());
    result.fingerprint = Some(format!("{:016x}", outcome.hash()));
    Ok(result)
}

impl Scene {
    /// Returns the share of goodput that the competing flows lose to the flows under test, relative
    /// to the competing flows' goodput if the flows under test use the same algorithm.
    fn harm(
        &self,
        job: &Job<'_>,
        other: Option<Carrier>,
        own_kind: Carrier,
        beside: &[FlowOutcome],
        shared: &Shared,
    ) -> Result<Option<f64>, Failure> {
        let Some(other) = other.filter(|other| *other != own_kind) else { return Ok(Some(0.0)) };
        let name = format!("{:?} {}", job.cell.axes, job.step.block);
        let among_its_own = shared.number(name, || {
            let quiet = Self { traced: false, ..self.clone() };
            let ended = quiet.play(other, None, job).ok()?;
            Some(mean_goodput(ended.beside()))
        });
        if job.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let among_its_own = among_its_own.filter(|alone| *alone > 0.0);
        Ok(among_its_own.map(|alone| 1.0 - mean_goodput(beside) / alone))
    }

    /// Simulates the scene. The flows under test begin with the path memory `recalled`.
    pub(super) fn play(
        &self,
        carrier: Carrier,
        recalled: Option<cc::Memory>,
        job: &Job<'_>,
    ) -> Result<Ended, Failure> {
        let network = Network::of(self);
        let (mut flows, own_ways) = self.flows_of(carrier, recalled, &network)?;
        let tested = self.beside_count()..self.beside_count() + own_ways.len();
        let endless = self.is_endless();
        // Record curves to show how flows share the link, unless the flows are too many for a
        // chart.
        let followed = self.traced || endless && flows.len() <= MOST_FOLLOWED;
        for flow in &mut flows {
            let tcp = !matches!(flow.traffic, Traffic::Datagrams { .. });
            flow.traced = followed && tcp && tested.end <= MOST_FOLLOWED;
        }
        let tunnels = carrier::tunnels(carrier, &mut flows, self.mtu);
        let mut begun: Vec<Time> = flows.iter().map(|flow| flow.start).collect();
        let sizes = flows.iter().map(size_of).collect();
        let first = flows.get(tested.start).map_or(Time::ZERO, |flow| flow.start);
        let first = self.first_data.unwrap_or(first);
        let opening = network.own(0).round_trip * ROUND_TRIPS_OF_AN_OPENING;
        let lasts = self.until().since(Time::ZERO);
        let spacing = (self.round_trip() / 2).max(lasts / POINTS).max(Span::from_micros(10));
        let config = WorldConfig {
            seed: self.seed,
            until: self.patience(),
            measure_from: self.measured_from(),
            opening_until: (first + opening).min(self.until()),
            sample_every: spacing,
            // Unfinished flows keep the world running, so the world may record more samples.
            sample_limit: 3 * POINTS as usize,
            traced: if self.traced { network.bottlenecks.clone() } else { Vec::new() },
            tunnels,
            ..WorldConfig::default()
        };
        let mut world = World::new(&network.topology, flows, config)
            .map_err(|error| Failure::Workload(error.to_string()))?;
        if self.flows.together && self.first_data.is_none() {
            // The changes of a link also count from the first data, so start the world again with
            // the known time.
            let first_data = Some(world.run_to_first_data().ok_or_else(no_data)?);
            return Self { first_data, ..self.clone() }.play(carrier, recalled, job);
        }
        let mut at = Time::ZERO;
        let mut in_time = Vec::new();
        while at < self.patience() {
            if job.cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            at = match at < self.until() {
                true => (at + LOOK_EVERY).min(self.until()),
                false => (at + LOOK_EVERY).min(self.patience()),
            };
            let over = world.run_until(at).is_some();
            if in_time.is_empty() && (over || at >= self.until()) {
                in_time = world.counts();
            }
            if over || at >= self.until() && world.unfinished() == 0 {
                break;
            }
        }
        // If no flow needs to finish, the world ends exactly at its planned time.
        let waits = self.patience() > self.until();
        let outcome = if waits { world.end_here() } else { world.run() };
        if self.flows.together {
            let connected = outcome.flows.iter().filter_map(|flow| flow.connected).max();
            begun.fill(Time::ZERO + connected.unwrap_or_default());
        }
        let first_data = self.first_data;
        Ok(Ended { outcome, network, tested, begun, sizes, in_time, own_ways, spacing, first_data })
    }

    /// Builds the competing flows, the flows under test and the cross traffic. Also returns the
    /// endpoint pairs of the flows under test.
    fn flows_of(
        &self,
        carrier: Carrier,
        recalled: Option<cc::Memory>,
        network: &Network,
    ) -> Result<(Vec<FlowSpec>, Vec<usize>), Failure> {
        let others = self.beside_count();
        let other = self.flows.beside.and_then(|beside| beside.algorithm);
        let other = other.map_or(carrier, Carrier::Tcp);
        let demand = self.demand();
        let hosts = match recalled {
            None => Arc::clone(&self.hosts),
            memory => Arc::new(TcpConfig { memory, ..TcpConfig::clone(&self.hosts) }),
        };
        let own = |number: usize| carrier.flow(network.own(number), demand, &hosts, false);
        let starts = self.starts();
        let mut own_ways: Vec<usize> = (0..starts.len() - others).collect();
        let mut flows: Vec<FlowSpec> = starts
            .into_iter()
            .enumerate()
            .map(|(number, start)| {
                let flow = match number.checked_sub(others) {
                    Some(number) => own(number),
                    None => {
                        other.flow(network.beside(number), sim::Demand::Bulk, &self.hosts, true)
                    }
                };
                flow.starting(start)
            })
            .collect();
        if let Some(arrivals) = self.arrivals() {
            // Choose endpoint pairs at random, so that no pair is favoured.
            let mut ways = link::Stream::new(self.seed, "ways");
            let coming = arrivals.flows_at_most(2 * MOST_ARRIVALS, |_| {
                let way = (ways.unit() * network.ways() as f64) as usize;
                own_ways.push(way);
                own(way)
            });
            let Some(coming) = coming else {
                let text = format!(
                    "more than {MOST_ARRIVALS} flows would arrive: use fewer or larger flows, \
                     or a shorter time"
                );
                return Err(Failure::Workload(text));
            };
            flows.extend(coming);
        }
        if own_ways.is_empty() {
            return Err(Failure::Workload(NOBODY_CAME.to_owned()));
        }
        if let Some(cross) = self.flows.cross {
            let rate = cross.rate.of(self.rate().unwrap_or_default());
            let spacing = if cross.poisson { Spacing::Poisson } else { Spacing::Even };
            let size = Bytes::new(self.hosts.mss.count() + self.hosts.headers.count());
            let sent =
                |(from, to): &(Node, Node)| FlowSpec::datagrams(*from, *to, rate, size, spacing);
            flows.extend(network.cross.iter().map(sent));
        }
        Ok((flows, own_ways))
    }

    /// Returns the demand of each flow under test. Arrivals set their own sizes.
    fn demand(&self) -> sim::Demand {
        match (&self.flows.size, self.flows.demand) {
            (Some(sizes), _) => sim::Demand::Size(sizes.mean()),
            (None, Demand::Bulk) if self.flows.together => sim::Demand::BulkTogether,
            (None, Demand::Bulk) => sim::Demand::Bulk,
            (None, Demand::Pieces { size, every }) => sim::Demand::Pieces { size, every },
            (None, Demand::OnOff { rate, on, off, random }) => {
                let rate = rate.of(self.rate().unwrap_or_default());
                sim::Demand::OnOff { rate, on, off, random }
            }
        }
    }
}

/// Returns the mean goodput in Mbit/s. Zero for an empty list.
pub(super) fn mean_goodput(flows: &[FlowOutcome]) -> f64 {
    let sum: f64 = flows.iter().map(|flow| flow.goodput.mbit_per_second()).sum();
    sum / flows.len().max(1) as f64
}

fn number_of(flows: usize) -> (String, &'static str) {
    match flows {
        1 => ("1 flow was".to_owned(), "it"),
        _ => (format!("{flows} flows were"), "them"),
    }
}

fn no_data() -> Failure {
    let patience = sim::FIRST_DATA_WITHIN.secs_f64();
    let text = format!("a flow had no data within {patience:.0} s: the path loses everything");
    Failure::Workload(text)
}

fn size_of(flow: &FlowSpec) -> Option<Bytes> {
    match flow.traffic {
        Traffic::Tcp { demand: sim::Demand::Size(size), .. }
        | Traffic::Tunnelled { demand: sim::Demand::Size(size), .. } => Some(size),
        _ => None,
    }
}

const NOBODY_CAME: &str = "no flow arrived in the measured time: use more flows or a longer time";
/// The simulated time between two checks for cancellation and completion.
const LOOK_EVERY: Span = Span::from_millis(50);
/// Number of points of a curve, enough to show how a flow's window converges to its share.
const POINTS: u64 = 6000;
const MOST_FOLLOWED: usize = 64;
/// Duration of an opening, with a margin: slow start reaches 16,000 segments after eleven round
/// trips.
const ROUND_TRIPS_OF_AN_OPENING: u64 = 20;
