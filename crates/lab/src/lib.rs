//! Experiments: a lab file asks a question, and a run answers it.
//!
//! [`builtin::open`] or [`LabFile::read`] returns a checked [`LabFile`]. [`run`] builds each cell's
//! network, measures and takes it down again, turn by turn. It leaves a run directory that users
//! can read, compare, check and repeat.

mod analysis;
pub mod builtin;
mod cancel;
mod error;
mod executor;
pub mod file;
mod lab_file;
mod population;
mod run;
pub mod suite;
mod workload;

pub use analysis::{ab, check, ci, compare, shortfalls};
pub use cancel::Cancel;
pub use error::{Failure, LabError};
pub use executor::Executor;
pub use executor::hosts;
pub use file::FileError;
pub(crate) use file::nearest;
pub use lab_file::LabFile;
pub use run::{
    Build, ClockReading, Ended, Finished, FinishedShard, Flaw, Location, Measurement, Outcome,
    Overview, Plan, PlannedCell, Progress, Request, Shard, TurnClock, Value, Verdict, batch,
    go_build, merge, record, run, runs,
};
pub use workload::load;
