//! Named time series of one repeat of one cell: throughput, queue, CPU per core, …

use serde::{Deserialize, Serialize};

use crate::Axes;

/// Lines over one time axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The quantity: `throughput`, `rtt`, `cwnd`, `queue`, `cpu`, `limited_by`, …
    pub name: String,
    pub system: String,
    pub axes: Axes,
    pub repeat: u32,
    pub block: u32,
    pub valid: bool,
    pub shape: Shape,
    /// Seconds since the repeat began, ascending.
    pub time_s: Vec<f64>,
    pub lines: Vec<Line>,
}

/// One line of a [`Series`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub unit: String,
    /// A value for each time; `None` where nothing was read.
    pub values: Vec<Option<f64>>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Shape {
    #[default]
    Lines,
    /// The lines are shares of one whole and are stacked.
    Stacked,
}
