//! Runs a lab: every step of the plan. Each step is written to disk before the next begins.

use super::directory::RunDirectory;
use super::environment::StealWatch;
use super::inputs::Inputs;
use super::{Build, command, date, environment, merge, on_disk, record, steps};
use crate::analysis::summary;
use crate::bench::{self, Bench, Executor, Job, LabFile};
use crate::model::Shard;
use crate::model::clock;
use crate::model::file::SystemSpec;
use crate::model::plan::{Plan, PlannedCell, Step};
use crate::model::{Cancel, LabError, Outcome, plan};
use indexmap::IndexMap;
use report::profile::Profile;
use results::{Form, Results};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The lab to run, and how.
#[derive(Debug)]
pub struct Request {
    pub lab: LabFile,
    pub form: Form,
    pub location: Location,
    /// Only these systems. All systems of the file if empty.
    pub systems: Vec<String>,
    pub repeats: Option<u32>,
    /// Instead of the file's. A run that is resumed keeps its own.
    pub seed: Option<u64>,
    /// The source of this program.
    pub build: Build,
    /// The command line that repeats this run.
    pub command: String,
    pub executor: Executor,
    /// Only this part of the plan. `None`: the whole plan, or the part that a resumed run began.
    pub shard: Option<Shard>,
}

/// The directory that a run is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A new directory inside this one, named by lab, form and time.
    Inside(PathBuf),
    /// This directory, which must be new or empty.
    At(PathBuf),
    /// The directory of an earlier run, to measure what is left: turns without a result and, with
    /// `again`, turns that failed or were invalid. Another user's run needs `trust`.
    Resume { run: PathBuf, trust: bool, again: bool },
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    pub results: Results,
    pub directory: PathBuf,
    /// Turns that failed or were invalid, and may be better if they are measured again.
    pub unfit: usize,
    /// The stacks of the CPUs, if the user asked for a profile.
    pub profile: Option<Profile>,
}

/// A shard that has ended. Its figures are part of a merged run.
#[derive(Debug)]
pub struct FinishedShard {
    pub shard: Shard,
    pub turns: usize,
    pub directory: PathBuf,
    /// Turns that failed or were invalid.
    pub unfit: usize,
}

#[derive(Debug)]
pub enum Ended {
    Run(Box<Finished>),
    Shard(FinishedShard),
}

/// Receives progress reports for the user.
pub trait Progress {
    fn plan(&mut self, plan: &Plan, finished: usize, estimate: Duration);
    fn step(&mut self, number: usize, cell: &PlannedCell, estimate: Duration);
    fn done(&mut self, number: usize, outcome: &Outcome);
    fn note(&mut self, text: &str);
}

