//! The conditions of one cell, independent of the system under test.

use crate::bench::Job;
use crate::bench::simulator::SimulatorStep;
use crate::model::Failure;
use crate::model::file::{DirectionSettings, Shape, TopologySettings, axes};
use crate::workloads::flows::cell::FlowsCell;
use crate::workloads::flows::demand::Arrivals;
use crate::workloads::flows::settings::FlowsSettings;
use link::{Capacity, LinkConfig, Stream};
use sim::{FIRST_DATA_WITHIN, TcpConfig};
use std::sync::Arc;
use toml::Spanned;
use units::{Bytes, Rate, Span, Time};

#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) there: DirectionSettings,
    pub(super) back: DirectionSettings,
    pub(super) topology: TopologySettings,
    pub(super) flows: FlowsSettings,
    pub(super) hosts: Arc<TcpConfig>,
    /// Whether the tested flows ask for CAQM.
    pub(super) asks_for_caqm: bool,
    /// The largest IP packet that the link carries.
    pub(super) mtu: Bytes,
    pub(super) omit: Span,
    pub(super) duration: Span,
    pub(super) seed: u64,
    /// The time of the first data of all flows that begin together. `None` until a first simulation
    /// has found the time.
    pub(super) first_data: Option<Time>,
    /// Whether the report includes the curves of this step.
    pub(super) traced: bool,
}

impl Scene {
    pub(super) fn of(cell: &FlowsCell, step: &SimulatorStep<'_>) -> Result<Self, Failure> {
        let job = step.job;
        let missing = || Failure::Workload("no emulated link carries the workload".to_owned());
        let (link, hosts) = cell.link.as_ref().ok_or_else(missing)?;
        let ways = link.direction_from(&cell.from).zip(link.direction_from(&cell.to));
        let (there, back) = ways.ok_or_else(missing)?;
        let product = link.product_from(&cell.from);
        let system = job.lab.system_at(&job.cell.axes, job.system, product);
        let system = system.map_err(|error| Failure::Workload(error.to_string()))?;
        let mut there = there.clone();
        if let Some(queue) = system.queue {
            let round_trip = there.config.delay + back.config.delay;
            there.config.queue = queue.on_path(there.config.rate.mean_rate(), round_trip);
        }
        let mut flows = cell.flows.clone();
        // A `warm` system remembers the path, unless the file sets the memory.
        if job.system.is_warm() {
            flows.memory = flows.memory.or(Some(1.0));
        }
        Ok(Self {
            there,
            back: back.clone(),
            topology: cell.topology.clone(),
            flows,
            hosts: Arc::new(TcpConfig { caqm: system.caqm, ..hosts.clone() }),
            asks_for_caqm: job
                .system
                .congestion
                .as_ref()
                .is_some_and(|name| name.get_ref() == accel::caqm::NAME),
            mtu: Bytes::new(u64::from(link.mtu)),
            omit: job.plan.omit,
            duration: job.plan.duration,
            seed: step.seed,
            first_data: None,
            traced: is_traced(job),
        })
    }

    /// Returns the number of competing flows.
    pub(super) fn beside_count(&self) -> usize {
        let each = self.flows.beside.map_or(0, |beside| beside.count as usize);
        match self.topology.shape {
            // Every bottleneck has the same number of competing flows.
            Shape::ParkingLot { hops } => each * hops as usize,
            _ => each,
        }
    }

    pub(super) fn own_hosts(&self) -> usize {
        self.flows.own as usize
    }

    /// Returns the link's own round-trip time.
    pub(super) fn round_trip(&self) -> Span {
        self.there.config.delay + self.back.config.delay
    }

