//! Inline SVG. Colours and type come from the page's style sheet through classes (`c0` … `c7`,
//! `stroke`, `fill`, `line`, …). One drawing therefore serves the light and the dark theme.
//!
//! Every chart has a title and a description for assistive technology. The points of lines can be
//! focused, and a chart without such points is an image. The page puts a
//! table with the same numbers beside it.

mod bars;
mod cdf;
mod forest;
mod frame;
mod heat;
mod lines;
mod scale;
mod stacked;
mod strip;

pub use bars::{BarRow, Bars};
pub use cdf::{Cdf, Distribution};
pub use forest::{Forest, ForestRow};
pub(crate) use frame::NARROW_ID;
pub use heat::{HeatField, HeatMap};
pub use lines::{ChartLine, LineChart, Point};
pub use stacked::{Layer, Stacked};
pub use strip::{Strip, StripRow};

/// The texts of every chart for assistive technology, and its id within the page.
#[derive(Debug, Clone, Default)]
pub struct Caption {
    /// The SVG's id, unique within the page.
    pub id: String,
    /// The name of the chart (the SVG's `title`).
    pub title: String,
    /// The content of the chart in a sentence (the SVG's `desc`).
    pub description: String,
}

/// The number of colours before they repeat. The marker's shape then still differs.
pub const COLOURS: usize = 8;
