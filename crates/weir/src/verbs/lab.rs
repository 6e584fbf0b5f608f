mod export;
mod hosts;
mod list;
mod open;
mod shards;
mod spread;
mod validate;

use super::ci::CiFiles;
use crate::exit::{Ending, Unusable};
use crate::output;
use crate::progress::Bar;
use crate::signals::cancel_on_signals;
use crate::terminal;
use anyhow::Context;
use clap::{Args, Subcommand};
use lab::{
    Build, Cancel, Ended, Executor, Finished, LabError, LabFile, Location, Request, Shard, builtin,
    runs,
};
use perf::output::TextFormat;
use report::ReportError;
use report::profile::Profile;
use results::{Form, Results};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use units::visible;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Measure every cell of a lab and write a report
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunHere),
    /// List the built-in labs, with the time that they take and what they need
    #[command(after_help = list::EXAMPLES)]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Check a lab file without measuring anything, or a run: all mistakes at once
    #[command(after_help = validate::EXAMPLES)]
    Validate {
        /// A lab file, a built-in lab's name, or a run's directory; several are checked one after
        /// the other
        #[arg(required = true, value_name = "FILE")]
        labs: Vec<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print a lab's file, to read or to start a new lab from, or the table of a run
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// A built-in lab's name, the path of a lab file, or a run's directory
        lab: String,
        /// Print one JSON document: the lab's name, question and file, or the run's results.json
        #[arg(long)]
        json: bool,
        /// Open the run's report.html in a browser, and print its path
        #[arg(long, conflicts_with = "json")]
        open: bool,
    },
    /// Compare runs of a lab before and after a change
    #[command(after_help = lab::compare::EXAMPLES)]
    Compare(Compare),
    /// Check a run against bounds; exit status 1 if a bound does not hold
    #[command(after_help = lab::check::EXAMPLES)]
    Check(Check),
    /// Look at the real hosts of a lab before a run, or remove weir from them
    #[command(subcommand, arg_required_else_help = true)]
    Hosts(hosts::Hosts),
    /// Join the shards of a run (--shard) to one run with its report
    #[command(after_help = lab::merge::EXAMPLES)]
    Merge(shards::Merge),
    /// Put a run on record: a page with its answer and origin, and an archive with all its data
    #[command(after_help = lab::record::EXAMPLES)]
    Record(Record),
    /// Alternate two states hundreds of times and test whether they differ
    #[command(after_help = lab::ab::EXAMPLES, arg_required_else_help = true)]
    Ab(super::ab::Ab),
    /// Compare the time that two commands take
    #[command(after_help = super::ab::COMMANDS_EXAMPLES)]
    Commands(super::ab::Commands),
    /// Run a conformance suite before and after a change, and compare it case by case
    #[command(after_help = lab::suite::EXAMPLES)]
    Suite(Box<super::suite::Suite>),
    /// Write a run's figures as CSV and its charts as SVG, or a lab as a job for a cluster
    #[command(after_help = export::EXAMPLES)]
    Export(export::Export),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A built-in lab's name (see `weir lab list`), or the path of a lab file. With --resume DIR it
    /// may be left out
    #[arg(required_unless_present = "resume")]
    lab: Option<String>,
    /// The short form, which takes minutes
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// The shortest form, one cell per system, to test that it works at all
    #[arg(long)]
    smoke: bool,
    /// Only these systems, separated by commas, for example tcp-bbr,tcp-cubic
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    systems: Vec<String>,
    /// Repeats of each cell, instead of the form's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: Option<u32>,
    /// Seed of the order and of all random losses, instead of the file's: a number, or `fresh` for
    /// a new seed
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
    /// Directory for the run [default: runs/LAB-FORM-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue an interrupted run: the run at DIR, or the latest unfinished run of this lab and
    /// form. With --repeats the run goes on to more repeats, even if the run has ended
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with = "out")]
    resume: Option<Option<PathBuf>>,
    /// With --resume: also measure the turns again that failed or were invalid, for example because
    /// the machine was busy
    #[arg(long, requires = "resume")]
    again: bool,
    /// Only this part of the run, for `weir lab merge`: 2/16 is the second of 16 parts. The seed
    /// and the lab file decide which turns belong to a part
    #[arg(long, value_name = "I/N", conflicts_with = "json")]
    shard: Option<Shard>,
    /// The Ansible inventory (INI or YAML) with the machines: each host of the lab is the host, or
    /// the only host of the group, of the same name; servers-2 is the second host of the group
    /// servers. For `weir sim run`, the names of --hosts are hosts or groups
    #[arg(long, value_name = "FILE", conflicts_with = "namespaces")]
    inventory: Option<PathBuf>,
    /// Run in namespaces of this machine, although the file names real hosts
    #[arg(long)]
    namespaces: bool,
    /// Run the commands of a lab file without asking, and continue a run in another user's
    /// directory
    #[arg(long)]
    trust: bool,
    /// Print results.json instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunHere {
    #[command(flatten)]
    run: Run,
    /// Sample the stacks of the whole machine in every second block: a table of functions, flame
    /// graphs in the report, and stacks in the run's directory. Needs perf events
    #[arg(long, conflicts_with = "shard")]
    profile: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The run to compare with: its directory or its results.json
    before: PathBuf,
    /// The run after the change: its directory or its results.json
    after: PathBuf,
    /// One more run of the first kind; may be given several times
    #[arg(long = "before", value_name = "RUN")]
    more_before: Vec<PathBuf>,
    /// One more run of the second kind; may be given several times
    #[arg(long = "after", value_name = "RUN")]
    more_after: Vec<PathBuf>,
    /// Differences smaller than this do not matter
    #[arg(long, value_name = "SHARE", default_value = "3%")]
    threshold: String,
    /// Only these metrics, separated by commas, for example goodput_mbit_s [default: the lab's main
    /// metric]
    #[arg(long, value_delimiter = ',', value_name = "METRIC")]
    metrics: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// A run's directory or its results.json
    run: PathBuf,
    /// METRIC[SYSTEM, AXIS=VALUE …] OP NUMBER, for example 'goodput_mbit_s[tcpa, loss=1%] >= 90';
    /// may be given several times
    #[arg(long = "bound", value_name = "BOUND", required = true)]
    bounds: Vec<String>,
    /// Accept a run that is marked invalid
    #[arg(long)]
    allow_invalid: bool,
    #[command(flatten)]
    ci: CiFiles,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Record {
    /// A run's directory
    run: PathBuf,
    /// Folder of the page
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    folder: PathBuf,
    /// File for the full data of the run, a tar archive compressed with gzip
    #[arg(long, value_name = "FILE.tar.gz")]
    archive: Option<PathBuf>,
    /// Print the paths of the files as one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Run(arguments) => run_lab(&arguments),
        Verb::List { json } => list::run(json),
        Verb::Validate { labs, json } => validate::run(&labs, json),
        Verb::Show { lab, open: true, .. } => open::run(&lab),
        Verb::Show { lab, json, .. } => show(&lab, json),
        Verb::Compare(arguments) => compare(&arguments),
        Verb::Check(arguments) => check(&arguments),
        Verb::Hosts(verb) => hosts::run(verb),
        Verb::Merge(arguments) => shards::merge(&arguments),
        Verb::Record(arguments) => record(&arguments),
        Verb::Ab(arguments) => super::ab::run(&arguments),
        Verb::Commands(arguments) => super::ab::run_commands(&arguments),
        Verb::Suite(arguments) => super::suite::run(&arguments),
        Verb::Export(arguments) => export::run(&arguments),
    }
}

