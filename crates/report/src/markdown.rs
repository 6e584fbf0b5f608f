//! `report.md`: the report for a repository, a review or a mail.

use std::fmt::Write as _;

use crate::interval::{self, Around};
use crate::prose::{self, Part};
use crate::summary::{Field, Summary, SummaryRow};
use crate::{
    Column, Entry, Pivot, answer, axis, columns, comparison, confusion, doubtful, goals, method,
    missing, number, overall, pivot, spread, states,
};
use results::{Cell, LONGEST_TEXT, Results, metrics};
use units::{foreign, visible};

/// Renders the whole report. The report embeds `lab_file` so that the run can be repeated.
pub fn render(results: &Results, lab_file: &str) -> String {
    let mut out = String::new();
    let title = if results.title.is_empty() { &results.lab } else { &results.title };
    line(&mut out, &format!("# {}\n", escape(title)));
    question_and_answer(&mut out, results);
    line(&mut out, &format!("{}\n", run_line(results)));

    figures(&mut out, results);
    every_metric(&mut out, results);
    failures_and_warnings(&mut out, results);
    how_measured(&mut out, results);
    repeat(&mut out, results, lab_file);
    // Text inside a code span is not escaped as Markdown.
    visible(&out)
}

pub(crate) fn question_and_answer(out: &mut String, results: &Results) {
    if !results.question.is_empty() {
        line(out, &format!("**Question:** {}\n", escape(&results.question)));
    }
    if !results.valid {
        line(out, "**This run is not valid.** Its numbers must not be used, because:\n");
        bullets(out, results.invalid_reasons.iter());
    }
    line(out, &format!("**Answer:** {}\n", escape(&answer::headline(results))));
}

/// Writes the sentences that explain the answer, below the tables.
fn in_more_words(out: &mut String, results: &Results) {
    let details = answer::details(results);
    if !details.is_empty() {
        line(out, "## In more words\n");
        bullets(out, details.iter());
    }
}

/// Writes the tables that compare the systems.
pub(crate) fn figures(out: &mut String, results: &Results) {
    if results.states.is_some() {
        before_and_after(out, results);
    } else if results.confusion.is_some() {
        verdicts(out, results);
    } else {
        summary(out, results);
    }
    overall_table(out, results);
    reference_columns(out, results);
    if results.confusion.is_some() || Summary::is_of_reference(results) {
        headline_tables(out, results);
    }
    held(out, results);
    spreads(out, results);
    comparisons(out, results);
    in_more_words(out, results);
}

fn summary(out: &mut String, results: &Results) {
    let Some(summary) = Summary::of(results) else { return };
    line(out, &format!("## {}\n", escape(&summary.title)));
    let heads = summary.heads.iter().map(|head| {
        let published = if head.published { " (reference)" } else { "" };
        pivot::with_unit(&head.text, &head.unit) + published
    });
    let heads: Vec<String> = summary.names.iter().cloned().chain(heads).collect();
    let text = |figure: &Field<'_>| match figure {
        Field::Value { entry: one, main, verdicts } => {
            let told = verdicts.iter().map(|one| format!("; {} {}", comparison::short(one), one.b));
            entry(one, *main) + &told.collect::<String>()
        }
        Field::Verdict(one) => one.map(comparison::short).unwrap_or_default(),
    };
    let row = |row: &SummaryRow<'_>| {
        row.names.iter().cloned().chain(row.fields.iter().map(text)).collect()
    };
    let rows: Vec<Vec<String>> = summary.rows.iter().map(row).collect();
    table(out, &heads, &rows);
    line(out, &format!("{}\n", escape(&summary.note)));
}

fn reference_columns(out: &mut String, results: &Results) {
    let tables = columns::tables(results);
    // Without rounds the report's first table has the same rows.
    if tables.is_empty() || results.cells.iter().all(|cell| cell.rounds.is_empty()) {
        return;
    }
    line(out, "## Each round in the columns of the reference report\n");
    for one in tables {
        if !one.at.is_empty() {
            line(out, &format!("### {}\n", escape(&one.at)));
        }
        table(out, &one.heads, &one.rows);
    }
    line(out, &format!("{}\n", escape(&columns::note(results))));
}

