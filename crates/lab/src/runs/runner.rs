//! Runs a lab: every step of the plan. Each outcome is written to disk before the next step begins.

use super::directory::RunDirectory;
use super::environment::StealWatch;
use super::inputs::Inputs;
use super::{Build, command, date, environment, merge, on_disk, record, steps};
use crate::analysis::summary;
use crate::bench::machine::cost_of_profile;
use crate::bench::{Bench, Executor, Job, LabFile};
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

/// A request for a run: the lab, and the options of the run.
#[derive(Debug)]
pub struct Request {
    pub lab: LabFile,
    pub form: Form,
    pub location: Location,
    /// The systems to measure. Empty: all systems of the file.
    pub systems: Vec<String>,
    pub repeats: Option<u32>,
    /// Replaces the file's seed. A run that is resumed keeps its own seed.
    pub seed: Option<u64>,
    /// The source and the compilers of this program.
    pub build: Build,
    /// The command line that repeats this run.
    pub command: String,
    pub executor: Executor,
    /// The part of the plan to run. `None`: the whole plan, or the part that a resumed run began.
    pub shard: Option<Shard>,
}

/// The directory that a run is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A new directory inside the given directory, named by lab, form and time.
    Inside(PathBuf),
    /// The given directory, which must be new or empty.
    At(PathBuf),
    /// The directory of an earlier run. Measures the turns without a result and, with `again`,
    /// turns that failed or were invalid. Another user's run needs `trust`.
    Resume { run: PathBuf, trust: bool, again: bool },
}

/// The result of a run that has ended.
#[derive(Debug)]
pub struct Finished {
    pub results: Results,
    pub directory: PathBuf,
    /// Number of turns that failed or were invalid: a second measurement may succeed.
    pub unfit: usize,
    /// The stacks of the CPUs, if the user asked for a profile.
    pub profile: Option<Profile>,
}

/// The result of a shard that has ended. The figures of the shard are part of a merged run.
#[derive(Debug)]
pub struct FinishedShard {
    pub shard: Shard,
    pub turns: usize,
    pub directory: PathBuf,
    /// Number of turns that failed or were invalid.
    pub unfit: usize,
}

#[derive(Debug)]
pub enum Ended {
    Run(Box<Finished>),
    Shard(FinishedShard),
}

/// An interface to the user, which receives reports of a run's progress.
pub trait Progress {
    fn plan(&mut self, plan: &Plan, finished: usize, estimate: Duration);
    fn step(&mut self, number: usize, cell: &PlannedCell, estimate: Duration);
    fn done(&mut self, number: usize, outcome: &Outcome);
    fn note(&mut self, text: &str);
}

/// Runs a lab to its end. Each outcome is on disk before the next step begins.
pub fn run(
    mut request: Request,
    cancel: &Cancel,
    progress: &mut dyn Progress,
) -> Result<Ended, LabError> {
    let began = request.description_to_resume()?;
    let file_seed = request.lab.seed;
    request.continue_as(&began, cancel)?;
    let bench = request.executor.bench(&request.lab)?;
    let chosen = Chosen::of(&request, &began, &*bench, progress)?;
    let mut run = Running::of(&request, &*bench, chosen, &began, file_seed);
    let steal = StealWatch::begin();
    let begun = Instant::now();
    let (mut directory, mut outcomes) = run.open_directory(began)?;
    run.set_aside(&mut outcomes, progress);
    // Earlier parts of a resumed run may have measured without a profile.
    let earlier = outcomes.len();
    let measured = run.measure_what_is_left(&mut directory, &mut outcomes, cancel, progress);
    bench.finish();
    run.measured_s = run.parts.earlier_s.map(|earlier| earlier + begun.elapsed().as_secs_f64());
    run.end_unless_whole(measured, &directory)?;
    let profile = run.profile(outcomes.get(earlier..).unwrap_or_default());
    run.chosen.plan.put_in_order(&mut outcomes);
    run.complete_facts(&outcomes, &steal);
    directory.describe(&run.description())?;
    let unfit = unfit(&request.lab, &outcomes);
    match run.chosen.shard {
        Some(shard) => {
            let directory = directory.path().to_owned();
            Ok(Ended::Shard(FinishedShard { shard, turns: outcomes.len(), directory, unfit }))
        }
        None => run.report(&directory, &outcomes, profile, unfit),
    }
}

