//! Runs a lab: every turn of the plan, each written down before the next begins.

use crate::file::{LabFile, Pinning, SystemSpec, Traffic};
use crate::outcome::{Outcome, Verdict};
use crate::plan::{Plan, PlannedCell, seed_of};
use crate::run_directory::RunDirectory;
use crate::testbed::CpuPlan;
use crate::workload::{IPERF3, Turn, is_installed, missing_programs};
use crate::{Cancel, LabError, date, environment, runs, summary};
use host::Privilege;
use report::{Form, Results};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use units::Span;

/// What is to be run, and where its traces go.
#[derive(Debug)]
pub struct Request {
    pub lab: LabFile,
    pub form: Form,
    pub place: Place,
    /// Only these systems; all of the file if empty.
    pub systems: Vec<String>,
    pub repeats: Option<u32>,
    /// How a person would ask for the same again.
    pub command: String,
    pub privilege: Privilege,
    /// Where `weir` itself is: it makes the traffic.
    pub weir: PathBuf,
}

/// Where a run is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a new directory inside this one, named by lab, form and time.
    Inside(PathBuf),
    /// In this one, which must be new or empty.
    At(PathBuf),
    /// In the one where it was begun.
    Resume(PathBuf),
}

/// A run that came to its end.
#[derive(Debug)]
pub struct Finished {
    pub results: Results,
    pub directory: PathBuf,
}

/// Told what goes on, for whoever watches.
pub trait Progress {
    fn plan(&mut self, plan: &Plan, finished: usize, estimate: Duration);
    fn turn(&mut self, number: usize, cell: &PlannedCell);
    fn done(&mut self, number: usize, outcome: &Outcome);
    fn note(&mut self, text: &str);
}

pub fn run(
    request: Request,
    cancel: &Cancel,
    progress: &mut dyn Progress,
) -> Result<Finished, LabError> {
    let lab = &request.lab;
    let (systems, mut notes) = runnable(&request)?;
    let cpus = CpuPlan::for_lab(lab);
    if lab.workload.get_ref().pin == Pinning::Apart && !cpus.is_apart() {
        let note =
            "both ends share the one CPU there is for them, though `pin = \"apart\"` was asked for";
        notes.push(note.to_owned());
    }
    notes.iter().for_each(|note| progress.note(note));
    let names: Vec<String> = systems.iter().map(|system| system.name().to_owned()).collect();
    let plan = Plan::new(lab, request.form, &names, request.repeats);
    let mut facts = environment::describe(lab, &cpus, request.privilege);
    let begun = Instant::now();
    let started = date::now();
    let form = request.form.word();
    let text = lab.text();
    let description = environment::as_run_toml(lab, form, &request.command, &started, &facts);
    let (mut directory, mut outcomes) = match &request.place {
        Place::Resume(path) => RunDirectory::resume(path, &text, form)?,
        Place::At(path) => (RunDirectory::create(path, &text, &description)?, Vec::new()),
        Place::Inside(folder) => {
            let name = || runs::fresh(folder, lab.name(), request.form);
            (RunDirectory::create_new(name, &text, &description)?, Vec::new())
        }
    };
    outcomes.retain(|outcome| plan.turns.iter().any(|turn| plan.is_turn_of(turn, outcome)));
    let around = if lab.is_emulated() { AROUND_A_TURN } else { AROUND_A_TURN_OF_CABLES };
    let per_turn = plan.omit + plan.duration + around;
    let left = plan.turns.len().saturating_sub(outcomes.len());
    progress.plan(&plan, outcomes.len(), (per_turn * left as u64).as_duration());
    for (number, turn) in plan.turns.iter().enumerate() {
        if outcomes.iter().any(|outcome| plan.is_turn_of(turn, outcome)) {
            continue;
        }
        let cell = &plan.cells[turn.cell];
        progress.turn(number, cell);
        let Some(system) = systems.iter().find(|system| system.name() == cell.system) else {
            continue;
        };
        let verdict = measured(&Turn {
            lab,
            system,
            axes: &cell.axes,
            ends: &lab.workload_at(&cell.axes)?,
            form: plan.form,
            duration: plan.duration,
            omit: plan.omit,
            seed: seed_of(lab, cell, turn.block),
            cpus: &cpus,
            weir: &request.weir,
            programs: directory.programs(),
            cancel,
        });
        let Some(verdict) = verdict else {
            let directory = Some(directory.path().to_owned());
            return Err(LabError::Interrupted { directory });
        };
        let outcome = Outcome {
            system: cell.system.clone(),
            axes: cell.axes.clone(),
            block: turn.block,
            verdict,
        };
        directory.keep(&outcome)?;
        progress.done(number, &outcome);
        outcomes.push(outcome);
    }
    let read = summary::algorithms(&outcomes);
    if !read.is_empty() {
        let read: serde_json::Map<_, _> =
            read.into_iter().map(|(system, name)| (system, name.into())).collect();
        facts.insert("congestion_control_read_back".to_owned(), read.into());
    }
    directory.describe(&environment::as_run_toml(lab, form, &request.command, &started, &facts))?;
    let mut results = summary::results(lab, &plan, &outcomes);
    results.environment = facts;
    results.command = request.command.clone();
    results.started = Some(started);
    results.duration_s = Some(begun.elapsed().as_secs_f64());
    results.notes.extend(notes);
    results.warnings.extend(request.privilege.degradation().map(str::to_owned));
    let (samples, series) = summary::samples(lab, &outcomes);
    report::write_run(directory.path(), &results, &samples, &series, &lab.text())?;
    Ok(Finished { results, directory: directory.path().to_owned() })
}