fn run_line(results: &Results) -> String {
    let mut parts = vec![
        format!("Lab `{}`, {} form", foreign(results.lab.replace('`', "'")), results.form.word()),
        answer::tally(results),
    ];
    if let Some(started) = &results.started {
        parts.push(format!("started {}", escape(started)));
    }
    if let Some(seconds) = results.duration_s {
        parts.push(format!("took {}", number::duration(seconds)));
    }
    parts.join("; ") + "."
}

fn overall_table(out: &mut String, results: &Results) {
    let Some(overall) = overall::table(results) else { return };
    line(out, "## Over all cells\n");
    let rows: Vec<Vec<String>> = overall
        .rows
        .into_iter()
        .map(|row| row.into_iter().map(|figure| figure.line(true)).collect())
        .collect();
    table(out, &overall.heads, &rows);
    line(out, &format!("{}\n", escape(overall::note(true))));
}

fn headline_tables(out: &mut String, results: &Results) {
    let Some(pivot) = Pivot::headline(results) else {
        return;
    };
    line(out, &format!("## {}\n", escape(&pivot.title())));
    for panel in &pivot.panels {
        let fixed = axis::describe(&panel.fixed);
        if !fixed.is_empty() {
            line(out, &format!("### {}\n", escape(&fixed)));
        }
        let mut heads = vec![pivot.row_axis.clone().unwrap_or_default()];
        let shown: Vec<usize> =
            (0..pivot.columns.len()).filter(|index| panel.shows(*index)).collect();
        heads.extend(shown.iter().map(|index| match &pivot.columns[*index] {
            Column::Measured(system) => system.clone(),
            Column::Published(system) => format!("{system} (reference)"),
        }));
        let rows: Vec<Vec<String>> = panel
            .rows
            .iter()
            .map(|row| {
                let entries = shown.iter().map(|index| entry(&row.entries[*index], true));
                std::iter::once(row.value.clone()).chain(entries).collect()
            })
            .collect();
        table(out, &heads, &rows);
    }
    let mut notes = vec![interval::note(pivot.intervals(), "in brackets")];
    if pivot.has_published() {
        notes.push(format!("“ref” is the reference number: {}.", method::sources(results)));
    }
    notes.extend(method::marks(results));
    line(out, &format!("{}\n", escape(&notes.join(" "))));
}

/// Formats the measured value and the reference report's value; the main metric with its interval.
fn entry(entry: &Entry<'_>, main: bool) -> String {
    let published = entry.published.map(|(_, value)| number::format(value));
    match (entry.cell, entry.metric) {
        (Some(cell), _) if !cell.is_measured() => {
            missing::in_a_word(cell).unwrap_or_default().to_owned()
        }
        (Some(cell), Some(metric)) => {
            let mut text = match main {
                true => number::with_interval(metric) + &method::mark(cell),
                false => number::format(metric.value()),
            };
            if let Some(value) = published {
                let ratio = entry
                    .ratio()
                    .filter(|_| main)
                    .map(|ratio| format!(", {}", number::ratio(ratio)));
                let _ = write!(text, " (ref {value}{})", ratio.unwrap_or_default());
            }
            text
        }
        _ => {
            let none = entry.missing.map_or("–", missing::in_place);
            published.unwrap_or_else(|| none.to_owned())
        }
    }
}

fn verdicts(out: &mut String, results: &Results) {
    let Some(told) = &results.confusion else { return };
    line(out, &format!("## {}\n", confusion::TITLE));
    let (heads, rows) = confusion::matrix(told);
    table(out, &heads, &rows);
}

