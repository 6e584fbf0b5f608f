//! Statistics of measurements: intervals, tables of comparisons, outliers, and the decision of an
//! A/B test.
//! All functions are pure, so the same samples always give the same interval and the same verdict.
//!
//! A sample that is not a finite number gives a [`StatsError`], never a NaN in a table.

#![warn(missing_docs)]

pub mod ab;
pub mod binomial;
pub mod correlation;
pub mod mean;
pub mod median_interval;
pub mod order;
pub mod outliers;
pub mod quantile;
pub mod ratio;
pub mod runs;
pub mod signed_rank;
pub mod summary;
pub mod table;
pub mod trimmed;
pub mod verdict;

mod error;
mod spread;

pub use correlation::{Correlation, successive};
pub use error::StatsError;
pub use mean::MeanEstimate;
pub use median_interval::{FEWEST, MedianInterval, median_interval};
pub use quantile::{median, quantile};
pub use ratio::geometric_mean;
pub use runs::{RunsCompared, compare_runs};
pub use summary::{Estimate, Summary, estimate, summary};
pub use table::{Row, default_threshold};
pub use trimmed::{TrimmedMean, trimmed_mean};
pub use verdict::{Direction, Verdict};
