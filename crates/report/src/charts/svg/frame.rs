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

/// The names of a chart's series below it. Beside it they would be cut on a phone.
#[derive(Debug)]
pub(super) struct Legend<'a> {
    /// Name, colour, and whether its marks are hollow; with the place in the drawing.
    entries: Vec<(&'a str, usize, bool, f64, usize)>,
    rows: usize,
}

impl<'a> Legend<'a> {
    pub(super) fn of(names: impl Iterator<Item = (&'a str, usize, bool)>) -> Self {
        let (mut x, mut row) = (LEGEND_LEFT, 0);
        let mut entries = Vec::new();
        for (name, colour, hollow) in names {
            let width = text_width(name).min(WIDTH - LEGEND_LEFT - 30.0) + 30.0;
            if x > LEGEND_LEFT && x + width > WIDTH {
                (x, row) = (LEGEND_LEFT, row + 1);
            }
            entries.push((name, colour, hollow, x, row));
            x += width;
        }
        let rows = if entries.is_empty() { 0 } else { row + 1 };
        Self { entries, rows }
    }

    /// The frame of a chart whose plot is this high, with room for the legend.
    pub(super) fn frame(&self, plot: f64) -> Frame {
        let (top, axis) = (34.0, 48.0);
        let bottom = axis + self.rows as f64 * ROW;
        let height = top + plot + bottom;
        Frame { width: WIDTH, height, left: 46.0, right: 14.0, top, bottom }
    }

    pub(super) fn draw(&self, frame: &Frame) -> Markup {
        let first = frame.height - self.rows as f64 * ROW + ROW / 2.0;
        html! {
            @for (name, colour, hollow, x, row) in &self.entries {
                @let y = first + *row as f64 * ROW - 2.0;
                (marker(*colour, x + 5.0, y, *hollow))
                text class="name" x=(n(x + 14.0)) y=(n(y + 4.2)) {
                    (fitted(name, WIDTH - LEGEND_LEFT - 30.0))
                }
            }
        }
    }
}

/// A drawing of this width keeps readable letters on a phone of 390 px.
pub(super) const WIDTH: f64 = 430.0;
const LEGEND_LEFT: f64 = 10.0;
const ROW: f64 = 19.0;

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
    fn a_legend_wraps_to_the_width_of_the_drawing() {
        let names = ["tcp-cubic", "tcp-bbr", "weir-tunnel", "a system with a long name", "last"];
        let legend = Legend::of(names.iter().map(|name| (*name, 0, false)));
        assert_eq!(legend.rows, 2);
        let ends = |(name, _, _, x, _): &(&str, usize, bool, f64, usize)| x + text_width(name);
        assert!(legend.entries.iter().all(|entry| ends(entry) < WIDTH));
        assert_eq!(Legend::of(std::iter::empty()).rows, 0);
    }
}