fn before_and_after(out: &mut String, results: &Results) {
    let Some(states) = states::table(results) else { return };
    line(out, &format!("## {}\n", states::TITLE));
    let heads: Vec<String> = states.heads.into_iter().map(|head| head.text).collect();
    let rows = states.rows.into_iter();
    let rows: Vec<Vec<String>> =
        rows.map(|row| row.into_iter().map(|entry| entry.text).collect()).collect();
    table(out, &heads, &rows);
    line(out, &format!("{}\n", escape(&states::note(results))));
}

fn held(out: &mut String, results: &Results) {
    let Some((heads, rows)) = goals::table(results) else { return };
    line(out, &format!("## {}\n", goals::TITLE));
    table(out, &heads, &rows);
    line(out, &format!("{}\n", escape(&goals::note(results))));
}

fn spreads(out: &mut String, results: &Results) {
    let Some((heads, rows)) = spread::table(results) else { return };
    line(out, &format!("## {}\n", spread::TITLE));
    table(out, &heads, &rows);
    line(out, &format!("{}\n", escape(spread::NOTE)));
}

fn comparisons(out: &mut String, results: &Results) {
    if results.comparisons.is_empty() {
        return;
    }
    line(out, "## Comparisons\n");
    let column = interval::Column::of(comparison::intervals(results));
    let heads = ["metric", "at", "ratio", "value", &column.head, "verdict"].map(str::to_owned);
    let rows: Vec<Vec<String>> = results
        .comparisons
        .iter()
        .map(|one| {
            vec![
                metrics::meaning(&one.metric).label,
                axis::describe(&one.axes),
                comparison::systems(results, one),
                number::ratio(one.ratio.median),
                column.text(Around::ratio(&one.ratio)),
                comparison::verdict(one),
            ]
        })
        .collect();
    table(out, &heads, &rows);
    line(out, &format!("{}\n", escape(&comparison::note(results))));
}

fn every_metric(out: &mut String, results: &Results) {
    let all = pivot::metric_names(results);
    let (names, constant): (Vec<&str>, Vec<&str>) =
        all.into_iter().partition(|name| pivot::varies(results, name));
    if names.is_empty() {
        return;
    }
    line(out, "## Every metric\n");
    let axes = axis::names(results);
    let mut heads = vec!["system".to_owned()];
    heads.extend(axes.iter().cloned());
    heads.extend(names.iter().map(|name| pivot::head(results, name)));
    let rows: Vec<Vec<String>> = results
        .cells
        .iter()
        .filter(|cell| cell.is_measured())
        .map(|cell| metric_row(cell, &axes, &names))
        .collect();
    table(out, &heads, &rows);
    if !constant.is_empty() {
        let text = format!("{} {}.", pivot::CONSTANT, pivot::labels(&constant));
        line(out, &format!("{}\n", escape(&text)));
    }
}

fn metric_row(cell: &Cell, axes: &[String], names: &[&str]) -> Vec<String> {
    let mut row = vec![format!("{}{}", cell.system, method::mark(cell))];
    row.extend(axes.iter().map(|name| cell.axes.get(name).cloned().unwrap_or_default()));
    row.extend(names.iter().map(|name| {
        let none = || cell.why_missing(name).map_or("–", missing::in_place).to_owned();
        cell.metrics.get(*name).map_or_else(none, number::with_interval)
    }));
    row
}

pub(crate) fn failures_and_warnings(out: &mut String, results: &Results) {
    let reasons = |of: fn(&Cell) -> Option<&String>| -> Vec<String> {
        let reason = |cell| Some(format!("{}: {}", doubtful::place(cell), of(cell)?));
        results.cells.iter().filter_map(reason).collect()
    };
    let failed = reasons(|cell| cell.failed.as_ref());
    let not_run = reasons(|cell| cell.not_run.as_ref());
    for (title, cells) in [("## Failed\n", failed), ("## Not run\n", not_run)] {
        if !cells.is_empty() {
            line(out, title);
            bullets(out, cells.iter());
        }
    }
    let invalid = doubtful::invalid(results);
    if !invalid.is_empty() {
        line(out, "## Not valid\n");
        let each = invalid.iter().map(|(place, reasons)| format!("{place}: {reasons}"));
        bullets(out, each.collect::<Vec<_>>().iter());
        for mend in doubtful::mends(results) {
            line(out, &format!("{}\n", escape(&mend)));
        }
    }
    let missing = missing::each(results);
    if !missing.is_empty() {
        line(out, "## Not measured\n");
        let each = missing.iter().map(|(place, words)| format!("{place}: {words}"));
        bullets(out, each.collect::<Vec<_>>().iter());
    }
    let warnings = method::warnings(results);
    if !warnings.is_empty() {
        line(out, "## Warnings\n");
        bullets(out, warnings.iter());
    }
    if !results.notes.is_empty() {
        line(out, "## Notes\n");
        bullets(out, results.notes.iter());
    }
}

