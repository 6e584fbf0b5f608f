//! Statistics of measurements: intervals, rank tests, outliers, and the decision of an A/B test.
//! All are pure functions of the samples and a random seed (`seed`), so the same samples always
//! give the same interval and the same verdict.
//!
//! A value that is not a number, not finite or (in a ratio) not positive gives a [`StatsError`],
//! never a NaN in a table.

pub mod ab;
pub mod binomial;
pub mod bootstrap;
pub mod mann_whitney;
pub mod mean;
pub mod order;
pub mod outliers;
pub mod quantile;
pub mod ratio;
pub mod signed_rank;
pub mod summary;
pub mod trimmed;

mod error;
mod spread;
mod widening;

pub use error::StatsError;
pub use mean::MeanEstimate;
pub use quantile::{median, quantile};
pub use ratio::{
    Direction, RatioVerdict, Verdict, compare_paired, compare_unpaired, default_threshold,
    geometric_mean,
};
pub use summary::{Estimate, Summary, estimate, summary};
pub use trimmed::{TrimmedMean, trimmed_mean};