pub fn run(
    mut request: Request,
    cancel: &Cancel,
    progress: &mut dyn Progress,
) -> Result<Ended, LabError> {
    let began = match &request.location {
        Location::Resume { run, trust, .. } => RunDirectory::description(run, *trust)?,
        Location::Inside(_) | Location::At(_) => toml::Table::new(),
    };
    let file_seed = request.lab.seed;
    if let Some(seed) = seed(&request, &began)? {
        request.lab.set_seed(seed)?;
    }
    request.continue_as(&began);
    if let Executor::Hosts { cancel: own, .. } = &mut request.executor {
        *own = cancel.clone();
    }
    let lab = &request.lab;
    let bench = request.executor.bench(lab)?;
    let (systems, notes) = runnable(&request, &*bench)?;
    bench.preface().iter().flat_map(|table| table.lines()).for_each(|line| progress.note(line));
    notes.iter().for_each(|note| progress.note(note));
    bench.check(&systems)?;
    let names: Vec<String> = systems.iter().map(|system| system.name().to_owned()).collect();
    let mut plan = Plan::new(lab, request.form, &names, request.repeats);
    let shard = shard(&request, &began)?;
    if shard.is_some() && bench.profile().is_some() {
        return Err(LabError::Usage(
            "--profile: the report of a shard has no profile: leave out --profile".to_owned(),
        ));
    }
    let turns = plan.steps.len();
    if let Some(shard) = shard {
        plan.keep_shard(lab, shard);
        progress.note(&format!("shard {shard}: {} of {turns} turns", plan.steps.len()));
    }
    let plan = plan;
    let command = match request.location {
        Location::Resume { .. } => {
            let verb = match request.executor {
                Executor::Machine { .. } | Executor::Hosts { .. } => "weir lab run",
                Executor::Simulator { .. } => "weir sim run",
            };
            let whole = command::of_continued(verb, lab, &plan, file_seed, &began);
            match shard {
                Some(shard) => format!("{whole} --shard {shard}"),
                None => whole,
            }
        }
        Location::Inside(_) | Location::At(_) => request.command.clone(),
    };
    let mut facts = environment::with_identity(lab, &request.build, bench.facts());
    let mut inputs = Inputs::of(lab, &plan, &systems, &request.build, &facts);
    facts.insert(record::INPUTS.to_owned(), inputs.sha256().into());
    let fewer = environment::fewer_at_first(&began, plan.repeats);
    if let Some(first) = fewer {
        facts.insert(environment::AT_FIRST.to_owned(), first.into());
    }
    let steal = StealWatch::begin();
    let begun = Instant::now();
    let parts = Parts::of(&began);
    let started = parts.started.clone();
    let form = request.form.word();
    let text = lab.text();
    let describe = |facts: &_, inputs: &_, measured: Option<f64>, again: Option<&String>| {
        let started = (started.as_str(), measured);
        let mut run = environment::as_run_toml(lab, &plan, &command, started, facts, inputs);
        if let Some(shard) = shard {
            let warnings: Vec<String> = bench.degradation().into_iter().collect();
            run.insert(merge::SHARD.to_owned(), shard.to_string().into());
            let notes: Vec<String> = notes.iter().chain(again).cloned().collect();
            run.insert(merge::NOTES.to_owned(), notes.into());
            run.insert(merge::WARNINGS.to_owned(), warnings.into());
        }
        run.to_string()
    };
    let description = describe(&facts, &inputs, None, None);
    let (mut directory, mut outcomes) = match &request.location {
        Location::Resume { run, trust, .. } => {
            let resumed = RunDirectory::resume(run, &text, form, *trust)?;
            inputs.continue_from(run, &began)?;
            // If this part is killed, nobody knows its time.
            let mut began = began;
            if began.remove(environment::MEASURED).is_some() {
                resumed.0.describe(&began.to_string())?;
            }
            resumed
        }
        Location::At(path) => (RunDirectory::create(path, &text, &description)?, Vec::new()),
        Location::Inside(folder) => {
            let name = || match shard {
                Some(shard) => on_disk::fresh_shard(folder, lab.name(), request.form, shard),
                None => on_disk::fresh(folder, lab.name(), request.form),
            };
            (RunDirectory::create_new(name, &text, &description)?, Vec::new())
        }
    };
    directory.mark(inputs.mark());
    plan.keep_own(&mut outcomes);
    let again = set_aside(&request.location, &mut outcomes);
    match (&again, &request.location) {
        (Some(note), _) => progress.note(note),
        (None, Location::Resume { again: true, .. }) => progress.note(NONE_AGAIN),
        _ => {}
    }
    let left: Vec<&Step> = plan.left(&outcomes);
    progress.plan(&plan, outcomes.len(), bench.estimate(&plan, &left));
    // Earlier parts of a resumed run may have measured without a profile.
    let earlier = outcomes.len();
    let programs = directory.programs().to_owned();
    let jobs: Vec<Job<'_>> = left
        .into_iter()
        .filter_map(|step| {
            let cell = &plan.cells[step.cell];
            let system = systems.iter().find(|system| system.name() == cell.system)?;
            Some(Job { lab, plan: &plan, step, cell, system, programs: &programs, cancel })
        })
        .collect();
    let mut keep = |outcome: Outcome| {
        directory.keep(&outcome)?;
        outcomes.push(outcome);
        Ok(())
    };
    let measured = steps::measure(&*bench, &jobs, progress, &mut keep);
    bench.finish();
    let duration_s = parts.earlier_s.map(|earlier| earlier + begun.elapsed().as_secs_f64());
    let described = match measured {
        Ok(true) => Ok(()),
        _ => directory.describe(&describe(&facts, &inputs, duration_s, again.as_ref())),
    };
    let measured = measured.map_err(|error| error.within(directory.path()));
    if !measured? {
        described?;
        let directory = Some(directory.path().to_owned());
        return Err(LabError::Interrupted { directory });
    }
    drop(jobs);
    let profile = bench.profile().map(|systems| {
        let own = outcomes.get(earlier..).unwrap_or_default();
        Profile { systems, cost: bench::machine::cost_of_profile(own) }
    });
    plan.put_in_order(&mut outcomes);
    if shard.is_none() {
        add_readings(&outcomes, &mut facts);
    }
    steal.record(&mut facts);
    directory.describe(&describe(&facts, &inputs, duration_s, again.as_ref()))?;
    let unfit = unfit(lab, &outcomes);
    if let Some(shard) = shard {
        let directory = directory.path().to_owned();
        return Ok(Ended::Shard(FinishedShard { shard, turns: outcomes.len(), directory, unfit }));
    }
    let mut results = summary::results(lab, &plan, &outcomes);
    results.method.extend(bench.validity(&results));
    results.environment = facts;
    results.command = command;
    results.started = Some(started);
    results.duration_s = duration_s;
    results.notes.extend(notes);
    results.notes.extend(again);
    results.notes.extend(fewer.map(|first| more_repeats(first, plan.repeats)));
    results.warnings.extend(bench.degradation());
    let (samples, series) = summary::samples(lab, &outcomes);
    results.notes.extend(profile.iter().map(|_| SAMPLED.to_owned()));
    let text = lab.text();
    report::write_run(directory.path(), &results, &samples, &series, &text, profile.as_ref())?;
    let directory = directory.path().to_owned();
    Ok(Ended::Run(Box::new(Finished { results, directory, unfit, profile })))
}

