//! The time series as JSON inside the page.

use std::collections::HashMap;

use indexmap::IndexMap;
use serde_json::{Value, json};

use crate::axis;
use results::{Axes, Cell, Series, Shape};
use units::foreign;

/// Chooses the series that the page draws: the first repeat of each cell and name. The samples
/// contain the other repeats.
pub(super) fn choose(series: &[Series]) -> Vec<&Series> {
    let mut chosen: IndexMap<(&str, &str, String), &Series> = IndexMap::new();
    for one in series {
        let key = (one.system.as_str(), one.name.as_str(), axis::key(&one.axes));
        let known = chosen.entry(key).or_insert(one);
        if (!one.valid, one.repeat) < (!known.valid, known.repeat) {
            *known = one;
        }
    }
    chosen.into_values().take(MOST_SERIES).collect()
}

/// The chosen series by cell, each with its index in the page's data.
pub(super) struct ByCell<'a>(HashMap<String, Vec<(usize, &'a Series)>>);

impl<'a> ByCell<'a> {
    pub(super) fn of(chosen: &[&'a Series]) -> Self {
        let mut cells: HashMap<String, Vec<(usize, &Series)>> = HashMap::new();
        for (index, one) in chosen.iter().enumerate() {
            let key = cell_key(&one.system, &one.axes);
            cells.entry(key).or_default().push((index, one));
        }
        Self(cells)
    }

    pub(super) fn at(&self, cell: &Cell) -> &[(usize, &'a Series)] {
        let series = self.0.get(&cell_key(&cell.system, &cell.axes));
        series.map_or(&[], Vec::as_slice)
    }
}

/// Encodes JSON that cannot end its script element, whatever its texts contain.
pub(super) fn json(chosen: &[&Series]) -> String {
    let all: Vec<Value> = chosen.iter().map(|one| encode(one)).collect();
    // JSON has the escaped characters only inside strings, where the escapes stand for the same
    // text (HTML, "Restrictions for contents of script elements").
    Value::Array(all)
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Returns the number of consecutive values that are averaged into one point of the drawing.
pub(super) fn stride(series: &Series) -> usize {
    series.time_s.len().div_ceil(MOST_POINTS).max(1)
}

pub(super) fn thinned(values: &[Option<f64>], stride: usize) -> Vec<Option<f64>> {
    let mean = |part: &[Option<f64>]| {
        let known: Vec<f64> = part.iter().flatten().copied().filter(|v| v.is_finite()).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    values.chunks(stride).map(mean).collect()
}

pub(super) fn thinned_time(series: &Series, stride: usize) -> Vec<f64> {
    series.time_s.chunks(stride).filter_map(|part| part.first().copied()).collect()
}

fn cell_key(system: &str, axes: &Axes) -> String {
    format!("{system}\u{1d}{}", axis::key(axes))
}

fn encode(series: &Series) -> Value {
    // The page itself contains the drawing of a stacked series; the page's script draws the other
    // series.
    if series.shape == Shape::Stacked {
        return json!({"name": shown(&series.name), "time": [], "lines": []});
    }
    let stride = stride(series);
    let time: Vec<f64> = thinned_time(series, stride).into_iter().map(rounded).collect();
    let holes = holes(&time);
    let lines: Vec<Value> = series
        .lines
        .iter()
        .map(|line| {
            let mut values: Vec<Option<f64>> =
                thinned(&line.values, stride).into_iter().map(|value| value.map(rounded)).collect();
            values.resize(time.len(), None);
            for at in holes.iter().rev() {
                values.insert(*at, None);
            }
            json!({"name": shown(&line.name), "unit": line.unit, "values": values})
        })
        .collect();
    let mut time = time;
    for at in holes.iter().rev() {
        time.insert(*at, rounded((time[*at - 1] + time[*at]) / 2.0));
    }
    json!({"name": shown(&series.name), "time": time, "lines": lines})
}

/// Finds the indices before which samples are missing. A chart must not draw a line across these
/// gaps.
fn holes(time: &[f64]) -> Vec<usize> {
    let mut steps: Vec<f64> = time.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let in_order = steps.clone();
    steps.sort_by(f64::total_cmp);
    let Some(usual) = steps.get(steps.len() / 2).filter(|usual| **usual > 0.0) else {
        return Vec::new();
    };
    let places = in_order.iter().enumerate().filter(|(_, step)| **step > usual * MOST_STEPS);
    places.map(|(at, _)| at + 1).collect()
}

fn shown(name: &str) -> String {
    foreign(name).to_string()
}

// Five significant digits exceed a chart's resolution and halve the page's size.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

const MOST_POINTS: usize = 1000;
// Maximum number of series of a page. A page with more series takes seconds to open. The samples
// contain all series.
const MOST_SERIES: usize = 600;
/// A pause of more than this many usual steps is a gap.
const MOST_STEPS: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use results::Line;

    #[test]
    fn a_gap_in_the_samples_is_a_gap_in_the_line() {
        assert_eq!(holes(&[0.0, 0.1, 0.2, 0.3, 2.0, 2.1]), [4]);
        assert_eq!(holes(&[0.0, 0.1, 0.3, 0.4]), [0; 0]);
        assert_eq!(holes(&[1.0]), [0; 0]);
        let values = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0].map(Some).to_vec();
        let line = Line { name: "x".to_owned(), unit: "ms".to_owned(), values };
        let series = Series {
            name: "rtt".to_owned(),
            system: "a".to_owned(),
            axes: Axes::new(),
            repeat: 0,
            block: 0,
            valid: true,
            shape: Shape::Lines,
            time_s: vec![0.0, 0.1, 0.2, 0.3, 2.0, 2.1],
            lines: vec![line],
        };
        let encoded = encode(&series);
        assert_eq!(encoded["time"].as_array().unwrap().len(), 7);
        assert_eq!(encoded["lines"][0]["values"][4], Value::Null);
    }
}
