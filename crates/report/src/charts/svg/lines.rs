//! A metric along an axis: one line per system, bands for intervals, dashed lines and hollow marks
//! for published numbers. An axis of categories (values that are not numbers) has points with bars,
//! and no lines between the points.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, Legend, NARROW_ID, WIDTH, marker, n};
use super::scale::Scale;
use crate::{axis, number};

/// A chart of lines along one axis.
#[derive(Debug, Clone, Default)]
pub struct LineChart {
    /// The texts for assistive technology.
    pub caption: Caption,
    /// The label of the x axis.
    pub x_label: String,
    /// The axis's values. Quantities above zero are placed by size, other values evenly.
    pub x_values: Vec<String>,
    /// The label of the y axis, with its unit.
    pub y_label: String,
    /// The lines, in the order of the legend.
    pub lines: Vec<ChartLine>,
}

/// The points of a line.
#[derive(Debug, Clone, Default)]
pub struct ChartLine {
    /// The name in the legend.
    pub name: String,
    /// Index of the palette's colour and marker.
    pub colour: usize,
    /// The line shows published numbers, drawn dashed and hollow.
    pub published: bool,
    /// The points, in the order of the x axis.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Index into the chart's `x_values`.
    pub at: usize,
    /// The height, in the unit of the y axis.
    pub value: f64,
    /// The low and the high end of the value's interval; `None` for a value without an interval.
    pub interval: Option<[f64; 2]>,
}

impl LineChart {
    /// Renders the drawing for a column of a page.
    pub fn render(&self) -> Markup {
        self.draw(&self.caption, WIDTH, PLOT)
    }

    /// Renders the drawing across a wide page.
    pub fn render_wide(&self) -> Markup {
        self.draw(&self.caption, WIDE, WIDE_PLOT)
    }

    /// Renders a low drawing for a phone; the page also has the wide drawing.
    pub fn render_narrow(&self) -> Markup {
        let caption =
            Caption { id: format!("{}{NARROW_ID}", self.caption.id), ..self.caption.clone() };
        self.draw(&caption, WIDTH, NARROW_PLOT)
    }

    fn draw(&self, caption: &Caption, width: f64, plot: f64) -> Markup {
        let names = self.lines.iter().map(|line| (line.name.as_str(), line.colour, line.published));
        let legend = Legend::within(width, names);
        let frame = legend.frame(plot);
        let points = self.lines.iter().flat_map(|line| &line.points);
        let y = Scale::for_magnitudes(points.flat_map(|point| {
            [point.value].into_iter().chain(point.interval.into_iter().flatten())
        }));
        let x = self.x_shares();
        // On an axis of categories, a line between two points would show values that do not exist.
        let is_joined = axis::sizes(&self.x_values).is_some();
        let ticks: Vec<(f64, String)> = x.iter().copied().zip(self.x_values.clone()).collect();
        let gap = self.gap(&frame);
        let lines: Vec<Drawn<'_>> = self
            .lines
            .iter()
            .enumerate()
            .map(|(index, line)| {
                let aside = (index as f64 - (self.lines.len() as f64 - 1.0) / 2.0) * gap;
                Drawn::of(line, is_joined, &frame, &x, aside)
            })
            .collect();
        frame.draw_readable(
            caption,
            &html! {
                (frame.y_axis(&y, &self.y_label))
                (frame.x_axis(&ticks, &self.x_label))
                @for line in &lines { (line.band(&frame, &y)) }
                @for line in &lines { (line.path(&frame, &y)) }
                @for (index, line) in lines.iter().enumerate() {
                    (line.points(index, self, &frame, &y))
                }
                (legend.draw(&frame))
            },
        )
    }

    /// Returns the distance between the bars of two lines at one axis value. All bars of an axis
    /// value stay nearer to its own label than to the next label.
    fn gap(&self, frame: &Frame) -> f64 {
        let mut places: Vec<usize> =
            self.lines.iter().flat_map(|line| &line.points).map(|point| point.at).collect();
        let points = places.len();
        places.sort_unstable();
        places.dedup();
        if places.len() == points {
            return 0.0;
        }
        let step = (frame.x(1.0) - frame.x(0.0)) / self.x_values.len().max(1) as f64;
        (step * PART_OF_STEP / self.lines.len() as f64).min(WIDEST_GAP)
    }

    fn x_shares(&self) -> Vec<f64> {
        let count = self.x_values.len();
        let sizes =
            axis::sizes(&self.x_values).filter(|sizes| sizes.iter().all(|size| *size > 0.0));
        let steps = Scale::Steps(count);
        let even: Vec<f64> = (0..count).map(|index| steps.place(index as f64)).collect();
        let Some(sizes) = sizes.filter(|_| count > 2) else {
            return even;
        };
        let (low, high) = sizes
            .iter()
            .fold((f64::INFINITY, 0.0f64), |(low, high), size| (low.min(*size), high.max(*size)));
        let by_size: Vec<f64> =
            sizes.iter().map(|size| 0.06 + 0.88 * (size / low).ln() / (high / low).ln()).collect();
        let apart = by_size.windows(2).all(|pair| pair[1] - pair[0] > 0.08);
        if apart { by_size } else { even }
    }
}

#[derive(Debug)]
struct Drawn<'a> {
    line: &'a ChartLine,
    is_joined: bool,
    points: Vec<(f64, &'a Point)>,
}

impl<'a> Drawn<'a> {
    fn of(line: &'a ChartLine, is_joined: bool, frame: &Frame, x: &[f64], aside: f64) -> Self {
        let known = line.points.iter().filter(|point| point.value.is_finite());
        let placed = known.filter_map(|point| Some((frame.x(*x.get(point.at)?), point)));
        let mut drawn = Self { line, is_joined, points: placed.collect() };
        // Moves error bars aside so that no bar hides another bar. Lines and bands keep their exact
        // positions.
        if !is_joined {
            drawn.points.iter_mut().for_each(|(x, _)| *x += aside);
        }
        drawn
    }

