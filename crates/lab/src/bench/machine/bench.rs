//! Measures steps on this machine in network namespaces and in real time, one step at a time.

use super::{
    CpuPlan, Kept, Loaded, MachineStep, Profiling, Roles, Watch, is_installed, missing_programs,
    preflight, validity,
};
use crate::bench::simulator::Simulator;
use crate::bench::workload::programs;
use crate::bench::{Bench, Job, LabFile, agreement, environment};
use crate::model::file::{Pinning, SystemSpec};
use crate::model::plan::{Plan, Step, seed_of};
use crate::model::{Failure, Flaw, LabError, Measurement, Verdict};
use host::Privilege;
use indexmap::IndexMap;
use report::profile::SystemProfile;
use results::{CpuLimit, Form, Results};
use std::path::Path;
use std::time::Duration;
use units::Span;

/// The bench of this machine, prepared for one lab.
pub(crate) struct Machine<'a> {
    lab: &'a LabFile,
    privilege: Privilege,
    weir: &'a Path,
    cpus: CpuPlan,
    /// The simulator, which simulates each step for comparison with the measurement.
    simulator: Option<Simulator<'a>>,
    kept: Kept,
    loaded: Loaded,
    profiling: Option<Profiling>,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(
        lab: &'a LabFile,
        privilege: Privilege,
        weir: &'a Path,
        profile: bool,
    ) -> Result<Self, LabError> {
        let simulator = match lab.kind().is_simulated_too() {
            true => Some(Simulator::new(lab, 1)?),
            false => None,
        };
        let (cpus, kept) = (CpuPlan::for_lab(lab), Kept::default());
        let profiling = if profile { Some(Profiling::new()?) } else { None };
        let loaded = Loaded::default();
        Ok(Self { lab, privilege, weir, cpus, simulator, kept, loaded, profiling })
    }
}

impl Bench for Machine<'_> {
    fn threads(&self) -> usize {
        1
    }

    fn notes(&self) -> Vec<String> {
        let shared = "both ends share one CPU, and their softirqs count together: the lab asks for a CPU for \
                      each end, and this machine has too few";
        let pin = self.lab.workload.get_ref().pin;
        let shares = pin != Pinning::Free && !self.cpus.is_apart();
        shares.then(|| shared.to_owned()).into_iter().collect()
    }

    fn degradation(&self) -> Option<String> {
        self.privilege.degradation().map(str::to_owned)
    }

    fn facts(&self) -> IndexMap<String, serde_json::Value> {
        environment::describe(self.lab, &self.cpus, self.privilege)
    }

    fn validity(&self, results: &Results) -> Vec<(String, String)> {
        match self.lab.is_emulated() {
            true => validity::method(results),
            false => Vec::new(),
        }
    }

    fn missing(&self, system: &SystemSpec, asked: bool) -> Option<String> {
        if let Some(reason) = self.lab.kind().missing_program() {
            return Some(reason.to_owned());
        }
        let mut missing = missing_programs(system);
        missing.extend(programs(self.lab, system).into_iter().filter(|name| !is_installed(name)));
        // Leave the system out instead of an error: a lab that compares with iperf3 is useful even
        // without iperf3.
        let peer = system.traffic().peer().filter(|peer| !is_installed(peer));
        missing.extend(peer.map(str::to_owned));
        let optional = system.optional || peer.is_some();
        // Client and server may be the same program: name the program once.
        missing.dedup();
        if missing.is_empty() || !optional || asked {
            return None;
        }
        let are = if missing.len() == 1 { "is" } else { "are" };
        let names = missing.join(" and ");
        Some(match system.install.as_str() {
            "" => format!("{names} {are} not installed"),
            install => format!("{names} {are} not installed: {install}"),
        })
    }

    fn check(&self, systems: &[SystemSpec]) -> Result<(), LabError> {
        let mut problems: Vec<String> = systems
            .iter()
            .filter_map(|system| {
                let problem = preflight::problem_of(system, &programs(self.lab, system))?;
                Some(format!("{}: {problem}", system.name()))
            })
            .collect();
        problems.extend(preflight::problems_of_states(self.lab, self.privilege));
        match problems.is_empty() {
            true => Ok(()),
            false => Err(LabError::CannotMeasure { problems }),
        }
    }

    fn finish(&self) {
        self.kept.clear();
        self.loaded.clear();
    }

    fn profile(&self) -> Option<Vec<SystemProfile>> {
        self.profiling.as_ref().map(Profiling::systems)
    }

    fn estimate(&self, plan: &Plan, left: &[&Step]) -> Duration {
        let emulated = self.lab.is_emulated();
        let around = if emulated { AROUND_A_TURN } else { AROUND_A_TURN_OF_CABLES };
        let lasting = |step: &&Step| {
            let cell = plan.cells.get(step.cell)?;
            let system = self.lab.systems().find(|system| system.name() == cell.system)?;
            Some(self.lab.kind().machine_time(self.lab, system, &cell.axes, plan))
        };
        let omit = if self.lab.kind().keeps_cells() { Span::ZERO } else { plan.omit };
        let of_one = |step: &&Step| omit + lasting(step).unwrap_or(plan.duration) + around;
        let measuring = left.iter().map(of_one).fold(Span::ZERO, |sum, one| sum + one);
        (measuring + LOADING * self.loads(plan, left)).as_duration()
    }

    fn measure(&self, job: &Job<'_>) -> Result<Option<Verdict>, LabError> {
        let Job { lab, plan, step, cell, system, programs, cancel } = *job;
        let ends = &lab.kind().ends(lab, &cell.axes)?;
        let turn = MachineStep {
            lab,
            system,
            axes: &cell.axes,
            ends,
            form: plan.form,
            duration: plan.duration,
            omit: plan.omit,
            seed: seed_of(lab, cell, step.block),
            cpus: &self.cpus,
            weir: self.weir,
            programs,
            kept: &self.kept,
            loaded: &self.loaded,
            cancel,
        };
        let measure =
            || measured(&turn).map_err(|reason| LabError::NotUndone { reason, directory: None });
        let verdict = match &self.profiling {
            Some(profiling) => profiling.around(system.name(), step.block, measure)?,
            None => measure()?,
        };
        let (simulator, mut measured) = match (&self.simulator, verdict) {
            (Some(simulator), Some(Verdict::Measured(measured))) => (simulator, measured),
            (_, verdict) => return Ok(verdict),
        };
        let mut worlds = Vec::with_capacity(WORLDS as usize);
        for number in 0..WORLDS {
            // The first world has the random losses of the measured step. The other worlds have
            // random losses that no step has.
            let block = step.block.wrapping_sub(number * BLOCKS_APART);
            let step = Step { block, ..step.clone() };
            match simulator.measure(&Job { step: &step, ..*job })? {
                None => return Ok(None),
                Some(Verdict::Measured(world)) => worlds.push(*world),
                Some(Verdict::Failed(reason)) => {
                    measured.warnings.push(format!("the simulation failed: {reason}"));
                    break;
                }
            }
        }
        if worlds.len() == WORLDS as usize {
            agreement::beside(&worlds, &mut measured);
        }
        Ok(Some(Verdict::Measured(measured)))
    }
}

