//! Distribution function: the share of the values that lie at or below each value.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, Legend, n};
use super::scale::Scale;

/// A chart of distribution functions.
#[derive(Debug, Clone, Default)]
pub struct Cdf {
    /// The texts for assistive technology.
    pub caption: Caption,
    /// The label of the value axis, with its unit.
    pub x_label: String,
    /// The functions, in the order of the legend.
    pub distributions: Vec<Distribution>,
}

/// The values of one distribution function.
#[derive(Debug, Clone, Default)]
pub struct Distribution {
    /// The name in the legend.
    pub name: String,
    /// Index of the palette's colour.
    pub colour: usize,
    /// The values in any order; values that are not finite are left out.
    pub values: Vec<f64>,
}

impl Cdf {
    /// Renders the chart as an SVG element.
    pub fn render(&self) -> Markup {
        let names = self.distributions.iter().map(|one| (one.name.as_str(), one.colour, false));
        let legend = Legend::of(names);
        let frame = legend.frame(248.0);
        let all = self.distributions.iter().flat_map(|one| one.values.iter().copied());
        let x = Scale::for_magnitudes(all);
        let ticks: Vec<(f64, String)> =
            x.ticks().into_iter().map(|(value, label)| (x.place(value), label)).collect();
        let shares = Scale::Linear { low: 0.0, high: 100.0 };
        let log = if x.is_log() { " (log scale)" } else { "" };
        frame.draw(
            &self.caption,
            &html! {
                (frame.y_axis(&shares, "share at or below, %"))
                (frame.x_axis(&ticks, &format!("{}{log}", self.x_label)))
                @for one in &self.distributions {
                    path class={"line stroke c" (one.colour % super::COLOURS)}
                        d=(staircase(&one.values, &frame, &x)) {}
                }
                (legend.draw(&frame))
            },
        )
    }
}

fn staircase(values: &[f64], frame: &Frame, x: &Scale) -> String {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let mut path = String::new();
    // A step shorter than a pixel is invisible. Draws every k-th value if there are more than a
    // thousand.
    let stride = count.div_ceil(1000).max(1);
    for (index, value) in sorted.iter().enumerate() {
        if index % stride != 0 && index + 1 != count {
            continue;
        }
        let at = n(frame.x(x.place(*value)));
        if path.is_empty() {
            path = format!("M{at} {}", n(frame.y(0.0)));
        } else {
            path += &format!("H{at}");
        }
        path += &format!("V{}", n(frame.y((index + 1) as f64 / count as f64)));
    }
    path
}
