//! The results of a lab: the content of `results.json`, every repeat's figures, curves over time,
//! and the registry of metrics.
//!
//! The lab writes the types of this crate, and the report presents them. The crate does no I/O.

#![warn(missing_docs)]

mod error;
pub mod metrics;
mod results;
mod samples;
mod series;

pub use error::ResultsError;
pub use results::{
    Axes, Bound, Cell, Comparison, Confusion, ConfusionRow, Correlation, CpuLimit, Form, Goal,
    Group, Heat, LONGEST_TEXT, Mean, Metric, Missing, MoreBlocks, NOT_RUN, Overall, Proportion,
    Ratio, Reason, Reference, Results, Spread, States, View,
};
pub use samples::{Sample, Samples};
pub use series::{Line, Series, Shape};
pub use stats::Verdict;
