//! The two states of a `[state]` in the results: their descriptions, and the mean of all
//! comparisons.

use super::{figures, ratio};
use crate::bench::LabFile;
use crate::model::Outcome;
use crate::model::file::{AFTER, BEFORE};
use crate::model::plan::Plan;
use results::{Cell, Comparison, Results, States, metrics};
use stats::{Direction, Verdict};
use std::collections::HashMap;

pub(super) fn states(
    lab: &LabFile,
    plan: &Plan,
    outcomes: &[Outcome],
    comparisons: &[Comparison],
) -> Option<States> {
    let state = lab.state.as_ref()?.get_ref();
    let [before, after] = state.sides().map(|(_, side)| side.described());
    let end = state.end.as_ref().and_then(|end| {
        let axis = end.get_ref().strip_prefix('{')?.strip_suffix('}')?;
        lab.axes.contains_key(axis).then(|| axis.to_owned())
    });
    let means = means(plan, outcomes, comparisons);
    let mean = stats::estimate(&means).ok().map(|estimate| ratio(&estimate));
    Some(States { before, after, end, mean, rows: comparisons.len() as u64 })
}

/// For each block in which every comparison was measured: the geometric mean of the ratios of after
/// to before, turned so that more is better.
fn means(plan: &Plan, outcomes: &[Outcome], comparisons: &[Comparison]) -> Vec<f64> {
    let mut measured: HashMap<String, &Outcome> = HashMap::new();
    for outcome in outcomes {
        measured.insert(outcome.step_name(), outcome);
    }
    let value = |system: &str, one: &Comparison, block: u32| {
        let name = crate::model::plan::name_of(system, &one.axes, block);
        let found = figures(measured.get(&name)?)?;
        let is_valid = found.invalid.is_empty();
        found.metrics.get(&one.metric).filter(|_| is_valid).map(|metric| metric.value)
    };
    let of_block = |block: u32| -> Option<f64> {
        let ratios: Option<Vec<f64>> = comparisons
            .iter()
            .map(|one| {
                let ratio = value(AFTER, one, block)? / value(BEFORE, one, block)?;
                let turned = match metrics::direction(&one.metric) {
                    Some(Direction::LowerIsBetter) => 1.0 / ratio,
                    _ => ratio,
                };
                (turned.is_finite() && turned > 0.0).then_some(turned)
            })
            .collect();
        stats::geometric_mean(&ratios?).ok()
    };
    (0..plan.repeats).filter_map(of_block).collect()
}

/// The answer of a table in a few words. No row that is worse, and half of the rows undecided or
/// more, make a table undecided.
fn found(worse: usize, undecided: usize, all: usize) -> &'static str {
    match (worse, undecided) {
        (1.., _) => "The change costs something",
        _ if 2 * undecided >= all => "Not decided",
        (_, 0) => NO_COST,
        _ => NOTHING_SHOWN,
    }
}

const NO_COST: &str = "The change costs nothing";
/// Rows are undecided, failed or invalid.
const NOTHING_SHOWN: &str = "No cost is shown";

/// The verdicts, counted.
pub(super) fn answer(results: &Results) -> Option<String> {
    let states = results.states.as_ref()?;
    let of =
        |verdict: Verdict| results.comparisons.iter().filter(|one| one.verdict == verdict).count();
    let within = results.comparisons.iter().find_map(|one| one.threshold);
    let within = within.map(|share| format!(" within {} %", (share * 1e8).round() / 1e6));
    let mean = states.mean.as_ref().map(|mean| {
        let percent = |ratio: f64| format!("{:+.2} %", (ratio - 1.0) * 100.0);
        let interval =
            mean.ci95.map(|[low, high]| format!(" [{}, {}]", percent(low), percent(high)));
        format!("; geometric mean {}{}", percent(mean.median), interval.unwrap_or_default())
    });
    if results.comparisons.is_empty() {
        return Some("Nothing was compared: no row has figures of both states.".to_owned());
    }
    let is_whole = |cell: &Cell| !cell.has_failed() && cell.not_run.is_none() && cell.valid;
    let found = match found(of(Verdict::Worse), of(Verdict::Undecided), results.comparisons.len()) {
        NO_COST if !results.cells.iter().all(is_whole) => NOTHING_SHOWN,
        found => found,
    };
    Some(format!(
        "{found}: of {} comparisons {} are the same{}, {} better, {} worse and {} undecided{}.",
        results.comparisons.len(),
        of(Verdict::Same),
        within.unwrap_or_default(),
        of(Verdict::Better),
        of(Verdict::Worse),
        of(Verdict::Undecided),
        mean.unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn a_table_of_undecided_rows_has_no_answer() {
        assert_eq!(found(0, 0, 61), "The change costs nothing");
        assert_eq!(found(0, 30, 61), "No cost is shown");
        assert_eq!(found(0, 31, 61), "Not decided");
        assert_eq!(found(1, 60, 61), "The change costs something");
        assert_eq!(found(0, 0, 0), "Not decided");
    }
}