/// Measures one turn. A turn whose emulation did not keep its bounds is measured again: that it is
/// repeated depends on the emulator's own clock, never on the figure. `None` if it was interrupted.
fn measured(turn: &Turn<'_>) -> Option<Verdict> {
    let mut attempts = 0;
    // Whoever asked for the quick form is in a hurry.
    let retries = if turn.form == Form::Full { RETRIES } else { 1 };
    let mut retried = Vec::new();
    loop {
        match turn.measure() {
            Ok(mut measurement) if measurement.invalid.is_empty() || attempts == retries => {
                measurement.retried = retried;
                return Some(Verdict::Measured(measurement));
            }
            Ok(measurement) => {
                attempts += 1;
                retried.extend(measurement.invalid);
            }
            Err(_) if turn.cancel.is_cancelled() => return None,
            Err(failure) => return Some(Verdict::Failed(failure.to_string())),
        }
    }
}

/// The systems that can run here, and a note for each that cannot.
fn runnable(request: &Request) -> Result<(Vec<SystemSpec>, Vec<String>), LabError> {
    let lab = &request.lab;
    let known: Vec<&str> = lab.systems().map(SystemSpec::name).collect();
    for wanted in &request.systems {
        if !known.contains(&wanted.as_str()) {
            let hint = crate::nearest(wanted, known.iter().copied());
            let text = format!("no system `{wanted}`{hint}; the lab has {}", known.join(", "));
            return Err(LabError::Usage(text));
        }
    }
    let (mut systems, mut notes) = (Vec::new(), Vec::new());
    for system in lab.systems() {
        let name = system.name();
        let asked = request.systems.iter().any(|wanted| wanted == name);
        if !request.systems.is_empty() && !asked {
            continue;
        }
        let mut missing = missing_programs(system);
        // Labs that compare with it are of use without it too.
        let without_peer = system.traffic() == Traffic::Iperf3 && !is_installed(IPERF3);
        if without_peer {
            missing.push(IPERF3.to_owned());
        }
        let optional = system.optional || without_peer;
        if missing.is_empty() || !optional || asked {
            systems.push(system.clone());
        } else {
            let are = if missing.len() == 1 { "is" } else { "are" };
            let missing = missing.join(" and ");
            notes.push(format!("{name} is left out: {missing} {are} not installed"));
        }
    }
    if systems.is_empty() {
        return Err(LabError::NothingToRun { reasons: notes.join("; ") });
    }
    Ok((systems, notes))
}

const RETRIES: usize = 2;
/// What building a network and starting programs takes, for the estimate.
const AROUND_A_TURN: Span = Span::from_millis(700);
const AROUND_A_TURN_OF_CABLES: Span = Span::from_millis(100);
