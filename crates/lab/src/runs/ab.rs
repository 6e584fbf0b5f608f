//! `weir lab ab`: alternates two states hundreds of times in one sitting.
//!
//! The two states are two TCP systems of a lab over one cell's link, or any two commands.
//! [`stats::ab`] computes the statistics and decides when to stop.

mod systems;

pub use systems::{GOODPUT, Systems, direction_of};

use crate::model::file::words;
use crate::model::{Cancel, Failure, LabError};
use crate::runs::suite::end_group;
use serde::Serialize;
use stats::ab::{Decider, Decision, Plan, State};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use units::Span;

/// Examples, printed in the command's help.
pub const EXAMPLES: &str = "\
Examples:
  weir lab ab quic-tun --base tcp-cubic --change tcp-bbr --at loss=1%,rtt=1ms
  weir lab ab perf-overhead --base weir-perf-bare --change weir-perf \\
      --at path=veth
  weir lab ab --base-command './bench old' --change-command './bench new' \\
      --lower-is-better

With a lab, each turn is one short transfer over the cell's link. Its value is the goodput, or the
metric that --metric names. The lab sends the data itself, unless the two systems differ in their
traffic generator. A transfer that the lab read too late is measured again, twice at most, and the
answer counts these by system; any other failure ends the run. With commands, each turn runs one
command, and its value is the last number that it prints. An A/A run, the same state twice, shows
the smallest difference that this machine can detect.";

/// The two states that alternate.
#[derive(Debug)]
pub enum Contest {
    Systems(Box<Systems>),
    /// Two command lines, each of which prints a number.
    Commands {
        base: String,
        change: String,
        patience: Span,
    },
    /// Two command lines for a shell. The lab measures the time that each command takes.
    Durations {
        base: String,
        change: String,
        patience: Span,
    },
}

impl Contest {
    /// Returns the name of the state without the change, and the name of the state with the change.
    pub fn names(&self) -> (&str, &str) {
        match self {
            Self::Systems(systems) => (&systems.base, &systems.change),
            Self::Commands { base, change, .. } | Self::Durations { base, change, .. } => {
                (base, change)
            }
        }
    }
}

/// The decision, and all measured values in the order of measurement.
#[derive(Debug, Serialize)]
pub struct Answer {
    pub base: String,
    pub change: String,
    pub decision: Decision,
    /// The number of turns of each state that were measured again, because the lab had read the
    /// transfers too late.
    pub repeated: Repeated,
    pub observations: Vec<Observation>,
}

/// The number of turns that were measured again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Repeated {
    pub base: usize,
    pub change: usize,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Observation {
    pub state: State,
    pub value: f64,
}

/// Runs the turns. After each turn, calls `watch` with the number of finished turns and the total.
pub fn run(
    contest: &Contest,
    plan: Plan,
    cancel: &Cancel,
    watch: &mut dyn FnMut(usize, usize),
) -> Result<Answer, LabError> {
    match contest {
        Contest::Commands { base, change, patience }
        | Contest::Durations { base, change, patience } => {
            let is_timed = matches!(contest, Contest::Durations { .. });
            let measure = |state, _: &mut usize| {
                let line = if state == State::Base { base } else { change };
                match is_timed {
                    true => duration_of(line, *patience, cancel),
                    false => number_of(line, *patience, cancel),
                }
            };
            alternate(base, change, plan, cancel, watch, measure)
        }
        Contest::Systems(contest) => {
            let (base, change) = (contest.base.as_str(), contest.change.as_str());
            let mut testbed = systems::Prepared::new(contest)?;
            let answer = alternate(base, change, plan, cancel, watch, |state, repeats| {
                testbed.measure(state, repeats, cancel)
            });
            match (answer, testbed.finish()?) {
                (Ok(_), Some(flaw)) => Err(LabError::NotMeasured { reason: flaw.to_string() }),
                (answer, _) => answer,
            }
        }
    }
}

