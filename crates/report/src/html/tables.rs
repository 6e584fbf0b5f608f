use maud::{Markup, html};

use super::fold::fold;
use crate::interval::{self, Around};
use crate::summary::{Places, Summary};
use crate::{
    Column, Entry, Panel, Pivot, Row, axis, columns, confusion, goals, method, missing, number,
    pivot, spread, states,
};
use results::{Axes, Results};
use stats::Verdict;

/// Renders the tables of the main metric by system, if the first table has other columns.
pub(super) fn headline(results: &Results) -> Markup {
    let is_shown = results.confusion.is_some() || Summary::is_of_reference(results);
    let Some(pivot) = Pivot::headline(results).filter(|_| is_shown) else { return html! {} };
    fold(
        "headline",
        format!("{} by system", pivot.title()),
        &html! {
            (panels(&pivot))
            p class="note" {
                (interval::note(pivot.intervals(), "below it"))
                @if pivot.has_published() {
                    " Reference numbers stand beside: " (method::sources(results))
                    ". The factor is measured over reference."
                }
                @for mark in method::marks(results) { " " (mark) }
            }
        },
    )
}

pub(super) fn verdicts(results: &Results) -> Markup {
    let Some(told) = &results.confusion else { return html! {} };
    let (heads, rows) = confusion::matrix(told);
    html! {
        section id="results" {
        h2 { (confusion::TITLE) }
        div class=(if rows.len() > TALL { "scroll tall" } else { "scroll" }) tabindex="0" role="group" aria-label=(confusion::TITLE) {
            table class="summary" {
                thead { tr {
                    @for (place, head) in heads.iter().enumerate() {
                        th scope="col" class=[(place < 2).then_some("text")] { (head) }
                    }
                 } }
                tbody {
                    @for (texts, row) in rows.iter().zip(&told.rows) {
                        tr {
                            @for (place, text) in texts.iter().enumerate() {
                                @if place == 0 { th scope="row" { (text) } }
                                @else if place == 2 && !confusion::is_all_right(row) {
                                    td { span class="failed" { (text) } }
                                }
                                @else { td class=[(place == 1).then_some("text")] { (text) } }
                            }
                        }
                    }
                }
            }
        }
        }
    }
}

pub(super) fn before_and_after(results: &Results) -> Markup {
    let Some(table) = states::table(results) else { return html! {} };
    html! {
        section id="results" {
        h2 { (states::TITLE) }
        div class=(if table.rows.len() > TALL { "scroll tall" } else { "scroll" }) tabindex="0" role="group" aria-label=(states::TITLE) {
            table class="summary" {
                thead { tr {
                    @for (place, head) in table.heads.iter().enumerate() {
                        th scope="col" class=[(place < table.names).then_some("text")] { (head.text) }
                    }
                } }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (place, entry) in row.iter().enumerate() {
                                @if place == 0 { th scope="row" { (entry.text) } }
                                @else if entry.verdict == Some(Verdict::Worse) {
                                    td { span class="failed" { (entry.text) } }
                                }
                                @else { td class=[(place < table.names).then_some("text")] { (entry.text) } }
                            }
                        }
                    }
                }
            }
        }
        p class="note" { (states::note(results)) }
        }
    }
}

/// Renders the columns of the report that the lab repeats, with a row for each round.
pub(super) fn reference_columns(results: &Results) -> Markup {
    // Without rounds the page's first table has the same rows.
    let with_rounds = results.cells.iter().any(|cell| !cell.rounds.is_empty());
    let tables = if with_rounds { columns::tables(results) } else { Vec::new() };
    html! {
        @if !tables.is_empty() {
            (fold("columns", "Each round in the columns of the reference report", &html! {
            div class="panels" {
                @for table in &tables {
                    div {
                        @if !table.at.is_empty() { h3 { (table.at) } }
                        (rows_of_text("columns table", &table.heads, &table.rows, |text| text == missing::WORD))
                    }
                }
            }
            p class="note" { (columns::note(results)) }
            }))
        }
    }
}

/// Renders the table that compares ratios with the reference and the ideals.
pub(super) fn held(results: &Results) -> Markup {
    let Some((heads, rows)) = goals::table(results) else { return html! {} };
    fold(
        "held",
        goals::TITLE,
        &html! {
            (rows_of_text(goals::TITLE, &heads, &rows, goals::is_missed))
            p class="note" { (goals::note(results)) }
        },
    )
}

/// Renders the table of ratios over many paths.
pub(super) fn spreads(results: &Results) -> Markup {
    let Some((heads, rows)) = spread::table(results) else { return html! {} };
    fold(
        "spread",
        spread::TITLE,
        &html! {
            (rows_of_text(spread::TITLE, &heads, &rows, |_| false))
            p class="note" { (spread::NOTE) }
        },
    )
}

