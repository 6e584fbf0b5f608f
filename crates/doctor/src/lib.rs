//! `weir doctor`: finds out what limits a machine's network and its connections.
//!
//! A [`Recording`] holds signals of a machine, of its connections, and, if a test was made, of the
//! far end. [`observe`] makes a recording of this machine, [`test_path`] of a transfer with another
//! machine, and [`saved`] of results on a disk. [`diagnose`] is pure: it applies every rule of
//! [`rules`] to each busy flow and to the machine, and ranks the causes that hold by the share that
//! each explains. [`output`] writes the diagnosis.
//!
//! A rule sees a [`view::View`]: the differences between the samples. The view corrects counters
//! that wrapped, and leaves out counters that were reset.

pub mod bound;
pub mod capture;
pub mod confinement;
mod diagnosis;
mod error;
pub mod examples;
#[cfg(test)]
mod extremes;
pub mod observe;
pub mod output;
pub mod recording;
pub mod rules;
pub mod saved;
mod signs;
pub mod standing;
pub mod test_path;
pub mod view;
mod watch;
mod words;

pub use diagnosis::{
    Diagnosis, EndReport, FlowReport, Found, Observed, PeriodReport, Question, RuledOut, Verdict,
    VerdictKind, diagnose, diagnose_both, unreached,
};
pub use error::DoctorError;
pub use recording::Recording;
pub use standing::Standing;
pub use watch::Changes;