impl Machine<'_> {
    /// Returns how often the states of these steps load an algorithm of Weir into the kernel.
    fn loads(&self, plan: &Plan, left: &[&Step]) -> u64 {
        let Some(state) = &self.lab.state else { return 0 };
        let loads = |step: &Step| {
            let cell = plan.cells.get(step.cell)?;
            let names = state.get_ref().side(&cell.system).algorithms();
            (!names.is_empty()).then_some(names)
        };
        let mut before = None;
        let mut count = 0;
        for step in left {
            let names = loads(step);
            count += u64::from(names.is_some() && names != before);
            before = names;
        }
        count
    }
}

/// Measures one step, and measures an invalid step again. The machine's clocks and, for a drawn
/// fault, the counts of the fault decide whether a step is invalid. Figures that the lab compares,
/// verdicts and failures of the step never make it invalid. Returns `None` if the step was
/// interrupted, and an error if the state of the step is still in force.
fn measured(step: &MachineStep<'_>) -> Result<Option<Verdict>, String> {
    let retries = match step.form {
        _ if step.lab.disturbance.is_some() => 0,
        Form::Full => RETRIES,
        // A short form must end soon, so a step is measured again once at most.
        _ => 1,
    };
    let mut retried = Vec::new();
    // A reading of all processes takes as long as a tenth of a short turn.
    let is_watched = step.cpus.emulator.is_some() || judges_other_programs(step);
    let watch = || is_watched.then(|| Watch::read(&Roles::default()).ok()).flatten();
    for attempts in 0.. {
        let before = watch();
        let mut outcome = step.measure();
        if let Err(Failure::NotUndone(reason)) = outcome {
            return Err(reason);
        }
        if outcome.is_err() && step.cancel.is_cancelled() {
            return Ok(None);
        }
        let now = watch();
        let users = before.zip(now).map(|(before, now)| {
            let beside = now.beside_the_emulator(&before, step.cpus);
            (beside, starved_by(step, &before, &now))
        });
        let (beside, starved) = users.unwrap_or_default();
        if let Ok(measurement) = &mut outcome {
            if let Some(user) = beside.filter(|_| !measurement.invalid.is_empty()) {
                validity::blame(&mut measurement.invalid, &user);
            }
            measurement.invalid.extend(starved.as_ref().map(validity::starved));
        }
        match Attempt::of(outcome, starved) {
            Attempt::Stands(verdict) => return Ok(Some(with_flaws(verdict, retried))),
            Attempt::Spoiled(_, verdict) if attempts == retries => {
                return Ok(Some(with_flaws(verdict, retried)));
            }
            Attempt::Spoiled(flaws, _) => retried.extend(flaws),
        }
    }
    Ok(None)
}