    /// Returns the corners of the band: the upper ends, then the lower ends in reverse order.
    fn ends(&self, frame: &Frame, y: &Scale) -> Option<Vec<String>> {
        let corner = |x: f64, value: f64| format!("{} {}", n(x), n(frame.y(y.place(value))));
        let of = |(x, point): &(f64, &Point)| {
            let [low, high] = point.interval?;
            Some((corner(*x, low), corner(*x, high)))
        };
        let ends: Option<Vec<(String, String)>> = self.points.iter().map(of).collect();
        let (low, high): (Vec<String>, Vec<String>) = ends?.into_iter().unzip();
        let corners = high.into_iter().chain(low.into_iter().rev()).collect();
        (self.is_joined && self.points.len() > 1).then_some(corners)
    }

    fn band(&self, frame: &Frame, y: &Scale) -> Markup {
        let class = format!("interval c{}", self.line.colour % super::COLOURS);
        html! {
            @if let Some(corners) = self.ends(frame, y) {
                path class=(class) d={"M" (corners.join("L")) "Z"} {}
            }
        }
    }

    fn path(&self, frame: &Frame, y: &Scale) -> Markup {
        let colour = format!("c{}", self.line.colour % super::COLOURS);
        let dashed = if self.line.published { " dashed" } else { "" };
        let corner =
            |(x, point): &(f64, &Point)| format!("{} {}", n(*x), n(frame.y(y.place(point.value))));
        let path: Vec<String> = self.points.iter().map(corner).collect();
        html! {
            @if self.is_joined && path.len() > 1 {
                path class={"line stroke " (colour) (dashed)} d={"M" (path.join("L"))} {}
            }
        }
    }

    /// Draws the points. A reader can focus each point; the point's text names the value.
    fn points(&self, line: usize, chart: &LineChart, frame: &Frame, y: &Scale) -> Markup {
        let colour = format!("c{}", self.line.colour % super::COLOURS);
        let has_band = self.ends(frame, y).is_some();
        html! {
            @for (x, point) in &self.points {
                @let at = frame.y(y.place(point.value));
                @let text = chart.reading(self.line, point);
                g class="point" tabindex="0" role="img" aria-label=(text)
                    data-line=(line) {
                    title { (text) }
                    @if let (Some([low, high]), false) = (point.interval, has_band) {
                        path class={"bar stroke " (colour)} d={
                            "M" (n(*x)) " " (n(frame.y(y.place(low)))) "V" (n(frame.y(y.place(high))))
                        } {}
                    }
                    circle class="target" cx=(n(*x)) cy=(n(at)) r="11" {}
                    (marker(self.line.colour, *x, at, self.line.published))
                }
            }
        }
    }
}

impl LineChart {
    /// Formats a point as `weir-tunnel at loss 1%: 553 [506, 599] Mbit/s`.
    fn reading(&self, line: &ChartLine, point: &Point) -> String {
        let place = self.x_values.get(point.at).map(String::as_str).unwrap_or_default();
        let at = match (self.x_label.as_str(), place) {
            (_, "") => String::new(),
            ("", place) => format!(" at {place}"),
            (axis, place) => format!(" at {axis} {place}"),
        };
        let ends = point.interval.map(|ends| format!(" {}", number::interval(point.value, ends)));
        let value = number::format(point.value) + &ends.unwrap_or_default();
        let unit = self.y_label.rsplit_once(", ").map(|(_, unit)| format!(" {unit}"));
        format!("{}{at}: {value}{}", line.name, unit.unwrap_or_default())
    }
}

const WIDEST_GAP: f64 = 3.0;
/// The share of the distance between two labels that bars may use.
const PART_OF_STEP: f64 = 0.8;
const PLOT: f64 = 248.0;
const WIDE: f64 = 1040.0;
const WIDE_PLOT: f64 = 210.0;
/// The height of the plot. The drawing is then about 220 px high on a phone of 390 px.
const NARROW_PLOT: f64 = 138.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_points_of_quantities_are_joined() {
        let point = |at| Point { at, value: 1.0, interval: None };
        let drawn = |values: [&str; 2]| {
            let line = ChartLine { points: vec![point(0), point(1)], ..ChartLine::default() };
            let x_values = values.map(str::to_owned).to_vec();
            let chart = LineChart { x_values, lines: vec![line], ..LineChart::default() };
            chart.render().into_string()
        };
        assert!(drawn(["1ms", "5ms"]).contains("line stroke"));
        assert!(!drawn(["all", "one"]).contains("line stroke"));
    }

    fn dots(places: &[usize]) -> String {
        let line = |at: &usize| {
            let points = vec![Point { at: *at, value: 1.0, interval: None }];
            ChartLine { points, ..ChartLine::default() }
        };
        let x_values = ["a", "b", "c"].map(str::to_owned).to_vec();
        let lines = places.iter().map(line).collect();
        LineChart { x_values, lines, ..LineChart::default() }.render().into_string()
    }

    #[test]
    fn a_single_dot_is_above_its_label() {
        let drawing = dots(&[0, 1, 2]);
        for x in ["107.7", "231", "354.3"] {
            assert!(drawing.contains(&format!("class=\"target\" cx=\"{x}\"")), "{x}: {drawing}");
        }
    }

    #[test]
    fn dots_at_one_axis_value_are_side_by_side() {
        let drawing = dots(&[1, 1]);
        for x in ["229.5", "232.5"] {
            assert!(drawing.contains(&format!("class=\"target\" cx=\"{x}\"")), "{x}: {drawing}");
        }
    }
}