fn run_lab(here: &RunHere) -> anyhow::Result<Ending> {
    let RunHere { run: arguments, profile } = here;
    arguments.measure(MEASURES, |lab, form| {
        arguments.agree_to_commands(lab, form)?;
        let weir = || std::env::current_exe().context("finding this program itself");
        if lab.has_real_hosts() && !arguments.namespaces {
            if *profile {
                return Err(LabError::Usage(PROFILE_OF_HOSTS.to_owned()).into());
            }
            return Ok(Executor::Hosts { weir: weir()?, cancel: Cancel::default() });
        }
        // Must precede the first thread: becoming root of a user namespace needs a single-threaded
        // process.
        let privilege = host::acquire()?;
        if let Some(sentence) = privilege.degradation() {
            output::note(format_args!("note: {sentence}"));
        }
        Ok(Executor::Machine { privilege, weir: weir()?, profile: *profile })
    })
}

impl Run {
    /// Measures the lab with `executor`, and reports the outcome. `verb` is the name of this
    /// command, for the hint how to continue.
    pub(super) fn measure(
        &self,
        verb: &str,
        executor: impl FnOnce(&LabFile, Form) -> anyhow::Result<Executor>,
    ) -> anyhow::Result<Ending> {
        let (lab, form) = self.lab()?;
        let location = location(self, &lab, form)?;
        let executor = executor(&lab, form)?;
        let cancel = cancel_on_signals()?;
        // Each run of a lab with random paths draws new paths. A resumed run keeps its paths. All
        // shards draw the same paths, by the seed of the file or of --seed.
        let is_first = self.resume.is_none() && self.shard.is_none();
        let draws = self.seed.is_none() && is_first && lab.is_drawn();
        let seed = if draws { Some(fresh_seed()) } else { self.seed };
        if let Some(seed) = seed.filter(|_| draws) {
            output::note(format_args!("paths are drawn with --seed {seed}"));
        }
        if form == Form::Full
            && self.resume.is_none()
            && let Some(warning) = lab.too_few_repeats(self.repeats)
        {
            output::note(format_args!("warning: {}", visible(&warning.to_string())));
        }
        if self.resume.is_none() {
            for warning in lab.unsuited_queues() {
                output::note(format_args!("warning: {}", visible(&warning.to_string())));
            }
        }
        let mut bar = Bar::new();
        let request = Request {
            lab,
            form,
            location,
            systems: self.systems.clone(),
            repeats: self.repeats,
            seed,
            build: own_build(),
            command: command_line(seed),
            executor,
            shard: self.shard,
        };
        let outcome = lab::run(request, &cancel, &mut bar);
        bar.finish();
        let ended = outcome.inspect_err(|error| {
            if let LabError::Interrupted { directory: Some(directory) }
            | LabError::HostLost { directory: Some(directory), .. } = error
            {
                let command = continuation(verb, self, self.repeats, directory);
                output::note(format_args!("to continue: {command}"));
            }
        })?;
        let Finished { results, directory, unfit, profile } = match ended {
            Ended::Run(finished) => *finished,
            Ended::Shard(shard) => return shards::ended(&shard),
        };
        print_run(&results, &directory, profile.as_ref(), self.json)?;
        if !self.json {
            if let Some(repeats) = repeats_to_decide(&results) {
                let command = continuation(verb, self, Some(repeats), &directory);
                output::note(format_args!("to decide, continue with more blocks: {command}"));
            }
            // In virtual time a repeated turn would end in the same way, so there is no hint to
            // repeat it.
            if unfit > 0 && verb == MEASURES {
                let turns = unfit_turns(unfit);
                let command = continuation(verb, self, self.repeats, &directory);
                output::note(format_args!(
                    "{turns}; the reasons: weir lab validate {}; to measure again: {command} --again",
                    quoted(&directory.to_string_lossy())
                ));
            }
        }
        Ok(ending(&results))
    }
}

