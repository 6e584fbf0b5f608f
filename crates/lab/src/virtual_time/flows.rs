//! Flows over one link: the world of a cell, and what came of it.

use super::metrics;
use super::shared::Shared;
use crate::Failure;
use crate::executor::Job;
use crate::file::{Beside, FlowsSettings};
use crate::outcome::Measurement;
use crate::plan::Plan;
use cc::Algorithm;
use link::{LinkConfig, Stream};
use sim::{
    Demand, End, FlowOutcome, FlowSpec, LinkId, Outcome, TcpConfig, Topology, World, WorldConfig,
};
use std::sync::Arc;
use units::{Bytes, Share, Span, Time};

/// The place of one cell, whoever is tested there.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) there: LinkConfig,
    back: LinkConfig,
    hosts: Arc<TcpConfig>,
    pub(super) flows: FlowsSettings,
    omit: Span,
    duration: Span,
    seed: u64,
    /// Curves are kept.
    traced: bool,
}

/// A world that came to its end.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) bottleneck: LinkId,
}

pub(super) fn measure(
    job: &Job<'_>,
    own_kind: Algorithm,
    seed: u64,
    shared: &Shared,
) -> Result<Measurement, Failure> {
    let scene = Scene::of(job, seed)?;
    let ended = scene.play(own_kind, job)?;
    let outcome = &ended.outcome;
    match outcome.end {
        End::Finished | End::TimeUp => {}
        End::Unfinished { flows } => {
            let total = scene.until().since(Time::ZERO);
            let text = format!("{flows} flows were not done after {total}: give them more time");
            return Err(Failure::Workload(text));
        }
        End::Stalled { flows } => {
            let text = format!("{flows} flows were not done and nothing would happen any more");
            return Err(Failure::Workload(text));
        }
        End::EventBudget => {
            return Err(Failure::Workload("more events than allowed".to_owned()));
        }
    }
    let (beside, own) = outcome.flows.split_at(scene.others() as usize);
    let mut result = metrics::of(&scene, &ended, own, beside);
    if let Some(Beside { algorithm, .. }) = scene.flows.beside {
        result.record("harm", "", scene.harm(job, algorithm, own_kind, beside, shared)?);
    }
    if scene.traced {
        result.series = metrics::curves(job, &ended, scene.others() as usize);
    }
    result.congestion_control = Some(own_kind.name().to_owned());
    result.fingerprint = Some(format!("{:016x}", outcome.hash()));
    Ok(result)
}

impl Scene {
    fn of(job: &Job<'_>, seed: u64) -> Result<Self, Failure> {
        let wrong = |error: crate::FileError| Failure::Workload(error.to_string());
        let axes = &job.cell.axes;
        let ends = job.lab.workload_at(axes).map_err(wrong)?;
        let links = job.lab.links_at(axes).map_err(wrong)?;
        let missing = || Failure::Workload("no emulated link carries the workload".to_owned());
        let link =
            links.iter().find(|link| link.joins(&ends.from, &ends.to)).ok_or_else(missing)?;
        let (there, back) =
            link.way_from(&ends.from).zip(link.way_from(&ends.to)).ok_or_else(missing)?;
        // 20 bytes each for IP and TCP and 12 for time stamps (RFC 7323).
        let mss = Bytes::new(u64::from(link.mtu.saturating_sub(52)));
        let Plan { omit, duration, .. } = *job.plan;
        Ok(Self {
            there: there.clone(),
            back: back.clone(),
            hosts: Arc::new(TcpConfig { mss, ..TcpConfig::default() }),
            flows: job.lab.flows_at(axes).map_err(wrong)?,
            omit,
            duration,
            seed,
            traced: job.plan.turns.len() <= MOST_TURNS_WITH_CURVES,
        })
    }

    /// The flows that are not under test; they are the world's first.
    pub(super) fn others(&self) -> u32 {
        self.flows.beside.map_or(0, |beside| beside.count)
    }

    pub(super) fn round_trip(&self) -> Span {
        self.there.delay + self.back.delay
    }