/// Renders a table of texts whose first column has the rows' names.
fn rows_of_text(
    label: &str,
    heads: &[String],
    rows: &[Vec<String>],
    is_failed: impl Fn(&str) -> bool,
) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="group" aria-label=(label) {
            table class="pivot" {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (place, text) in row.iter().enumerate() {
                                @if place == 0 { th scope="row" { (text) } }
                                @else if is_failed(text) { td { span class="failed" { (text) } } }
                                @else { td { (text) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the table of all other metrics, with a field that filters its rows.
pub(super) fn other_metrics(results: &Results) -> Markup {
    let main = pivot::headline(results);
    let is_other = |name: &&str| Some(*name) != main && results.cells.len() <= super::MOST_CELLS;
    let names = pivot::metric_names(results).into_iter().filter(is_other);
    let (others, constant): (Vec<&str>, Vec<&str>) =
        names.partition(|name| pivot::varies(results, name));
    if others.is_empty() {
        return html! {};
    }
    let places = Places::of(results);
    let pivots: Vec<Pivot<'_>> = others.iter().map(|name| Pivot::of(results, name)).collect();
    let has_figure = |row: &&Row<'_>| {
        row.entries
            .iter()
            .any(|e| e.metric.is_some() || e.missing.is_some() || e.published.is_some())
    };
    fold(
        "metrics",
        format!("Every other metric: {}", others.len()),
        &html! {
            label class="filter" hidden {
                "Rows with " input type="search" data-filter="every-metric" autocomplete="off";
                output class="muted" aria-live="polite" {}
            }
            div class="scroll tall" tabindex="0" role="group" aria-label="Every other metric" {
                table class="summary" id="every-metric" {
                    thead { tr {
                        th scope="col" class="text" { "metric" }
                        @for head in places.heads() { th scope="col" class="text" { (head) } }
                        @for column in &pivots[0].columns {
                            @match column {
                                Column::Measured(system) => { th scope="col" { (system) } }
                                Column::Published(system) => {
                                    th scope="col" class="published" { (system) small { "reference" } }
                                }
                            }
                        }
                    } }
                    tbody {
                        @for pivot in &pivots {
                            @for panel in &pivot.panels {
                                @for row in panel.rows.iter().filter(has_figure) {
                                    tr {
                                        th scope="row" { (pivot.title()) }
                                        @for text in places.texts(&point(pivot, panel, row)) {
                                            td class="text" { (text) }
                                        }
                                        @for one in &row.entries { (entry(one)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            @if !constant.is_empty() {
                p class="note" {
                    (pivot::CONSTANT) " " (pivot::labels(&constant)) ". "
                    code { "results.json" } " has the values."
                }
            }
        },
    )
}

fn point(pivot: &Pivot<'_>, panel: &Panel<'_>, row: &Row<'_>) -> Axes {
    let mut point = panel.fixed.clone();
    if let Some(axis) = &pivot.row_axis {
        point.insert(axis.clone(), row.value.clone());
    }
    point
}

fn panels(pivot: &Pivot<'_>) -> Markup {
    html! {
        div class="panels" {
            @for panel in &pivot.panels {
                @let fixed = axis::describe(&panel.fixed);
                div {
                    @if !fixed.is_empty() { h3 { (fixed) } }
                    (table(pivot, panel))
                }
            }
        }
    }
}

fn table(pivot: &Pivot<'_>, panel: &Panel<'_>) -> Markup {
    let shown: Vec<usize> = (0..pivot.columns.len()).filter(|index| panel.shows(*index)).collect();
    html! {
        div class="scroll" tabindex="0" role="group" aria-label={(pivot.label) " table"} {
            table class="pivot" {
                thead { tr {
                    th scope="col" { (pivot.row_axis.as_deref().unwrap_or_default()) }
                    @for index in &shown {
                        @match &pivot.columns[*index] {
                            Column::Measured(system) => { th scope="col" { (system) } }
                            Column::Published(system) => {
                                th scope="col" class="published" { (system) br; "reference" }
                            }
                        }
                    }
                } }
                tbody {
                    @for row in &panel.rows {
                        tr {
                            th scope="row" { (row.value) }
                            @for index in &shown { (entry(&row.entries[*index])) }
                        }
                    }
                }
            }
        }
    }
}

fn entry(entry: &Entry<'_>) -> Markup {
    let Some(cell) = entry.cell else {
        let published = entry.published.map(|(_, value)| number::format(value));
        return html! {
            td class="published" { (published.unwrap_or_else(|| "–".to_owned())) }
        };
    };
    html! {
        td {
            @if let Some(word) = missing::in_a_word(cell) {
                span class=(missing::class(cell)) title=[missing::reason(cell)] { (word) }
            } @else if let Some(metric) = entry.metric {
                b { (number::format(metric.value())) }
                span class="mark" title=[cell.cpu_limit.as_ref()] { (method::mark(cell)) }
                @if let Some(around) = Around::metric(metric) {
                    small title=(around.label) { (around.ends) }
                }
            } @else if let Some(missing) = entry.missing {
                span class="failed" title=(missing.reason) { (missing::in_place(missing)) }
            } @else {
                span class="muted" { "–" }
            }
            @if let Some((reference, value)) = entry.published {
                small title=(reference.source) {
                    "reference " (number::format(value))
                    @if let Some(ratio) = entry.ratio() { " · " (number::ratio(ratio)) }
                }
            }
        }
    }
}

/// Maximum number of rows of a table; a longer table scrolls below its head.
pub(super) const TALL: usize = 24;
