//! Runs a lab: every turn of the plan, each written down before the next begins.

use crate::file::{LabFile, SystemKind, SystemSpec};
use crate::outcome::{Outcome, Verdict};
use crate::plan::{Plan, PlannedCell, seed_of};
use crate::run_directory::RunDirectory;
use crate::testbed::CpuPlan;
use crate::workload::{Turn, is_installed, missing_programs};
use crate::{Cancel, LabError, environment, summary};
use host::Privilege;
use report::{Form, Results};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use units::Span;

/// What is to be run, and where its traces go.
#[derive(Debug)]
pub struct Request {
    pub lab: LabFile,
    pub form: Form,
    pub directory: PathBuf,
    pub resume: bool,
    /// Only these systems; all of the file if empty.
    pub systems: Vec<String>,
    pub repeats: Option<u32>,
    /// How a person would ask for the same again.
    pub command: String,
    pub privilege: Privilege,
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
    let (systems, notes) = runnable(&request)?;
    notes.iter().for_each(|note| progress.note(note));
    let names: Vec<String> = systems
        .iter()
        .map(|system| system.name().to_owned())
        .collect();
    let plan = Plan::new(lab, request.form, &names, request.repeats);
    let mut facts = environment::describe(lab, request.privilege);
    let begun = Instant::now();
    let started = utc_now();
    let (mut directory, mut outcomes) = if request.resume {
        RunDirectory::resume(&request.directory, &lab.text(), request.form.word())?
    } else {
        let run =
            environment::as_run_toml(lab, request.form.word(), &request.command, &started, &facts);
        (
            RunDirectory::create(&request.directory, &lab.text(), &run)?,
            Vec::new(),
        )
    };
    outcomes.retain(|outcome| plan.turns.iter().any(|turn| plan.is_turn_of(turn, outcome)));
    let cpus = CpuPlan::of_this_machine();
    let per_turn = plan.omit + plan.duration + Span::from_millis(700);
    let left = plan.turns.len().saturating_sub(outcomes.len());
    progress.plan(
        &plan,
        outcomes.len(),
        (per_turn * left as u64).as_duration(),
    );
    for (number, turn) in plan.turns.iter().enumerate() {
        if outcomes
            .iter()
            .any(|outcome| plan.is_turn_of(turn, outcome))
        {
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
            duration: plan.duration,
            omit: plan.omit,
            seed: seed_of(lab, cell, turn.block),
            cpus: &cpus,
            programs: directory.programs(),
            cancel,
        })?;
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
    let form = request.form.word();
    directory.describe(&environment::as_run_toml(lab, form, &request.command, &started, &facts))?;
    let mut results = summary::results(lab, &plan, &outcomes);
    results.environment = facts;
    results.command = request.command.clone();
    results.started = Some(started);
    results.duration_s = Some(begun.elapsed().as_secs_f64());
    results.notes.extend(notes);
    results
        .warnings
        .extend(request.privilege.degradation().map(str::to_owned));
    let (samples, series) = summary::samples(lab, &outcomes);
    report::write_run(directory.path(), &results, &samples, &series, &lab.text())?;
    Ok(Finished {
        results,
        directory: directory.path().to_owned(),
    })
}

/// Measures one turn. A turn whose emulation did not keep its bounds is measured again: that it is
/// repeated depends on the emulator's own clock, never on the figure.
fn measured(turn: &Turn<'_>) -> Result<Verdict, LabError> {
    let mut attempts = 0;
    let mut retried = Vec::new();
    loop {
        match turn.measure() {
            Ok(mut measurement) if measurement.invalid.is_empty() || attempts == RETRIES => {
                measurement.retried = retried;
                return Ok(Verdict::Measured(measurement));
            }
            Ok(measurement) => {
                attempts += 1;
                retried.extend(measurement.invalid);
            }
            Err(_) if turn.cancel.is_cancelled() => return Err(LabError::Interrupted),
            Err(failure) => return Ok(Verdict::Failed(failure.to_string())),
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
            let text = format!(
                "no system `{wanted}`{hint}; the lab has {}",
                known.join(", ")
            );
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
        let missing = missing_programs(system);
        if missing.is_empty() || !system.optional || asked {
            systems.push(system.clone());
        } else {
            let are = if missing.len() == 1 { "is" } else { "are" };
            let missing = missing.join(" and ");
            notes.push(format!("{name} is left out: {missing} {are} not installed"));
        }
    }
    if systems.is_empty() {
        return Err(LabError::NothingToRun {
            reasons: notes.join("; "),
        });
    }
    let uses_iperf3 = systems.iter().any(|system| system.kind != SystemKind::Link);
    if uses_iperf3 && !is_installed("iperf3") {
        let text = "the workload needs iperf3, which is not installed: apt-get install iperf3, or scripts/setup";
        return Err(LabError::Usage(text.to_owned()));
    }
    Ok((systems, notes))
}

/// As in RFC 3339, to the second.
fn utc_now() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    rfc3339(seconds)
}

/// Days to a civil date: Howard Hinnant's `civil_from_days`.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

const RETRIES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_230_000), "2026-11-21T03:00:00Z");
    }
}