/// Adds to the facts of a run what all its turns together say.
pub(super) fn add_readings(outcomes: &[Outcome], facts: &mut IndexMap<String, serde_json::Value>) {
    if let Some(hash) = summary::hash(outcomes) {
        facts.insert("result_hash".to_owned(), hash.into());
    }
    let read = summary::algorithms(outcomes);
    if !read.is_empty() {
        let read: serde_json::Map<_, _> =
            read.into_iter().map(|(system, name)| (system, name.into())).collect();
        facts.insert("congestion_control_read_back".to_owned(), read.into());
    }
    if let Some(clocks) = clock::summary(outcomes) {
        facts.insert("clocks_of_turns".to_owned(), clocks);
    }
}

/// The number of turns that failed or were invalid.
pub(super) fn unfit(lab: &LabFile, outcomes: &[Outcome]) -> usize {
    let is_unfit = |outcome: &&Outcome| {
        // A disturbance makes turns invalid on purpose.
        lab.disturbance.is_none() && !outcome.stands() && !outcome.is_left_out()
    };
    outcomes.iter().filter(is_unfit).count()
}

/// The shard of a new run, or the shard that a resumed run began.
fn shard(request: &Request, began: &toml::Table) -> Result<Option<Shard>, LabError> {
    let Location::Resume { run, .. } = &request.location else { return Ok(request.shard) };
    let ran = began.get(merge::SHARD).and_then(toml::Value::as_str);
    let ran = ran.and_then(|shard| shard.parse().ok());
    match (ran, request.shard) {
        (ran, Some(asked)) if ran != Some(asked) => {
            let begun = ran.map_or("without --shard".to_owned(), |ran| format!("as shard {ran}"));
            let difference = format!("it was begun {begun}: leave out --shard");
            Err(LabError::ResumesAnother { path: run.clone(), difference })
        }
        (ran, _) => Ok(ran),
    }
}

