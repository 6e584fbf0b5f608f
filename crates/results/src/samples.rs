//! Tidy samples: one row per measured value.

use crate::Axes;

/// Every sample of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    pub lab: String,
    pub rows: Vec<Sample>,
}

/// One value of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub system: String,
    pub axes: Axes,
    pub repeat: u32,
    /// The block of the interleaved order (ABBA or random blocks) that this repeat belongs to.
    pub block: u32,
    /// Seconds since the repeat began. Absent for a value of the whole repeat.
    pub time_s: Option<f64>,
    /// The metric: for a whole repeat, a metric of the results; for a single event, `fct_ms`,
    /// `latency_us` or `rtt_us` without a quantile. The report draws distributions from the single
    /// events.
    pub metric: String,
    pub value: f64,
    pub unit: String,
    pub valid: bool,
}

impl Samples {
    pub fn new(lab: impl Into<String>) -> Self {
        Self { lab: lab.into(), rows: Vec::new() }
    }
}
