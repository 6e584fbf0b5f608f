//! The drawing area, its axes and the marks that all charts share.

use maud::{Markup, html};

use super::Caption;
use super::scale::Scale;
use crate::cut::{cut, distinct};

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

    /// Renders the whole drawing: title, description, then `inside`.
    pub(super) fn draw(&self, caption: &Caption, inside: &Markup) -> Markup {
        self.draw_as("img", caption, inside)
    }

    /// Renders a drawing whose points a reader can focus: assistive technology hides the parts of
    /// an image.
    pub(super) fn draw_readable(&self, caption: &Caption, inside: &Markup) -> Markup {
        self.draw_as("group", caption, inside)
    }

    fn draw_as(&self, role: &str, caption: &Caption, inside: &Markup) -> Markup {
        let Caption { id, title, description } = caption;
        html! {
            svg class="chart" role=(role) viewBox={"0 0 " (n(self.width)) " " (n(self.height))}
                aria-labelledby={(id) "-title " (id) "-desc"} xmlns="http://www.w3.org/2000/svg" {
                title id={(id) "-title"} { (title) }
                desc id={(id) "-desc"} { (description) }
                (inside)
            }
        }
    }

    /// Draws horizontal grid lines with their values, and the label above them.
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
    /// Returns the values whose labels do not overlap the previous label.
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

/// The names of a chart's series, below the chart. Beside the chart a phone would cut the names.
#[derive(Debug)]
pub(super) struct Legend<'a> {
    /// Each entry's name, colour, whether its marks are hollow, and its position in the drawing.
    entries: Vec<(&'a str, usize, bool, f64, usize)>,
    rows: usize,
    /// Width of the drawing.
    width: f64,
}

impl<'a> Legend<'a> {
    pub(super) fn of(names: impl Iterator<Item = (&'a str, usize, bool)>) -> Self {
        Self::within(WIDTH, names)
    }

    pub(super) fn within(whole: f64, names: impl Iterator<Item = (&'a str, usize, bool)>) -> Self {
        let (mut x, mut row) = (LEGEND_LEFT, 0);
        let mut entries = Vec::new();
        for (name, colour, hollow) in names {
            let width = text_width(name).min(whole - LEGEND_LEFT - 30.0) + 30.0;
            if x > LEGEND_LEFT && x + width > whole {
                (x, row) = (LEGEND_LEFT, row + 1);
            }
            entries.push((name, colour, hollow, x, row));
            x += width;
        }
        let rows = if entries.is_empty() { 0 } else { row + 1 };
        Self { entries, rows, width: whole }
    }

    /// Returns the frame of a chart whose plot is this high, with room for the legend.
    pub(super) fn frame(&self, plot: f64) -> Frame {
        let (top, axis) = (34.0, 48.0);
        let bottom = axis + self.rows as f64 * ROW;
        let height = top + plot + bottom;
        Frame { width: self.width, height, left: 46.0, right: 14.0, top, bottom }
    }

    pub(super) fn draw(&self, frame: &Frame) -> Markup {
        let first = frame.height - self.rows as f64 * ROW + ROW / 2.0;
        let names = self.entries.iter().map(|(name, ..)| *name);
        let names = all_fitted(names, self.width - LEGEND_LEFT - 30.0);
        html! {
            @for ((_, colour, hollow, x, row), name) in self.entries.iter().zip(&names) {
                @let y = first + *row as f64 * ROW - 2.0;
                (marker(*colour, x + 5.0, y, *hollow))
                text class="name" x=(n(x + 14.0)) y=(n(y + 4.2)) { (name) }
            }
        }
    }
}

/// Suffix of the id of a drawing for a phone.
pub(crate) const NARROW_ID: &str = "-narrow";
/// The width of a drawing whose letters are still readable on a phone of 390 px.
pub(super) const WIDTH: f64 = 430.0;
const LEGEND_LEFT: f64 = 10.0;
const ROW: f64 = 19.0;

/// Draws a marker with the series' shape, so that colour is never the only difference.
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

/// Returns the approximate width of a text at the charts' font size.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_ascii() { LETTER } else { 9.0 }).sum()
}

/// Cuts the text if it is wider than `width`.
pub(super) fn fitted(text: &str, width: f64) -> String {
    shortened(text, width, 0)
}

/// Cuts the labels of one axis of a chart that are wider than `width`. A cut text keeps enough of
/// its last letters to differ from the other texts.
pub(super) fn all_fitted<'a>(texts: impl Iterator<Item = &'a str>, width: f64) -> Vec<String> {
    let texts: Vec<&str> = texts.collect();
    let wide: Vec<&str> = texts.iter().copied().filter(|text| text_width(text) > width).collect();
    let letters = letters(width);
    let tail = distinct(&wide, letters).unwrap_or(letters / 2);
    texts.iter().map(|text| shortened(text, width, tail)).collect()
}

fn shortened(text: &str, width: f64, tail: usize) -> String {
    match text_width(text) <= width {
        true => text.to_owned(),
        false => cut(text, letters(width), tail),
    }
}

fn letters(width: f64) -> usize {
    (width / LETTER).max(2.0) as usize
}

const LETTER: f64 = 6.9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_labels_of_a_chart_differ() {
        let labels = ["Queue delay, median", "Queue delay, 95 %", "Queue delay, largest", "Rate"];
        for width in [40.0, 60.0, 100.0, 300.0] {
            let shown = all_fitted(labels.iter().copied(), width);
            let different: std::collections::HashSet<&String> = shown.iter().collect();
            assert_eq!(different.len(), labels.len(), "{width}: {shown:?}");
            assert_eq!(shown[3], "Rate");
        }
    }

    /// Checks the names of systems and the values of axes, at the widths that charts give them.
    #[test]
    fn cut_labels_of_the_built_in_labs_differ() {
        let labs = std::fs::read_dir("../../labs").unwrap().map(|entry| entry.unwrap().path());
        let mut count = 0;
        for path in labs.filter(|path| path.extension().is_some_and(|end| end == "toml")) {
            let text = std::fs::read_to_string(&path).unwrap();
            let quoted = |line: &str| {
                line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
            };
            let systems = text.lines().filter(|line| line.starts_with("name = "));
            let axes = text.lines().skip_while(|line| *line != "[axes]").skip(1);
            let axes = axes.take_while(|line| line.contains(" = ["));
            let groups = std::iter::once(systems.flat_map(quoted).collect::<Vec<_>>());
            for group in groups.chain(axes.map(quoted)) {
                for width in [56.0, 112.0, 186.0, 244.0] {
                    let shown = all_fitted(group.iter().map(String::as_str), width);
                    let texts: std::collections::HashSet<&String> = group.iter().collect();
                    let cuts: std::collections::HashSet<&String> = shown.iter().collect();
                    assert_eq!(cuts.len(), texts.len(), "{path:?}, {width}: {shown:?}");
                }
                count += group.len();
            }
        }
        assert!(count > 50, "{count}");
    }

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