fn print_run(
    results: &Results,
    directory: &Path,
    profile: Option<&Profile>,
    json: bool,
) -> anyhow::Result<()> {
    if json {
        return output::print(results.to_json()?);
    }
    let colour = TextFormat::of_stdout().colour;
    let table = report::terminal::render(results, width(), colour);
    let report = absolute(&directory.join("report.html"));
    output::print(&table)?;
    if let Some(profile) = profile {
        output::print(format_args!("\n{}", profile.text()))?;
    }
    output::print(format_args!("\nreport: {}\n", report.display()))?;
    if let Some(hash) = results.environment.get("result_hash").and_then(|h| h.as_str()) {
        output::print(format_args!("hash: {hash}\n"))?;
    }
    Ok(())
}

fn unfit_turns(count: usize) -> String {
    match count {
        1 => "1 turn failed or is not valid".to_owned(),
        count => format!("{count} turns failed or are not valid"),
    }
}

fn ending(results: &Results) -> Ending {
    let reasons = lab::shortfalls::all(results);
    if reasons.is_empty() {
        return Ending::Fine;
    }
    output::note(format_args!("exit status 1: {}", visible(&reasons.join("; "))));
    Ending::Failed
}

impl Run {
    fn lab(&self) -> Result<(LabFile, Form), LabError> {
        let (mut lab, form) = self.lab_as_written()?;
        if let Some(inventory) = &self.inventory {
            lab.use_inventory(inventory)?;
        }
        Ok((lab, form))
    }

