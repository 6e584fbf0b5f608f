//! A metric over two axes, with one field for each system and one common scale.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, all_fitted, fitted, n};
use super::scale::Scale;
use crate::number;

/// A heat map.
#[derive(Debug, Clone, Default)]
pub struct HeatMap {
    /// The texts for assistive technology.
    pub caption: Caption,
    /// The label of the x axis.
    pub x_label: String,
    /// Values of the x axis, from left to right.
    pub x_values: Vec<String>,
    /// The label of the y axis.
    pub y_label: String,
    /// Values of the y axis, from the bottom up.
    pub y_values: Vec<String>,
    /// The fields, each for one system.
    pub fields: Vec<HeatField>,
}

/// One system's values.
#[derive(Debug, Clone, Default)]
pub struct HeatField {
    /// The system's name.
    pub name: String,
    /// One row for each value of the y axis, with one entry for each value of the x axis. `None`
    /// for an unknown value.
    pub rows: Vec<Vec<Option<f64>>>,
}

impl HeatMap {
    /// Renders the chart as an SVG element.
    pub fn render(&self) -> Markup {
        let across = self.fields.len().clamp(1, FIELDS_ACROSS);
        let down = self.fields.len().div_ceil(across).max(1);
        let columns = self.x_values.len().max(1) as f64;
        let field_width = (WIDTH - LEFT) / across as f64;
        let cell = ((field_width - GAP) / columns).min(WIDEST_CELL);
        let field_height = TOP + self.y_values.len() as f64 * ROW + BOTTOM;
        let frame = Frame {
            width: WIDTH,
            height: field_height * down as f64,
            left: 0.0,
            right: 0.0,
            top: 0.0,
            bottom: 0.0,
        };
        let known = self.fields.iter().flat_map(|field| field.rows.iter().flatten().flatten());
        let scale = Scale::for_magnitudes(known.copied());
        let names = self.fields.iter().map(|field| field.name.as_str());
        let names = all_fitted(names, field_width - GAP);
        let x_values = all_fitted(self.x_values.iter().map(String::as_str), cell);
        let y_values = all_fitted(self.y_values.iter().map(String::as_str), LEFT - 8.0);
        frame.draw(
            &self.caption,
            &html! {
                @for (number, field) in self.fields.iter().enumerate() {
                    @let left = LEFT + (number % across) as f64 * field_width;
                    @let top = TOP + (number / across) as f64 * field_height;
                    @let foot = top + self.y_values.len() as f64 * ROW;
                    text class="group" x=(n(left)) y=(n(top - 8.0)) { (names[number]) }
                    @for (place, row) in field.rows.iter().enumerate() {
                        @let y = foot - (place as f64 + 1.0) * ROW;
                        @if number % across == 0 {
                            text x=(n(left - 6.0)) y=(n(y + ROW / 2.0 + 4.0)) text-anchor="end" {
                                (y_values[place])
                            }
                        }
                        @for (column, value) in row.iter().enumerate() {
                            (square(left + column as f64 * cell, y, cell, *value, &scale))
                        }
                    }
                    @for (column, value) in x_values.iter().enumerate() {
                        text x=(n(left + (column as f64 + 0.5) * cell)) y=(n(foot + 16.0)) text-anchor="middle" {
                            (value)
                        }
                    }
                    @if number % across == 0 {
                        text x="0" y=(n(top - 8.0)) { (fitted(&self.y_label, LEFT - 8.0)) }
                    }
                    text x=(n(left + columns * cell / 2.0)) y=(n(foot + 33.0)) text-anchor="middle" { (self.x_label) }
                }
            },
        )
    }
}

/// Draws a square: a larger value has a deeper colour. The square also shows the value as text,
/// because colour alone is not accessible.
fn square(x: f64, y: f64, width: f64, value: Option<f64>, scale: &Scale) -> Markup {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return html! {
            text x=(n(x + width / 2.0)) y=(n(y + ROW / 2.0 + 4.0)) text-anchor="middle" { "–" }
        };
    };
    // Text must be readable on the deepest colour in both themes.
    let depth = 0.04 + 0.5 * scale.place(value);
    html! {
        rect class="fill c0" fill-opacity=(format!("{depth:.2}")) x=(n(x)) y=(n(y)) width=(n(width - 1.0))
            height=(n(ROW - 1.0)) {}
        text class="name" x=(n(x + (width - 1.0) / 2.0)) y=(n(y + ROW / 2.0 + 4.0)) text-anchor="middle" {
            (fitted(&short(value), width))
        }
    }
}

/// Formats with few digits, so that the text fits in a square.
fn short(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 0.0995 => number::format(value),
        size if size < 0.0005 => "≈0".to_owned(),
        _ => format!("{value:.3}").replace('-', "−"),
    }
}

const FIELDS_ACROSS: usize = 3;
const WIDTH: f64 = 900.0;
const LEFT: f64 = 64.0;
const GAP: f64 = 14.0;
const WIDEST_CELL: f64 = 64.0;
const ROW: f64 = 26.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 48.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_have_a_square_and_unknown_values_have_none() {
        let map = HeatMap {
            x_values: vec!["0%".into(), "1%".into()],
            y_values: vec!["1bdp".into()],
            fields: vec![
                HeatField { name: "cubic".into(), rows: vec![vec![Some(0.9), None]] },
                HeatField { name: "bbr".into(), rows: vec![vec![Some(-0.1), Some(f64::NAN)]] },
            ],
            ..HeatMap::default()
        };
        let drawn = map.render().into_string();
        assert_eq!(drawn.matches("<rect").count(), 2);
        assert_eq!([0.0, 0.00727, 0.00002, 0.5].map(short), ["0", "0.007", "≈0", "0.500"]);
        assert_eq!(drawn.matches(">–<").count(), 2);
        assert!(drawn.contains("cubic") && drawn.contains("bbr"));
        assert!(HeatMap::default().render().into_string().contains("<svg"));
    }
}
