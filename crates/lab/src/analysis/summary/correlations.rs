//! Autocorrelation: whether successive repeats of a run resemble one another.

use super::{comparisons, figures};
use crate::bench::LabFile;
use crate::model::Outcome;
use crate::model::plan::Plan;
use indexmap::IndexMap;
use results::{Correlation, metrics};

/// Computes the autocorrelation of each metric with a direction, and of the metric's ratios. Empty
/// in virtual time, where each repeat has a seed of its own, and for windows of one start, which
/// have no interval.
pub(super) fn correlations(lab: &LabFile, plan: &Plan, outcomes: &[Outcome]) -> Vec<Correlation> {
    let in_virtual_time =
        outcomes.iter().filter_map(figures).any(|measured| measured.fingerprint.is_some());
    if in_virtual_time || lab.kind().keeps_cells() {
        return Vec::new();
    }
    let entry = |ratios: bool| {
        move |(metric, series): (&str, Vec<Vec<f64>>)| {
            let found = stats::successive(&series)?;
            Some(Correlation {
                metric: metric.to_owned(),
                ratios,
                series: found.series as u64,
                estimate: found.estimate,
                p: found.p,
                shown: found.is_shown(),
            })
        }
    };
    let values = of_cells(plan, outcomes).into_iter().filter_map(entry(false));
    let ratios = comparisons::ratios(lab, plan, outcomes).into_iter().filter_map(entry(true));
    values.chain(ratios).collect()
}

/// Builds a single sentence for all correlated metrics: load that outlasts a repeat correlates many
/// metrics at once.
pub(super) fn warnings(all: &[Correlation]) -> Vec<String> {
    let mut shown: Vec<&Correlation> = all.iter().filter(|one| one.shown).collect();
    shown.sort_by(|a, b| a.p.total_cmp(&b.p));
    let Some(first) = shown.first() else { return Vec::new() };
    let label = |one: &&Correlation| {
        let ratios = if one.ratios { " (ratios)" } else { "" };
        format!("{}{ratios}", metrics::meaning(&one.metric).label)
    };
    // Metrics of one quantity in several units have one label.
    let mut labels: Vec<String> = Vec::new();
    for label in shown.iter().map(label) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let more = match labels.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    labels.truncate(NAMED);
    vec![format!(
        "successive repeats are correlated, in {}{more} (up to {:.2}, p {:.3}), so that their \
         intervals are too narrow: look for load that lasts longer than a repeat, or compare several \
         runs (weir lab compare)",
        labels.join(", "),
        shown.iter().map(|one| one.estimate).fold(first.estimate, f64::max),
        first.p,
    )]
}

/// Returns the values of each metric, one series for each cell, in the order of the blocks.
fn of_cells<'a>(plan: &Plan, outcomes: &'a [Outcome]) -> IndexMap<&'a str, Vec<Vec<f64>>> {
    let mut all: IndexMap<&str, Vec<Vec<f64>>> = IndexMap::new();
    for cell in &plan.cells {
        let mut steps: Vec<&Outcome> =
            outcomes.iter().filter(|outcome| super::is_of(cell, outcome)).collect();
        steps.sort_by_key(|step| step.block);
        let mut of_cell: IndexMap<&str, Vec<f64>> = IndexMap::new();
        let measured = steps.into_iter().filter_map(figures);
        for measured in measured.filter(|measured| measured.invalid.is_empty()) {
            for (metric, value) in &measured.metrics {
                let judged =
                    metrics::direction(metric).is_some() && !metrics::is_proportion(metric);
                if judged && metric != super::IDLE {
                    of_cell.entry(metric).or_default().push(value.value);
                }
            }
        }
        for (metric, series) in of_cell {
            all.entry(metric).or_default().push(series);
        }
    }
    all
}

/// Maximum number of metrics that the warning names.
const NAMED: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(metric: &str, p: f64) -> Correlation {
        let metric = metric.to_owned();
        Correlation { metric, ratios: false, series: 4, estimate: 0.5, p, shown: true }
    }

    #[test]
    fn the_correlation_warning_names_three_metrics_and_counts_the_other_metrics() {
        let names = ["goodput_mbit_s", "jain", "queue_ms.p95", "fct_ms.p50", "retransmit_percent"];
        let all: Vec<Correlation> =
            names.iter().zip(1..).map(|(name, p)| shown(name, f64::from(p) / 100.0)).collect();
        let told = warnings(&all);
        assert_eq!(told.len(), 1);
        let start = "successive repeats are correlated, in Goodput, Jain fairness, Queue delay";
        assert!(told[0].starts_with(start), "{told:?}");
        assert!(told[0].contains(" and 2 more (up to 0.50, p 0.010)"), "{told:?}");
        for count in 1..=3 {
            let told = warnings(&all[..count]);
            assert!(!told[0].contains("more (up"), "{told:?}");
        }
        let twice = [shown("queue_kbyte.p95", 0.01), shown("queue_bdp.p95", 0.02)];
        assert!(warnings(&twice)[0].contains("in Queue p95 (up to"));
        let ratios = Correlation { ratios: true, ..shown("jain", 0.01) };
        assert!(warnings(&[ratios])[0].contains("in Jain fairness (ratios) (up to"));
        let chance = Correlation { shown: false, ..shown("jain", 0.5) };
        assert!(warnings(&[chance]).is_empty());
    }
}
