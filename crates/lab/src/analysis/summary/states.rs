//! The states `before` and `after` in the results: their descriptions, and the mean of all
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

/// Returns, for each block in which every comparison was measured, the geometric mean of the ratios
/// of after to before. A ratio is inverted if less of its metric is better.
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

/// Returns the answer that the verdicts of a table's rows give, in a few words. A table is
/// undecided if no row is worse and half of the rows or more are undecided.
fn found(worse: usize, undecided: usize, all: usize) -> &'static str {
    match (worse, undecided) {
        (1.., _) => "The change costs something",
        _ if 2 * undecided >= all => "Not decided",
        (_, 0) => NO_COST,
        _ => NOTHING_SHOWN,
    }
}

const NO_COST: &str = "The change costs nothing";
/// The answer if some rows are undecided, failed or invalid.
const NOTHING_SHOWN: &str = "No cost is shown";

/// Builds the sentences with the number of rows of each verdict.
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
        "{found}: of {} comparisons {} are the same{}, {} better, {} worse and {} undecided{}.{}",
        results.comparisons.len(),
        of(Verdict::Same),
        within.unwrap_or_default(),
        of(Verdict::Better),
        of(Verdict::Worse),
        of(Verdict::Undecided),
        mean.unwrap_or_default(),
        worst(&results.comparisons).unwrap_or_default(),
    ))
}

/// Names the worse rows, the rows with the largest differences first: ` Worse: TCP_RR, pinned no,
/// role client (-4.1 %).`
fn worst(comparisons: &[Comparison]) -> Option<String> {
    let loss = |one: &Comparison| match metrics::direction(&one.metric) {
        Some(Direction::LowerIsBetter) => one.ratio.median - 1.0,
        _ => 1.0 - one.ratio.median,
    };
    let mut worse: Vec<&Comparison> =
        comparisons.iter().filter(|one| one.verdict == Verdict::Worse).collect();
    worse.sort_by(|a, b| loss(b).total_cmp(&loss(a)));
    let more = worse.len().saturating_sub(MOST_NAMED);
    let name = |one: &&Comparison| {
        // A lab writes `-` where an axis does not apply. A lab without axes has one row.
        let axes = one.axes.iter().filter(|(_, value)| *value != "-");
        let axes: Vec<String> = axes.map(|(name, value)| format!("{name} {value}")).collect();
        let row = if axes.is_empty() { one.metric.clone() } else { axes.join(", ") };
        format!("{row} ({:+.1} %)", -100.0 * loss(one))
    };
    let mut named: Vec<String> = worse.iter().take(MOST_NAMED).map(name).collect();
    named.extend((more > 0).then(|| format!("{more} more")));
    (!named.is_empty()).then(|| format!(" Worse: {}.", named.join("; ")))
}

