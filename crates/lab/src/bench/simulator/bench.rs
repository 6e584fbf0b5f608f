//! Measures steps in virtual time, in simulator worlds that are built from the same lab files.

use super::carrier::Carrier;
use super::shared::Shared;
use crate::bench::{Bench, Job, LabFile, environment};
use crate::model::file::{Document, SystemKind, SystemSpec};
use crate::model::plan::{Plan, Step, seed_of};
use crate::model::{Failure, LabError, Measurement, Verdict};
use indexmap::IndexMap;
use results::Axes;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The parameters of one step.
#[derive(Debug)]
pub(crate) struct SimulatorStep<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) seed: u64,
    /// Figures that several cells need and that the first of these cells computes.
    pub(crate) shared: &'a Shared,
}

/// The bench of the simulator, prepared for one lab.
pub(crate) struct Simulator<'a> {
    lab: &'a LabFile,
    threads: usize,
    /// Goodput of competing flows in a world whose flows under test use the same algorithm, by
    /// cell.
    shared: Shared,
}

impl<'a> Simulator<'a> {
    pub(crate) fn new(lab: &'a LabFile, threads: usize) -> Result<Self, LabError> {
        lab.kind().check_simulated(lab)?;
        Ok(Self { lab, threads, shared: Shared::default() })
    }
}

impl Bench for Simulator<'_> {
    fn threads(&self) -> usize {
        self.threads
    }

    fn notes(&self) -> Vec<String> {
        match self.lab.has_settings() {
            false => Vec::new(),
            true => vec![
                "kernel settings have no effect in virtual time: its hosts use Linux's \
                           defaults with buffers that do not limit"
                    .to_owned(),
            ],
        }
    }

    fn degradation(&self) -> Option<String> {
        None
    }

    fn facts(&self) -> IndexMap<String, serde_json::Value> {
        environment::describe_simulator(self.lab, self.threads)
    }

    fn missing(&self, system: &SystemSpec, _asked: bool) -> Option<String> {
        if !system.sysctl.is_empty() {
            return Some("its `sysctl` does not exist in virtual time: weir lab run".to_owned());
        }
        match system.kind {
            SystemKind::Tcp | SystemKind::Tunnel => Carrier::of(system).err(),
            SystemKind::External => Some("programs do not run in virtual time".to_owned()),
            SystemKind::Link => Some("there is no emulated link in virtual time".to_owned()),
            SystemKind::Model | SystemKind::Doctor | SystemKind::Switch => None,
        }
    }

    fn estimate(&self, plan: &Plan, left: &[&Step]) -> Duration {
        let of_one = |step: &&Step| {
            let axes = &plan.cells[step.cell].axes;
            self.lab.kind().simulator_time(self.lab, axes, plan)
        };
        let all: Duration = left.iter().map(of_one).sum();
        all.div_f64(self.threads.max(1) as f64).max(SHORTEST_ESTIMATE)
    }

    fn measure(&self, job: &Job<'_>) -> Result<Option<Verdict>, LabError> {
        if job.cancel.is_cancelled() {
            return Ok(None);
        }
        let seed = seed_of(job.lab, job.cell, job.step.block);
        // A panic in one world must not end a long run.
        let measured = catch_unwind(AssertUnwindSafe(|| self.measured(job, seed)));
        Ok(match measured {
            Ok(Ok(measurement)) => Some(Verdict::Measured(Box::new(measurement))),
            Ok(Err(Failure::Interrupted)) => None,
            Ok(Err(failure)) => Some(Verdict::Failed(failure.to_string())),
            Err(panic) => {
                let text = format!("the simulator panicked: {}", words_of(panic.as_ref()));
                Some(Verdict::Failed(text))
            }
        })
    }
}

impl Simulator<'_> {
    fn measured(&self, job: &Job<'_>, seed: u64) -> Result<Measurement, Failure> {
        let cell = job.lab.kind().at(job.lab, &job.cell.axes);
        let cell = cell.map_err(|error| Failure::Workload(error.to_string()))?;
        cell.simulate(&SimulatorStep { job, seed, shared: &self.shared })
    }
}

/// Estimates the computing time of a step whose link is busy throughout.
pub(crate) fn packet_time(document: &Document, axes: &Axes, plan: &Plan) -> Duration {
    let links = document.links_at(axes).unwrap_or_default();
    let mut ways = links.iter().filter_map(|link| link.ways());
    let rate = ways.find_map(|ways| ways.forward.config.rate.mean_rate());
    let lasts = (plan.omit + plan.duration).secs_f64();
    let packets = rate.map_or(0.0, |rate| rate.mbit_per_second() * 1e6 * lasts / BITS_OF_A_PACKET);
    Duration::from_secs_f64(packets * SECONDS_A_PACKET)
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

/// Size of a full frame in bits, for the estimate.
const BITS_OF_A_PACKET: f64 = 12_112.0;
/// Computing time for each packet. In a release build TCP takes 0.2 to 0.35 µs (incast, cc-grid,
/// caqm-fabric), a tunnel 1.4 µs (tunnel-paths).
const SECONDS_A_PACKET: f64 = 0.5e-6;
const SHORTEST_ESTIMATE: Duration = Duration::from_secs(1);
