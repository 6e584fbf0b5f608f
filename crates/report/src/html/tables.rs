//! The tables of the page.

use maud::{Markup, html};

use crate::interval::{self, Around};
use crate::{
    Column, Entry, Panel, Pivot, axis, columns, confusion, goals, method, missing, number, pivot,
    spread,
};
use results::{Results, metrics};

/// The table of the main metric.
pub(super) fn headline(results: &Results) -> Markup {
    let Some(pivot) = Pivot::headline(results) else {
        return html! { p class="muted" { "Nothing was measured." } };
    };
    html! {
        h2 id="results" { (heading(&pivot)) }
        (panels(&pivot))
        p class="note" {
            (interval::note(pivot.intervals(), "below it"))
            @if pivot.has_published() {
                " Reference numbers stand beside: " (method::sources(results))
                ". The factor is measured over reference."
            }
            @for mark in method::marks(results) { " " (mark) }
        }
    }
}

/// The matrix of cases and verdicts.
pub(super) fn verdicts(results: &Results) -> Markup {
    let Some(told) = &results.confusion else { return html! {} };
    let (heads, rows) = confusion::matrix(told);
    html! {
        h2 id="verdicts" { (confusion::TITLE) }
        div class="scroll" tabindex="0" role="group" aria-label=(confusion::TITLE) {
            table class="pivot" {
                thead { tr { @for head in &heads { th scope="col" { (head) } } } }
                tbody {
                    @for (texts, row) in rows.iter().zip(&told.rows) {
                        tr {
                            @for (place, text) in texts.iter().enumerate() {
                                @if place == 0 { th scope="row" { (text) } }
                                @else if place == 2 && !confusion::is_all_right(row) {
                                    td { span class="failed" { (text) } }
                                }
                                @else { td { (text) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The columns of the report that the lab repeats.
pub(super) fn reference_columns(results: &Results) -> Markup {
    let tables = columns::tables(results);
    html! {
        @if !tables.is_empty() {
            h2 id="columns" { "In the columns of the reference report" }
            div class="panels" {
                @for table in &tables {
                    div {
                        @if !table.at.is_empty() { h3 { (table.at) } }
                        div class="scroll" tabindex="0" role="group" aria-label="columns table" {
                            table class="pivot" {
                                thead { tr { @for head in &table.heads { th scope="col" { (head) } } } }
                                tbody {
                                    @for row in &table.rows {
                                        tr {
                                            @for (place, text) in row.iter().enumerate() {
                                                @if place == 0 { th scope="row" { (text) } }
                                                @else if text == missing::WORD {
                                                    td { span class="failed" { (text) } }
                                                }
                                                @else { td { (text) } }
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            p class="note" { (columns::note(results)) }
        }
    }
}

/// The table that compares ratios with the reference and the ideals.
pub(super) fn held(results: &Results) -> Markup {
    let Some((heads, rows)) = goals::table(results) else { return html! {} };
    html! {
        h2 id="held" { (goals::TITLE) }
        div class="scroll" tabindex="0" role="group" aria-label=(goals::TITLE) {
            table class="pivot" {
                thead { tr { @for head in &heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in &rows {
                        tr {
                            @for (place, text) in row.iter().enumerate() {
                                @if place == 0 { th scope="row" { (text) } }
                                @else if goals::is_missed(text) { td { span class="failed" { (text) } } }
                                @else { td { (text) } }
                            }
                        }
                    }
                }
            }
        }
        p class="note" { (goals::note(results)) }
    }
}

/// The table of ratios over many paths.
pub(super) fn spreads(results: &Results) -> Markup {
    let Some((heads, rows)) = spread::table(results) else { return html! {} };
    html! {
        h2 id="spread" { (spread::TITLE) }
        div class="scroll" tabindex="0" role="group" aria-label=(spread::TITLE) {
            table class="pivot" {
                thead { tr { @for head in &heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in &rows {
                        tr {
                            @for (place, text) in row.iter().enumerate() {
                                @if place == 0 { th scope="row" { (text) } }
                                @else { td { (text) } }
                            }
                        }
                    }
                }
            }
        }
        p class="note" { (spread::NOTE) }
    }
}

/// The tables of all other metrics. They are closed unless there are reference numbers for them.
pub(super) fn other_metrics(results: &Results) -> Markup {
    let main = pivot::headline(results);
    let others: Vec<Pivot<'_>> = pivot::metric_names(results)
        .into_iter()
        .filter(|name| Some(*name) != main)
        .filter(|_| results.cells.len() <= super::MOST_CELLS)
        .map(|name| Pivot::of(results, name))
        .collect();
    html! {
        @if !others.is_empty() {
            h2 id="metrics" { "Every other metric" }
            @for pivot in &others {
                details class="print" open[pivot.has_published() && metrics::is_cpu(pivot.metric)] {
                    summary { (heading(pivot)) }
                    (panels(pivot))
                }
            }
        }
    }
}

fn heading(pivot: &Pivot<'_>) -> Markup {
    html! {
        (pivot.label)
        @if !pivot.unit.is_empty() { span class="muted" { ", " (pivot.unit) } }
    }
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