pub(crate) fn how_measured(out: &mut String, results: &Results) {
    line(out, "## How it was measured\n");
    for (name, text) in &results.method {
        line(out, &format!("- **{}**: {}", escape(name), escape(text)));
    }
    line(out, "");
    for paragraph in method::statistics(results) {
        line(out, &format!("{paragraph}\n"));
    }
    let environment = method::environment(results);
    if !environment.is_empty() {
        line(out, "### Environment\n");
        let rows: Vec<Vec<String>> =
            environment.into_iter().map(|(name, value)| vec![name, value]).collect();
        table(out, &["name".to_owned(), "value".to_owned()], &rows);
    }
}

fn repeat(out: &mut String, results: &Results, lab_file: &str) {
    line(out, "## How to repeat it\n");
    line(out, &format!("{}\n", fenced(&method::command(results), "sh")));
    if !lab_file.is_empty() {
        line(out, "The lab file:\n");
        line(out, &fenced(lab_file.trim_end(), "toml"));
    }
}

pub(crate) fn table(out: &mut String, heads: &[String], rows: &[Vec<String>]) {
    let row = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| escape(text)).collect();
        format!("| {} |", texts.join(" | "))
    };
    line(out, &row(heads));
    let numeric = |column: usize| {
        let texts = rows.iter().filter_map(|row| row.get(column));
        column > 0
            && texts.clone().next().is_some()
            && texts.into_iter().all(|text| is_number(text))
    };
    let rule: Vec<&str> =
        (0..heads.len()).map(|column| if numeric(column) { "---:" } else { "---" }).collect();
    line(out, &format!("| {} |", rule.join(" | ")));
    for texts in rows {
        line(out, &row(texts));
    }
    line(out, "");
}

/// Whether a text is a value, whose column is aligned to the right.
fn is_number(text: &str) -> bool {
    let first = text.chars().next();
    first.is_none_or(|c| {
        c.is_ascii_digit() || matches!(c, '−' | '–' | '[' | '≥' | '▲' | '▼' | '=' | '?')
    }) || ["failed", "not run", missing::WORD].contains(&text)
}

fn bullets<'a>(out: &mut String, texts: impl Iterator<Item = &'a String>) {
    for text in texts {
        line(out, &format!("- {}", escape(text)));
    }
    line(out, "");
}

pub(crate) fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// Shows foreign text literally: neither as markup nor, on sites that allow it, as HTML. Only names
/// between backticks stay code.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text = foreign(text).up_to(LONGEST_TEXT).to_string();
    for part in prose::parts(&text) {
        match part {
            Part::Plain(plain) => push_plain(&mut out, plain),
            Part::Code(code) => {
                let _ = write!(out, "`{code}`");
            }
        }
    }
    out
}

fn push_plain(out: &mut String, text: &str) {
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' | '`' | '*' | '_' | '|' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            // Brackets alone are an interval: only these pairs of characters start a link or a
            // definition.
            ']' if matches!(rest.peek(), Some('(' | '[' | ':')) => out.push_str("\\]"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c => out.push(c),
        }
    }
}

// CommonMark 4.5: only a run of backticks at least as long as the opening run ends a fence.
pub(crate) fn fenced(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{text}\n{fence}")
}