fn alternate(
    base: &str,
    change: &str,
    plan: Plan,
    cancel: &Cancel,
    watch: &mut dyn FnMut(usize, usize),
    mut measure: impl FnMut(State, &mut usize) -> Result<f64, Failure>,
) -> Result<Answer, LabError> {
    let wrong = |error: stats::StatsError| LabError::Usage(error.to_string());
    let mut decider = Decider::new(plan).map_err(wrong)?;
    let (mut observations, mut repeated) = (Vec::new(), Repeated::default());
    while let Some(state) = decider.next_state() {
        if cancel.is_cancelled() {
            return Err(LabError::Interrupted { directory: None });
        }
        let (name, repeats) = match state {
            State::Base => (base, &mut repeated.base),
            State::Change => (change, &mut repeated.change),
        };
        let value =
            measure(state, repeats).map_err(|failure| match LabError::not_measured(failure) {
                LabError::NotMeasured { reason } => LabError::NotMeasured {
                    reason: format!("turn {} of `{name}`: {reason}", observations.len() + 1),
                },
                other => other,
            })?;
        decider.observe(state, value).map_err(|error| {
            let reason = match error {
                stats::StatsError::NotPositive { .. } => format!(
                    "turn {} of `{name}` measured {value}, and a ratio needs values above zero: \
                     measure for longer, or choose another number",
                    observations.len() + 1
                ),
                other => other.to_string(),
            };
            LabError::NotMeasured { reason }
        })?;
        observations.push(Observation { state, value });
        let (done, of) = decider.progress();
        watch(done, of);
    }
    let decision = decider.decision().map_err(wrong)?;
    Ok(Answer {
        base: base.to_owned(),
        change: change.to_owned(),
        decision,
        repeated,
        observations,
    })
}

/// Runs a command line by the shell, and returns the seconds that the command takes.
fn duration_of(line: &str, patience: Span, cancel: &Cancel) -> Result<f64, Failure> {
    let begun = Instant::now();
    let mut child = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(|e| Failure::io("starting sh", &e))?;
    // Pauses are short at first, so that the pauses are a small part of the measured time.
    let pause = || begun.elapsed().div_f64(400.0).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let status = await_end(&mut child, line, patience, cancel, pause, || true)?;
    let took = begun.elapsed();
    match status.success() {
        true => Ok(took.as_secs_f64()),
        false => Err(Failure::Workload(format!("`{line}` ended with {status}"))),
    }
}

/// Waits until a command has ended and its output is read. Ends the command's process group after
/// `patience`, or when the user cancels the run.
fn await_end(
    child: &mut Child,
    line: &str,
    patience: Span,
    cancel: &Cancel,
    pause: impl Fn() -> Duration,
    is_read: impl Fn() -> bool,
) -> Result<ExitStatus, Failure> {
    let deadline = Instant::now() + patience.as_duration();
    loop {
        let ended = child.try_wait().map_err(|e| Failure::io("waiting for a command", &e))?;
        let reason = match ended {
            Some(status) if is_read() => return Ok(status),
            _ if cancel.is_cancelled() => Some(Failure::Interrupted),
            _ if Instant::now() > deadline => {
                Some(Failure::Workload(format!("`{line}` took longer than {patience}")))
            }
            _ => None,
        };
        if let Some(reason) = reason {
            end_group(child);
            return Err(reason);
        }
        std::thread::sleep(pause());
    }
}

/// Runs a command line and returns the last number of its output.
fn number_of(line: &str, patience: Span, cancel: &Cancel) -> Result<f64, Failure> {
    let words = words(line);
    let Some((program, arguments)) = words.split_first() else {
        return Err(Failure::Workload("an empty command".to_owned()));
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .map_err(|e| Failure::io(&format!("starting {program}"), &e))?;
    let output = child.stdout.take();
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let limited = output.map(|output| std::io::Read::take(output, MOST_OUTPUT));
        limited.map(|mut output| std::io::Read::read_to_end(&mut output, &mut bytes));
        bytes
    });
    // A program in the background may hold the output open after the command itself has exited.
    let is_read = || reading.is_finished();
    let status = await_end(&mut child, line, patience, cancel, || LONGEST_PAUSE, is_read)?;
    let bytes = reading.join().unwrap_or_default();
    if !status.success() {
        return Err(Failure::Workload(format!("`{line}` ended with {status}")));
    }
    last_number(&String::from_utf8_lossy(&bytes))
        .ok_or_else(|| Failure::Workload(format!("`{line}` printed no number")))
}

