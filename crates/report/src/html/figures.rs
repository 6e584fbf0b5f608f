//! The charts of the page, drawn from the results and the samples.

use std::collections::HashMap;

use maud::{Markup, html};

use super::fold::fold;
use crate::charts::svg::{
    COLOURS, Caption, Cdf, ChartLine, Distribution, Forest, ForestRow, LineChart, Point, Strip,
    StripRow,
};
use crate::interval::{self, Around};
use crate::{Column, Panel, Pivot, answer, axis, comparison, method, number, pivot};
use results::{Axes, Comparison, Results, Sample, Samples, metrics};

/// Draws the main metric along its axis, its distribution, and every repeat.
pub(super) fn charts(results: &Results, samples: &Samples) -> Markup {
    let Some(pivot) = Pivot::headline(results) else {
        return html! {};
    };
    let lines: Vec<(&Panel<'_>, LineChart)> = pivot
        .panels
        .iter()
        .enumerate()
        .filter(|(_, panel)| panel.rows.len() > 1)
        .take(MOST_PANELS)
        .map(|(index, panel)| (panel, line_chart(&pivot, panel, &format!("lines-{index}"))))
        .collect();
    let cdfs = distributions(results, samples);
    let along =
        format!("{} along {}", pivot.label, pivot.row_axis.as_deref().unwrap_or("the axis"));
    html! {
        // The chart of the first screen shows a single panel already.
        @if lines.len() > 1 {
            (fold("charts", format!("{along}, in {} settings", lines.len()), &html! {
                div class="charts" {
                    @for (panel, chart) in &lines {
                        figure {
                            @let fixed = axis::describe(&panel.fixed);
                            @if !fixed.is_empty() { figcaption { (fixed) } }
                            div class="scroll" { (chart.render()) }
                        }
                    }
                }
                p class="note" {
                    @let all = || lines.iter().flat_map(|(_, chart)| &chart.lines);
                    @if all().any(|line| line.points.iter().any(|point| point.interval.is_some())) {
                        "Bands and bars are intervals, or ranges of fewer than six repeats. "
                    }
                    @if all().any(|line| line.published) {
                        "Dashed lines with hollow marks are reference numbers. "
                    }
                }
            }))
        }
        @if !cdfs.is_empty() {
            (fold("distributions", "Distributions", &html! {
                div class="charts" {
                    @for cdf in &cdfs {
                        figure {
                            figcaption { (cdf.caption.title) }
                            div class="scroll" { (cdf.render()) }
                        }
                    }
                }
            }))
        }
        (repeats(results, samples, &pivot))
    }
}

/// Draws each ratio with its interval, as a chart and as a table.
pub(super) fn comparisons(results: &Results) -> Markup {
    let mut metrics: Vec<&str> = Vec::new();
    for comparison in &results.comparisons {
        if !metrics.contains(&comparison.metric.as_str()) {
            metrics.push(&comparison.metric);
        }
    }
    html! {
        @if !metrics.is_empty() {
            (fold("comparisons", format!("Comparisons: {} with intervals", answer::counted(results.comparisons.len(), "ratio")), &html! {
            p class="note" {
                "Each square is the ratio of the first system's number to the second's, paired within "
                "blocks; the bar is its interval, or the range of fewer than six pairs, the dashed "
                "line 1, where both are the same. A shaded band around 1 holds differences too "
                "small to matter. " (comparison::note(results))
                @for mark in method::marks(results) { " " (mark) }
            }
            @for (index, metric) in metrics.iter().enumerate() {
                (forest(results, metric, index))
            }
            details {
                summary { "The same as a table" }
                (comparison_table(results))
            }
            }))
        }
    }
}

fn forest(results: &Results, metric: &str, index: usize) -> Markup {
    let mut those: Vec<&Comparison> =
        results.comparisons.iter().filter(|one| one.metric == metric).collect();
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for one in &those {
        let pair = (one.a.as_str(), one.b.as_str());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    those.sort_by_key(|one| pairs.iter().position(|(a, b)| *a == one.a && *b == one.b));
    let label = metrics::meaning(metric).label;
    let chart = Forest {
        caption: Caption {
            id: format!("forest-{index}"),
            title: format!("Ratios of {label}"),
            description: format!(
                "{} with intervals on a logarithmic axis; the table below \
                  holds the same numbers",
                answer::counted(those.len(), "ratio")
            ),
        },
        x_label: format!("ratio of {} (log scale)", label.to_lowercase()),
        threshold: those.iter().find_map(|one| one.threshold),
        rows: those
            .iter()
            .map(|one| ForestRow {
                group: format!("{} / {}", one.a, one.b),
                label: axis::describe(&one.axes),
                ratio: one.ratio.clone(),
                verdict: one.verdict,
                words: comparison::verdict(one),
            })
            .collect(),
    };
    html! {
        figure class="wide" {
            figcaption { (label) }
            div class="scroll broad" { (chart.render()) }
            div class="narrow" { (chart.render_narrow()) }
        }
    }
}

fn comparison_table(results: &Results) -> Markup {
    let column = interval::Column::of(comparison::intervals(results));
    html! {
        div class="scroll" { table {
            thead { tr {
                @for head in ["metric", "systems", "at"] { th scope="col" class="text" { (head) } }
                th scope="col" { "ratio" }
                th scope="col" { (column.head) }
                th scope="col" class="text" { "verdict" }
            } }
            tbody {
                @for one in &results.comparisons {
                    tr {
                        td class="text" { (metrics::meaning(&one.metric).label) }
                        td class="text" { (comparison::systems(results, one)) }
                        td class="text" { (axis::describe(&one.axes)) }
                        td { (number::ratio(one.ratio.median)) }
                        td { (column.text(Around::ratio(&one.ratio))) }
                        td class="text" { (comparison::verdict(one)) }
                    }
                }
            }
        } }
    }
}

pub(super) fn line_chart(pivot: &Pivot<'_>, panel: &Panel<'_>, id: &str) -> LineChart {
    let values: Vec<String> = panel.rows.iter().map(|row| row.value.clone()).collect();
    let mut lines: Vec<ChartLine> = Vec::new();
    for (place, column) in pivot.columns.iter().enumerate() {
        let colour = place % COLOURS;
        let measured = panel.rows.iter().enumerate().filter_map(|(at, row)| {
            let metric = row.entries[place].metric?;
            Some(Point { at, value: metric.value(), interval: metric.interval().or(metric.range) })
        });
        let published: Vec<Point> = panel
            .rows
            .iter()
            .enumerate()
            .filter_map(|(at, row)| {
                Some(Point { at, value: row.entries[place].published?.1, interval: None })
            })
            .collect();
        let points: Vec<Point> = measured.filter(|point| point.value.is_finite()).collect();
        if let (Column::Measured(name), false) = (column, points.is_empty()) {
            lines.push(ChartLine { name: name.clone(), colour, published: false, points });
        }
        if !published.is_empty() {
            let reference = panel.rows.iter().find_map(|row| row.entries[place].published);
            let name = reference.map_or(column.system(), |(reference, _)| &reference.system);
            let name = format!("{name}, reference");
            lines.push(ChartLine { name, colour, published: true, points: published });
        }
    }
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let axis_name = pivot.row_axis.as_deref().unwrap_or_default();
    LineChart {
        caption: Caption {
            id: id.to_owned(),
            title: format!("{} along {axis_name}", pivot.label),
            description: format!(
                "{} {}; one line each for {}; the tables hold the same numbers",
                pivot.label,
                axis::describe(&panel.fixed),
                names.join(", ")
            ),
        },
        x_label: axis_name.to_owned(),
        x_values: values,
        y_label: pivot.title(),
        lines,
    }
}

/// Builds the distributions of single events, such as a flow's completion or a request's latency.
fn distributions(results: &Results, samples: &Samples) -> Vec<Cdf> {
    let systems = pivot::systems(results);
    let mut charts: Vec<(&str, &Axes, Cdf)> = Vec::new();
    let events = samples.rows.iter().filter(|sample| is_event(&sample.metric));
    for sample in events {
        let known = charts
            .iter()
            .position(|(metric, axes, _)| *metric == sample.metric && **axes == sample.axes);
        let index = known.unwrap_or_else(|| {
            charts.push((&sample.metric, &sample.axes, new_cdf(sample, charts.len())));
            charts.len() - 1
        });
        let distributions = &mut charts[index].2.distributions;
        match distributions.iter_mut().find(|one| one.name == sample.system) {
            Some(one) => one.values.push(sample.value),
            None => distributions.push(Distribution {
                name: sample.system.clone(),
                colour: systems.iter().position(|name| *name == sample.system).unwrap_or(0),
                values: vec![sample.value],
            }),
        }
    }
    let enough = |cdf: &Cdf| cdf.distributions.iter().any(|one| one.values.len() >= LEAST_EVENTS);
    charts.into_iter().map(|(.., cdf)| cdf).filter(enough).take(MOST_CDFS).collect()
}

fn new_cdf(sample: &Sample, index: usize) -> Cdf {
    let label = metrics::meaning(&sample.metric).label;
    let place = axis::describe(&sample.axes);
    let title = if place.is_empty() { label.clone() } else { format!("{label} · {place}") };
    Cdf {
        caption: Caption {
            id: format!("cdf-{index}"),
            description: format!("Cumulative distribution of {label}, one line a system"),
            title,
        },
        x_label: pivot::with_unit(&label, &sample.unit),
        distributions: Vec::new(),
    }
}

fn is_event(metric: &str) -> bool {
    matches!(metric, "fct_ms" | "latency_us" | "rtt_us" | "delay_error_us")
}

fn repeats(results: &Results, samples: &Samples, pivot: &Pivot<'_>) -> Markup {
    let systems = pivot::systems(results);
    let mut by_cell: HashMap<(&str, String), Vec<f64>> = HashMap::new();
    let whole = samples.rows.iter().filter(|sample| sample.time_s.is_none());
    for sample in whole.filter(|sample| sample.metric == pivot.metric) {
        let key = (sample.system.as_str(), axis::key(&sample.axes));
        by_cell.entry(key).or_default().push(sample.value);
    }
    let rows: Vec<StripRow> = results
        .cells
        .iter()
        .filter(|cell| cell.is_measured())
        .filter_map(|cell| {
            let key = (cell.system.as_str(), axis::key(&cell.axes));
            let values = by_cell.remove(&key).unwrap_or_default();
            let place = axis::describe(&cell.axes);
            (values.len() > 1).then(|| StripRow {
                label: format!("{} · {place}", cell.system),
                colour: systems.iter().position(|name| *name == cell.system).unwrap_or(0),
                values,
                median: cell.metrics.get(pivot.metric).map_or(f64::NAN, |metric| metric.value()),
            })
        })
        .take(MOST_STRIPS)
        .collect();
    if rows.is_empty() {
        return html! {};
    }
    let chart = Strip {
        caption: Caption {
            id: "repeat-dots".to_owned(),
            title: format!("Every repeat of {}", pivot.label),
            description: "One circle a repeat, a bar for the median; samples.parquet holds the \
                numbers"
                .to_owned(),
        },
        x_label: pivot.title(),
        rows,
    };
    html! {
        (fold("repeats", "Every repeat as a dot", &html! {
            figure class="wide" { div class="scroll" { (chart.render()) } }
        }))
    }
}

const LEAST_EVENTS: usize = 20;
const MOST_CDFS: usize = 12;
const MOST_PANELS: usize = 24;
const MOST_STRIPS: usize = 120;