/// The steps that a run measures, chosen before anything is measured.
struct Chosen {
    systems: Vec<SystemSpec>,
    /// The reasons why systems are left out, and the notes of the bench.
    notes: Vec<String>,
    plan: Plan,
    shard: Option<Shard>,
}

impl Chosen {
    /// Chooses the systems, makes the plan and limits the plan to the shard. Tells the user which
    /// systems are left out.
    fn of(
        request: &Request,
        began: &toml::Table,
        bench: &dyn Bench,
        progress: &mut dyn Progress,
    ) -> Result<Self, LabError> {
        let lab = &request.lab;
        let (systems, notes) = runnable(request, bench)?;
        bench.preface().iter().flat_map(|table| table.lines()).for_each(|line| progress.note(line));
        notes.iter().for_each(|note| progress.note(note));
        bench.check(&systems)?;
        let names: Vec<String> = systems.iter().map(|system| system.name().to_owned()).collect();
        let mut plan = Plan::new(lab, request.form, &names, request.repeats);
        let shard = shard(request, began)?;
        if shard.is_some() && bench.profile().is_some() {
            return Err(LabError::Usage(
                "--profile: the report of a shard has no profile: leave out --profile".to_owned(),
            ));
        }
        if let Some(shard) = shard {
            let turns = plan.steps.len();
            plan.keep_shard(lab, shard);
            progress.note(&format!("shard {shard}: {} of {turns} turns", plan.steps.len()));
        }
        Ok(Self { systems, notes, plan, shard })
    }
}

/// A run that is planned and not yet reported.
struct Running<'a> {
    request: &'a Request,
    bench: &'a dyn Bench,
    chosen: Chosen,
    /// The command line that repeats this run.
    command: String,
    facts: IndexMap<String, serde_json::Value>,
    inputs: Inputs,
    /// The number of repeats with which the run began, if the run began with fewer repeats.
    fewer: Option<i64>,
    parts: Parts,
    /// A note about the turns that `--again` measures again.
    again: Option<String>,
    /// The seconds that all parts of the run took. `None` until the last part has ended.
    measured_s: Option<f64>,
}

impl<'a> Running<'a> {
    fn of(
        request: &'a Request,
        bench: &'a dyn Bench,
        chosen: Chosen,
        began: &toml::Table,
        file_seed: u64,
    ) -> Self {
        let lab = &request.lab;
        let command = command_of(request, &chosen, began, file_seed);
        let mut facts = environment::with_identity(lab, &request.build, bench.facts());
        let inputs = Inputs::of(lab, &chosen.plan, &chosen.systems, &request.build, &facts);
        facts.insert(record::INPUTS.to_owned(), inputs.sha256().into());
        let fewer = environment::fewer_at_first(began, chosen.plan.repeats);
        if let Some(first) = fewer {
            facts.insert(environment::AT_FIRST.to_owned(), first.into());
        }
        let parts = Parts::of(began);
        let (again, measured_s) = (None, None);
        Self { request, bench, chosen, command, facts, inputs, fewer, parts, again, measured_s }
    }

    /// Writes the text of `run.toml`.
    fn description(&self) -> String {
        let Self { request, chosen, .. } = self;
        let started = (self.parts.started.as_str(), self.measured_s);
        let (facts, inputs) = (&self.facts, &self.inputs);
        let plan = &chosen.plan;
        let mut run =
            environment::as_run_toml(&request.lab, plan, &self.command, started, facts, inputs);
        if let Some(shard) = chosen.shard {
            let warnings: Vec<String> = self.bench.degradation().into_iter().collect();
            run.insert(merge::SHARD.to_owned(), shard.to_string().into());
            let notes: Vec<String> = chosen.notes.iter().chain(&self.again).cloned().collect();
            run.insert(merge::NOTES.to_owned(), notes.into());
            run.insert(merge::WARNINGS.to_owned(), warnings.into());
        }
        run.to_string()
    }

