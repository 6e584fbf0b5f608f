//! `weir lab suite`: runs a conformance suite before and after a change, and compares case by case.
//!
//! The suite runs in both states of the machine, in the order ABBA if the whole suite is repeated.
//! Cases that failed or changed run again in both states. The change broke a case only if the case
//! passed in each run before the change and failed in each run after the change. A case whose
//! result differs within one state is flaky.

mod answer;
mod case;
mod judge;
mod page;
mod parser;
mod program;
mod run;
mod states;

pub use answer::{Answer, CaseVerdict, Counts, RunRecord, Side};
pub use case::{Case, Checks, Outcome, Parsed};
pub use judge::{Judged, Seen};
pub(super) use page::meaning;
pub use page::{EXAMPLES, text};
pub use parser::Parser;
pub(super) use program::end_group;
pub use run::{Progress, run};

use std::path::PathBuf;
use units::{Bytes, Span};

/// The command, the two states and the limits of a comparison.
#[derive(Debug, Clone)]
pub struct Suite {
    /// The program and its arguments. A single word that contains spaces is a line for the shell.
    pub command: Vec<String>,
    pub parser: Parser,
    /// Lines for the shell that bring the machine into the two states.
    pub before: Option<String>,
    pub after: String,
    /// The line for the shell that undoes `after`.
    pub undo: Option<String>,
    /// The line that runs only some cases again. Without this line the whole suite runs again.
    pub again: Option<String>,
    /// Number of runs of the whole suite in each state.
    pub repeats: u32,
    /// Number of further runs, in each state, of the cases that failed or changed.
    pub retries: u32,
    /// Time limit for one run of the suite.
    pub limit: Span,
    /// Time limit for a command that changes the state.
    pub patience: Span,
    pub most_output: Bytes,
    /// The directory of the run, new or empty. `None`: a new directory below `runs`.
    pub out: Option<PathBuf>,
    /// The command line of the comparison, which the run directory records.
    pub line: String,
}
