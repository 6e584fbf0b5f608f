//! The chart of the first screen: the main metric along the swept axis, or a dot for each cell if
//! no quantity was swept.

use maud::{Markup, html};

use super::figures::line_chart;
use crate::charts::svg::{COLOURS, Caption, ChartLine, LineChart, Point};
use crate::summary::Places;
use crate::{Panel, Pivot, axis, pivot};
use results::{Axes, Results, metrics};

pub(super) fn section(results: &Results) -> Markup {
    let chart = along_an_axis(results).or_else(|| dots(results));
    let Some(chart) = chart.filter(|chart| !chart.lines.is_empty()) else { return html! {} };
    html! {
        figure class="first" id="chart" {
            figcaption { (chart.caption.title) }
            p class="reading" aria-live="polite" hidden {}
            div class="broad" { (chart.render_wide()) }
            div class="narrow" { (chart.render_narrow()) }
        }
    }
}

/// Draws the main metric along an axis, in the setting of the first primary comparison, or else in
/// the setting with the most values.
fn along_an_axis(results: &Results) -> Option<LineChart> {
    let metric = pivot::headline(results)?;
    let place = results.comparisons.iter().find(|one| one.primary).map(|one| &one.axes);
    quantities(results).into_iter().find_map(|axis| {
        let pivot = Pivot::along(results, metric, Some(axis.clone()));
        let drawable = pivot.panels.iter().filter(|panel| has_a_line(panel));
        let is_asked = |panel: &Panel<'_>| {
            place.is_some_and(|at| {
                panel.fixed.iter().all(|(name, value)| at.get(name) == Some(value))
            })
        };
        // `max_by_key` returns the last of equal panels: the reversed order makes the first win.
        let panel = drawable.rev().max_by_key(|panel| (is_asked(panel), panel.rows.len()))?;
        let mut chart = line_chart(&pivot, panel, ID);
        chart.caption.title += &setting(results, &panel.fixed);
        Some(chart)
    })
}

/// Returns the axes whose values are quantities: the axis that the lab names, then the axes with
/// the most values.
fn quantities(results: &Results) -> Vec<String> {
    let count = |name: &String| axis::values(results, name).len();
    let mut names = axis::names(results);
    names.retain(|name| count(name) > 1 && axis::sizes(&axis::values(results, name)).is_some());
    names.sort_by_key(|name| std::cmp::Reverse(count(name)));
    if let Some(wished) = results.view.as_ref().and_then(|view| view.rows.as_ref()) {
        names.sort_by_key(|name| name != wished);
    }
    names
}

fn has_a_line(panel: &Panel<'_>) -> bool {
    let columns = panel.rows.first().map_or(0, |row| row.entries.len());
    (0..columns).any(|column| {
        let metrics = panel.rows.iter().filter_map(|row| row.entries[column].metric);
        metrics.filter(|metric| metric.value().is_finite()).count() > 1
    })
}

/// Names the fixed axes that vary in the run; if many axes vary, only the axes with unusual values.
fn setting(results: &Results, fixed: &Axes) -> String {
    let usual = axis::usual(results);
    let varies = |name: &String| axis::values(results, name).len() > 1;
    let kept = |all: bool| -> Axes {
        let kept = |(name, value): &(&String, &String)| {
            varies(name) && (all || usual.get(*name) != Some(*value))
        };
        let pairs = fixed.iter().filter(kept);
        pairs.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let all = kept(true);
    let named = if all.len() > MOST_NAMED { kept(false) } else { all };
    if named.is_empty() { String::new() } else { format!(" at {}", axis::describe(&named)) }
}

/// Draws a dot for each cell. In a run with one point of the axes the systems stand side by side.
fn dots(results: &Results) -> Option<LineChart> {
    let metric = pivot::headline(results)?;
    let places = Places::of(results);
    let mut points: Vec<Axes> = Vec::new();
    for cell in &results.cells {
        if !points.contains(&cell.axes) {
            points.push(cell.axes.clone());
        }
    }
    let shown = match points.len() {
        all if all > MOST_DOTS => format!(", the first {MOST_DOTS} of {all} settings"),
        _ => String::new(),
    };
    points.truncate(MOST_DOTS);
    let systems = pivot::systems(results);
    let alone = points.len() == 1;
    let lines = systems.iter().enumerate().map(|(place, system)| {
        let own = results.cells.iter().filter(|cell| cell.system == *system && cell.is_measured());
        let point = |cell: &results::Cell| {
            let metric = cell.metrics.get(metric)?;
            let at = points.iter().position(|axes| *axes == cell.axes)?;
            let interval = metric.interval().or(metric.range);
            let at = if alone { place } else { at };
            Some(Point { at, value: metric.value(), interval }).filter(|p| p.value.is_finite())
        };
        let points = own.filter_map(point).collect();
        ChartLine { name: system.clone(), colour: place % COLOURS, published: false, points }
    });
    let lines: Vec<ChartLine> = lines.filter(|line| !line.points.is_empty()).collect();
    let label = metrics::meaning(metric).label;
    let (x_label, x_values) = match alone {
        true => (String::new(), systems.clone()),
        false => {
            let values = points.iter().map(|axes| places.texts(axes).join(" · "));
            (places.heads().join(" · "), values.collect())
        }
    };
    Some(LineChart {
        caption: Caption {
            id: ID.to_owned(),
            title: if alone {
                format!("{label} by system")
            } else {
                format!("{label} by {x_label}{shown}")
            },
            description: format!(
                "{label}, a dot for each cell; the table below holds the same numbers"
            ),
        },
        x_label,
        x_values,
        y_label: pivot::with_unit(&label, &pivot::unit(results, metric)),
        lines,
    })
}

const ID: &str = "main";
const MOST_NAMED: usize = 3;
const MOST_DOTS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Cell, Form, Metric};

    #[test]
    fn the_title_of_a_chart_states_how_many_settings_the_chart_shows() {
        let chart = |cells: usize| {
            let mut results = Results::new("x", Form::Quick);
            for number in 0..cells {
                let axes = Axes::from([("place".to_owned(), format!("town-{number}"))]);
                let mut cell = Cell::new("tcp", axes);
                cell.metrics.insert("goodput_mbit_s".to_owned(), Metric::single(1.0, "Mbit/s"));
                results.cells.push(cell);
            }
            dots(&results).unwrap()
        };
        assert!(chart(81).caption.title.ends_with(", the first 80 of 81 settings"));
        assert_eq!(chart(81).x_values.len(), 80);
        assert!(!chart(80).caption.title.contains("first"));
    }
}
