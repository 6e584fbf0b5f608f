//! A collapsed section for each cell: its metrics and their time series.

use maud::{Markup, html};

use super::embed;
use super::fold::fold;
use crate::charts::svg::{Caption, Layer, Stacked};
use crate::interval::{self, Around};
use crate::{answer, axis, method, missing, number, pivot};
use results::{Cell, Results, Series, Shape, metrics};

pub(super) fn details(results: &Results, drawn: &[&Series]) -> Markup {
    let headline = pivot::headline(results);
    let by_cell = embed::ByCell::of(drawn);
    let beyond = results.cells.len().saturating_sub(super::MOST_CELLS);
    html! {
        (fold("cells", format!("Cell by cell: {}", answer::counted(results.cells.len(), "cell")), &html! {
        @if !drawn.is_empty() {
            noscript {
                p class="note" {
                    "Lines over time are drawn by a script, which this browser does not run; the "
                    "values are in " code { "samples.parquet" } "."
                }
            }
        }
        @for (index, cell) in results.cells.iter().take(super::MOST_CELLS).enumerate() {
            details class="cell" id={"cell-" (index)} {
                (summary(results, cell, headline))
                div class="inside" {
                    @if let Some(reason) = missing::explained(cell) { p class=(missing::class(cell)) { (reason) } }
                    @for reason in &cell.invalid_reasons {
                        p class="failed" { "Not valid: " (reason) }
                        @if !reason.mend.is_empty() { p class="note" { "To mend it: " (reason.mend) "." } }
                    }
                    @for missing in missing::of(cell) {
                        p class="failed" { (missing::words(missing)) }
                    }
                    @if let Some(limit) = &cell.cpu_limit { p class="note" { "CPU-limited: " (limit) "." } }
                    @for warning in &cell.warnings { p class="note" { "Warning: " (warning) } }
                    (over_time(index, by_cell.at(cell)))
                    (numbers(results, cell))
                }
            }
        }
        @if beyond > 0 {
            p class="note" { (beyond) " more cells are in " code { "results.json" } "." }
        }
        }))
    }
}

fn summary(results: &Results, cell: &Cell, headline: Option<&str>) -> Markup {
    let metric = headline.and_then(|name| Some((name, cell.metrics.get(name)?)));
    html! {
        summary {
            b { (cell.system) }
            span class="muted" { (axis::describe(&cell.axes)) }
            @if let Some(word) = missing::in_a_word(cell) {
                span class={ "number " (missing::class(cell)) } { (word) }
            } @else if let Some((name, metric)) = metric {
                span class="number" {
                    (number::format(metric.value())) (method::mark(cell))
                    span class="muted" { " " (pivot::unit(results, name)) }
                }
            }
        }
    }
}

fn over_time(index: usize, mine: &[(usize, &Series)]) -> Markup {
    html! {
        @if let Some((_, first)) = mine.first() {
            p class="note" {
                "Repeat " (first.repeat + 1) " over time; the others are in "
                code { "samples.parquet" } ". Drag to look closer, double-click to see all again."
            }
            (charts(index, mine))
        }
    }
}

/// Draws each series as a chart. `mine` holds each series with its index in the page's data.
pub(super) fn charts(index: usize, mine: &[(usize, &Series)]) -> Markup {
    html! {
        div class="charts" {
            @for (place, series) in mine {
                @let stride = embed::stride(series);
                figure {
                    figcaption {
                        (series.name)
                        @if stride > 1 {
                            small { " · each point the mean of " (stride) " readings" }
                        }
                    }
                    @match series.shape {
                        Shape::Lines => { div data-series=(place) {} }
                        Shape::Stacked => {
                            div class="scroll" { (stacked(series, index, *place, stride)) }
                        }
                    }
                }
            }
        }
    }
}

fn stacked(series: &Series, cell: usize, place: usize, stride: usize) -> Markup {
    let unit = series.lines.first().map(|line| line.unit.as_str()).unwrap_or_default();
    let names: Vec<&str> = series.lines.iter().map(|line| line.name.as_str()).collect();
    let chart = Stacked {
        caption: Caption {
            id: format!("stacked-{cell}-{place}"),
            title: format!("{} over time", series.name),
            description: format!("Stacked shares over time of {}", names.join(", ")),
        },
        y_label: if unit.is_empty() { "share".to_owned() } else { format!("share, {unit}") },
        time_s: embed::thinned_time(series, stride),
        layers: series
            .lines
            .iter()
            .enumerate()
            .map(|(colour, line)| Layer {
                name: line.name.clone(),
                colour,
                values: embed::thinned(&line.values, stride)
                    .into_iter()
                    .map(|value| value.unwrap_or(f64::NAN))
                    .collect(),
            })
            .collect(),
    };
    chart.render()
}

fn numbers(results: &Results, cell: &Cell) -> Markup {
    let column = interval::Column::of(cell.metrics.values().filter_map(Around::metric));
    html! {
        @if !cell.metrics.is_empty() {
            div class="scroll" { table {
                thead { tr {
                    th scope="col" class="text" { "metric" }
                    th scope="col" { "median" }
                    th scope="col" { (column.head) }
                    th scope="col" { "repeats" }
                    th scope="col" class="text" { "unit" }
                } }
                tbody {
                    @for (name, metric) in &cell.metrics {
                        tr {
                            th scope="row" { (metrics::meaning(name).label) }
                            td { (number::format(metric.value())) }
                            td { (column.text(Around::metric(metric))) }
                            td { (metric.n) }
                            td class="text" { (pivot::unit(results, name)) }
                        }
                    }
                }
            } }
        }
    }
}
