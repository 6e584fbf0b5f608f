//! Bars of stacked parts, one bar a row, that divide a whole.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, all_fitted, marker, n, text_width};
use super::scale::Scale;

/// A chart of bars. The parts of a bar add up to the whole bar.
#[derive(Debug, Clone, Default)]
pub struct Bars {
    /// The texts for assistive technology.
    pub caption: Caption,
    /// The label of the value axis, with its unit.
    pub x_label: String,
    /// The names of the parts, in stacking order.
    pub parts: Vec<String>,
    /// The bars, from the top down.
    pub rows: Vec<BarRow>,
}

/// A bar.
#[derive(Debug, Clone, Default)]
pub struct BarRow {
    /// The text to the left of the bar.
    pub label: String,
    /// The parts' values, in the order of the parts.
    pub values: Vec<f64>,
}

impl Bars {
    /// Renders the chart as an SVG element.
    pub fn render(&self) -> Markup {
        let labels = self.rows.iter().map(|row| text_width(&row.label));
        let left = labels.fold(60.0, f64::max).min(260.0) + 16.0;
        let bottom = 52.0 + LEGEND;
        let height = TOP + self.rows.len() as f64 * ROW + bottom;
        let frame = Frame { width: WIDTH, height, left, right: 28.0, top: TOP, bottom };
        let most = self.rows.iter().map(BarRow::whole).fold(0.0, f64::max);
        let x = Scale::linear(0.0, most);
        let ticks: Vec<(f64, String)> =
            x.ticks().into_iter().map(|(value, label)| (x.place(value), label)).collect();
        let labels = all_fitted(self.rows.iter().map(|row| row.label.as_str()), left - 16.0);
        frame.draw(
            &self.caption,
            &html! {
                @for (share, _) in &ticks {
                    path class="grid" d={"M" (n(frame.x(*share))) " " (n(TOP)) "V" (n(frame.y(0.0)))} {}
                }
                (frame.x_axis(&ticks, &self.x_label))
                @for (index, row) in self.rows.iter().enumerate() {
                    @let y = TOP + index as f64 * ROW;
                    text x="0" y=(n(y + ROW / 2.0 + 4.0)) { (labels[index]) }
                    @for (part, from, to) in row.spans() {
                        @let (a, b) = (frame.x(x.place(from)), frame.x(x.place(to)));
                        rect class={"layer c" (part % super::COLOURS)} x=(n(a)) y=(n(y + 3.0))
                            width=(n(b - a)) height=(n(ROW - 6.0)) {}
                    }
                }
                (self.legend(height))
            },
        )
    }

    fn legend(&self, height: f64) -> Markup {
        let places = self.parts.iter().scan(10.0, |x, name| {
            let at = *x;
            *x += text_width(name) + 34.0;
            Some((name, at))
        });
        let y = height - LEGEND / 2.0;
        html! {
            @for (part, (name, x)) in places.enumerate() {
                (marker(part, x + 5.0, y, false))
                text class="name" x=(n(x + 14.0)) y=(n(y + 4.2)) { (name) }
            }
        }
    }
}

impl BarRow {
    fn whole(&self) -> f64 {
        self.known().sum()
    }

    fn known(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().map(|value| if value.is_finite() { value.max(0.0) } else { 0.0 })
    }

    /// Returns each part's index, beginning and end.
    fn spans(&self) -> Vec<(usize, f64, f64)> {
        let ends = self.known().scan(0.0, |sum, value| {
            let from = *sum;
            *sum += value;
            Some((from, *sum))
        });
        ends.enumerate().map(|(part, (from, to))| (part, from, to)).collect()
    }
}

const WIDTH: f64 = 740.0;
const TOP: f64 = 8.0;
const ROW: f64 = 21.0;
const LEGEND: f64 = 24.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_begins_where_the_previous_part_ends() {
        let row = BarRow { label: String::new(), values: vec![10.0, f64::NAN, 5.0] };
        assert_eq!(row.spans(), [(0, 0.0, 10.0), (1, 10.0, 10.0), (2, 10.0, 15.0)]);
        assert_eq!(row.whole(), 15.0);
    }
}
