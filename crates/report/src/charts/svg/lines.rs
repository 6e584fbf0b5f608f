//! A metric along an axis: one line per system, bars for intervals, hollow marks for published
//! numbers.

use maud::{Markup, html};

use super::Caption;
use super::frame::{Frame, Legend, marker, n};
use super::scale::Scale;
use crate::axis;

#[derive(Debug, Clone, Default)]
pub struct LineChart {
    pub caption: Caption,
    pub x_label: String,
    /// The axis's values. Sizes that are all above zero are placed by size, others evenly.
    pub x_values: Vec<String>,
    pub y_label: String,
    pub lines: Vec<ChartLine>,
}

#[derive(Debug, Clone, Default)]
pub struct ChartLine {
    pub name: String,
    /// Index of the palette's colour and marker.
    pub colour: usize,
    /// Published by others. Drawn dashed and hollow.
    pub published: bool,
    pub points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Index into the chart's `x_values`.
    pub at: usize,
    pub value: f64,
    pub interval: Option<[f64; 2]>,
}

impl LineChart {
    pub fn render(&self) -> Markup {
        let names = self.lines.iter().map(|line| (line.name.as_str(), line.colour, line.published));
        let legend = Legend::of(names);
        let frame = legend.frame(248.0);
        let points = self.lines.iter().flat_map(|line| &line.points);
        let y = Scale::for_magnitudes(points.flat_map(|point| {
            [point.value].into_iter().chain(point.interval.into_iter().flatten())
        }));
        let x = self.x_shares();
        // A line between words would show values that do not exist.
        let is_joined = axis::sizes(&self.x_values).is_some();
        let ticks: Vec<(f64, String)> = x.iter().copied().zip(self.x_values.clone()).collect();
        frame.draw(
            &self.caption,
            &html! {
                (frame.y_axis(&y, &self.y_label))
                (frame.x_axis(&ticks, &self.x_label))
                @for (index, line) in self.lines.iter().enumerate() {
                    // Shift by a few units, so that intervals at the same place stay apart.
                    @let aside = (index as f64 - (self.lines.len() as f64 - 1.0) / 2.0) * 3.0;
                    (draw_line(line, is_joined, &frame, &x, &y, aside))
                }
                (legend.draw(&frame))
            },
        )
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

fn draw_line(
    line: &ChartLine,
    is_joined: bool,
    frame: &Frame,
    x: &[f64],
    y: &Scale,
    aside: f64,
) -> Markup {
    let colour = format!("c{}", line.colour % super::COLOURS);
    let dashed = if line.published { " dashed" } else { "" };
    let known: Vec<(f64, &Point)> = line
        .points
        .iter()
        .filter(|point| point.value.is_finite())
        .filter_map(|point| Some((frame.x(*x.get(point.at)?) + aside, point)))
        .collect();
    let path: Vec<String> = known
        .iter()
        .map(|(x, point)| format!("{} {}", n(*x), n(frame.y(y.place(point.value)))))
        .collect();
    html! {
        @if is_joined && path.len() > 1 {
            path class={"line stroke " (colour) (dashed)} d={"M" (path.join("L"))} {}
        }
        @for (x, point) in known {
            @if let Some([low, high]) = point.interval {
                path class={"bar stroke " (colour)} d={
                    "M" (n(x)) " " (n(frame.y(y.place(low)))) "V" (n(frame.y(y.place(high))))
                } {}
            }
            (marker(line.colour, x, frame.y(y.place(point.value)), line.published))
        }
    }
}

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
}