const MOST_NAMED: usize = 3;

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn the_answer_follows_from_the_worse_and_undecided_rows() {
        assert_eq!(found(0, 0, 61), "The change costs nothing");
        assert_eq!(found(0, 30, 61), "No cost is shown");
        assert_eq!(found(0, 31, 61), "Not decided");
        assert_eq!(found(1, 60, 61), "The change costs something");
        assert_eq!(found(0, 0, 0), "Not decided");
    }

    use crate::LabFile;
    use crate::analysis::summary::whole_run::invented;
    use crate::model::{Measurement, Verdict};
    use results::Results;

    fn lab() -> LabFile {
        LabFile::parse("x.toml", LAB).unwrap()
    }

    fn measured(metric: &str, value: f64) -> Box<Measurement> {
        let mut measurement = Measurement::default();
        measurement.record(metric, Some(value));
        Box::new(measurement)
    }

    /// Builds a run in which the state `after` has these multiples of the goodput and of the
    /// latency. `change` may replace a repeat of the latency.
    fn run(
        [goodput, latency]: [f64; 2],
        change: impl Fn(&str, u32, Box<Measurement>) -> Verdict,
    ) -> Results {
        invented(&lab(), |system, axes, block| {
            let [goodput, latency] = if system == "after" { [goodput, latency] } else { [1.0; 2] };
            match axes["test"].as_str() {
                "TCP_STREAM" => Verdict::Measured(measured("goodput_mbit_s", 1000.0 * goodput)),
                _ => change(system, block, measured("latency_us.mean", 10.0 * latency)),
            }
        })
    }

    fn unchanged(_: &str, _: u32, measured: Box<Measurement>) -> Verdict {
        Verdict::Measured(measured)
    }

    fn answer(run: &Results) -> &str {
        run.answer.last().unwrap()
    }

    /// Goodput times 1.21, latency times 0.8: the mean is the root of 1.21 * 1.25.
    #[test]
    fn lower_latency_raises_the_mean() {
        let found = run([1.21, 0.8], unchanged);
        let states = found.states.as_ref().unwrap();
        assert_eq!((states.rows, states.end.as_deref()), (2, Some("role")));
        assert_eq!(states.after, "tcpa and caqm in the kernel, used by no connection");
        let mean = states.mean.as_ref().unwrap();
        assert!((mean.median - 1.229_837).abs() < 1e-6 && mean.n == 6, "{mean:?}");
        assert_eq!(
            answer(&found),
            "The change costs nothing: of 2 comparisons 0 are the same within 3 %, 2 better, 0 \
             worse and 0 undecided; geometric mean +22.98 % [+22.98 %, +22.98 %]."
        );
        let worse = run([0.5, 1.0], unchanged);
        let told = "The change costs something: of 2 comparisons 1 are the same within 3 %, 0 \
                    better, 1 worse and 0 undecided; geometric mean -29.29 %";
        assert!(answer(&worse).starts_with(told), "{}", answer(&worse));
        let named = "]. Worse: test TCP_STREAM, size 64, pinned no, role client (-50.0 %).";
        assert!(answer(&worse).ends_with(named), "{}", answer(&worse));
        let both = run([0.5, 2.0], unchanged);
        let named =
            " Worse: test lat_unix, pinned no, role client (-100.0 %); test TCP_STREAM, size 64,";
        assert!(answer(&both).contains(named), "{}", answer(&both));
    }

    #[test]
    fn a_block_without_both_metrics_has_no_mean() {
        let flaw = || crate::model::Flaw { what: "late".to_owned(), detail: "2 ms".to_owned() };
        let found = run([1.0, 1.0], |system, block, mut measured| match (system, block) {
            ("after", 0) => Verdict::Failed("no route".to_owned()),
            ("after", 1) => {
                measured.invalid.push(flaw());
                Verdict::Measured(measured)
            }
            ("after", 2) | ("before", 3) => {
                measured.record("latency_us.mean", Some(0.0));
                Verdict::Measured(measured)
            }
            _ => Verdict::Measured(measured),
        });
        assert_eq!(found.states.as_ref().unwrap().mean.as_ref().unwrap().n, 2, "{found:?}");
    }

    #[test]
    fn only_a_run_without_missing_rows_has_the_answer_that_the_change_costs_nothing() {
        let equal = |change: fn(&str, u32, Box<Measurement>) -> Verdict| run([1.0, 1.0], change);
        assert!(answer(&equal(unchanged)).starts_with("The change costs nothing: of 2"));
        let broken = equal(|_, _, mut measured| {
            measured.miss(&["jain"], "the program ended".to_owned(), true);
            Verdict::Measured(measured)
        });
        assert!(answer(&broken).starts_with("No cost is shown: of 2"), "{}", answer(&broken));
        let not_run = equal(|_, _, _| Verdict::Failed("not run: no lmbench".to_owned()));
        assert!(answer(&not_run).starts_with("No cost is shown: of 1"), "{}", answer(&not_run));
        let nothing =
            invented(&lab(), |_, _, _| Verdict::Failed("not run: no programs".to_owned()));
        assert_eq!(answer(&nothing), "Nothing was compared: no row has figures of both states.");
    }

    const LAB: &str = r#"name = "x"
hosts = ["client", "server"]
[axes]
test = ["TCP_STREAM", "lat_unix"]
size = ["-", "64"]
pinned = ["yes", "no"]
role = ["client", "server"]
[usual]
size = "-"
pinned = "no"
[[link]]
between = ["client", "server"]
direct = true
[workload]
kind = "benchmark"
test = "{test}"
size = "{size}"
pinned = "{pinned}"
from = "client"
to = "server"
[state]
end = "{role}"
before = {}
after = { load = ["tcpa", "caqm"] }
[form.full]
repeats = 6
duration = "300ms"
cells = [
    { test = ["TCP_STREAM"], size = ["64"], role = ["client"] },
    { test = ["lat_unix"], role = ["client"] },
]
[form.quick]
repeats = 6
duration = "200ms"
cells = [{ test = ["lat_unix"], role = ["client"] }]
[compare]
baseline = "before"
metrics = ["goodput_mbit_s", "latency_us.mean"]
threshold = "3%"
"#;
}
