//! The result of a comparison, as `suite.json` stores it.

use super::case::{Case, Checks, Outcome};
use super::judge::{Judged, Seen};
use super::states::State;
use serde::Serialize;

/// The result of `weir lab suite`.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The answer to the comparison, in a sentence.
    pub answer: String,
    /// Whether a case that passes before the change fails, is skipped or is missing after the
    /// change.
    pub regression: bool,
    /// Whether each run came to its end, and the cases have the same names in each run.
    pub complete: bool,
    pub parser: &'static str,
    pub command: String,
    pub suite: Vec<String>,
    pub before: Option<String>,
    pub after: String,
    pub undo: Option<String>,
    pub started: String,
    pub environment: serde_json::Value,
    pub counts: Counts,
    pub runs: Vec<RunRecord>,
    /// All cases except cases that pass in both states or are skipped in both states.
    pub cases: Vec<CaseVerdict>,
}

/// The counts of the first run in each of the two states.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Counts {
    pub before: Side,
    pub after: Side,
}

/// The counts of cases and of checks in one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    pub cases: Checks,
    /// The counts of single checks within the cases.
    pub checks: Checks,
}

/// A finished run of the suite, as `suite.json` stores the run.
#[derive(Debug, Clone, Serialize)]
pub struct RunRecord {
    pub state: &'static str,
    pub number: u32,
    /// Whether the run repeated only the doubtful cases.
    pub again: bool,
    pub seconds: f64,
    /// The way in which the suite ended: by itself, or at a limit.
    pub ended: String,
    /// Reasons why the run may lack cases.
    pub flaws: Vec<String>,
    /// The file with the output, in the run's directory.
    pub output: String,
    #[serde(flatten)]
    pub counts: Side,
}

#[derive(Debug, Clone, Serialize)]
pub struct CaseVerdict {
    pub name: String,
    pub verdict: Judged,
    pub before: Vec<Seen>,
    pub after: Vec<Seen>,
    /// The reason that the suite gave for the last failure or skip.
    pub reason: Option<String>,
}

impl Side {
    pub(super) fn of(cases: &[Case]) -> Self {
        let mut side = Self::default();
        for case in cases.iter().filter(|case| !case.is_part) {
            side.cases.add(Checks::of(case.outcome));
            side.checks.add(case.checks);
        }
        side
    }
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

impl CaseVerdict {
    /// Returns, for example, `passed 4 of 4 before, 0 of 4 after`.
    pub fn tally(&self) -> String {
        let passed = |seen: &[Seen]| {
            let good = seen.iter().filter(|one| **one == Seen::As(Outcome::Passed)).count();
            format!("{good} of {}", seen.len())
        };
        format!("passed {} before, {} after", passed(&self.before), passed(&self.after))
    }
}

impl Answer {
    pub fn of(&self, verdict: Judged) -> impl Iterator<Item = &CaseVerdict> {
        self.cases.iter().filter(move |case| case.verdict == verdict)
    }
}
