//! Experiments: a lab file describes an experiment, and a run measures the experiment.
//!
//! [`builtin::open`] or [`LabFile::read`] returns a checked [`LabFile`]. [`run`] builds the network
//! of each cell, measures, and takes the network down again, turn by turn. The run leaves a
//! directory that users can read, compare, check and repeat.
//!
//! The crate has floors. A floor imports only earlier floors of this list. The test in `floors.rs`
//! refuses every other import:
//!
//! - `model`: an experiment as data. The lab file as written, its axes, the plan of a run, the
//!   outcome of a step, the failures. The model measures nothing.
//! - `bench`: the world that steps are measured in. Namespaces of this machine, real hosts, or the
//!   simulator; and the trait through which a bench measures a workload.
//! - `analysis`: figures from outcomes. Medians, intervals, comparisons, bounds.
//! - `workloads`: the kinds of traffic, one folder each, and the reading of lab files, whose keys
//!   depend on their workload.
//! - `runs`: whole runs. The runner, the journal and the directory; merged and recorded runs, A/B
//!   decisions, conformance suites.

mod analysis;
mod bench;
#[cfg(test)]
mod floors;
mod model;
pub mod runs;
mod workloads;

pub use analysis::{check, compare, shortfalls};
pub use bench::{Executor, LabFile, go_build, hosts};
pub use model::file::{self, FileError};
pub use model::{
    Cancel, ClockReading, Failure, Flaw, LabError, Measurement, Outcome, Plan, PlannedCell, Shard,
    TurnClock, Value, Verdict,
};
pub use runs::{
    Build, Ended, Finished, FinishedShard, Location, Overview, Progress, Request, ab, batch, ci,
    merge, record, run, suite,
};
pub use workloads::{CommandLine, builtin, load};