/// A measurement of a step, judged by the clocks of the machine.
enum Attempt {
    Stands(Verdict),
    /// An invalid measurement: the reasons, and the verdict that counts if no attempt follows.
    Spoiled(Vec<Flaw>, Verdict),
}

impl Attempt {
    fn of(outcome: Result<Measurement, Failure>, starved: Option<CpuLimit>) -> Self {
        match (outcome, starved) {
            (Ok(measurement), _) if measurement.invalid.is_empty() => {
                Self::Stands(Verdict::Measured(Box::new(measurement)))
            }
            (Ok(measurement), _) => {
                let flaws = measurement.invalid.clone();
                Self::Spoiled(flaws, Verdict::Measured(Box::new(measurement)))
            }
            // The lab woke too late, which says nothing about the system.
            (Err(failure @ Failure::ReadTooLate { .. }), None) => {
                let text = failure.to_string();
                Self::Spoiled(vec![validity::unread(&text)], Verdict::Failed(text))
            }
            (Err(failure), None) => Self::Stands(Verdict::Failed(failure.to_string())),
            (Err(failure), Some(user)) => {
                let text = format!("{failure} ({user} meanwhile: end it, and measure again)");
                Self::Spoiled(vec![validity::starved(&user)], Verdict::Failed(text))
            }
        }
    }
}

/// Adds the flaws of earlier attempts to the verdict.
fn with_flaws(verdict: Verdict, retried: Vec<Flaw>) -> Verdict {
    match verdict {
        Verdict::Measured(mut measurement) => {
            measurement.retried.splice(..0, retried);
            Verdict::Measured(measurement)
        }
        Verdict::Failed(reason) if retried.is_empty() => Verdict::Failed(reason),
        Verdict::Failed(reason) => {
            let times = retried.len();
            Verdict::Failed(format!("{reason} (after {times} flaws of earlier attempts)"))
        }
    }
}

/// Returns the program beside the lab that left a step too little time on the lab's CPUs.
fn starved_by(step: &MachineStep<'_>, before: &Watch, now: &Watch) -> Option<CpuLimit> {
    judges_other_programs(step).then(|| now.starved_by(before, step.cpus)).flatten()
}

/// Whether a program beside the lab can make a step invalid by its CPU time around the measurement.
fn judges_other_programs(step: &MachineStep<'_>) -> bool {
    // The programs that a lab keeps between steps use the CPUs on purpose.
    !step.lab.kind().keeps_cells()
        // The watched time includes the change of state, so steps in the slower state would be
        // measured again more often. The workload judges its own time, which is the same for both
        // states.
        && step.lab.state.is_none()
}

const RETRIES: usize = 2;
/// Number of simulations for each step. All simulations of a step together take about a tenth of a
/// second.
const WORLDS: u32 = 15;
const BLOCKS_APART: u32 = 10_000;
/// Estimated time to build a network and start programs.
const AROUND_A_TURN: Span = Span::from_millis(700);
const AROUND_A_TURN_OF_CABLES: Span = Span::from_millis(100);
/// The time that the kernel's verifier takes for the programs of tcpa and CAQM.
const LOADING: Span = Span::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> CpuLimit {
        CpuLimit { by: "stress".to_owned(), cpus: vec![1], percent: 60.0 }
    }

    fn is_repeated(outcome: Result<Measurement, Failure>, starved: Option<CpuLimit>) -> bool {
        let outcome = outcome.map(|mut measured| {
            measured.invalid.extend(starved.as_ref().map(validity::starved));
            measured
        });
        matches!(Attempt::of(outcome, starved), Attempt::Spoiled(..))
    }

    #[test]
    fn repeating_a_turn_does_not_depend_on_its_figures() {
        let figure = |goodput| {
            let mut measured = Measurement::default();
            measured.record("goodput_mbit_s", Some(goodput));
            Ok(measured)
        };
        let failed = || Err(Failure::Workload("no data".to_owned()));
        for starved in [None, Some(user())] {
            let expected = starved.is_some();
            for outcome in [figure(0.0), figure(900.0), failed()] {
                let shown = format!("{outcome:?} {starved:?}");
                assert_eq!(is_repeated(outcome, starved.clone()), expected, "{shown}");
            }
        }
    }

    #[test]
    fn a_turn_that_the_lab_read_too_late_is_measured_again() {
        let late = || Err(Failure::ReadTooLate { program: "weir perf".to_owned() });
        for starved in [None, Some(user())] {
            assert!(is_repeated(late(), starved));
        }
    }
}
