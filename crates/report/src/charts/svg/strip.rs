//! Draws every repeat as a dot and the median as a line, to show the samples behind a median and an
//! interval.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, all_fitted, n, text_width};
use super::scale::Scale;

/// A strip plot.
#[derive(Debug, Clone, Default)]
pub struct Strip {
    /// The texts for assistive technology.
    pub caption: Caption,
    /// The label of the value axis, with its unit.
    pub x_label: String,
    /// The rows, from the top down.
    pub rows: Vec<StripRow>,
}

/// The repeats of a cell.
#[derive(Debug, Clone, Default)]
pub struct StripRow {
    /// The text to the left of the row.
    pub label: String,
    /// Index of the palette's colour.
    pub colour: usize,
    /// The value of each repeat.
    pub values: Vec<f64>,
    /// The median, as in the results; NaN draws no line.
    pub median: f64,
}

impl Strip {
    /// Renders the chart as an SVG element.
    pub fn render(&self) -> Markup {
        let labels = self.rows.iter().map(|row| text_width(&row.label));
        let frame = Frame {
            width: 740.0,
            height: TOP + self.rows.len() as f64 * ROW + 52.0,
            left: labels.fold(60.0, f64::max).min(260.0) + 16.0,
            right: 28.0,
            top: TOP,
            bottom: 52.0,
        };
        let x = Scale::for_magnitudes(self.rows.iter().flat_map(|row| row.values.iter().copied()));
        let ticks: Vec<(f64, String)> =
            x.ticks().into_iter().map(|(value, label)| (x.place(value), label)).collect();
        let log = if x.is_log() { " (log scale)" } else { "" };
        let labels = all_fitted(self.rows.iter().map(|row| row.label.as_str()), frame.left - 16.0);
        frame.draw(
            &self.caption,
            &html! {
                @for (share, _) in &ticks {
                    path class="grid" d={"M" (n(frame.x(*share))) " " (n(TOP)) "V" (n(frame.y(0.0)))} {}
                }
                (frame.x_axis(&ticks, &format!("{}{log}", self.x_label)))
                @for (index, row) in self.rows.iter().enumerate() {
                    @let y = TOP + (index as f64 + 0.5) * ROW;
                    @let colour = format!("c{}", row.colour % super::COLOURS);
                    text x="0" y=(n(y + 4.0)) { (labels[index]) }
                    @for value in row.values.iter().filter(|value| value.is_finite()) {
                        circle class={"hollow stroke " (colour)} cx=(n(frame.x(x.place(*value))))
                            cy=(n(y)) r="3.4" {}
                    }
                    @if row.median.is_finite() {
                        @let at = n(frame.x(x.place(row.median)));
                        path class={"line stroke " (colour)} d={"M" (at) " " (n(y - 8.0)) "V" (n(y + 8.0))} {}
                    }
                }
            },
        )
    }
}

const TOP: f64 = 8.0;
const ROW: f64 = 21.0;
