//! Ratios with their intervals on a logarithmic axis around 1.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, fitted, n};
use super::scale::Scale;
use crate::interval::Around;
use crate::number;
use results::{Ratio, Verdict};

#[derive(Debug, Clone, Default)]
pub struct Forest {
    pub caption: Caption,
    pub x_label: String,
    /// The smallest difference that matters, as a share. Drawn as a band around 1.
    pub threshold: Option<f64>,
    pub rows: Vec<ForestRow>,
}

#[derive(Debug, Clone)]
pub struct ForestRow {
    /// Consecutive rows with the same group share a heading.
    pub group: String,
    pub label: String,
    pub ratio: Ratio,
    pub verdict: Verdict,
    /// The text at the end of the row.
    pub words: String,
}

impl Forest {
    pub fn render(&self) -> Markup {
        let headings = self.headings();
        let lines = self.rows.len() + headings.iter().filter(|heading| **heading).count();
        let frame = Frame {
            width: 810.0,
            height: TOP + lines as f64 * ROW + 52.0,
            left: 210.0,
            right: 305.0,
            top: TOP,
            bottom: 52.0,
        };
        let values = self.rows.iter().flat_map(|row| {
            [row.ratio.median].into_iter().chain(ends_of(&row.ratio).into_iter().flatten())
        });
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = values
            .fold((0.8, 1.25), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        let scale = Scale::log(low, high);
        let ticks: Vec<(f64, String)> = scale
            .ticks()
            .into_iter()
            .map(|(value, label)| (scale.place(value), format!("{label}×")))
            .collect();
        let (top, base) = (frame.top - 4.0, frame.y(0.0));
        let mut line = 0;
        let rows: Vec<Markup> = self
            .rows
            .iter()
            .zip(&headings)
            .map(|(row, heading)| {
                let heading_y = *heading && !row.group.is_empty();
                let group_at = heading_y.then(|| middle(line));
                line += usize::from(heading_y);
                let at = middle(line);
                line += 1;
                draw_row(row, group_at, at, &frame, &scale)
            })
            .collect();
        frame.draw(
            &self.caption,
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
                (frame.x_axis(&ticks, &self.x_label))
                @for row in rows { (row) }
            },
        )
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

fn draw_row(
    row: &ForestRow,
    group_at: Option<f64>,
    at: f64,
    frame: &Frame,
    scale: &Scale,
) -> Markup {
    let x = |value: f64| frame.x(scale.place(value));
    let class = row.verdict.word();
    let around = Around::ratio(&row.ratio);
    html! {
        @if let Some(y) = group_at {
            text class="group" x="0" y=(n(y + 4.0)) { (fitted(&row.group, frame.width - 20.0)) }
        }
        text x="12" y=(n(at + 4.0)) { (fitted(&row.label, frame.left - 24.0)) }
        @if !row.ratio.median.is_nan() {
            @if let Some([low, high]) = ends_of(&row.ratio) {
                path class={"bar " (class)} d={"M" (n(x(low))) " " (n(at)) "H" (n(x(high)))} {}
            }
            rect class={"bar " (class)} x=(n(x(row.ratio.median) - 4.0)) y=(n(at - 4.0))
                width="8" height="8" {}
        }
        @let value_x = frame.width - frame.right + 16.0;
        text class="name" x=(n(value_x)) y=(n(at + 4.0)) {
            (number::ratio(row.ratio.median))
            @if let Some(around) = &around { " " (around.ends) title { (around.label) } }
        }
        text x=(n(frame.width)) y=(n(at + 4.0)) text-anchor="end" { (row.words) }
    }
}

fn ends_of(ratio: &Ratio) -> Option<[f64; 2]> {
    ratio.ci95.or(ratio.range)
}

fn middle(line: usize) -> f64 {
    TOP + line as f64 * ROW + ROW / 2.0
}

const TOP: f64 = 8.0;
const ROW: f64 = 23.0;
