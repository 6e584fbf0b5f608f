//! Steps in virtual time: simulator worlds built from the same lab files.

use super::carrier::Carrier;
use super::shared::Shared;
use crate::executor::{Bench, Job};
use crate::file::{LabFile, SystemKind, SystemSpec, WorkloadKind};
use crate::run::environment;
use crate::run::plan::{Plan, Step, seed_of};
use crate::run::{Measurement, Verdict};
use crate::workload::{flows, validate};
use crate::{Failure, LabError};
use indexmap::IndexMap;
use link::Capacity;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use toml::Spanned;

/// The simulator, prepared for one lab.
pub(crate) struct Simulator<'a> {
    lab: &'a LabFile,
    threads: usize,
    /// Goodput of competing flows among flows of their own kind, by cell.
    shared: Shared,
}

impl<'a> Simulator<'a> {
    pub(crate) fn new(lab: &'a LabFile, threads: usize) -> Result<Self, LabError> {
        if lab.workload.get_ref().kind == WorkloadKind::Bulk {
            refuse_unlimited(lab)?;
        }
        Ok(Self { lab, threads, shared: Shared::default() })
    }
}

impl Bench for Simulator<'_> {
    fn threads(&self) -> usize {
        self.threads
    }

    fn notes(&self) -> Vec<String> {
        match self.lab.sysctl.is_empty() {
            true => Vec::new(),
            false => vec![
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
        match system.kind {
            SystemKind::Tcp | SystemKind::Tunnel => Carrier::of(system).err(),
            SystemKind::External => Some("programs do not run in virtual time".to_owned()),
            SystemKind::Link => Some("there is no emulated link in virtual time".to_owned()),
            SystemKind::Model => None,
        }
    }

    fn estimate(&self, plan: &Plan, left: &[&Step]) -> Duration {
        let side_by_side = self.threads.max(1) as f64;
        if self.lab.workload.get_ref().kind == WorkloadKind::Validate {
            let all = (plan.duration * left.len() as u64).secs_f64();
            return Duration::from_secs_f64(all / side_by_side).max(SHORTEST_ESTIMATE);
        }
        let packets: f64 = left
            .iter()
            .map(|step| {
                let axes = &plan.cells[step.cell].axes;
                let links = self.lab.links_at(axes).unwrap_or_default();
                let mut ways = links.iter().filter_map(|link| link.ways());
                let rate = ways.find_map(|ways| ways.forward.config.rate.mean_rate());
                let lasts = (plan.omit + plan.duration).secs_f64();
                rate.map_or(0.0, |rate| rate.mbit_per_second() * 1e6 * lasts / BITS_OF_A_PACKET)
            })
            .sum();
        let estimate = packets * SECONDS_A_PACKET / side_by_side;
        Duration::from_secs_f64(estimate).max(SHORTEST_ESTIMATE)
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
        if job.system.kind == SystemKind::Model {
            return validate::measure(job, seed);
        }
        let carrier = Carrier::of(job.system).map_err(Failure::Workload)?;
        flows::simulated::measure(job, carrier, seed, &self.shared)
    }
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

/// Refuses a lab without a rate limit, because a flow's rate would grow without end.
fn refuse_unlimited(lab: &LabFile) -> Result<(), LabError> {
    for axes in crate::run::plan::all_places(lab) {
        let ends = lab.workload_at(&axes)?;
        let links = lab.links_at(&axes)?;
        let way = links.iter().find(|link| link.joins(&ends.from, &ends.to));
        let limited = way
            .and_then(|link| link.way_from(&ends.from))
            .is_some_and(|config| config.rate != Capacity::Unlimited);
        if !limited {
            let workload = lab.workload.get_ref();
            let place = [&workload.via, &workload.to].into_iter().flatten().next();
            let place = place.map_or(lab.workload.span(), Spanned::span);
            let message = "a link without a `rate` is as fast as the machine, and virtual time has \
                           no machine: give the link a rate, or use weir lab run";
            return Err(lab.source.error(place, message).into());
        }
    }
    Ok(())
}

/// Used only for the estimate.
const BITS_OF_A_PACKET: f64 = 12_112.0;
const SECONDS_A_PACKET: f64 = 1.2e-6;
const SHORTEST_ESTIMATE: Duration = Duration::from_secs(1);