fn last_number(text: &str) -> Option<f64> {
    text.split(|c: char| c.is_whitespace() || c == ',' || c == ';')
        .rev()
        .find_map(|word| word.parse::<f64>().ok().filter(|number| number.is_finite()))
}

const MOST_OUTPUT: u64 = 1 << 20;
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use stats::{Direction, Verdict};

    #[test]
    fn the_last_number_of_a_commands_output_is_read() {
        assert_eq!(last_number("took 3 s\n12.5 Mbit/s 7e2\n"), Some(700.0));
        assert_eq!(last_number("nothing"), None);
        assert_eq!(last_number("inf 2"), Some(2.0));
    }

    #[test]
    fn ab_compares_the_time_of_two_commands() {
        let contest = |change: &str| Contest::Durations {
            base: "sleep 0.01".to_owned(),
            change: change.to_owned(),
            patience: Span::from_secs(120),
        };
        let plan = Plan { pairs: 20, ..Plan::new(Direction::LowerIsBetter, 3) };
        let judged = |change: &str| {
            run(&contest(change), plan, &Cancel::default(), &mut |_, _| {})
                .map(|answer| answer.decision.verdict)
        };
        assert_eq!(judged("sleep 0.05").unwrap(), Verdict::Worse);
        assert!(judged("exit 3").unwrap_err().to_string().contains("ended with"));
    }

    #[test]
    fn ab_alternates_and_judges_two_commands() {
        let contest = |change: &str| Contest::Commands {
            base: "echo 100".to_owned(),
            change: change.to_owned(),
            patience: Span::from_secs(120),
        };
        let plan = Plan { pairs: 40, ..Plan::new(Direction::HigherIsBetter, 3) };
        let judged = |change: &str| {
            run(&contest(change), plan, &Cancel::default(), &mut |_, _| {})
                .map(|a| a.decision.verdict)
        };
        assert_eq!(judged("echo 90").unwrap(), Verdict::Worse);
        assert_eq!(judged("echo 100").unwrap(), Verdict::Same);
        assert!(judged("false").unwrap_err().to_string().contains("ended with"));
        assert!(judged("echo none").unwrap_err().to_string().contains("no number"));
        assert!(judged("no-such-program-here").unwrap_err().to_string().contains("starting"));
    }

    #[test]
    fn a_command_is_killed_at_its_timeout_or_a_cancellation() {
        let both = |patience, cancel: &Cancel| {
            let patience = Span::from_millis(patience);
            let duration = duration_of("exec sleep 100", patience, cancel).unwrap_err();
            let number = number_of("sleep 100", patience, cancel).unwrap_err();
            [duration, number].map(|failure| failure.to_string())
        };
        let held = "sh -c 'sleep 1000 & echo 5'";
        let held = number_of(held, Span::from_millis(200), &Cancel::default()).unwrap_err();
        assert!(held.to_string().contains("took longer than 200ms"), "{held}");
        for told in both(10, &Cancel::default()) {
            assert!(told.contains("sleep 100` took longer than 10ms"), "{told}");
        }
        let cancelled = Cancel::default();
        cancelled.cancel();
        let interrupted = Failure::Interrupted.to_string();
        assert_eq!(both(100_000, &cancelled), [interrupted.clone(), interrupted]);
    }

    #[test]
    fn ab_names_the_base_before_the_change() {
        let (base, change) = ("old".to_owned(), "new".to_owned());
        let patience = Span::from_secs(1);
        let commands = Contest::Commands { base: base.clone(), change: change.clone(), patience };
        let durations = Contest::Durations { base, change, patience };
        assert_eq!([commands.names(), durations.names()], [("old", "new"); 2]);
    }
}
