//! Tidy samples: one row per measured value.

use crate::Axes;

/// Every sample of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    /// Name of the lab.
    pub lab: String,
    /// The samples in the order of the turns. A file that was read back also gives a sample for
    /// each value of a series.
    pub rows: Vec<Sample>,
}

/// A value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name of the system, as in the lab file.
    pub system: String,
    /// The point of the axes at which the value was measured.
    pub axes: Axes,
    /// Number of the repeat of this system at this point, from 0.
    pub repeat: u32,
    /// The block of the interleaved order (ABBA or random blocks) that this repeat belongs to.
    pub block: u32,
    /// Seconds since the repeat began. Absent for a value of the whole repeat.
    pub time_s: Option<f64>,
    /// The metric: for a whole repeat, a metric of the results; for a single event, `fct_ms`,
    /// `latency_us` or `rtt_us` without a quantile. The report draws distributions from the single
    /// events.
    pub metric: String,
    /// The measured value, in `unit`.
    pub value: f64,
    /// Unit of `value`; empty for a ratio, a count or an unknown unit.
    pub unit: String,
    /// False if a flaw makes the repeat invalid, the value included.
    pub valid: bool,
}

impl Samples {
    /// Builds an empty list of samples of the lab of this name.
    pub fn new(lab: impl Into<String>) -> Self {
        Self { lab: lab.into(), rows: Vec::new() }
    }
}
