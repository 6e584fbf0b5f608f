//! The drawing area, its axes and the marks that all charts share.

use maud::{Markup, html};

use super::Caption;
use super::scale::Scale;

/// The plot's rectangle within the drawing, in drawing units.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    pub(super) fn x(&self, share: f64) -> f64 {
        self.left + share * (self.width - self.left - self.right)
    }

    pub(super) fn y(&self, share: f64) -> f64 {
        self.height - self.bottom - share * (self.height - self.top - self.bottom)
    }

    /// The whole drawing: title, description, then `inside`.
    pub(super) fn draw(&self, caption: &Caption, inside: &Markup) -> Markup {
        let Caption { id, title, description } = caption;
        html! {
            svg class="chart" role="img" viewBox={"0 0 " (n(self.width)) " " (n(self.height))}
                aria-labelledby={(id) "-title " (id) "-desc"} xmlns="http://www.w3.org/2000/svg" {
                title id={(id) "-title"} { (title) }
                desc id={(id) "-desc"} { (description) }
                (inside)
            }
        }
    }

    /// Horizontal grid lines with their values, and the label above them.
    pub(super) fn y_axis(&self, scale: &Scale, label: &str) -> Markup {
        let note = if scale.is_log() { " (log scale)" } else { "" };
        html! {
            text x=(n(self.left - 8.0)) y=(n(self.top - 16.0)) text-anchor="start"
                dx=(n(8.0 - self.left)) { (label) (note) }
            @for (value, text) in scale.ticks() {
                @let y = self.y(scale.place(value));
                path class="grid" d={"M" (n(self.left)) " " (n(y)) "H" (n(self.width - self.right))} {}
                text x=(n(self.left - 8.0)) y=(n(y + 4.0)) text-anchor="end" { (text) }
            }
        }
    }

    /// The values below the plot, and their label.
    pub(super) fn x_axis(&self, places: &[(f64, String)], label: &str) -> Markup {
        let base = self.y(0.0);
        let middle = self.x(0.5);
        html! {
            path class="axis" d={"M" (n(self.left)) " " (n(base)) "H" (n(self.width - self.right))} {}
            @for (share, text) in self.readable(places) {
                text x=(n(self.x(*share))) y=(n(base + 18.0)) text-anchor="middle" { (text) }
            }
            text x=(n(middle)) y=(n(base + 38.0)) text-anchor="middle" { (label) }
        }
    }
}

impl Frame {
    /// The values whose labels do not overlap the label before them.
    fn readable<'a>(&self, places: &'a [(f64, String)]) -> Vec<&'a (f64, String)> {
        let mut free = f64::NEG_INFINITY;
        let mut fits = |place: &&(f64, String)| {
            let (middle, half) = (self.x(place.0), text_width(&place.1) / 2.0);
            let fits = middle - half >= free;
            if fits {
                free = middle + half + 7.0;
            }
            fits
        };
        places.iter().filter(|place| fits(place)).collect()
    }
}

/// A marker with the series' shape, so that colour is never the only difference.
pub(super) fn marker(series: usize, x: f64, y: f64, hollow: bool) -> Markup {
    let class = if hollow {
        format!("hollow stroke c{}", series % super::COLOURS)
    } else {
        format!("fill c{}", series % super::COLOURS)
    };
    match series % 4 {
        0 => html! { circle class=(class) cx=(n(x)) cy=(n(y)) r="4" {} },
        1 => html! {
            rect class=(class) x=(n(x - 3.6)) y=(n(y - 3.6)) width="7.2" height="7.2" {}
        },
        2 => html! {
            path class=(class) d={
                "M" (n(x)) " " (n(y - 4.8)) "L" (n(x + 4.6)) " " (n(y + 3.6)) "H" (n(x - 4.6)) "Z"
            } {}
        },
        _ => html! {
            path class=(class) d={
                "M" (n(x)) " " (n(y - 5.0)) "L" (n(x + 5.0)) " " (n(y)) "L" (n(x)) " " (n(y + 5.0))
                "L" (n(x - 5.0)) " " (n(y)) "Z"
            } {}
        },
    }
}

/// Moves heights apart until labels of `gap` do not touch, as close to the wished heights as
/// possible.
pub(super) fn spread(wishes: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by(|a, b| wishes[*a].total_cmp(&wishes[*b]));
    let mut placed = wishes.to_vec();
    let mut floor = low;
    for &index in &order {
        placed[index] = placed[index].max(floor);
        floor = placed[index] + gap;
    }
    let mut ceiling = high;
    for &index in order.iter().rev() {
        placed[index] = placed[index].min(ceiling);
        ceiling = placed[index] - gap;
    }
    placed
}

/// Formats a coordinate. A tenth of a unit is finer than any screen shows.
pub(super) fn n(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 || !rounded.is_finite() { "0".to_owned() } else { rounded.to_string() }
}

/// The approximate width of a text at the charts' font size.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_ascii() { 6.9 } else { 9.0 }).sum()
}

/// The text, cut if it is wider than `width`.
pub(super) fn fitted(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take((width / 6.9).max(2.0) as usize - 1).collect();
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_move_apart_but_stay_inside() {
        assert_eq!(spread(&[10.0, 11.0, 50.0], 15.0, 0.0, 100.0), [10.0, 25.0, 50.0]);
        assert_eq!(spread(&[99.0, 98.0], 15.0, 0.0, 100.0), [100.0, 85.0]);
    }
}
