use super::ci::CiFiles;
use crate::exit::{Ending, Unusable};
use crate::output;
use crate::signals::cancel_on_signals;
use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use lab::ab::{self, Answer, Contest, Repeated, Systems};
use lab::ci::{CiReport, Expected};
use lab::{Cancel, LabError, builtin};
use results::Axes;
use stats::{Direction, Verdict, ab::Plan};
use units::shown;

#[derive(Debug, Args)]
pub(crate) struct Ab {
    /// A built-in lab's name or the path of a lab file
    #[arg(required_unless_present = "base_command", conflicts_with = "base_command")]
    lab: Option<String>,
    /// The system without the change
    #[arg(long, value_name = "SYSTEM", requires = "lab", requires = "change")]
    base: Option<String>,
    /// The system with the change
    #[arg(long, value_name = "SYSTEM", requires = "lab", requires = "base")]
    change: Option<String>,
    /// Point on the lab's axes, for example loss=1%,rtt=80ms [default: the first value of each]
    #[arg(long, value_name = "AXIS=VALUE", value_delimiter = ',', requires = "lab")]
    at: Vec<String>,
    /// How long each transfer is measured
    #[arg(long, value_name = "TIME", default_value = "400ms")]
    slice: String,
    /// Metric to compare, for example cpu_seconds_per_gbit.system [default: goodput_mbit_s]
    #[arg(long, value_name = "METRIC", requires = "lab")]
    metric: Option<String>,
    /// A command that prints a number, without the change; no shell runs it
    #[arg(long, value_name = "COMMAND", requires = "change_command")]
    base_command: Option<String>,
    /// The same with the change
    #[arg(long, value_name = "COMMAND", requires = "base_command")]
    change_command: Option<String>,
    /// Time limit for a command
    #[arg(long, value_name = "TIME", default_value = "60s")]
    patience: String,
    /// Smaller numbers are better
    #[arg(long)]
    lower_is_better: bool,
    /// Maximum number of pairs of turns, 20 or more; a clear answer ends the run early
    #[arg(long, value_name = "N", default_value_t = 300)]
    pairs: usize,
    #[command(flatten)]
    terms: Terms,
}

/// The flags about the answer, which both commands have.
#[derive(Debug, Args)]
struct Terms {
    /// Differences smaller than this do not matter
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    threshold: String,
    /// Use all pairs even if the answer is clear earlier
    #[arg(long)]
    no_early_stop: bool,
    /// Seed for the order of the turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Exit with status 1 unless the answer is ANSWER
    #[arg(long, value_name = "ANSWER")]
    expect: Option<Expectation>,
    #[command(flatten)]
    ci: CiFiles,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Expectation {
    Better,
    Worse,
    Same,
    NotWorse,
    NotBetter,
}

#[derive(Debug, Args)]
pub(crate) struct Commands {
    /// The command without the change, a line for the shell
    #[arg(value_name = "COMMAND")]
    base: String,
    /// The command with the change
    #[arg(value_name = "COMMAND")]
    change: String,
    /// Time limit for a command
    #[arg(long, value_name = "TIME", default_value = "60s")]
    patience: String,
    /// Maximum number of pairs of turns, 20 or more; a clear answer ends the run early
    #[arg(long, value_name = "N", default_value_t = 40)]
    pairs: usize,
    #[command(flatten)]
    terms: Terms,
}

pub(crate) fn run_commands(arguments: &Commands) -> anyhow::Result<Ending> {
    let (base, change) = (arguments.base.clone(), arguments.change.clone());
    let patience = read("--patience", &arguments.patience)?;
    let plan = arguments.terms.plan(Direction::LowerIsBetter, arguments.pairs)?;
    let contest = Contest::Durations { base, change, patience };
    arguments.terms.judge("weir lab commands", &contest, plan, shown::seconds)
}

pub(crate) fn run(arguments: &Ab) -> anyhow::Result<Ending> {
    let contest = contest(arguments)?;
    let direction = match (&contest, arguments.lower_is_better) {
        (_, true) => Direction::LowerIsBetter,
        (Contest::Systems(systems), false) => ab::direction_of(&systems.metric)?,
        (Contest::Commands { .. } | Contest::Durations { .. }, false) => Direction::HigherIsBetter,
    };
    let plan = arguments.terms.plan(direction, arguments.pairs)?;
    if matches!(contest, Contest::Systems(_))
        && let Some(sentence) = host::acquire()?.degradation()
    {
        output::note(format_args!("note: {sentence}"));
    }
    arguments.terms.judge("weir lab ab", &contest, plan, report::number::format)
}

impl Terms {
    fn plan(&self, direction: Direction, pairs: usize) -> Result<Plan, LabError> {
        Ok(Plan {
            pairs,
            threshold: read("--threshold", &self.threshold)?,
            early_stop: !self.no_early_stop,
            ..Plan::new(direction, self.seed)
        })
    }

