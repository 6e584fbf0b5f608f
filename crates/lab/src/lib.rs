//! Experiments: a lab file asks a question, and a run answers it.
//!
//! [`builtin::open`] or [`LabFile::read`] returns a checked [`LabFile`]. [`run`] builds each cell's
//! network, measures and takes it down again, turn by turn. It leaves a run directory that users
//! can read, compare, check and repeat.

pub mod ab;
mod bench;
pub mod builtin;
mod cancel;
pub mod check;
pub mod compare;
mod date;
mod environment;
mod error;
mod executor;
pub mod file;
mod links;
mod namespaces;
mod outcome;
mod overall;
mod plan;
mod run_directory;
mod runner;
pub mod runs;
mod simulated;
mod summary;
mod testbed;
mod turns;
mod virtual_time;
mod watch;
mod workload;

pub use cancel::Cancel;
pub use error::{Failure, LabError};
pub use executor::Executor;
pub(crate) use file::nearest;
pub use file::{FileError, LabFile};
pub use outcome::{Flaw, Measurement, Outcome, Value, Verdict};
pub use plan::{Plan, PlannedCell};
pub use runner::{Finished, Place, Progress, Request, run};
pub use summary::has_case_outside;
