//! `weir lab suite`: its arguments, and the call into `lab`.

use super::ab::read;
use super::ci::CiFiles;
use crate::exit::Ending;
use crate::output;
use crate::signals::cancel_on_signals;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use lab::LabError;
use lab::ci::CiReport;
use lab::suite::{self, Parser, Progress};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Suite {
    /// A line for the shell that brings the machine into its first state
    #[arg(long, value_name = "LINE")]
    before: Option<String>,
    /// A line for the shell that makes the change
    #[arg(long, value_name = "LINE")]
    after: String,
    /// A line for the shell that takes the change back
    #[arg(long, value_name = "LINE")]
    undo: Option<String>,
    /// The format of the suite's results
    #[arg(long, value_name = "FORMAT")]
    parser: Format,
    /// A line for the shell that runs only the cases {cases} or {pattern} again [default: the whole
    /// suite]
    #[arg(long, value_name = "LINE")]
    again: Option<String>,
    /// Runs of the whole suite in each state
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Further runs in each state of cases that failed or changed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    retries: u32,
    /// Time limit for one run of the suite
    #[arg(long, value_name = "TIME", default_value = "2h")]
    limit: String,
    /// Time limit for a command that changes the state
    #[arg(long, value_name = "TIME", default_value = "60s")]
    patience: String,
    /// The most that one run of the suite may print
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    most_output: String,
    /// Directory for the run [default: runs/suite-FORMAT-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    ci: CiFiles,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// The suite's command, behind `--`; {results} stands for a new file for its results
    #[arg(required = true, last = true, value_name = "SUITE")]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// run_all.py -v, or the kernel's own runner
    Packetdrill,
    /// runltp's output or log
    Ltp,
    /// kirk's JSON report
    Kirk,
    /// TAP 13 and 14, kselftest, KTAP
    Tap,
    /// JUnit XML
    Junit,
}

pub(crate) fn run(arguments: &Suite) -> anyhow::Result<Ending> {
    let suite = suite::Suite {
        command: arguments.command.clone(),
        parser: match arguments.parser {
            Format::Packetdrill => Parser::Packetdrill,
            Format::Ltp => Parser::Ltp,
            Format::Kirk => Parser::Kirk,
            Format::Tap => Parser::Tap,
            Format::Junit => Parser::Junit,
        },
        before: arguments.before.clone(),
        after: arguments.after.clone(),
        undo: arguments.undo.clone(),
        again: arguments.again.clone(),
        repeats: arguments.repeats,
        retries: arguments.retries,
        limit: read("--limit", &arguments.limit)?,
        patience: read("--patience", &arguments.patience)?,
        most_output: read("--most-output", &arguments.most_output)?,
        out: arguments.out.clone(),
        line: super::lab::command_line(None),
    };
    arguments.ci.check()?;
    let cancel = cancel_on_signals()?;
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    let watched = suite::run(&suite, &cancel, &mut |progress| {
        bar.set_message(words(progress));
        bar.reset_elapsed();
    });
    bar.finish_and_clear();
    let (answer, folder) = match watched {
        Ok(found) => found,
        Err(error) => {
            if let LabError::NotMeasured { reason } = &error {
                let (before, after) = (suite.before.as_deref().unwrap_or("before"), &suite.after);
                arguments.ci.write(&CiReport::of_failure(VERB, before, after, reason))?;
            }
            return Err(error.into());
        }
    };
    match arguments.json {
        true => output::print(serde_json::to_string_pretty(&answer)? + "\n")?,
        false => output::print(format_args!(
            "{}\nThe report is {}\n",
            suite::text(&answer),
            folder.join("report.md").display()
        ))?,
    }
    arguments.ci.write(&CiReport::of_suite(VERB, &answer))?;
    let is_fine = answer.complete && !answer.regression;
    Ok(if is_fine { Ending::Fine } else { Ending::Failed })
}

fn words(progress: Progress) -> String {
    let Progress { state, number, again } = progress;
    match again {
        Some(count) => format!("{state}, run {number}: {count} cases again"),
        None => format!("{state}, run {number}"),
    }
}

const VERB: &str = "weir lab suite";
