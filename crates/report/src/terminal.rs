//! Results as text for a terminal.

mod table;

use table::{Style, Table, Text, paint, plain};

use crate::interval::{self, Around};
use crate::overall::{Figure, OverallTable};
use crate::summary::{self, Field, Summary};
use crate::{
    Column, Pivot, answer, axis, comparison, confusion, doubtful, goals, headline, method, missing,
    number, overall, pivot, spread, states,
};
use results::{Cell, Comparison, Metric, Reference, Results, metrics};
use stats::Verdict;

/// Renders the output after a run: the answer, a table with the verdicts, then all other parts. The
/// caller passes the terminal's width and whether it shows colours.
pub fn render(results: &Results, width: usize, colour: bool) -> String {
    let mut parts = vec![heading(results, width, colour)];
    let whole = results;
    let chosen = pivot::chosen(results);
    let results = chosen.as_ref().unwrap_or(results);
    // Thousands of lines are unreadable on a terminal. The report contains these lines.
    if results.states.is_some() {
        parts.push(before_and_after(results, width, colour));
        parts.push(failed(results, width, colour));
    } else if results.confusion.is_some() {
        parts.push(verdicts(results, width, colour));
        parts.push(failed(results, width, colour));
    } else if results.overall.is_empty() || results.cells.len() <= MOST_LINES {
        parts.push(lines(results, width, colour));
    } else {
        parts.push(points(results, width, colour));
        parts.push(failed(results, width, colour));
    }
    parts.push(means(results, width, colour));
    parts.push(held(results, width, colour));
    parts.push(spreads(results, width, colour));
    parts.push(closing(whole, width, colour));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn verdicts(results: &Results, width: usize, colour: bool) -> String {
    let Some(told) = &results.confusion else { return String::new() };
    let (heads, rows) = confusion::lines(told);
    let mut table = Table::default();
    for head in &heads {
        table.left(head, 0);
    }
    for (texts, row) in rows.iter().zip(&told.rows) {
        let style = if confusion::is_all_right(row) { Style::Plain } else { Style::Bad };
        table.row(texts.iter().map(|text| Text::new(text, style)).collect());
    }
    let title = paint(confusion::TITLE, Style::Bold, colour);
    format!("{title}\n{}", table.render(width, colour))
}

fn before_and_after(results: &Results, width: usize, colour: bool) -> String {
    let Some(joined) = states::table(results) else { return String::new() };
    let needed = states_table(&joined, states::NEEDED).width();
    let tables = match needed <= width {
        true => vec![(states::TITLE.to_owned(), states_table(&joined, states::NEEDED))],
        false => {
            let of_end = |(title, one): (String, _)| (title, states_table(&one, 0));
            states::tables_by_end(results).into_iter().map(of_end).collect()
        }
    };
    let mut text = String::new();
    for (title, table) in &tables {
        text += &paint(&plain(title), Style::Bold, colour);
        text.push('\n');
        text += &table.render(width, colour);
        text.push('\n');
    }
    text + &wrapped(&states::note(results), width) + "\n"
}

/// `kept`: columns up to this number are never left out.
fn states_table(states: &states::StatesTable, kept: u8) -> Table {
    let mut table = Table::default();
    for (place, head) in states.heads.iter().enumerate() {
        let drop = head.drop.saturating_sub(kept);
        if place < states.names {
            table.left(&head.text, drop)
        } else {
            table.right(&head.text, drop)
        }
    }
    for row in &states.rows {
        let style = |entry: &states::Entry| match entry.verdict {
            Some(Verdict::Worse) => Style::Bad,
            Some(Verdict::Better) => Style::Bold,
            _ => Style::Plain,
        };
        table.row(row.iter().map(|entry| Text::new(&entry.text, style(entry))).collect());
    }
    table
}

/// Renders the table that compares ratios with the reference and the ideals.
fn held(results: &Results, width: usize, colour: bool) -> String {
    let Some((heads, rows)) = goals::table(results) else { return String::new() };
    let mut table = Table::default();
    for (place, head) in heads.iter().enumerate() {
        if place < 2 { table.left(head, 0) } else { table.right(head, 0) }
    }
    for row in rows {
        let missed = row.iter().any(|text| goals::is_missed(text));
        let style = if missed { Style::Bad } else { Style::Plain };
        table.row(row.iter().map(|text| Text::new(text, style)).collect());
    }
    let title = paint(goals::TITLE, Style::Bold, colour);
    format!("{title}\n{}{}\n", table.render(width, colour), wrapped(&goals::note(results), width))
}

/// Renders the table of ratios over many paths.
fn spreads(results: &Results, width: usize, colour: bool) -> String {
    let Some((heads, rows)) = spread::table(results) else { return String::new() };
    let mut table = Table::default();
    for (place, head) in heads.iter().enumerate() {
        match place {
            0 | 2 => table.left(head, 0),
            1 => table.left(head, 2),
            7 => table.left(head, 1),
            _ => table.right(head, 0),
        }
    }
    for row in rows {
        table.row(row.iter().map(|text| Text::new(text, Style::Plain)).collect());
    }
    let title = paint(spread::TITLE, Style::Bold, colour);
    format!("{title}\n{}{}\n", table.render(width, colour), wrapped(spread::NOTE, width))
}

/// Renders means over all cells if the lab has them, and the main metric's means by groups of
/// cells.
fn means(results: &Results, width: usize, colour: bool) -> String {
    // Show how often each system was the best if the width allows it.
    let drawn = |overall: &OverallTable| {
        let counted = overall_table(overall, true);
        let fits = counted.width() <= width;
        let table = if fits { counted } else { overall_table(overall, false) };
        (table.render(width, colour), fits)
    };
    let Some(all) = overall::table(results) else { return String::new() };
    let (table, counts) = drawn(&all);
    let title = paint("Over all cells", Style::Bold, colour);
    let note = wrapped(overall::note(counts), width);
    let all = format!("{title}\n{table}{note}\n");
    let headline = pivot::headline(results).unwrap_or_default();
    match overall::by_group(results, headline) {
        Some(groups) => {
            let label = metrics::meaning(headline).label;
            let title = format!("{label}, by the unusual axes of a cell");
            format!("{}\n{}\n{all}", paint(&title, Style::Bold, colour), drawn(&groups).0)
        }
        None => all,
    }
}

fn overall_table(overall: &OverallTable, counts: bool) -> Table {
    let mut table = Table::default();
    for (place, head) in overall.heads.iter().enumerate() {
        match (place, overall.names) {
            (0, _) => table.left(head, 0),
            (1, 2) => table.left(head, 2),
            (place, names) if place == names => table.right(head, 1),
            _ => table.right(head, 0),
        }
    }
    for row in &overall.rows {
        let styled = |figure: &Figure| {
            let style = if figure.ahead { Style::Bold } else { Style::Plain };
            Text::new(&figure.line(counts), style)
        };
        table.row(row.iter().map(styled).collect());
    }
    table
}

/// Renders one line per system and point of the axes.
pub fn lines(results: &Results, width: usize, colour: bool) -> String {
    let Some(headline) = pivot::headline(results) else {
        return failures(results, width, colour);
    };
    let axes = axis::names(results);
    let known = pivot::metric_names(results);
    let beside = headline::beside(known.iter().copied(), headline);
    let named = results.view.as_ref().map(|view| view.also.as_slice()).unwrap_or_default();
    let has_reference = |name: &str| {
        results.cells.iter().any(|cell| pivot::published(results, cell, name).is_some())
    };
    let tells = |name: &&str| pivot::varies(results, name) || has_reference(name);
    let beside: Vec<&str> = match named {
        [] => beside.into_iter().filter(tells).take(3).collect(),
        // Some forms of a lab measure fewer metrics.
        named => {
            let named = named.iter().map(String::as_str).filter(|name| known.contains(name));
            named.filter(tells).collect()
        }
    };
    let published = |cell: &Cell| pivot::published(results, cell, headline);
    let any_published = results.cells.iter().any(|cell| published(cell).is_some());

    let mut table = Table::default();
    table.left("system", 0);
    for name in &axes {
        table.cuttable(name);
    }
    table.right(&with_unit(&metrics::meaning(headline).label, &pivot::unit(results, headline)), 0);
    let around = |cell: &Cell| Around::metric(cell.metrics.get(headline)?);
    let intervals = interval::Column::of(results.cells.iter().filter_map(around));
    // The intervals are the last column to be dropped, and never on a usual terminal: the intervals
    // say more than the full value of an axis.
    table.left(&intervals.head, u8::from(width < USUAL_WIDTH));
    let against = summary::baselines(results, headline);
    for (place, baseline) in against.iter().enumerate() {
        table.right(&format!("/ {baseline}"), if place == 0 { 2 } else { 3 });
    }
    if any_published {
        table.right(if width < WIDE { "ref" } else { "reference" }, 2);
        table.right("ratio", 3);
    }
    for (place, name) in beside.iter().enumerate() {
        let title = with_unit(&metrics::meaning(name).label, &pivot::unit(results, name));
        table.right(&title, 4 + place as u8);
    }

    for cell in &results.cells {
        let mut row = vec![Text::new(&cell.system, Style::Plain)];
        row.extend(
            axes.iter().map(|name| {
                Text::new(cell.axes.get(name).map_or("–", String::as_str), Style::Plain)
            }),
        );
        if let Some(reason) = missing::explained(cell) {
            row.push(Text::new(&reason, style(cell)));
            table.spanning_row(row);
            continue;
        }
        let metric = cell.metrics.get(headline);
        let none = || cell.why_missing(headline).map_or("–", missing::in_place).to_owned();
        let count = |share: results::Proportion| format!(" ({}/{})", share.count, share.total);
        let figure = |metric: &Metric| {
            number::format(metric.value()) + &metric.share.map(count).unwrap_or_default()
        };
        let median = metric.map_or_else(none, figure);
        row.push(Text::new(&format!("{median}{}", method::mark(cell)), Style::Bold));
        let interval = around(cell).map(|around| intervals.short(around));
        row.push(Text::new(&interval.unwrap_or_default(), Style::Dim));
        row.extend(against.iter().map(|baseline| {
            let pair = (cell.system.as_str(), *baseline);
            let one = summary::comparison(results, headline, pair, &cell.axes);
            Text::new(&one.map(comparison::short).unwrap_or_default(), Style::Plain)
        }));
        if any_published {
            let value = published(cell).map(|(_, value)| value);
            let ratio = value.zip(metric).map(|(value, metric)| metric.value() / value);
            row.push(Text::new(&value.map(number::format).unwrap_or_default(), Style::Plain));
            row.push(Text::new(&ratio.map(number::ratio).unwrap_or_default(), Style::Plain));
        }
        row.extend(beside.iter().map(|name| {
            match (cell.metrics.get(*name), cell.why_missing(name)) {
                (Some(metric), _) => {
                    // The main metric has a separate column for its published value.
                    let published = pivot::published(results, cell, name);
                    let beside =
                        published.map(|(_, value)| format!(" (ref {})", number::format(value)));
                    let median = number::format(metric.value()) + &beside.unwrap_or_default();
                    Text::new(&median, Style::Plain)
                }
                (None, Some(missing)) => Text::new(missing::in_place(missing), Style::Bad),
                (None, None) => Text::new("", Style::Plain),
            }
        }));
        table.row(row);
    }
    table.render(width, colour)
}

/// Renders a line for each point of the axes, a column for each system.
fn points(results: &Results, width: usize, colour: bool) -> String {
    let Some(summary) = Summary::of(results) else { return String::new() };
    let mut table = Table::default();
    for (place, name) in summary.names.iter().enumerate() {
        if place == 0 { table.left(name, 0) } else { table.cuttable(name) }
    }
    for head in &summary.heads {
        let published = if head.published { " (reference)" } else { "" };
        table.right(&format!("{}{published}", head.text), u8::from(head.published));
    }
    for row in summary.rows.iter().take(MOST_LINES) {
        let names = row.names.iter().map(|name| Text::new(name, Style::Plain));
        let figures = row.fields.iter().map(|figure| match figure {
            Field::Value { entry, verdicts, .. } => value(entry, verdicts),
            Field::Verdict(one) => {
                Text::new(&one.map(comparison::short).unwrap_or_default(), Style::Plain)
            }
        });
        table.row(names.chain(figures).collect());
    }
    let mut text = paint(&plain(&summary.title), Style::Bold, colour) + "\n";
    text += &table.render(width, colour);
    if let Some(more @ 1..) = summary.rows.len().checked_sub(MOST_LINES) {
        text += &format!("{} in the report.\n", answer::counted(more, "more row"));
    }
    text
}

fn value(entry: &crate::Entry<'_>, verdicts: &[&Comparison]) -> Text {
    let published = entry.published.map(|(_, value)| number::format(value));
    match (entry.cell, entry.metric) {
        (Some(cell), _) if !cell.is_measured() => {
            Text::new(missing::in_a_word(cell).unwrap_or_default(), style(cell))
        }
        (Some(cell), Some(metric)) => {
            let beside = published.map(|value| format!(" (ref {value})")).unwrap_or_default();
            let told: String =
                verdicts.iter().map(|one| format!(" {}", comparison::short(one))).collect();
            let median = number::format(metric.value());
            Text::new(&format!("{median}{}{beside}{told}", method::mark(cell)), Style::Plain)
        }
        (None, _) if published.is_some() => Text::new(&published.unwrap_or_default(), Style::Dim),
        _ => match entry.missing {
            Some(missing) => Text::new(missing::in_place(missing), Style::Bad),
            None => Text::new("–", Style::Dim),
        },
    }
}

fn heading(results: &Results, width: usize, colour: bool) -> String {
    let mut text = paint(&plain(&results.lab), Style::Bold, colour);
    if results.form != results::Form::Full {
        text += &format!(" ({} form)", results.form.word());
    }
    if !results.question.is_empty() {
        text += &format!(": {}", plain(&results.question));
    }
    text += "\n";
    let answer = wrapped(&answer::headline(results), width);
    text + &paint(&answer, Style::Bold, colour) + "\n"
}

fn closing(results: &Results, width: usize, colour: bool) -> String {
    // If the answer is one line, only the report has all sentences.
    let mut paragraphs = match results.headline {
        Some(_) => [answer::beside_headline(results), missing::sentences(results)].concat(),
        None => answer::details(results),
    };
    let mut out = String::new();
    if !results.valid {
        let reasons = if results.invalid_reasons.is_empty() {
            "no reason is recorded".to_owned()
        } else {
            results.invalid_reasons.join("; ")
        };
        let text = format!("This run is NOT VALID: {reasons}.");
        out += &paint(&wrapped(&text, width), Style::Bad, colour);
        out.push('\n');
        out += &invalid_cells(results, width);
    }
    paragraphs.extend(legend(results));
    let warnings = method::warnings_by_cause(results);
    let shown = warnings.iter().take(MOST_WARNINGS);
    paragraphs.extend(shown.map(|warning| format!("Warning: {warning}")));
    if let Some(more @ 1..) = warnings.len().checked_sub(MOST_WARNINGS) {
        paragraphs.push(format!("{} more in the report.", answer::counted(more, "warning")));
    }
    for paragraph in paragraphs {
        out += &wrapped(&paragraph, width);
        out.push('\n');
    }
    out
}

/// Renders a line for each invalid cell, then advice.
fn invalid_cells(results: &Results, width: usize) -> String {
    let cells = doubtful::invalid(results);
    let mut lines: Vec<String> = cells
        .iter()
        .take(MOST_LINES)
        .map(|(place, reasons)| format!("{place}: {reasons}"))
        .collect();
    if let Some(more @ 1..) = cells.len().checked_sub(MOST_LINES) {
        lines.push(format!("{} in the report.", answer::counted(more, "more cell")));
    }
    lines.extend(doubtful::mends(results));
    let indented = |line: &String| {
        let text = wrapped(line, width.saturating_sub(2));
        text.lines().map(|line| format!("  {line}\n")).collect::<String>()
    };
    lines.iter().map(indented).collect()
}

fn legend(results: &Results) -> Vec<String> {
    // The note of a table with two states explains its marks and its reference.
    if results.states.is_some() {
        return method::marks(results);
    }
    let mut legend = Vec::new();
    if results.comparisons.iter().any(|one| Some(one.metric.as_str()) == pivot::headline(results)) {
        legend.push(summary::VERDICTS.to_owned());
    }
    legend.extend(method::marks(results));
    if !results.reference.is_empty() {
        let sources = method::sources(results);
        legend.push(format!("Reference: {sources}; ratio: measured over reference."));
    }
    legend.extend(published_alone(results));
    legend
}

/// Builds a sentence for each published system without a measured system in the same row.
fn published_alone(results: &Results) -> Vec<String> {
    let Some(pivot) = Pivot::headline(results) else { return Vec::new() };
    let alone = pivot.columns.iter().filter_map(|column| match column {
        Column::Published(system) => Some(system),
        Column::Measured(_) => None,
    });
    let figures = |system: &String| {
        let own = results.reference.iter().filter(|row| row.system == *system);
        let figure = |row: &Reference| {
            let value = number::format(*row.metrics.get(pivot.metric)?);
            Some(format!("{value} at {}", axis::describe(&row.axes)))
        };
        let figures: Vec<String> = own.filter_map(figure).take(MOST_PUBLISHED).collect();
        let label = with_unit(&pivot.label, &pivot.unit);
        (!figures.is_empty())
            .then(|| format!("{system} of the reference, {label}: {}.", figures.join(", ")))
    };
    alone.filter_map(figures).collect()
}

/// Renders a line for each cell without a number.
fn failed(results: &Results, width: usize, colour: bool) -> String {
    let cells = results.cells.iter().filter(|cell| !cell.is_measured()).cloned().collect();
    let failed = Results { cells, ..Results::new(&results.lab, results.form) };
    if failed.cells.is_empty() { String::new() } else { failures(&failed, width, colour) }
}

fn failures(results: &Results, width: usize, colour: bool) -> String {
    let mut table = Table::default();
    table.left("system", 0);
    table.left("at", 0);
    for cell in &results.cells {
        let reason = missing::explained(cell);
        table.spanning_row(vec![
            Text::new(&cell.system, Style::Plain),
            Text::new(&axis::describe(&cell.axes), Style::Plain),
            Text::new(&reason.unwrap_or_else(|| "no metrics".to_owned()), style(cell)),
        ]);
    }
    table.render(width, colour)
}

/// Dims a cell that this machine cannot measure, because such a cell has not failed.
fn style(cell: &Cell) -> Style {
    if cell.not_run.is_some() { Style::Dim } else { Style::Bad }
}

fn with_unit(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.to_owned() } else { format!("{label} {unit}") }
}

fn wrapped(text: &str, width: usize) -> String {
    let text = plain(text);
    let mut out = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            out.push('\n');
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += length;
    }
    out
}

const MOST_LINES: usize = 60;
const MOST_PUBLISHED: usize = 6;
const USUAL_WIDTH: usize = 80;
const WIDE: usize = 100;
const MOST_WARNINGS: usize = 3;
