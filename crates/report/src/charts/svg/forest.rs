//! Ratios with their intervals on a logarithmic axis around 1.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, NARROW_ID, WIDTH, all_fitted, n, text_width};
use super::scale::Scale;
use crate::interval::Around;
use crate::number;
use results::{Ratio, Verdict};

/// A forest plot: a row for each ratio.
#[derive(Debug, Clone, Default)]
pub struct Forest {
    /// The texts for assistive technology.
    pub caption: Caption,
    /// The label of the ratio axis.
    pub x_label: String,
    /// The smallest difference that matters, as a share. Drawn as a band around 1.
    pub threshold: Option<f64>,
    /// The ratios, from the top down.
    pub rows: Vec<ForestRow>,
}

/// A ratio and its texts.
#[derive(Debug, Clone)]
pub struct ForestRow {
    /// Consecutive rows with the same group share a heading.
    pub group: String,
    /// The text to the left of the bar, or above it on a phone.
    pub label: String,
    /// The ratio with its interval.
    pub ratio: Ratio,
    /// The verdict, which chooses the style of the row.
    pub verdict: Verdict,
    /// The text at the end of the row.
    pub words: String,
}

impl Forest {
    /// Renders the drawing for a wide page, with label, bar, ratio and verdict side by side.
    pub fn render(&self) -> Markup {
        self.draw(&self.caption, &WIDE, draw_row)
    }

    /// Renders the drawing for a phone: the bar of a row is below its label.
    pub fn render_narrow(&self) -> Markup {
        let caption =
            Caption { id: format!("{}{NARROW_ID}", self.caption.id), ..self.caption.clone() };
        self.draw(&caption, &NARROW, draw_narrow_row)
    }

    fn draw(&self, caption: &Caption, layout: &Layout, row: DrawRow) -> Markup {
        let headings = self.headings();
        let heights = self.rows.len() as f64 * layout.row
            + headings.iter().filter(|heading| **heading).count() as f64 * HEADING;
        let frame = Frame {
            width: layout.width,
            height: TOP + heights + BOTTOM,
            left: layout.left,
            right: layout.right,
            top: TOP,
            bottom: BOTTOM,
        };
        let scale = self.scale();
        let ticks: Vec<(f64, String)> = scale
            .ticks()
            .into_iter()
            .map(|(value, label)| (scale.place(value), format!("{label}×")))
            .collect();
        let (top, base) = (frame.top - 4.0, frame.y(0.0));
        let groups = all_fitted(self.rows.iter().map(|row| row.group.as_str()), frame.width - 20.0);
        let room = self.rows.iter().map(|row| (layout.room)(row)).fold(frame.width, f64::min);
        let labels = all_fitted(self.rows.iter().map(|row| row.label.as_str()), room);
        let mut y = TOP;
        let rows: Vec<Markup> = self
            .rows
            .iter()
            .zip(&headings)
            .zip(groups.iter().zip(&labels))
            .map(|((one, heading), (group, label))| {
                let group_at = heading.then_some(y + HEADING / 2.0);
                y += group_at.map_or(0.0, |_| HEADING);
                let drawn = row(one, label, y, &frame, &scale);
                y += layout.row;
                html! {
                    @if let Some(at) = group_at {
                        text class="group" x="0" y=(n(at + 4.0)) { (group) }
                    }
                    (drawn)
                }
            })
            .collect();
        frame.draw(
            caption,
            &html! {
                @if let Some(threshold) = self.threshold {
                    @let from = frame.x(scale.place(1.0 / (1.0 + threshold)));
                    @let to = frame.x(scale.place(1.0 + threshold));
                    rect class="band" x=(n(from)) y=(n(top)) width=(n(to - from)) height=(n(base - top)) {}
                }
                @for (share, _) in &ticks {
                    path class="grid" d={"M" (n(frame.x(*share))) " " (n(top)) "V" (n(base))} {}
                }
                @let one = frame.x(scale.place(1.0));
                path class="one" d={"M" (n(one)) " " (n(top)) "V" (n(base))} {}
                (frame.x_axis(&ticks, layout.x_label.unwrap_or(&self.x_label)))
                @for row in rows { (row) }
            },
        )
    }