    /// The part of a frame that an application sees.
    pub(super) fn payload_share(&self) -> f64 {
        let (mss, headers) = (self.hosts.mss, self.hosts.headers);
        let frame = Bytes::new(mss.count() + headers.count());
        mss.count() as f64 / self.there.overhead.on_the_medium(frame).count() as f64
    }

    /// When each flow begins: one after the other, each a part of a round trip late, as chance has it:
    /// flows that begin at the very same time move in step as they never do elsewhere.
    fn starts(&self) -> Vec<Time> {
        let mut late = Stream::new(self.seed, "starts");
        (0..u64::from(self.others() + self.flows.own))
            .map(|number| {
                let late = self.round_trip().nanos() as f64 * late.unit();
                Time::ZERO + self.flows.stagger * number + Span::from_nanos(late as u64)
            })
            .collect()
    }

    fn measured_from(&self) -> Time {
        self.starts().into_iter().max().unwrap_or(Time::ZERO) + self.omit
    }

    fn until(&self) -> Time {
        self.measured_from() + self.duration
    }

    /// What the flows beside lose to those under test, measured by what they lose to their own kind.
    fn harm(
        &self,
        job: &Job<'_>,
        other: Option<Algorithm>,
        own_kind: Algorithm,
        beside: &[FlowOutcome],
        shared: &Shared,
    ) -> Result<Option<f64>, Failure> {
        let Some(other) = other.filter(|other| *other != own_kind) else { return Ok(Some(0.0)) };
        let name = format!("{:?} {}", job.cell.axes, job.turn.block);
        let among_its_own = shared.number(name, || {
            let quiet = Self { traced: false, ..Self::of(job, self.seed).ok()? };
            let ended = quiet.play(other, job).ok()?;
            Some(mean_goodput(&ended.outcome.flows[..quiet.others() as usize]))
        });
        if job.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let among_its_own = among_its_own.filter(|alone| *alone > 0.0);
        Ok(among_its_own.map(|alone| 1.0 - mean_goodput(beside) / alone))
    }

    fn play(&self, algorithm: Algorithm, job: &Job<'_>) -> Result<Ended, Failure> {
        let mut network = Topology::new();
        let (from, to) = (network.node(), network.node());
        let bottleneck = network.link("there", from, to, &self.there);
        network.link("back", to, from, &self.back);
        let other = self.flows.beside.and_then(|beside| beside.algorithm).unwrap_or(algorithm);
        let demand = self.flows.size.map_or(Demand::Bulk, Demand::Size);
        let flows = self
            .starts()
            .into_iter()
            .enumerate()
            .map(|(number, start)| {
                let hosts = Arc::clone(&self.hosts);
                let flow = match number < self.others() as usize {
                    true => FlowSpec::tcp(from, to, other, Demand::Bulk, hosts),
                    false => FlowSpec::tcp(from, to, algorithm, demand, hosts),
                };
                FlowSpec { traced: self.traced, ..flow.starting(start) }
            })
            .collect();
        let config = WorldConfig {
            seed: self.seed,
            until: self.until(),
            measure_from: self.measured_from(),
            sample_limit: POINTS_OF_A_CURVE,
            traced: if self.traced { vec![bottleneck] } else { Vec::new() },
            ..WorldConfig::default()
        };
        let mut world = World::new(&network, flows, config)
            .map_err(|error| Failure::Workload(error.to_string()))?;
        let mut at = Time::ZERO;
        while at < self.until() {
            if job.cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            at += LOOK_EVERY;
            if world.run_until(at.min(self.until())).is_some() {
                break;
            }
        }
        Ok(Ended { outcome: world.run(), bottleneck })
    }
}

/// In Mbit/s; of nobody it is nothing.
pub(super) fn mean_goodput(flows: &[FlowOutcome]) -> f64 {
    let sum: f64 = flows.iter().map(|flow| flow.goodput.mbit_per_second()).sum();
    sum / flows.len().max(1) as f64
}

pub(super) fn part(percent: f64) -> Share {
    Share::from_percent(percent).unwrap_or_default()
}

/// What is simulated between two looks at whether to go on.
const LOOK_EVERY: Span = Span::from_millis(50);
/// A report with more of them nobody reads, and the journal would be large.
const MOST_TURNS_WITH_CURVES: usize = 60;
const POINTS_OF_A_CURVE: usize = 400;
