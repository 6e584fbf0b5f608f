//! Experiments: files, runner, statistics.

pub mod stats;
