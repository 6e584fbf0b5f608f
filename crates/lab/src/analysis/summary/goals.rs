//! Compares the ratio of two systems with the goal of the lab.

use super::figures;
use crate::bench::LabFile;
use crate::model::Outcome;
use crate::model::file::CompareSpec;
use results::{Axes, Cell, Comparison, Goal};

/// Compares the ratio with the lab's goal. `None` if the lab sets no goal.
pub(super) fn goal(
    compare: &CompareSpec,
    lab: &LabFile,
    one: &Comparison,
    outcomes: &[Outcome],
) -> Option<Goal> {
    let mean = |system: &str, metric: &str| -> Option<f64> {
        let of = outcomes.iter().filter(|o| o.system == system && o.axes == one.axes);
        let values: Vec<f64> = of
            .filter_map(figures)
            .filter(|measured| measured.invalid.is_empty())
            .filter_map(|measured| Some(measured.metrics.get(metric)?.value))
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let peer = mean(&one.b, &one.metric);
    let ideals = compare.ideal.iter().filter_map(|metric| {
        let metric = metric.get_ref();
        Some((metric.clone(), mean(&one.b, metric)? / peer?))
    });
    let mut goal = Goal {
        reference: reference(lab, &one.a, &one.axes, &one.metric)
            .zip(reference(lab, &one.b, &one.axes, &one.metric))
            // A reference row that belongs to both systems says nothing about their ratio.
            .filter(|((row, _), (other, _))| row != other)
            .map(|((_, a), (_, b))| a / b),
        ideals: ideals.collect(),
        ..Goal::default()
    };
    if let Some(share) = compare.of_ideal.as_ref().map(|share| share.get_ref().fraction()) {
        let most = goal.reference.unwrap_or(f64::INFINITY);
        let asked = |(name, ideal): (&String, &f64)| (name.clone(), most.min(share * ideal));
        goal.asks = goal.ideals.iter().map(asked).collect();
    }
    goal.least = goal.asks.values().next().copied();
    // Without an interval the goal is not judged.
    goal.met = goal.least.zip(one.ratio.ci95).map(|(least, [worse, _])| worse >= least);
    (goal.reference.is_some() || !goal.ideals.is_empty()).then_some(goal)
}

/// Returns the file's reference value for the system at these axes, and the number of its row.
fn reference(lab: &LabFile, system: &str, axes: &Axes, metric: &str) -> Option<(usize, f64)> {
    let cell = Cell::new(system, axes.clone());
    let rows = lab.reference.iter().map(super::reference);
    let mut of_cell = rows.enumerate().filter(|(_, row)| row.belongs_to(&cell));
    of_cell.find_map(|(number, row)| Some((number, *row.metrics.get(metric)?)))
}