    fn lab_as_written(&self) -> Result<(LabFile, Form), LabError> {
        let form = match (self.quick, self.smoke) {
            (true, _) => Some(Form::Quick),
            (_, true) => Some(Form::Smoke),
            _ => None,
        };
        match (&self.lab, &self.resume) {
            (Some(lab), _) => Ok((builtin::open(lab)?, form.unwrap_or(Form::Full))),
            (None, Some(Some(run))) => {
                let (lab, began) = runs::begun(run, self.trust)?;
                Ok((lab, form.unwrap_or(began)))
            }
            (None, _) => Err(LabError::Usage(
                "--resume without a directory continues the latest run of a lab: name the lab, or the directory".to_owned(),
            )),
        }
    }

    /// Asks the user to agree to the commands of a lab file, which run with the rights of the user
    /// who runs the lab. On a terminal this method shows the commands, with the values of the axes.
    /// Without a terminal nobody can answer, so --trust is required.
    fn agree_to_commands(&self, lab: &LabFile, form: Form) -> anyhow::Result<()> {
        if self.trust || lab.is_builtin() {
            return Ok(());
        }
        let commands: Vec<String> =
            lab.commands(form, &self.systems).iter().map(ToString::to_string).collect();
        if commands.is_empty() {
            return Ok(());
        }
        let file = self.lab.as_deref().unwrap_or(lab.name());
        // Does not ask about commands that scroll away or are cut: the user could not have read
        // them.
        let longest = commands.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        anyhow::ensure!(
            commands.len() <= MOST_COMMANDS && longest <= LONGEST_COMMAND,
            "{} runs {} commands, the longest of {longest} characters, and at most {MOST_COMMANDS} of \
             {LONGEST_COMMAND} characters can be shown: read the file, then add --trust",
            visible(file),
            commands.len(),
        );
        output::note(format_args!(
            "{} runs these commands as {}{}:",
            visible(file),
            if rustix::process::geteuid().is_root() { "root" } else { "you" },
            match lab.has_real_hosts() && !self.namespaces {
                true => ", and on other machines as the users that you log in as there",
                false => ", on this machine's files",
            },
        ));
        commands.iter().for_each(|command| output::note(format_args!("  {command}")));
        anyhow::ensure!(
            terminal::is_there(),
            "nothing was run: nobody can be asked here, since standard input or standard error is not a \
             terminal; read the commands, then add --trust"
        );
        let agreed = terminal::confirm("Run them?").context("asking on the terminal")?;
        anyhow::ensure!(
            agreed,
            "nothing was run: answer y, or add --trust, once you have read the commands"
        );
        Ok(())
    }
}

fn location(arguments: &Run, lab: &LabFile, form: Form) -> Result<Location, LabError> {
    let (trust, again) = (arguments.trust, arguments.again);
    let resume = |run| Location::Resume { run, trust, again };
    if arguments.shard.is_some() && arguments.resume == Some(None) {
        let text = "--resume: name the directory of the shard: --resume DIR";
        return Err(LabError::Usage(text.to_owned()));
    }
    Ok(match (&arguments.out, &arguments.resume) {
        (Some(out), _) => Location::At(out.clone()),
        (None, Some(Some(run))) => resume(run.clone()),
        (None, Some(None)) => resume(runs::latest_unfinished(Path::new(RUNS), lab.name(), form)?),
        (None, None) => Location::Inside(PathBuf::from(RUNS)),
    })
}

/// Returns the number of repeats that would decide the undecided comparisons. `None` if all are
/// decided, or if no number of repeats would decide them.
fn repeats_to_decide(results: &Results) -> Option<u32> {
    let so_far = results.cells.iter().map(|cell| cell.repeats).max()?;
    u32::try_from(so_far + results.more_blocks()?.blocks).ok()
}