    /// Opens the directory of the run, and reads the outcomes of its earlier parts.
    fn open_directory(
        &mut self,
        mut began: toml::Table,
    ) -> Result<(RunDirectory, Vec<Outcome>), LabError> {
        let Request { lab, form, location, .. } = self.request;
        let (text, description) = (lab.text(), self.description());
        let (mut directory, mut outcomes) = match location {
            Location::Resume { run, trust, .. } => {
                let resumed = RunDirectory::resume(run, &text, form.word(), *trust)?;
                self.inputs.continue_from(run, &began)?;
                // Remove the recorded time first, because the total is unknown if this part is
                // killed.
                if began.remove(environment::MEASURED).is_some() {
                    resumed.0.describe(&began.to_string())?;
                }
                resumed
            }
            Location::At(path) => (RunDirectory::create(path, &text, &description)?, Vec::new()),
            Location::Inside(folder) => {
                let name = || match self.chosen.shard {
                    Some(shard) => on_disk::fresh_shard(folder, lab.name(), *form, shard),
                    None => on_disk::fresh(folder, lab.name(), *form),
                };
                (RunDirectory::create_new(name, &text, &description)?, Vec::new())
            }
        };
        directory.mark(self.inputs.mark());
        self.chosen.plan.keep_own(&mut outcomes);
        Ok((directory, outcomes))
    }

    /// Takes out the turns that are to be measured again, and tells the user about these turns.
    fn set_aside(&mut self, outcomes: &mut Vec<Outcome>, progress: &mut dyn Progress) {
        self.again = set_aside(&self.request.location, outcomes);
        match (&self.again, &self.request.location) {
            (Some(note), _) => progress.note(note),
            (None, Location::Resume { again: true, .. }) => progress.note(NONE_AGAIN),
            _ => {}
        }
    }

    /// Measures each step that has no outcome yet, and keeps the new outcomes. Returns `false`
    /// after an interruption.
    fn measure_what_is_left(
        &self,
        directory: &mut RunDirectory,
        outcomes: &mut Vec<Outcome>,
        cancel: &Cancel,
        progress: &mut dyn Progress,
    ) -> Result<bool, LabError> {
        let (lab, Chosen { plan, systems, .. }) = (&self.request.lab, &self.chosen);
        let left: Vec<&Step> = plan.left(outcomes);
        progress.plan(plan, outcomes.len(), self.bench.estimate(plan, &left));
        let programs = directory.programs().to_owned();
        let jobs: Vec<Job<'_>> = left
            .into_iter()
            .filter_map(|step| {
                let cell = &plan.cells[step.cell];
                let system = systems.iter().find(|system| system.name() == cell.system)?;
                Some(Job { lab, plan, step, cell, system, programs: &programs, cancel })
            })
            .collect();
        let mut keep = |outcome: Outcome| {
            directory.keep(&outcome)?;
            outcomes.push(outcome);
            Ok(())
        };
        steps::measure(self.bench, &jobs, progress, &mut keep)
    }

    /// Ends a run that failed or was interrupted, and writes the time that the run took into the
    /// directory.
    fn end_unless_whole(
        &self,
        measured: Result<bool, LabError>,
        directory: &RunDirectory,
    ) -> Result<(), LabError> {
        let described = match measured {
            Ok(true) => Ok(()),
            _ => directory.describe(&self.description()),
        };
        if measured.map_err(|error| error.within(directory.path()))? {
            return Ok(());
        }
        described?;
        Err(LabError::Interrupted { directory: Some(directory.path().to_owned()) })
    }

    /// Returns the stacks of the CPUs, and the cost of sampling in the turns of this part.
    fn profile(&self, own: &[Outcome]) -> Option<Profile> {
        let systems = self.bench.profile()?;
        Some(Profile { systems, cost: cost_of_profile(own) })
    }

    /// Adds the facts that are known only after the last step.
    fn complete_facts(&mut self, outcomes: &[Outcome], steal: &StealWatch) {
        if self.chosen.shard.is_none() {
            add_readings(outcomes, &mut self.facts);
        }
        steal.record(&mut self.facts);
    }