    /// Runs the contest, and reports and judges its answer.
    fn judge(
        &self,
        verb: &str,
        contest: &Contest,
        plan: Plan,
        figure: impl Fn(f64) -> String,
    ) -> anyhow::Result<Ending> {
        self.ci.check()?;
        let cancel = cancel_on_signals()?;
        let answer = match alternate(contest, plan, &cancel) {
            Ok(answer) => answer,
            Err(error) => {
                if let LabError::NotMeasured { reason } = &error {
                    let (base, change) = contest.names();
                    self.ci.write(&CiReport::of_failure(verb, base, change, reason))?;
                }
                return Err(error.into());
            }
        };
        let text = rendered(&answer, &medians_of(contest), &figure);
        match self.json {
            true => output::print(serde_json::to_string_pretty(&answer)? + "\n")?,
            false => output::print(&text)?,
        }
        let is_met = self.expect.is_none_or(|wanted| wanted.is_met(answer.decision.verdict));
        let name = self.expect.and_then(|expect| expect.to_possible_value());
        let expected = name.as_ref().map(|name| Expected { name: name.get_name(), is_met });
        self.ci.write(&CiReport::of_answer(verb, &answer, expected, &text, figure))?;
        Ok(if is_met { Ending::Fine } else { Ending::Failed })
    }
}

fn alternate(contest: &Contest, plan: Plan, cancel: &Cancel) -> Result<Answer, LabError> {
    let bar = ProgressBar::new(plan.turns() as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:24} {pos}/{len} turns, at most {eta} left")
    {
        bar.set_style(style);
    }
    let answer = ab::run(contest, plan, cancel, &mut |done, _| bar.set_position(done as u64));
    bar.finish_and_clear();
    answer
}

fn contest(arguments: &Ab) -> anyhow::Result<Contest> {
    if let (Some(base), Some(change)) = (&arguments.base_command, &arguments.change_command) {
        let patience = read("--patience", &arguments.patience)?;
        let mut programs = [base, change].into_iter().filter_map(|line| line.split(' ').next());
        if let Some(absent) = programs.find(|program| !host::is_installed(program)) {
            return Err(Unusable::program(absent).into());
        }
        return Ok(Contest::Commands { base: base.clone(), change: change.clone(), patience });
    }
    let (Some(lab), Some(base), Some(change)) =
        (&arguments.lab, &arguments.base, &arguments.change)
    else {
        let text = "name the two systems: weir lab ab LAB --base SYSTEM --change SYSTEM";
        return Err(LabError::Usage(text.to_owned()).into());
    };
    let mut at = Axes::new();
    for word in &arguments.at {
        let Some((axis, value)) = word.split_once('=') else {
            let text = format!("--at `{word}`: write AXIS=VALUE, as in loss=1%");
            return Err(LabError::Usage(text).into());
        };
        at.insert(axis.to_owned(), value.to_owned());
    }
    Ok(Contest::Systems(Box::new(Systems {
        lab: builtin::open(lab)?,
        base: base.clone(),
        change: change.clone(),
        at,
        slice: read("--slice", &arguments.slice)?,
        metric: arguments.metric.clone().unwrap_or_else(|| ab::GOODPUT.to_owned()),
        weir: std::env::current_exe().context("finding this program itself")?,
    })))
}

/// Returns the label of the medians, which names the metric of a lab.
fn medians_of(contest: &Contest) -> String {
    match contest {
        Contest::Systems(systems) => format!("medians of {}", systems.metric),
        Contest::Commands { .. } | Contest::Durations { .. } => "medians".to_owned(),
    }
}

fn rendered(answer: &Answer, medians: &str, shown: impl Fn(f64) -> String) -> String {
    let again = match answer.repeated {
        Repeated { base: 0, change: 0 } => String::new(),
        Repeated { base, change } => format!(
            "measured again, because the lab read the transfer too late: {} {base} times, {} {change} \
             times\n",
            answer.base, answer.change
        ),
    };
    let (base, change) = (answer.decision.base_median, answer.decision.change_median);
    format!(
        "{} against {}: {}\n{medians}: {} without, {} with the change\n{again}",
        answer.change,
        answer.base,
        answer.decision,
        shown(base),
        shown(change)
    )
}

pub(super) fn read<T>(flag: &str, text: &str) -> Result<T, LabError>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| LabError::Usage(format!("{flag}: {error}")))
}