    fn scale(&self) -> Scale {
        let values = self.rows.iter().flat_map(|row| {
            [row.ratio.median].into_iter().chain(ends_of(&row.ratio).into_iter().flatten())
        });
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = values
            .fold((0.8, 1.25), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        Scale::log(low, high)
    }

    fn headings(&self) -> Vec<bool> {
        let mut last = "";
        self.rows
            .iter()
            .map(|row| {
                let new = row.group != last && !row.group.is_empty();
                last = &row.group;
                new
            })
            .collect()
    }
}

fn draw_row(row: &ForestRow, label: &str, top: f64, frame: &Frame, scale: &Scale) -> Markup {
    let at = top + WIDE.row / 2.0;
    let value_x = frame.width - frame.right + 16.0;
    html! {
        text x="12" y=(n(at + 4.0)) { (label) }
        (bar(row, at, frame, scale))
        text class="name" x=(n(value_x)) y=(n(at + 4.0)) { (figures(row)) }
        text x=(n(frame.width)) y=(n(at + 4.0)) text-anchor="end" { (row.words) }
    }
}

fn draw_narrow_row(row: &ForestRow, label: &str, top: f64, frame: &Frame, scale: &Scale) -> Markup {
    let (first, second) = (top + NARROW.row / 4.0, top + NARROW.row * 3.0 / 4.0 - 3.0);
    html! {
        text class="over" x="0" y=(n(first + 4.0)) { (label) }
        text x=(n(frame.width)) y=(n(first + 4.0)) text-anchor="end" { (row.words) }
        (bar(row, second, frame, scale))
        text class="name" x=(n(frame.width)) y=(n(second + 4.0)) text-anchor="end" { (figures(row)) }
    }
}

fn bar(row: &ForestRow, at: f64, frame: &Frame, scale: &Scale) -> Markup {
    let x = |value: f64| frame.x(scale.place(value));
    let class = row.verdict.word();
    html! {
        @if !row.ratio.median.is_nan() {
            @if let Some([low, high]) = ends_of(&row.ratio) {
                path class={"bar " (class)} d={"M" (n(x(low))) " " (n(at)) "H" (n(x(high)))} {}
            }
            rect class={"bar " (class)} x=(n(x(row.ratio.median) - 4.0)) y=(n(at - 4.0))
                width="8" height="8" {}
        }
    }
}

fn figures(row: &ForestRow) -> Markup {
    let around = Around::ratio(&row.ratio);
    html! {
        (number::ratio(row.ratio.median))
        @if let Some(around) = &around { " " (around.ends) title { (around.label) } }
    }
}

fn ends_of(ratio: &Ratio) -> Option<[f64; 2]> {
    ratio.ci95.or(ratio.range)
}

#[derive(Debug)]
struct Layout {
    width: f64,
    /// The widths beside the plot.
    left: f64,
    right: f64,
    row: f64,
    /// A shorter label of the axis, for a drawing without room for the full label.
    x_label: Option<&'static str>,
    /// The width for the label of a row.
    room: fn(&ForestRow) -> f64,
}

type DrawRow = fn(&ForestRow, &str, f64, &Frame, &Scale) -> Markup;

const WIDE: Layout = Layout {
    width: 810.0,
    left: WIDE_LEFT,
    right: 305.0,
    row: 23.0,
    x_label: None,
    room: |_| WIDE_LEFT - 24.0,
};
const WIDE_LEFT: f64 = 210.0;
const NARROW: Layout = Layout {
    width: WIDTH,
    left: 20.0,
    right: 165.0,
    row: 42.0,
    x_label: Some("ratio (log scale)"),
    // The words follow at the end of the label's line.
    room: |row| WIDTH - text_width(&row.words) - 12.0,
};
const TOP: f64 = 8.0;
const HEADING: f64 = 23.0;
const BOTTOM: f64 = 52.0;
