//! `report.html`: one self-contained file that loads nothing and stays readable for years.

mod cells;
mod document;
mod embed;
mod figures;
mod first_chart;
mod first_table;
mod fold;
mod heat;
mod measurement;
mod overlay;
mod page;
mod parts;
mod tables;

pub(crate) use measurement::render as render_measurement;
pub(crate) use page::render as render_page;

use fold::fold;
use maud::{Markup, html};

use crate::profile::Profile;
use crate::{answer, axis, doubtful, method, missing, number, pivot, prose};
use results::{Cell, Form, Results, Samples, Series};

/// Renders the whole page.
pub fn render(results: &Results, samples: &Samples, series: &[Series], lab_file: &str) -> String {
    render_run(results, samples, series, lab_file, None)
}

/// Renders the whole page of a run with or without a profile.
pub(crate) fn render_run(
    results: &Results,
    samples: &Samples,
    series: &[Series],
    lab_file: &str,
    profile: Option<&Profile>,
) -> String {
    // Overlays need the same times in every system, which only virtual time gives.
    let overlays = match results.overall.is_empty() {
        true => Vec::new(),
        false => overlay::overlays(series, &pivot::systems(results)),
    };
    let mut drawn = embed::choose(series);
    let of_cells = drawn.len();
    drawn.extend(overlays.iter().flat_map(|overlay| &overlay.charts));
    let body = html! {
        (masthead(results))
        main {
            @if results.states.is_some() {
                (tables::before_and_after(results))
            } @else {
                (first_chart::section(results))
                (first_table::section(results))
            }
            (cautions(results))
            (facts(results))
            (in_more_words(results))
            (figures::comparisons(results))
            (heat::means(results))
            (heat::maps(results))
            (tables::held(results))
            (tables::spreads(results))
            (tables::reference_columns(results))
            (tables::headline(results))
            (figures::charts(results, samples))
            (parts::charts(results))
            @if let Some(profile) = profile { (profile.section()) }
            (tables::other_metrics(results))
            (overlay::section(&overlays, of_cells, &axis::usual(results)))
            (cells::details(results, &drawn[..of_cells]))
            (failures_and_warnings(results))
            (how_measured(results))
            (environment(results))
            (repeat(results, lab_file))
        }
        footer {
            p {
                "Written by weir " (env!("CARGO_PKG_VERSION")) ". Every number of this page is in "
                code { "results.json" } " beside it, every sample in "
                code { "samples.parquet" } ". The page loads nothing from the network."
            }
        }
    };
    document::page(&format!("{} · weir lab", title(results)), &body, &drawn)
}

fn masthead(results: &Results) -> Markup {
    html! {
        header class="first" {
            div class="eyebrow" {
                span { "weir lab · " (results.lab) }
                button id="theme" type="button" hidden { "Dark" }
            }
            h1 { (prose::markup(title(results))) }
            div class=(if results.valid { "answer" } else { "answer untrusted" }) {
                p { (prose::markup(&answer::headline(results))) }
            }
            div class="facts" {
                (validity(results))
                @if results.form != Form::Full {
                    span class="badge warn" { (results.form.word()) " form" }
                }
            }
        }
    }
}

/// Renders the question and the sentences that follow the answer.
fn in_more_words(results: &Results) -> Markup {
    let details = answer::details(results);
    let question = &results.question;
    let is_asked = !question.is_empty() && question != title(results);
    html! {
        @if is_asked || !details.is_empty() {
            (fold("words", "In more words", &html! {
                @if is_asked { p class="question" { (prose::markup(question)) } }
                @for sentence in details { p { (prose::markup(&sentence)) } }
            }))
        }
    }
}

/// Renders the first reasons to doubt the results, one line for each reason.
fn cautions(results: &Results) -> Markup {
    let mut lines: Vec<String> = Vec::new();
    if !results.valid {
        lines.extend(results.invalid_reasons.iter().cloned());
    }
    lines.extend(method::warnings_by_cause(results));
    let more = lines.len().saturating_sub(MOST_CAUTIONS);
    html! {
        @if !lines.is_empty() {
            ul class="cautions" {
                @for line in lines.iter().take(MOST_CAUTIONS) { li { (prose::markup(line)) } }
                @if more > 0 {
                    li { a href="#doubts" { (answer::counted(more, "more warning")) } }
                }
            }
        }
    }
}

fn facts(results: &Results) -> Markup {
    html! {
        div class="facts" {
            span { (answer::tally(results)) }
            @if let Some(started) = &results.started { span { (started) } }
            @if let Some(seconds) = results.duration_s {
                span { "took " (number::duration(seconds)) }
            }
        }
    }
}