impl Expectation {
    fn is_met(self, verdict: Verdict) -> bool {
        match self {
            Self::Better => verdict == Verdict::Better,
            Self::Worse => verdict == Verdict::Worse,
            Self::Same => verdict == Verdict::Same,
            Self::NotWorse => verdict != Verdict::Worse,
            Self::NotBetter => verdict != Verdict::Better,
        }
    }
}

pub(super) const COMMANDS_EXAMPLES: &str = "\
Examples:
  weir lab commands 'gzip -1 < data' 'zstd -1 < data'
  weir lab commands ./old ./new --expect not-worse --threshold 3%

The shell runs both commands in alternation, in an order drawn from --seed, and the time of each
is measured, with everything that it does. The answer is better (the second command is faster),
worse, the same within the threshold, or undecided. `weir lab ab --base-command` compares commands
that print a number.";

#[cfg(test)]
mod tests {
    use super::*;
    use stats::ab::{Decider, State};

    #[test]
    fn the_first_line_has_both_sides_and_the_answer() {
        let mut decider = Decider::new(Plan::new(Direction::HigherIsBetter, 1)).unwrap();
        while let Some(state) = decider.next_state() {
            decider.observe(state, if state == State::Base { 10.0 } else { 12.0 }).unwrap();
        }
        let answer = Answer {
            base: "old".to_owned(),
            change: "new".to_owned(),
            decision: decider.decision().unwrap(),
            repeated: Repeated::default(),
            observations: Vec::new(),
        };
        let text = rendered(&answer, "medians", report::number::format);
        assert!(text.starts_with("new against old: ▲ better: +20.00 %"), "{text}");
    }

    #[test]
    fn the_medians_of_a_lab_name_their_metric() {
        let systems = Systems {
            lab: builtin::open("quic-tun").unwrap(),
            base: "tcp-cubic".to_owned(),
            change: "tcp-bbr".to_owned(),
            at: Axes::new(),
            slice: units::Span::from_millis(400),
            metric: "goodput_mbit_s".to_owned(),
            weir: std::path::PathBuf::new(),
        };
        let contest = Contest::Systems(Box::new(systems));
        assert_eq!(medians_of(&contest), "medians of goodput_mbit_s");
        let (base, change, patience) =
            ("true".to_owned(), "true".to_owned(), units::Span::from_secs(1));
        assert_eq!(medians_of(&Contest::Commands { base, change, patience }), "medians");
    }
}
