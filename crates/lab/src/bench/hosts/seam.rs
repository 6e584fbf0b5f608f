//! A host of a lab as its workloads see it: a namespace of this machine, or a machine at the other
//! end of an ssh connection.

use crate::model::{Cancel, Failure};
use host::Sysctl;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Starts programs and changes settings on one host.
pub(crate) trait LabHost: fmt::Debug {
    fn name(&self) -> &str;

    /// Returns the path of `weir` on this host.
    fn weir(&self) -> &str;

    /// Writes a file for programs of the turn, and returns its path on this host. Only the user of
    /// the programs can read the file, which is removed with the session. `name` may have folders.
    fn place(&self, name: &str, text: &str) -> Result<String, Failure>;

    fn start(&self, order: &Order) -> Result<Box<dyn Task>, Failure>;

    /// Whether a program listens at this TCP port.
    fn listens(&self, port: u16) -> Result<bool, Failure>;

    /// Sets a kernel setting and reads it back. [`Self::undo`] restores the former value.
    fn set(&self, setting: &Sysctl) -> Result<(), Failure>;

    /// Runs the command of a change. [`Self::undo`] runs the command that takes the change back.
    fn change(&self, change: &Change) -> Result<(), Failure>;

    /// Takes all settings and changes back, the last change first.
    fn undo(&self) -> Result<(), Failure>;
}

/// A running program on a host. The program ends, with its descendants, when this value is dropped.
pub(crate) trait Task: fmt::Debug {
    /// Returns how the program ended, if it ended within `patience`.
    fn wait(&mut self, patience: Duration, cancel: &Cancel) -> Result<Option<End>, Failure>;

    /// Returns the CPU time so far of the program and its descendants. `None` once the program has
    /// ended.
    fn cpu(&mut self) -> Result<Option<Duration>, Failure>;

    fn output(&mut self, stream: Stream) -> Result<Captured, Failure>;
}

/// A program to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) argv: Vec<String>,
    /// The CPUs that the program may use; all CPUs if empty.
    pub(crate) cpus: Vec<usize>,
}

/// A command that changes a host, and the command that changes it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) apply: Vec<String>,
    pub(crate) undo: Vec<String>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    /// The exit status. `None` if a signal ended the program.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) took_ns: u64,
    pub(crate) cpu_ns: u64,
}

impl End {
    pub(crate) fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit status {code}"),
            (None, Some(signal)) => write!(f, "killed by signal {signal}"),
            (None, None) => f.write_str("without a status"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stream {
    Out,
    Err,
}

/// The output of a program so far. Only the last part of a long output is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) text: String,
    /// All bytes that the program printed.
    pub(crate) total: u64,
}

impl Captured {
    pub(crate) fn is_cut(&self) -> bool {
        self.total > super::capture::KEPT as u64
    }

    /// Joins the last non-empty lines, at most `most`, into one line.
    pub(crate) fn last_lines(&self, most: usize) -> String {
        let lines = self.text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
        let mut lines: Vec<String> =
            lines.take(most).map(|line| units::foreign(line).to_string()).collect();
        lines.reverse();
        lines.join(" | ")
    }
}

/// Returns the last lines of a failed program's standard error, or else of its standard output.
pub(crate) fn last_words(task: &mut dyn Task) -> String {
    let lines = [Stream::Err, Stream::Out].into_iter().filter_map(|stream| {
        let output = task.output(stream).ok()?;
        Some(output.last_lines(LAST_LINES)).filter(|lines| !lines.is_empty())
    });
    lines.into_iter().next().unwrap_or_else(|| "it printed nothing".to_owned())
}

const LAST_LINES: usize = 3;
