//! Explanations that every form of the report contains: how the numbers were measured.

use indexmap::IndexMap;
use serde_json::Value;

use crate::{axis, doubtful, queue_and_fairness};
use results::{Cell, Form, Results};

pub(crate) fn statistics(results: &Results) -> &'static [&'static str] {
    if is_measured_once(results) {
        return &[ONCE, "A cell that failed has no number."];
    }
    &[
        "Every number is the median of its repeats: half of them were higher, half lower. One odd \
         repeat moves a median far less than it moves a mean.",
        "The interval beside it lies between two of the repeats in the order of their values. If the \
         repeats are independent, the stated coverage is exact for any distribution: of intervals \
         made in this way, at least that share contains the true median of such a run. Repeats that \
         resemble the one before them are covered less often: at a correlation of 0.6 of successive \
         repeats, six of them cover the median in 79 % of cases. A run on a machine estimates that \
         correlation and warns if chance does not explain it; in virtual time each repeat has a seed \
         of its own. Fewer than six repeats cannot cover the median in \
         95 % of cases, so their range is given instead: “range of 3”. Runs on another day or another \
         boot differ by more than an interval shows. A figure that each repeat either reaches or does \
         not is the share of repeats, with the interval of Clopper and Pearson.",
        "Where systems take turns, they are compared pair by pair within the same block of the run, \
         so that what changed on the machine over time touched both. Every repeat takes part: one \
         that failed, or in which nothing arrived, ranks worst. A pair is left out only if the \
         machine made one of its repeats invalid.",
        "A block of the run holds every cell once. The interval of a ratio is the hull of two: the \
         exact interval of its median, and an interval that counts the number of comparisons, from \
         the largest statistic of the whole table over the changes of sign of whole blocks. The \
         intervals of all comparisons of a run hold together: in at least 95 % of runs each of them \
         contains its ratio. Six blocks suffice for a table of any size; fewer decide nothing. The \
         primary comparisons, at most three, were named in the lab file before the run.",
        "The verdict is read from the interval. Better or worse: the interval excludes 1, and the \
         ratio is at or beyond the smallest difference that matters, which the lab file names. The \
         same: the whole interval lies within that difference. Anything else is undecided, and the \
         number of further blocks that would decide it stands beside it. Repeats that resemble the \
         one before them make these intervals too narrow as well.",
        "Outliers are warned about and kept. The beginning of each repeat is discarded as the lab \
         file states. A cell that failed has no number.",
    ]
}

/// Whether no metric has a second repeat, as in virtual time.
fn is_measured_once(results: &Results) -> bool {
    let mut figures = results.cells.iter().flat_map(|cell| cell.metrics.values()).peekable();
    let is_virtual = results.environment.contains_key(queue_and_fairness::OF_VIRTUAL_TIME);
    !is_virtual && figures.peek().is_some() && figures.all(|figure| figure.n == 1)
}

const ONCE: &str = "Each cell was measured once: its figures have no interval, and they decide no \
     comparison.";

/// Names the sources of the published numbers.
pub(crate) fn sources(results: &Results) -> String {
    let mut sources: Vec<&str> = Vec::new();
    for row in &results.reference {
        if !row.source.is_empty() && !sources.contains(&row.source.as_str()) {
            sources.push(&row.source);
        }
    }
    if sources.is_empty() { "source not stated".to_owned() } else { sources.join("; ") }
}

pub(crate) fn mark(cell: &Cell) -> String {
    if !cell.is_measured() {
        return String::new();
    }
    let marks = [
        (!cell.valid, '!'),
        (cell.cpu_limited, '*'),
        (cell.failed_repeats > 0, '†'),
        (cell.above_link_mbit_s.is_some(), '^'),
    ];
    let marks: String = marks.into_iter().filter(|(applies, _)| *applies).map(|(_, m)| m).collect();
    if marks.is_empty() { marks } else { format!(" {marks}") }
}

