//! Distribution function: the share of the values that lie at or below each value.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, Legend, n};
use super::scale::Scale;

#[derive(Debug, Clone, Default)]
pub struct Cdf {
    pub caption: Caption,
    pub x_label: String,
    pub distributions: Vec<Distribution>,
}

#[derive(Debug, Clone, Default)]
pub struct Distribution {
    pub name: String,
    pub colour: usize,
    pub values: Vec<f64>,
}

impl Cdf {
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
