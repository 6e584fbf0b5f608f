//! Runs one case of the simulator's own validation, and judges its repeats.

use super::CASE;
use crate::bench::simulator::SimulatorStep;
use crate::model::{Failure, Measurement};
use results::{Cell, Metric, metrics};
use sim::validate::{Case, Middle, Verdict};

pub(super) fn measure(step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
    let name = step.job.cell.axes.get(CASE).map_or("", String::as_str);
    let Some(case) = case(name) else {
        return Err(Failure::Workload(format!("the simulator has no case `{name}`")));
    };
    let Some(figures) = case.run(step.seed) else {
        return Err(Failure::Workload("the world of this case could not be measured".to_owned()));
    };
    let mut result = Measurement::default();
    // The figures have no unit here, because a column has one unit and each case has its own. The
    // report's method names the unit of each case.
    result.record("expected", Some(figures.expected));
    if let Some((low, high)) = figures.expected_ends {
        result.record("expected.low", Some(low));
        result.record("expected.high", Some(high));
    }
    result.record("measured", Some(figures.measured));
    result.record("of_defaults", figures.own);
    result.fingerprint = Some(format!("{:016x}", figures.measured.to_bits()));
    Ok(result)
}

/// Adds the verdict on the repeats: `within` is 1 if the figure agrees with the expected figure, 0
/// if the figure deviates, and one half if the interval is too wide to tell.
pub(super) fn judge_cell(cell: &mut Cell) {
    let middle = |name: &str| cell.metrics.get(name).map(|metric| metric.median);
    let ends = middle("expected.low").zip(middle("expected.high"));
    let (Some(expected), Some(measured)) = (middle("expected"), cell.metrics.get("measured"))
    else {
        return;
    };
    let Some(case) = cell.axes.get(CASE).and_then(|name| case(name)) else { return };
    let judged = case.judge(
        Middle { value: expected, ends },
        Middle { value: measured.median, ends: measured.ci95.map(|[low, high]| (low, high)) },
    );
    let n = measured.n;
    let mut add = |name: &str, value: f64| {
        let unit = metrics::meaning(name).unit.to_owned();
        let (ci95, coverage, range) = (None, None, None);
        let metric = Metric { ci95, coverage, range, n, ..Metric::single(value, unit) };
        cell.metrics.insert(name.to_owned(), metric);
    };
    add("off_percent", judged.difference * 100.0);
    if let Some(half) = judged.half_width {
        add("interval_percent", half * 100.0);
    }
    add("tolerance_percent", case.tolerance() * 100.0);
    let (within, words) = match judged.verdict {
        Verdict::Within => (1.0, None),
        Verdict::Off => (0.0, Some("off: the difference exceeds the tolerance")),
        Verdict::Undecided => {
            (0.5, Some("undecided: the interval is wider than the tolerance, or there is none"))
        }
    };
    add("within", within);
    cell.warnings.extend(words.map(str::to_owned));
}

fn case(name: &str) -> Option<Case> {
    sim::validate::cases().into_iter().find(|case| case.name == name)
}
