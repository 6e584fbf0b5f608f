//! What a lab's run looks like afterwards: `results.json`, `samples.parquet`, `report.md`,
//! `report.html` and a table for the terminal.
//!
//! The lab computes (medians, intervals, verdicts); this crate only shows.

mod error;
mod results;
mod samples;
mod series;

pub use error::ReportError;
pub use results::{Axes, Cell, Comparison, Form, Metric, Ratio, Reference, Results, Verdict, View};
pub use samples::{Sample, Samples};
pub use series::{Column, Series, Shape};