/// Builds the command line that continues this run.
fn continuation(verb: &str, arguments: &Run, repeats: Option<u32>, directory: &Path) -> String {
    let mut words = vec![verb.to_owned()];
    words.extend(arguments.lab.as_deref().map(quoted));
    let flags = [
        ("--quick", arguments.quick),
        ("--smoke", arguments.smoke),
        ("--trust", arguments.trust),
        ("--namespaces", arguments.namespaces),
        ("--json", arguments.json),
    ];
    words.extend(flags.iter().filter(|(_, given)| *given).map(|(flag, _)| (*flag).to_owned()));
    if !arguments.systems.is_empty() {
        words.push(format!("--systems {}", quoted(&arguments.systems.join(","))));
    }
    if let Some(repeats) = repeats {
        words.push(format!("--repeats {repeats}"));
    }
    if let Some(seed) = arguments.seed {
        words.push(format!("--seed {seed}"));
    }
    words.extend(arguments.shard.map(|shard| format!("--shard {shard}")));
    let inventory = arguments.inventory.iter();
    words.extend(inventory.map(|file| format!("--inventory {}", quoted(&file.to_string_lossy()))));
    words.push(format!("--resume {}", quoted(&directory.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=+:@%".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn show(lab: &str, json: bool) -> anyhow::Result<Ending> {
    if let Some(run) = validate::run_at(lab) {
        let results = run?;
        let text = match json {
            true => results.to_json()?,
            false => report::terminal::render(&results, width(), TextFormat::of_stdout().colour),
        };
        output::print(text)?;
        return Ok(Ending::Fine);
    }
    let opened = builtin::open(lab)?;
    if json {
        let document = serde_json::json!({
            "name": opened.name(), "question": opened.question, "file": &*opened.text(),
        });
        output::print(format_args!("{document:#}\n"))?;
    } else {
        output::print(opened.text())?;
    }
    Ok(Ending::Fine)
}

fn compare(arguments: &Compare) -> anyhow::Result<Ending> {
    let read = |first: &PathBuf, more: &[PathBuf]| -> Result<Vec<_>, LabError> {
        std::iter::once(first).chain(more).map(|path| runs::read(path)).collect()
    };
    let before = read(&arguments.before, &arguments.more_before)?;
    let after = read(&arguments.after, &arguments.more_after)?;
    let threshold =
        arguments.threshold.parse().map_err(|e| LabError::Usage(format!("--threshold: {e}")))?;
    let compared = lab::compare::runs(&before, &after, &arguments.metrics, threshold)?;
    if arguments.json {
        output::print(serde_json::to_string_pretty(&compared)? + "\n")?;
    } else {
        output::print(compared.render())?;
    }
    Ok(Ending::Fine)
}

fn check(arguments: &Check) -> anyhow::Result<Ending> {
    arguments.ci.check()?;
    let results: Results = runs::read(&arguments.run)?.results;
    let bounds = arguments
        .bounds
        .iter()
        .map(|text| lab::check::Bound::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let checked = lab::check::check(&results, &bounds, arguments.allow_invalid)?;
    if arguments.json {
        output::print(serde_json::to_string_pretty(&checked)? + "\n")?;
    } else {
        output::print(checked.render())?;
    }
    let run = arguments.run.display().to_string();
    arguments.ci.write(&lab::ci::CiReport::of_check("weir lab check", &checked, &run))?;
    Ok(if checked.holds() { Ending::Fine } else { Ending::Failed })
}

fn record(arguments: &Record) -> anyhow::Result<Ending> {
    let recorded =
        lab::record::record(&arguments.run, &arguments.folder, arguments.archive.as_deref());
    let recorded = recorded.map_err(|error| match error {
        LabError::Report(ReportError::Write { file, source }) => {
            let is_archive = arguments.archive.as_ref() == Some(&file);
            let option = if is_archive { "--archive" } else { "--folder" };
            anyhow::Error::new(Unusable::path("write", &file, &source, option))
        }
        other => other.into(),
    })?;
    let archive = recorded.archive.as_ref();
    if arguments.json {
        let document = serde_json::json!({
            "page": recorded.page,
            "chart": recorded.chart,
            "lab_file": recorded.lab_file,
            "archive": archive.map(|archive| &archive.file),
            "archive_sha256": archive.map(|archive| &archive.sha256),
        });
        output::print(document.to_string() + "\n")?;
        return Ok(Ending::Fine);
    }
    let files = [
        ("chart", recorded.chart.as_ref()),
        ("lab file", recorded.lab_file.as_ref()),
        ("archive", archive.map(|archive| &archive.file)),
        ("page", Some(&recorded.page)),
    ];
    for (name, file) in files {
        let Some(file) = file else { continue };
        output::print(format_args!("{name}: {}\n", absolute(file).display()))?;
    }
    Ok(Ending::Fine)
}

/// Builds the command that repeats this run. A fresh seed appears as the number that was drawn.
pub(super) fn command_line(seed: Option<u64>) -> String {
    command_of(std::env::args().skip(1).collect(), seed)
}

fn command_of(mut words: Vec<String>, seed: Option<u64>) -> String {
    for place in 0..words.len() {
        let (Some(seed), word) = (seed, words[place].as_str()) else { continue };
        if word == FRESH && place > 0 && words[place - 1] == SEED {
            words[place] = seed.to_string();
        } else if word.strip_prefix(SEED) == Some("=fresh") {
            words[place] = format!("{SEED}={seed}");
        }
    }
    let names = |word: &String| word == SEED || word.starts_with("--seed=");
    if let Some(seed) = seed.filter(|_| !words.iter().any(names)) {
        words.extend([SEED.to_owned(), seed.to_string()]);
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("weir {}", words.join(" "))
}

/// Draws a random seed: the standard library takes the keys of a new hasher from the kernel.
fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// Parses a seed, at most 2^53: TOML and JSON readers hold larger numbers inexactly.
fn seed(text: &str) -> Result<u64, String> {
    if text == FRESH {
        return Ok(fresh_seed());
    }
    let number: u64 = text.parse().map_err(|_| format!("a seed is a number or `{FRESH}`"))?;
    if number > LARGEST_SEED {
        return Err(format!("a seed is at most {LARGEST_SEED}"));
    }
    Ok(number)
}

/// Returns the commit, the tree and the compilers that build.rs recorded.
fn own_build() -> Build {
    let known = |text: Option<&str>| text.map(str::to_owned);
    Build {
        commit: known(option_env!("WEIR_COMMIT")),
        tree: known(option_env!("WEIR_TREE")),
        rustc: known(option_env!("WEIR_RUSTC")),
        clang: known(option_env!("WEIR_CLANG")),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns the number of columns for a table; a fixed number if there is no terminal.
pub(crate) fn width() -> usize {
    terminal::columns().unwrap_or(WITHOUT_TERMINAL)
}

const MEASURES: &str = "weir lab run";
const PROFILE_OF_HOSTS: &str = "--profile samples this machine only, and the lab names real hosts: leave out --profile, or \
                                add --namespaces";
const RUNS: &str = "runs";
const SEED: &str = "--seed";
const FRESH: &str = "fresh";
const LARGEST_SEED: u64 = 1 << 53;
const WITHOUT_TERMINAL: usize = 100;
/// Maximum number of commands that the question for the user's agreement shows.
const MOST_COMMANDS: usize = 200;
/// Maximum length of a command that the question shows, in characters.
const LONGEST_COMMAND: usize = 4_000;
const SHOW_EXAMPLES: &str = "\
Examples:
  weir lab show quic-tun > my-lab.toml
  weir lab show runs/quic-tun-20261121-030000
  weir lab show runs/quic-tun-20261121-030000 --open";
const RUN_EXAMPLES: &str = "\
Examples:
  weir lab run quic-tun --quick
  weir lab run quic-tun --systems tcp-bbr,tcp-cubic --repeats 10
  weir lab run quic-tun --seed fresh
  weir lab run ./my-lab.toml
  weir lab run ./my-path.toml --inventory hosts.ini
  weir lab run before-after --quick --profile
  weir lab run quic-tun --resume
  weir lab run quic-tun --resume runs/quic-tun-20261121-030000 --again

A lab file runs commands. Those of its external systems (server, client) run with your rights,
which is root as a rule: a host of a lab has a network and processes of its own, and the files of
this machine. Read a file of somebody else before you run it. On a terminal the commands of a file
that does not come with weir are shown, with the values of the axes, and run when you agree; --trust
leaves the question out. Without a terminal such a file needs --trust. --resume refuses a run
directory that belongs to another user, unless --trust is given.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_command_repeats_the_run_in_a_shell() {
        let command = |words: &[&str], seed| {
            command_of(words.iter().map(|word| (*word).to_owned()).collect(), seed)
        };
        assert_eq!(command(&["lab", "run", "quic-tun"], None), "weir lab run quic-tun");
        let spaced = ["lab", "run", "./my lab.toml", "--seed", "fresh"];
        assert_eq!(command(&spaced, Some(7)), "weir lab run './my lab.toml' --seed 7");
    }
}