pub(super) fn more_repeats(first: i64, now: u32) -> String {
    format!(
        "the run was continued from {first} to {now} repeats; if its figures led to that, a verdict is \
         wrong more often than its level says"
    )
}

/// When a run began, and how long its earlier parts took, if it was interrupted.
struct Parts {
    started: String,
    /// `None` if a part was killed before it could write its time.
    earlier_s: Option<f64>,
}

impl Parts {
    fn of(began: &toml::Table) -> Self {
        let started = began.get("started").and_then(toml::Value::as_str);
        Self {
            started: started.map_or_else(date::now, str::to_owned),
            earlier_s: match started {
                Some(_) => began.get(environment::MEASURED).and_then(toml::Value::as_float),
                None => Some(0.0),
            },
        }
    }
}

impl Request {
    /// A run that is continued keeps its systems and repeats, unless others are named.
    fn continue_as(&mut self, began: &toml::Table) {
        if self.systems.is_empty()
            && let Some(systems) = began.get("systems").and_then(toml::Value::as_array)
        {
            let names = systems.iter().filter_map(toml::Value::as_str);
            self.systems = names.map(str::to_owned).collect();
        }
        let repeats = began.get("repeats").and_then(toml::Value::as_integer);
        self.repeats = self.repeats.or(repeats.and_then(|repeats| repeats.try_into().ok()));
    }
}

/// Takes out the turns that are measured again, and returns a note about them.
fn set_aside(location: &Location, outcomes: &mut Vec<Outcome>) -> Option<String> {
    if !matches!(location, Location::Resume { again: true, .. }) {
        return None;
    }
    let before = outcomes.len();
    outcomes.retain(Outcome::stands);
    match before - outcomes.len() {
        0 => None,
        1 => Some("one turn that failed or was invalid is measured again".to_owned()),
        count => Some(format!("{count} turns that failed or were invalid are measured again")),
    }
}

const SAMPLED: &str = "every second block was measured with --profile";
const NONE_AGAIN: &str = "no turn failed or was invalid, so none is measured again; for a new measurement, run the \
                          lab without --resume";

/// The seed that replaces the file's: the one that was asked for, or that of the resumed run.
fn seed(request: &Request, began: &toml::Table) -> Result<Option<u64>, LabError> {
    let environment = began.get("environment").and_then(|facts| facts.get("seed"));
    let ran = environment.and_then(toml::Value::as_integer).map(i64::cast_unsigned);
    match (&request.location, ran, request.seed) {
        (Location::Resume { run, .. }, Some(ran), Some(asked)) if ran != asked => {
            let difference = format!("it was begun with seed {ran}, not {asked}: leave out --seed");
            Err(LabError::ResumesAnother { path: run.clone(), difference })
        }
        (_, ran, asked) => Ok(asked.or(ran)),
    }
}

/// The systems that can run here, and a note for each that cannot.
fn runnable(
    request: &Request,
    bench: &dyn Bench,
) -> Result<(Vec<SystemSpec>, Vec<String>), LabError> {
    let lab = &request.lab;
    let known: Vec<&str> = lab.systems().map(SystemSpec::name).collect();
    for wanted in &request.systems {
        if !known.contains(&wanted.as_str()) {
            let hint = crate::model::file::nearest(wanted, known.iter().copied());
            let text = format!("no system `{wanted}`{hint}; the lab has {}", known.join(", "));
            return Err(LabError::Usage(text));
        }
    }
    let (mut systems, mut notes) = (Vec::new(), Vec::new());
    for system in lab.systems() {
        let name = system.name();
        let asked = request.systems.iter().any(|wanted| wanted == name);
        let chosen = match request.systems.as_slice() {
            [] => plan::form_of(lab, request.form).measures(name),
            _ => asked,
        };
        if !chosen {
            continue;
        }
        match bench.missing(system, asked) {
            None => systems.push(system.clone()),
            Some(reason) => notes.push(format!("{name} is left out: {reason}")),
        }
    }
    if systems.is_empty() {
        return Err(LabError::NothingToRun { reasons: notes.join("; ") });
    }
    notes.extend(bench.notes());
    Ok((systems, notes))
}
