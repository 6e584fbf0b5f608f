//! The report of a lab's run: `results.json`, `samples.parquet`, `report.md`, `report.html` and a
//! table for the terminal.
//!
//! The lab computes medians, intervals and verdicts. This crate only presents the lab's results.
//! [`measurement`] does the same for one measurement of `perf`.

#![warn(missing_docs)]

mod answer;
pub mod archive;
mod axis;
pub mod charts;
mod columns;
mod comparison;
mod confusion;
mod cut;
mod doubtful;
mod error;
mod export;
mod goals;
mod headline;
pub mod html;
mod interval;
pub mod markdown;
pub mod measurement;
mod method;
mod missing;
pub mod number;
mod overall;
pub mod page;
mod parquet_file;
mod pivot;
pub mod profile;
mod prose;
mod queue_and_fairness;
pub mod record;
mod run;
mod spread;
mod states;
mod summary;
pub mod terminal;

pub use error::ReportError;
pub use export::export;
pub use headline::of as main_metric;
pub use parquet_file::{encode_samples, read_samples};
pub use pivot::{Column, Entry, Panel, Pivot, Row};
pub use run::{RunFiles, read_results, read_results_as_written, write_run};
