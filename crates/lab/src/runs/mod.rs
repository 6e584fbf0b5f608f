//! Runs: the steps of a plan in order, the directory that keeps their outcomes, and reports,
//! comparisons and records of finished runs.

pub mod ab;
pub mod batch;
mod build;
pub mod ci;
mod command;
pub(crate) mod date;
mod directory;
mod environment;
mod inputs;
pub mod merge;
mod on_disk;
mod overview;
pub mod record;
mod runner;
mod steps;
pub mod suite;

pub use build::Build;
pub use on_disk::{Run, begun, fresh, latest_unfinished, read};
pub use overview::Overview;
pub use runner::{Ended, Finished, FinishedShard, Location, Progress, Request, run};
