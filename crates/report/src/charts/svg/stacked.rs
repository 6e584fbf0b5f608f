//! Shares of one whole over time.

use std::ops::Range;

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, Legend, n};
use super::scale::Scale;

/// A chart of layers on top of each other.
#[derive(Debug, Clone, Default)]
pub struct Stacked {
    /// The texts for assistive technology.
    pub caption: Caption,
    /// The label of the y axis, with its unit.
    pub y_label: String,
    /// The times of the values in seconds, ascending.
    pub time_s: Vec<f64>,
    /// The layers, from the bottom up.
    pub layers: Vec<Layer>,
}

/// A part of the whole over time.
#[derive(Debug, Clone, Default)]
pub struct Layer {
    /// The name in the legend.
    pub name: String,
    /// Index of the palette's colour.
    pub colour: usize,
    /// A value for each time; NaN for an unknown value.
    pub values: Vec<f64>,
}

impl Stacked {
    /// Renders the drawing as an SVG element.
    pub fn render(&self) -> Markup {
        // The legend lists the layers in stacking order, topmost first.
        let names = self.layers.iter().rev().map(|one| (one.name.as_str(), one.colour, false));
        let legend = Legend::of(names);
        let frame = legend.frame(140.0);
        let tops = self.tops();
        let highest = tops
            .last()
            .map_or(0.0, |top| top.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max));
        let y = Scale::linear(0.0, highest);
        let last = self.time_s.last().copied().unwrap_or(0.0);
        let x = Scale::Linear { low: 0.0, high: if last > 0.0 { last } else { 1.0 } };
        let whole = Scale::linear(0.0, last);
        let ticks: Vec<(f64, String)> = whole
            .ticks()
            .into_iter()
            .filter(|(value, _)| *value <= last * 1.001)
            .map(|(value, label)| (x.place(value), label))
            .collect();
        frame.draw(
            &self.caption,
            &html! {
                (frame.y_axis(&y, &self.y_label))
                @for (index, layer) in self.layers.iter().enumerate() {
                    path class={"layer c" (layer.colour % super::COLOURS)}
                        d=(self.area(index, &tops, &frame, &x, &y)) {}
                }
                (frame.x_axis(&ticks, "time, s"))
                (legend.draw(&frame))
            },
        )
    }

    fn tops(&self) -> Vec<Vec<f64>> {
        let mut sum = vec![0.0; self.time_s.len()];
        self.layers
            .iter()
            .map(|layer| {
                for (total, value) in sum.iter_mut().zip(&layer.values) {
                    *total += value.max(0.0);
                }
                sum.clone()
            })
            .collect()
    }

    /// Returns the runs of times at which every layer was read. The values between runs are
    /// unknown, not zero.
    fn known_runs(&self) -> Vec<Range<usize>> {
        let known = |at: usize| {
            self.layers
                .iter()
                .all(|layer| layer.values.get(at).is_some_and(|value| value.is_finite()))
        };
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..self.time_s.len()).filter(|at| known(*at)) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    fn area(&self, index: usize, tops: &[Vec<f64>], frame: &Frame, x: &Scale, y: &Scale) -> String {
        let point = |at: usize, value: f64| {
            let (x, y) = (x.place(self.time_s[at]), y.place(value));
            format!("{} {}", n(frame.x(x)), n(frame.y(y)))
        };
        let below = |at: usize| index.checked_sub(1).map_or(0.0, |below| tops[below][at]);
        self.known_runs()
            .into_iter()
            .map(|run| {
                let there = run.clone().map(|at| point(at, tops[index][at]));
                let back = run.rev().map(|at| point(at, below(at)));
                let points: Vec<String> = there.chain(back).collect();
                format!("M{}Z", points.join("L"))
            })
            .collect()
    }
}