fn validity(results: &Results) -> Markup {
    let is_marked =
        |cell: &&Cell| !cell.valid || cell.cpu_limited || missing::of(cell).next().is_some();
    let doubtful = results.cells.iter().filter(is_marked).count();
    html! {
        @if !results.valid {
            span class="badge bad" { "not valid: do not use these numbers" }
        } @else if doubtful > 0 {
            span class="badge warn" { "valid, but for " (answer::counted(doubtful, "marked cell")) }
        } @else {
            span class="badge good" { "valid" }
        }
    }
}

/// The identifier and the title of a list of cells, and the condition for a cell to be in it.
type CellList = (&'static str, &'static str, fn(&Cell) -> bool);

const WITHOUT_NUMBER: [CellList; 2] = [
    ("failed", "Failed", |cell| cell.failed.is_some()),
    ("not-run", "Not run", |cell| cell.not_run.is_some()),
];

fn failures_and_warnings(results: &Results) -> Markup {
    let warnings = method::warnings(results);
    let invalid = doubtful::invalid(results);
    let missing = missing::each(results);
    let inside = html! {
        @if !results.valid {
            h3 { "The run is not valid" }
            ul class="failed" {
                @for reason in &results.invalid_reasons { li { (prose::markup(reason)) } }
            }
        }
        @if !invalid.is_empty() {
            h3 id="invalid" { "Not valid" }
            ul {
                @for (place, reasons) in &invalid {
                    li { b { (place) } ": " span class="failed" { (prose::markup(reasons)) } }
                }
            }
            @for mend in doubtful::mends(results) { p class="note" { (prose::markup(&mend)) } }
        }
        @for (id, title, is_one) in WITHOUT_NUMBER {
            @if results.cells.iter().any(is_one) {
                h3 id=(id) { (title) }
                ul {
                    @for cell in results.cells.iter().filter(|cell| is_one(cell)) {
                        li {
                            b { (cell.system) } " at " (axis::describe(&cell.axes)) ": "
                            span class=(missing::class(cell)) {
                                (prose::markup(missing::reason(cell).unwrap_or_default()))
                            }
                        }
                    }
                }
            }
        }
        @if !missing.is_empty() {
            h3 id="missing" { "Not measured" }
            ul {
                @for (place, words) in &missing {
                    li { b { (place) } ": " span class="failed" { (prose::markup(words)) } }
                }
            }
        }
        @if !warnings.is_empty() {
            h3 id="warnings" { "Warnings" }
            ul { @for warning in &warnings { li { (prose::markup(warning)) } } }
        }
        @if !results.notes.is_empty() {
            h3 id="notes" { "Notes" }
            ul { @for note in &results.notes { li { (prose::markup(note)) } } }
        }
    };
    let is_empty = inside.0.is_empty();
    let kinds = [
        (warnings.len(), "warning"),
        (results.notes.len(), "note"),
        (
            invalid.len()
                + missing.len()
                + results.cells.iter().filter(|c| !c.is_measured()).count(),
            "marked cell",
        ),
    ];
    let counts = kinds.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, noun)| answer::counted(count, noun)).collect();
    let colon = if counts.is_empty() { "" } else { ": " };
    let title = format!("Doubts and notes{colon}{}", counts.join(", "));
    html! { @if !is_empty { (fold("doubts", title, &inside)) } }
}

fn how_measured(results: &Results) -> Markup {
    fold(
        "method",
        "How it was measured",
        &html! {
            @if !results.method.is_empty() {
                div class="scroll" { table class="wrap pairs" { tbody {
                    @for (name, text) in &results.method {
                        tr { th scope="row" { (name) } td { (prose::markup(text)) } }
                    }
                } } }
            }
            @for paragraph in method::statistics(results) { p { (paragraph) } }
        },
    )
}

fn environment(results: &Results) -> Markup {
    let rows = method::environment(results);
    html! {
        @if !rows.is_empty() {
            (fold("environment", "Environment", &html! {
                div class="scroll" { table class="wrap pairs" { tbody {
                    @for (name, value) in rows { tr { th scope="row" { (name) } td { (value) } } }
                } } }
            }))
        }
    }
}

fn repeat(results: &Results, lab_file: &str) -> Markup {
    fold(
        "repeat",
        "How to repeat it",
        &html! {
            pre { code { (method::command(results)) } }
            @if !lab_file.is_empty() {
                details class="print" {
                    summary { "The lab file" }
                    pre { code { (lab_file) } }
                }
            }
        },
    )
}

fn title(results: &Results) -> &str {
    [&results.title, &results.question, &results.lab]
        .into_iter()
        .find(|text| !text.is_empty())
        .map_or("A lab's run", String::as_str)
}

// A simulated sweep has thousands of cells, and a page with all of them takes seconds to open.
// Beyond this many cells the page shows only the main metric of each cell. results.json contains
// all metrics.
const MOST_CELLS: usize = 600;
const MOST_CAUTIONS: usize = 3;
