//! Stacks of the whole machine during the measured windows of a run.
//!
//! Turns with and without sampling alternate, block by block. The systems of a block are all
//! sampled or all not, and the run measures the cost of sampling.

use crate::model::{LabError, Outcome, Verdict};
use indexmap::IndexMap;
use probe::profile::{INTERVAL, KernelNames, Profiler};
use report::profile::SystemProfile;
use results::metrics;
use stats::Direction;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The stacks that a run has sampled so far, by system.
#[derive(Debug)]
pub(crate) struct Profiling {
    names: KernelNames,
    systems: Mutex<IndexMap<String, SystemProfile>>,
}

impl Profiling {
    /// Checks that this machine and this user have perf events, and starts an empty profile.
    pub(super) fn new() -> Result<Self, LabError> {
        let names = KernelNames::read().map_err(refused)?;
        drop(start(&names)?);
        if names.is_empty() {
            let text = "--profile: the kernel hides the addresses of its functions: run as root, or set \
                        kernel.kptr_restrict to 0";
            return Err(LabError::CannotMeasure { problems: vec![text.to_owned()] });
        }
        Ok(Self { names, systems: Mutex::default() })
    }

    /// Calls `measure`, and samples stacks meanwhile if the block is sampled.
    pub(super) fn around(
        &self,
        system: &str,
        block: u32,
        measure: impl FnOnce() -> Result<Option<Verdict>, LabError>,
    ) -> Result<Option<Verdict>, LabError> {
        if !is_sampled(block) {
            return measure();
        }
        let profiler = start(&self.names)?;
        let verdict = measure()?;
        let Some(Verdict::Measured(measured)) = &verdict else { return Ok(verdict) };
        let profile = profiler.stop(&self.names);
        let Some(window) = measured.window.clone() else { return Ok(verdict) };
        let mut systems = self.systems.lock().unwrap_or_else(PoisonError::into_inner);
        let into = systems.entry(system.to_owned()).or_insert_with(|| SystemProfile {
            system: system.to_owned(),
            interval: INTERVAL,
            ..SystemProfile::default()
        });
        into.observed = into.observed + window.end.since(window.start);
        into.lost += profile.lost;
        for sample in profile.samples.iter().filter(|sample| window.contains(&sample.taken)) {
            into.add(sample.cpu, &sample.frames);
        }
        Ok(verdict)
    }

    pub(super) fn systems(&self) -> Vec<SystemProfile> {
        let systems = self.systems.lock().unwrap_or_else(PoisonError::into_inner);
        systems.values().cloned().collect()
    }
}

fn start(names: &KernelNames) -> Result<Profiler, LabError> {
    Profiler::start(names).map_err(refused)
}

fn refused(error: probe::ProbeError) -> LabError {
    LabError::CannotMeasure { problems: vec![format!("--profile: {error}")] }
}

const fn is_sampled(block: u32) -> bool {
    block.is_multiple_of(2)
}

/// States the cost of sampling in a sentence. Compares each sampled turn with the turn of the same
/// cell in the next block.
pub(crate) fn cost(outcomes: &[Outcome]) -> String {
    let mut figures: HashMap<(String, u32), (f64, Direction)> = HashMap::new();
    for outcome in outcomes {
        let Verdict::Measured(measured) = &outcome.verdict else { continue };
        let name = report::main_metric(measured.metrics.keys().map(String::as_str));
        let found = name
            .and_then(|name| Some((measured.metrics.get(name)?.value, metrics::direction(name)?)));
        if let Some(found) = found.filter(|(value, _)| *value > 0.0) {
            let cell = format!("{} {:?}", outcome.system, outcome.axes);
            figures.insert((cell, outcome.block), found);
        }
    }
    let lost = figures.iter().filter(|((_, block), _)| is_sampled(*block));
    let lost = lost.filter_map(|((cell, block), (sampled, direction))| {
        let (plain, _) = figures.get(&(cell.clone(), block + 1))?;
        let ratio = match direction {
            Direction::HigherIsBetter => sampled / plain,
            Direction::LowerIsBetter => plain / sampled,
        };
        Some((1.0 - ratio) * 100.0)
    });
    let lost: Vec<f64> = lost.collect();
    let interval = stats::median_interval(&lost).ok().flatten();
    match (stats::median(&lost), interval) {
        (Ok(median), Some(interval)) => format!(
            "Sampled turns alternated with others and lost {median:.1} % of the main figure (median of {} \
             pairs, interval {:.1} to {:.1} %).",
            lost.len(),
            interval.low,
            interval.high
        ),
        _ => "The cost of sampling is not known: a run of six pairs of turns or more measures it."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Measurement;
    use results::Axes;

    #[test]
    fn profiling_cost_compares_sampled_turns_with_the_next_turns() {
        let outcome = |block: u32| {
            let mut measured = Measurement::default();
            let goodput = if is_sampled(block) { 98.0 } else { 100.0 };
            measured.record("goodput_mbit_s", Some(goodput));
            Outcome::measured("tcp", Axes::new(), block, measured)
        };
        let told = |blocks: u32| cost(&(0..blocks).map(outcome).collect::<Vec<_>>());
        assert!(
            told(12).contains("lost 2.0 % of the main figure (median of 6 pairs"),
            "{}",
            told(12)
        );
        assert!(told(1).contains("is not known"), "{}", told(1));
    }
}