    /// Summarises the outcomes, and writes the report.
    fn report(
        self,
        directory: &RunDirectory,
        outcomes: &[Outcome],
        profile: Option<Profile>,
        unfit: usize,
    ) -> Result<Ended, LabError> {
        let (lab, plan) = (&self.request.lab, &self.chosen.plan);
        let mut results = summary::results(lab, plan, outcomes);
        results.method.extend(self.bench.validity(&results));
        results.environment = self.facts;
        results.command = self.command;
        results.started = Some(self.parts.started);
        results.duration_s = self.measured_s;
        results.notes.extend(self.chosen.notes);
        results.notes.extend(self.again);
        results.notes.extend(self.fewer.map(|first| more_repeats(first, plan.repeats)));
        results.warnings.extend(self.bench.degradation());
        let (samples, series) = summary::samples(lab, outcomes);
        results.notes.extend(profile.iter().map(|_| SAMPLED.to_owned()));
        let path = directory.path();
        report::write_run(path, &results, &samples, &series, &lab.text(), profile.as_ref())?;
        let directory = path.to_owned();
        Ok(Ended::Run(Box::new(Finished { results, directory, unfit, profile })))
    }
}

/// Returns the command line that repeats a run. A run that is continued has the command of all its
/// parts.
fn command_of(request: &Request, chosen: &Chosen, began: &toml::Table, file_seed: u64) -> String {
    let Location::Resume { .. } = request.location else { return request.command.clone() };
    let verb = match request.executor {
        Executor::Machine { .. } | Executor::Hosts { .. } => "weir lab run",
        Executor::Simulator { .. } => "weir sim run",
    };
    let whole = command::of_continued(verb, &request.lab, &chosen.plan, file_seed, began);
    match chosen.shard {
        Some(shard) => format!("{whole} --shard {shard}"),
        None => whole,
    }
}

/// Adds facts that follow from all turns of a run together.
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

/// Counts the turns that failed or were invalid.
pub(super) fn unfit(lab: &LabFile, outcomes: &[Outcome]) -> usize {
    let is_unfit = |outcome: &&Outcome| {
        // A disturbance makes turns invalid on purpose.
        lab.disturbance.is_none() && !outcome.stands() && !outcome.is_left_out()
    };
    outcomes.iter().filter(is_unfit).count()
}

/// Returns the shard of a new run, or the shard that a resumed run began.
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

/// The start of a run, and the time of earlier parts if the run was interrupted.
struct Parts {
    started: String,
    /// Seconds of the earlier parts. `None` if a part was killed before the part's time was
    /// written.
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
    /// Reads the description of the run that is continued. Empty for a new run.
    fn description_to_resume(&self) -> Result<toml::Table, LabError> {
        match &self.location {
            Location::Resume { run, trust, .. } => RunDirectory::description(run, *trust),
            Location::Inside(_) | Location::At(_) => Ok(toml::Table::new()),
        }
    }

    /// Keeps the seed, systems and repeats of the run that is continued, unless the user named
    /// other values.
    fn continue_as(&mut self, began: &toml::Table, cancel: &Cancel) -> Result<(), LabError> {
        if let Some(seed) = seed(self, began)? {
            self.lab.set_seed(seed)?;
        }
        if self.systems.is_empty()
            && let Some(systems) = began.get("systems").and_then(toml::Value::as_array)
        {
            let names = systems.iter().filter_map(toml::Value::as_str);
            self.systems = names.map(str::to_owned).collect();
        }
        let repeats = began.get("repeats").and_then(toml::Value::as_integer);
        self.repeats = self.repeats.or(repeats.and_then(|repeats| repeats.try_into().ok()));
        if let Executor::Hosts { cancel: own, .. } = &mut self.executor {
            *own = cancel.clone();
        }
        Ok(())
    }
}

/// Takes out the turns that are to be measured again, and returns a note about these turns.
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

/// Returns the seed that replaces the file's: the seed that the user named, or the seed of the
/// resumed run.
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

/// Returns the systems that can run here, and a note for each system that cannot.
fn runnable(
    request: &Request,
    bench: &dyn Bench,
) -> Result<(Vec<SystemSpec>, Vec<String>), LabError> {
    let lab = &request.lab;
    let known: Vec<&str> = lab.systems().map(SystemSpec::name).collect();
    for wanted in &request.systems {
        if !known.contains(&wanted.as_str()) {
            let hint = units::did_you_mean(wanted, known.iter().copied());
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
