//! The report of a lab's run: `results.json`, `samples.parquet`, `report.md`, `report.html` and a
//! table for the terminal.
//!
//! The lab computes medians, intervals and verdicts. This crate only presents them. [`measurement`]
//! does the same for one measurement of `perf`.

mod answer;
mod axis;
pub mod charts;
mod error;
mod goals;
pub mod html;
pub mod markdown;
pub mod measurement;
mod method;
pub mod metrics;
pub mod number;
mod overall;
mod pivot;
mod results;
mod run;
mod samples;
mod series;
pub mod terminal;

pub use error::ReportError;
pub use pivot::{Column, Entry, Panel, Pivot, Row};
pub use results::{
    Axes, Cell, Comparison, Form, Goal, Group, Heat, Mean, Metric, Overall, Ratio, Reference,
    Results, Verdict, View,
};
pub use run::{RunFiles, write_run};
pub use samples::{Sample, Samples};
pub use series::{Line, Series, Shape};
