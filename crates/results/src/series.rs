//! Named time series of one repeat of one cell: throughput, queue, CPU per core, …

use serde::{Deserialize, Serialize};

use crate::Axes;

/// Lines over one time axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The quantity: `throughput`, `rtt`, `cwnd`, `queue`, `cpu`, `limited_by`, …
    pub name: String,
    /// Name of the system, as in the lab file.
    pub system: String,
    /// The point of the axes at which the series was measured.
    pub axes: Axes,
    /// Number of the repeat of this system at this point, from 0. The workload leaves 0; the lab's
    /// summary sets the number.
    pub repeat: u32,
    /// The block of the interleaved order that the repeat belongs to, as in
    /// [`Sample::block`](crate::Sample).
    pub block: u32,
    /// False if a flaw makes the repeat invalid, this series included.
    pub valid: bool,
    /// How the report draws the lines.
    pub shape: Shape,
    /// Seconds since the repeat began, ascending.
    pub time_s: Vec<f64>,
    /// The lines, each with as many values as `time_s`.
    pub lines: Vec<Line>,
}

/// A line of a [`Series`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Label in the legend: a flow, a core, a queue or the quantity itself.
    pub name: String,
    /// Unit of the values, such as `Mbit/s`.
    pub unit: String,
    /// A value for each time; `None` where nothing was read.
    pub values: Vec<Option<f64>>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Shape {
    /// The lines are drawn separately over one axis.
    #[default]
    Lines,
    /// The lines are shares of one whole and are stacked.
    Stacked,
}
