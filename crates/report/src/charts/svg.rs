//! Inline SVG. Colours and type come from the page's style sheet through classes (`c0` … `c7`,
//! `stroke`, `fill`, `line`, …), so one drawing serves the light and the dark theme.
//!
//! Every chart is an image to assistive technology, with a title and a description. The page puts a
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
pub(crate) use forest::NARROW_ID;
pub use forest::{Forest, ForestRow};
pub use heat::{HeatField, HeatMap};
pub use lines::{ChartLine, LineChart, Point};
pub use stacked::{Layer, Stacked};
pub use strip::{Strip, StripRow};

/// The texts of every chart for assistive technology, and its id within the page.
#[derive(Debug, Clone, Default)]
pub struct Caption {
    /// Unique within the page.
    pub id: String,
    pub title: String,
    pub description: String,
}

/// The number of colours before they repeat. The marker's shape then still differs.
pub const COLOURS: usize = 8;
