//! Distribution function: the share of the values that lie at or below each value.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, fitted, marker, n, text_width};
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
        let names = self.distributions.iter().map(|one| text_width(&one.name));
        let label_room = names.fold(40.0, f64::max).min(190.0) + 30.0;
        let frame = Frame {
            width: 560.0,
            height: 330.0,
            left: 46.0,
            right: label_room,
            top: 34.0,
            bottom: 48.0,
        };
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
                @for (index, one) in self.distributions.iter().enumerate() {
                    path class={"line stroke c" (one.colour % super::COLOURS)}
                        d=(staircase(&one.values, &frame, &x)) {}
                    @let y = frame.top + 8.0 + index as f64 * 18.0;
                    @let label_x = frame.width - frame.right + 22.0;
                    (marker(one.colour, label_x - 5.0, y, false))
                    text class="name" x=(n(label_x + 4.0)) y=(n(y + 4.2)) {
                        (fitted(&one.name, frame.right - 26.0))
                    }
                }
            },
        )
    }
}

fn staircase(values: &[f64], frame: &Frame, x: &Scale) -> String {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let mut path = String::new();
    // A step shorter than a pixel is invisible. Beyond a thousand values, draw every k-th.
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