/// Explains the marks that occur in the tables.
pub(crate) fn marks(results: &Results) -> Vec<String> {
    let mut marks = Vec::new();
    if is_measured_once(results) {
        marks.push(ONCE.to_owned());
    }
    if results.cells.iter().any(|cell| !cell.valid && cell.is_measured()) {
        marks.push("! not valid: the path or the workload missed its bounds.".to_owned());
    }
    if results.cells.iter().any(|cell| cell.cpu_limited && cell.is_measured()) {
        marks.push(
            "* CPU-limited: next to no CPU was idle, so the number may be the machine's and not the \
             path's."
                .to_owned(),
        );
        marks.extend(doubtful::cpu_users(results));
    }
    let failed: Vec<String> = results
        .cells
        .iter()
        .filter(|cell| cell.failed_repeats > 0 && cell.failed.is_none())
        .map(|cell| {
            let place = axis::describe(&cell.axes);
            let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
            format!("{}{at} {} of {}", cell.system, cell.failed_repeats, cell.repeats)
        })
        .collect();
    if !failed.is_empty() {
        marks.push(format!("† repeats failed and are not in the number: {}.", failed.join("; ")));
    }
    if results.cells.iter().any(|cell| cell.above_link_mbit_s.is_some()) {
        marks.push(
            "^ above the link: the goodput exceeds the payload that the emulated link carries, because \
             data sent before the measured window arrived in it; a longer `duration` dilutes that data."
                .to_owned(),
        );
    }
    marks
}

/// Returns the run's warnings, then the cells'.
pub(crate) fn warnings(results: &Results) -> Vec<String> {
    let cells = results.cells.iter().flat_map(|cell| {
        let place = axis::describe(&cell.axes);
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        cell.warnings.iter().map(move |warning| format!("{}{at}: {warning}", cell.system))
    });
    results.warnings.iter().cloned().chain(cells).collect()
}

/// Groups the warnings by cause: warnings that differ only in their cell and their numbers become
/// one warning, with the first cell as the example.
pub(crate) fn warnings_by_cause(results: &Results) -> Vec<String> {
    let mut causes: IndexMap<String, Vec<(String, &str)>> = IndexMap::new();
    let usual = axis::usual_of_many(results);
    for cell in results.cells.iter().filter(|cell| !cell.warnings.is_empty()) {
        let place = axis::describe_unusual(&cell.axes, usual.as_ref());
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        for warning in &cell.warnings {
            let cause = warning.split(|c: char| c.is_ascii_digit() || ".,".contains(c));
            let cause = cause.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("0");
            causes.entry(cause).or_default().push((format!("{}{at}", cell.system), warning));
        }
    }
    let grouped = causes.into_values().map(|cells| match &cells[..] {
        [(place, warning)] => format!("{place}: {warning}"),
        [(place, warning), ..] => format!("{} cells, for example {place}: {warning}", cells.len()),
        [] => String::new(),
    });
    doubtful::disturbed(results)
        .into_iter()
        .chain(results.warnings.iter().cloned())
        .chain(grouped)
        .collect()
}

/// Returns the environment as pairs of name and text. Nested names are joined by dots. Leaves out
/// the systems' commands, because the report contains the lab file.
pub(crate) fn environment(results: &Results) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for (name, value) in results.environment.iter().filter(|(name, _)| *name != SYSTEMS) {
        flatten(name, value, &mut rows);
    }
    rows
}

/// Returns the command that repeats the run: the recorded command, or a command built from the
/// lab's name and form.
pub(crate) fn command(results: &Results) -> String {
    if !results.command.is_empty() {
        return results.command.clone();
    }
    let form = match results.form {
        Form::Quick => " --quick",
        Form::Smoke => " --smoke",
        Form::Full | Form::Other => "",
    };
    format!("weir lab run {}{form}", results.lab)
}

pub(crate) fn flatten(name: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (inner, value) in map {
                flatten(&format!("{name}.{inner}"), value, rows);
            }
        }
        Value::Array(values) => {
            let texts: Vec<String> = values.iter().map(text).collect();
            rows.push((name.to_owned(), texts.join(", ")));
        }
        value => rows.push((name.to_owned(), text(value))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

const SYSTEMS: &str = "systems";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_that_differ_only_in_cell_and_numbers_have_one_cause() {
        let mut results = Results::new("x", Form::Full);
        for (system, share) in [("cubic", "64"), ("bbr", "99.5"), ("reno", "7")] {
            let mut cell = Cell::new(system, results::Axes::new());
            cell.warnings.push(format!("python3 (pid 4711) took {share} % of CPU 0"));
            results.cells.push(cell);
        }
        results.cells[0].warnings.push("a repeat failed".to_owned());
        let expected = [
            "3 cells, for example cubic: python3 (pid 4711) took 64 % of CPU 0",
            "cubic: a repeat failed",
        ];
        assert_eq!(warnings_by_cause(&results), expected);
    }
}
