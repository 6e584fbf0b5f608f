//! A run: its plan, its steps in order, and the directory that keeps them.

pub mod batch;
mod build;
pub(crate) mod clock;
mod command;
pub(crate) mod date;
mod directory;
pub(crate) mod environment;
pub mod go_build;
mod inputs;
pub mod merge;
mod outcome;
mod overview;
pub(crate) mod plan;
mod programs;
pub mod record;
mod runner;
pub mod runs;
mod shard;
mod steps;

pub use build::Build;
pub use clock::{ClockReading, TurnClock};
pub(crate) use outcome::Member;
pub use outcome::{Flaw, Measurement, Outcome, Value, Verdict};
pub use overview::Overview;
pub use plan::{Plan, PlannedCell};
pub use runner::{Ended, Finished, FinishedShard, Location, Progress, Request, run};
pub use shard::Shard;

/// The checksum of a text.
pub(crate) fn sha256_of(text: &str) -> String {
    programs::sha256(text)
}

/// The checksum of this program.
pub(crate) fn own_sha256() -> Option<String> {
    programs::own().get("sha256")?.as_str().map(str::to_owned)
}
