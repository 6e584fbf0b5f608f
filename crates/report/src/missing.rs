//! Metrics that a cell should have but lacks.

use crate::answer::counted;
use crate::doubtful::place;
use results::{Cell, Missing, Results, metrics};

pub(crate) const WORD: &str = "not measured";

/// Returns the text that a table shows for a cell that failed, or that this machine cannot measure.
/// `None` for a measured cell.
pub(crate) const fn in_a_word(cell: &Cell) -> Option<&'static str> {
    match (&cell.failed, &cell.not_run) {
        (Some(_), _) => Some("failed"),
        (None, Some(_)) => Some("not run"),
        (None, None) => None,
    }
}

pub(crate) fn reason(cell: &Cell) -> Option<&str> {
    cell.failed.as_deref().or(cell.not_run.as_deref())
}

/// Returns the text that a table shows for a missing value: `not measured`, or a bound such as `≥
/// 3.88 Mpps, generator-limited`.
pub(crate) fn in_place(missing: &Missing) -> &str {
    if missing.reason.starts_with('≥') { &missing.reason } else { WORD }
}

/// Returns the CSS class of this text in a page. Only a failure is red.
pub(crate) const fn class(cell: &Cell) -> &'static str {
    if cell.failed.is_some() { "failed" } else { "muted" }
}

pub(crate) fn explained(cell: &Cell) -> Option<String> {
    in_a_word(cell).zip(reason(cell)).map(|(word, reason)| format!("{word}: {reason}"))
}

/// Returns the metrics that a measured cell lacks. A cell that failed or was not run states its own
/// reason, and the result is empty.
pub(crate) fn of(cell: &Cell) -> impl Iterator<Item = &Missing> {
    cell.missing.iter().filter(move |_| cell.is_measured())
}

/// Lists each cell with the metrics that it lacks, and the reason.
pub(crate) fn each(results: &Results) -> Vec<(String, String)> {
    let lines = |cell| of(cell).map(move |missing| (place(cell), words(missing)));
    results.cells.iter().flat_map(lines).collect()
}

/// Formats the metrics and the reason: `Offered, Actual time not measured: the generator ended`.
pub(crate) fn words(missing: &Missing) -> String {
    format!("{} {WORD}: {}", labels(missing), missing.reason)
}

/// Builds sentences for the answer. A sentence is about a set of metrics, with the number of cells
/// and a reason.
pub(crate) fn sentences(results: &Results) -> Vec<String> {
    let mut sets: Vec<(String, Vec<(&Cell, &Missing)>)> = Vec::new();
    for cell in &results.cells {
        for missing in of(cell) {
            let labels = labels(missing);
            match sets.iter_mut().find(|(known, _)| *known == labels) {
                Some((_, cells)) => cells.push((cell, missing)),
                None => sets.push((labels, vec![(cell, missing)])),
            }
        }
    }
    let sentence = |(labels, cells): (String, Vec<(&Cell, &Missing)>)| {
        // A failed measurement is a better example than a machine that is too small.
        let (cell, missing) = cells.iter().find(|(_, missing)| missing.failed).or(cells.first())?;
        let all = counted(results.cells.len(), "cell");
        let (count, place, reason) = (cells.len(), place(cell), &missing.reason);
        let example = if count == 1 { "" } else { "for example " };
        Some(format!("{labels} {WORD} in {count} of {all}, {example}{place}: {reason}."))
    };
    sets.into_iter().filter_map(sentence).collect()
}

fn labels(missing: &Missing) -> String {
    let labels: Vec<String> =
        missing.metrics.iter().map(|name| metrics::meaning(name).label).collect();
    labels.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::{Axes, Form};

    #[test]
    fn a_bound_replaces_the_figure() {
        let missing = |reason: &str| Missing { reason: reason.to_owned(), ..Missing::default() };
        let bound = missing("≥ 3.879 Mpps, generator-limited");
        assert_eq!(in_place(&bound), "≥ 3.879 Mpps, generator-limited");
        assert_eq!(in_place(&missing("the generator ended")), WORD);
    }

    #[test]
    fn a_cell_that_this_machine_cannot_measure_has_not_failed() {
        let mut cell = Cell::new("a", Axes::new());
        assert_eq!((in_a_word(&cell), explained(&cell)), (None, None));
        cell.not_run = Some("needs 3 CPUs, this machine has 2".to_owned());
        assert_eq!(explained(&cell).unwrap(), "not run: needs 3 CPUs, this machine has 2");
        assert_eq!(in_a_word(&cell), Some("not run"));
        let mut cell = Cell::new("a", Axes::new());
        cell.failed = Some("the peer ended".to_owned());
        assert_eq!(explained(&cell).unwrap(), "failed: the peer ended");
        assert_eq!(in_a_word(&cell), Some("failed"));
    }

    #[test]
    fn the_answer_counts_cells_and_names_a_failure_first() {
        let mut results = Results::new("x", Form::Full);
        for (rules, reason, failed) in
            [("1", "needs 3 CPUs", false), ("256", "the generator ended", true), ("512", "", false)]
        {
            let mut cell = Cell::new("a", Axes::from([("rules".to_owned(), rules.to_owned())]));
            if !reason.is_empty() {
                let metrics = vec!["ndr_pps".to_owned(), "offered_pps".to_owned()];
                let reason = reason.to_owned();
                cell.missing = vec![Missing { metrics, reason, failed }];
            }
            results.cells.push(cell);
        }
        assert_eq!(
            sentences(&results),
            ["Highest without loss, Offered not measured in 2 of 3 cells, for example a at rules \
              256: the generator ended."]
        );
        assert_eq!(each(&results).len(), 2);
        // A failed cell states its reason elsewhere, so the answer does not state the reason.
        results.cells.iter_mut().for_each(|cell| cell.failed = Some("no".to_owned()));
        assert!(sentences(&results).is_empty() && each(&results).is_empty());
    }
}
