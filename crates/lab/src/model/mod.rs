//! The model: an experiment as data, which measures nothing.
//!
//! [`file::Document`] is the lab file as written, [`Plan`] the cells and their order, [`Outcome`]
//! the result of one step.

pub(crate) mod builtin;
mod cancel;
pub(crate) mod checksum;
pub(crate) mod clock;
mod error;
pub mod file;
mod outcome;
pub(crate) mod plan;
mod population;
mod shard;

pub use cancel::Cancel;
pub use clock::{ClockReading, TurnClock};
pub use error::{Failure, LabError};
pub(crate) use outcome::Member;
pub use outcome::{Flaw, Measurement, Outcome, Value, Verdict};
pub use plan::{Plan, PlannedCell};
pub use shard::Shard;