    /// Returns the initial rate. For a trace, returns its mean rate.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.there.config.rate.mean_rate()
    }

    /// Returns the hosts' access link in a data centre. The default rate of the access link is the
    /// rate of the link.
    pub(super) fn access(&self) -> LinkConfig {
        let rate = self.topology.access.clone().unwrap_or_else(|| match self.rate() {
            Some(rate) => Capacity::Fixed(rate),
            None => Capacity::Unlimited,
        });
        LinkConfig { rate, ..LinkConfig::default() }
    }

    /// Returns the share of a frame's bytes that reaches the application.
    pub(super) fn payload_share(&self) -> f64 {
        let (mss, headers) = (self.hosts.mss, self.hosts.headers);
        let frame = Bytes::new(mss.count() + headers.count());
        mss.count() as f64 / self.there.config.overhead.on_the_medium(frame).count() as f64
    }

    /// Whether flows go on until the cell ends.
    pub(super) fn is_endless(&self) -> bool {
        self.flows.size.is_none()
    }

    /// Returns the goodput in Mbit/s that is possible on one bottleneck with this `rate`: without
    /// headers, the medium's losses and cross traffic, and at most the policer's rate.
    pub(super) fn ideal_of(&self, rate: Rate) -> f64 {
        let policed = self.there.policer.map_or(rate, |policer| rate.min(policer.rate));
        let cross = self
            .flows
            .cross
            .map_or(Rate::default(), |cross| cross.rate.of(self.rate().unwrap_or_default()));
        let left = (policed.mbit_per_second() - cross.mbit_per_second()).max(0.0);
        left * self.payload_share() * (1.0 - self.there.config.loss.mean().fraction())
    }

    /// Returns the average of the possible goodput over the measured time.
    pub(super) fn ideal(&self) -> Option<f64> {
        let mut rate = self.rate()?;
        let (mut sum, mut from) = (0.0, Span::ZERO);
        for (at, next) in &self.there.steps {
            let at = (*at).min(self.duration);
            sum += self.ideal_of(rate) * (at - from).secs_f64();
            (rate, from) = (*next, at);
        }
        sum += self.ideal_of(rate) * (self.duration - from).secs_f64();
        let mean = sum / self.duration.secs_f64();
        (mean > 0.0).then_some(mean)
    }

    /// Returns the start times of the flows that are not random arrivals. The list has the
    /// competing flows before the flows under test, whichever start first. Each flow is delayed by
    /// a random part of a round trip: flows that begin at exactly the same time would synchronise,
    /// unlike flows in practice. Flows that begin together open their connections at once, as a
    /// program does.
    pub(super) fn starts(&self) -> Vec<Time> {
        if self.flows.together {
            return vec![Time::ZERO; self.flows.own as usize];
        }
        let mut late = Stream::new(self.seed, "starts");
        let own = if self.flows.arrivals.is_some() { 0 } else { self.flows.own as usize };
        let beside = self.beside_count();
        (0..beside + own)
            .map(|number| {
                let late = self.round_trip().nanos() as f64 * late.unit();
                let turn = match (self.flows.own_first, number.checked_sub(beside)) {
                    (false, _) => number,
                    (true, Some(own)) => own,
                    (true, None) => own + number,
                };
                Time::ZERO + self.flows.stagger * turn as u64 + Span::from_nanos(late as u64)
            })
            .collect()
    }

    /// Returns the time from which the omitted time counts.
    fn last_start(&self) -> Time {
        if self.flows.together {
            return self.first_data.unwrap_or(Time::ZERO + FIRST_DATA_WITHIN);
        }
        self.starts().into_iter().max().unwrap_or(Time::ZERO)
    }

    pub(super) fn measured_from(&self) -> Time {
        // For flows that have an end, the whole time counts.
        let all = !self.is_endless() && self.flows.arrivals.is_none();
        if all { Time::ZERO } else { self.last_start() + self.omit }
    }

    pub(super) fn until(&self) -> Time {
        self.last_start() + self.omit + self.duration
    }

    /// Returns the deadline for flows that have an end.
    pub(super) fn patience(&self) -> Time {
        match self.is_endless() {
            true => self.until(),
            false => self.until() + self.duration.max(LEAST_PATIENCE),
        }
    }

    /// Returns the arrivals of flows, with their times and sizes.
    pub(super) fn arrivals(&self) -> Option<sim::Arrivals> {
        let sizes = self.flows.size.clone()?;
        let arrivals = self.flows.arrivals?;
        let gap = arrivals.mean_gap(&sizes, self.rate().unwrap_or_default());
        let times = match arrivals {
            Arrivals::Every(_) => sim::Times::Every(gap),
            Arrivals::PerSecond(_) | Arrivals::Load(_) => sim::Times::Poisson(gap),
        };
        let (from, until) = (Time::ZERO, self.until());
        Some(sim::Arrivals { times, sizes, from, until, seed: self.seed })
    }
}

/// Whether the report includes the curves of this step. The file chooses the steps; without a
/// choice, all steps are included if there are few.
fn is_traced(job: &Job<'_>) -> bool {
    if job.lab.trace.is_empty() {
        return job.plan.steps.len() <= MOST_TURNS_WITH_CURVES;
    }
    let system = job.system.name();
    job.step.block == 0
        && job.lab.trace.iter().any(|trace| {
            let mut systems = trace.systems.iter().map(Spanned::get_ref);
            (trace.systems.is_empty() || systems.any(|name| name == system))
                && axes::agrees(job.lab, &trace.at, &job.cell.axes)
        })
}

/// Maximum number of turns with curves. A longer report is unreadable, and the journal would be
/// large.
const MOST_TURNS_WITH_CURVES: usize = 60;
/// Minimum time for flows that have an end. This time suffices for a flow beside another flow that
/// takes nearly all of a slow link.
const LEAST_PATIENCE: Span = Span::from_secs(900);
