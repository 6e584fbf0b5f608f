//! The comparisons of a run: ratios between systems in the same cell, judged together.

use super::{figures, goals, range, ratio};
use crate::LabFile;
use crate::file::{CompareSpec, SystemSpec};
use crate::run::plan::Plan;
use crate::run::{Measurement, Outcome};
use indexmap::IndexMap;
use results::{Axes, Comparison, Ratio, metrics};
use stats::family::{self, Member};
use stats::{Direction, RatioVerdict};
use std::collections::{HashMap, HashSet};
use toml::Spanned;
use units::Share;

pub(super) fn comparisons(lab: &LabFile, plan: &Plan, outcomes: &[Outcome]) -> Vec<Comparison> {
    let repeats = Repeats::of(plan.repeats, outcomes);
    let rows = rows(lab, plan, &repeats);
    let members: Vec<Member> = rows.iter().map(Row::member).collect();
    let adjusted = family::adjusted(&members);
    rows.iter()
        .zip(&adjusted)
        .map(|(row, adjusted)| {
            let mut one = row.judged(adjusted);
            one.goal = row.compare.and_then(|compare| goals::goal(compare, lab, &one, outcomes));
            one
        })
        .collect()
}

/// The ratios of each metric, one series for each comparison, in the order of the blocks.
pub(super) fn ratios<'a>(
    lab: &'a LabFile,
    plan: &'a Plan,
    outcomes: &'a [Outcome],
) -> IndexMap<&'a str, Vec<Vec<f64>>> {
    let repeats = Repeats::of(plan.repeats, outcomes);
    let mut all: IndexMap<&str, Vec<Vec<f64>>> = IndexMap::new();
    for row in rows(lab, plan, &repeats).into_iter().filter(|row| !row.undecidable()) {
        all.entry(row.pair.metric).or_default().push(repeats.ratios(&row.pair));
    }
    all
}

fn rows<'a>(lab: &'a LabFile, plan: &'a Plan, repeats: &Repeats<'a>) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'_>> =
        lab.compare.iter().flat_map(|compare| rows_of(compare, plan, repeats)).collect();
    for spec in lab.primaries(plan.form) {
        let systems = [spec.system.get_ref(), spec.baseline.get_ref()];
        let places = plan.cells.iter().filter(|cell| systems.contains(&&cell.system));
        let Some(axes) = spec.cell(lab, places.map(|cell| &cell.axes)) else { continue };
        let pair = Pair { metric: spec.metric.get_ref(), a: systems[0], b: systems[1], axes };
        if let Some(row) = rows.iter_mut().find(|row| row.pair == pair) {
            row.primary = true;
        } else if let Some(row) = Row::of(pair, stats::default_threshold(), repeats) {
            rows.push(Row { primary: true, ..row });
        }
    }
    if lab.compare.is_empty() && lab.primary.is_empty() {
        rows.extend(with_first_system(lab, plan, repeats));
    }
    if lab.kind().keeps_cells() {
        for row in &mut rows {
            row.windows = Some(range(&repeats.ratios(&row.pair)));
        }
    }
    rows
}

fn rows_of<'a>(compare: &'a CompareSpec, plan: &'a Plan, repeats: &Repeats<'a>) -> Vec<Row<'a>> {
    let baseline = compare.baseline.get_ref();
    let threshold =
        compare.threshold.as_ref().map_or_else(stats::default_threshold, |share| *share.get_ref());
    let wanted = |system: &String| match compare.systems.as_slice() {
        [] => system != baseline,
        named => named.iter().any(|one| one.get_ref() == system),
    };
    let metrics = compare.metrics.iter().map(Spanned::get_ref);
    metrics
        .flat_map(|metric| {
            let cells = plan.cells.iter().filter(|cell| wanted(&cell.system));
            cells.map(move |cell| Pair { metric, a: &cell.system, b: baseline, axes: &cell.axes })
        })
        .filter_map(|pair| Row::of(pair, threshold, repeats))
        .map(|row| Row { compare: Some(compare), ..row })
        .collect()
}

/// A lab that names no comparison compares its main metric with that of its first system.
fn with_first_system<'a>(lab: &'a LabFile, plan: &'a Plan, repeats: &Repeats<'a>) -> Vec<Row<'a>> {
    let Some(first) = lab.systems().next().map(SystemSpec::name) else { return Vec::new() };
    let metric = match &lab.view {
        Some(view) => Some(view.metric.get_ref().as_str()),
        None => report::main_metric(repeats.names()),
    };
    let Some(metric) = metric else { return Vec::new() };
    let cells = plan.cells.iter().filter(|cell| cell.system != first);
    let pairs = cells.map(|cell| Pair { metric, a: &cell.system, b: first, axes: &cell.axes });
    pairs.filter_map(|pair| Row::of(pair, stats::default_threshold(), repeats)).collect()
}

/// A metric of two systems in one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair<'a> {
    metric: &'a str,
    a: &'a str,
    b: &'a str,
    axes: &'a Axes,
}

#[derive(Debug)]
struct Row<'a> {
    pair: Pair<'a>,
    ratio: RatioVerdict,
    /// No pair was valid. The ratio is shown and decides nothing.
    invalid: bool,
    /// The range of the ratios, if the repeats are windows of one start of each system. They decide
    /// nothing about another start.
    windows: Option<Option<[f64; 2]>>,
    primary: bool,
    compare: Option<&'a CompareSpec>,
}

impl<'a> Row<'a> {
    /// `None` if there is nothing to compare.
    fn of(pair: Pair<'a>, threshold: Share, repeats: &Repeats<'a>) -> Option<Self> {
        let direction = metrics::direction(pair.metric)?;
        let (pairs, invalid) = repeats.pairs(&pair)?;
        let ratio = compared(&pairs, direction, threshold)?;
        Some(Self { pair, ratio, invalid, windows: None, primary: false, compare: None })
    }

    /// The ratio is shown without a verdict.
    const fn undecidable(&self) -> bool {
        self.invalid || self.windows.is_some()
    }

    fn member(&self) -> Member {
        let p = self.ratio.p.filter(|_| !self.undecidable()).unwrap_or(1.0);
        Member { p, primary: self.primary, pairs: self.ratio.ratio.n }
    }

    fn judged(&self, adjusted: &family::Adjusted) -> Comparison {
        let verdict = match self.undecidable() {
            true => results::Verdict::Inconclusive,
            false => verdict(self.ratio.within(adjusted)),
        };
        let undecided = verdict == results::Verdict::Inconclusive && !self.undecidable();
        let measured = ratio(&self.ratio.ratio);
        let measured = match self.windows {
            None => measured,
            Some(range) => Ratio { ci95: None, coverage: None, range, one_start: true, ..measured },
        };
        Comparison {
            metric: self.pair.metric.to_owned(),
            axes: self.pair.axes.clone(),
            a: self.pair.a.to_owned(),
            b: self.pair.b.to_owned(),
            ratio: measured,
            verdict,
            threshold: Some(self.ratio.threshold.fraction()),
            primary: self.primary,
            adjusted_p: self.windows.is_none().then_some(adjusted.p),
            needs_repeats: adjusted.needs.filter(|_| undecided).map(|pairs| pairs as u64),
            goal: None,
        }
    }
}

fn compared(
    pairs: &[(Option<f64>, Option<f64>)],
    direction: Direction,
    threshold: Share,
) -> Option<RatioVerdict> {
    // Two systems that both failed throughout are not equal.
    if pairs.iter().all(|(a, b)| a.is_none() && b.is_none()) {
        return None;
    }
    stats::compare_paired(pairs, direction, threshold).ok()
}

/// The repeats of a run by system and block.
#[derive(Debug)]
struct Repeats<'a> {
    count: u32,
    by_block: HashMap<(&'a str, u32), Vec<&'a Outcome>>,
    /// The systems of which a repeat was measured, and the metrics that they have.
    measured: HashSet<&'a str>,
    metrics: HashSet<(&'a str, &'a str)>,
}

impl<'a> Repeats<'a> {
    fn of(count: u32, outcomes: &'a [Outcome]) -> Self {
        let mut by_block: HashMap<(&str, u32), Vec<&Outcome>> = HashMap::new();
        let (mut measured, mut metrics) = (HashSet::new(), HashSet::new());
        for outcome in outcomes {
            let system = outcome.system.as_str();
            by_block.entry((system, outcome.block)).or_default().push(outcome);
            if let Some(found) = figures(outcome) {
                measured.insert(system);
                metrics.extend(found.metrics.keys().map(|metric| (system, metric.as_str())));
            }
        }
        Self { count, by_block, measured, metrics }
    }

    /// The names of all metrics, sorted.
    fn names(&self) -> impl Iterator<Item = &'a str> + Clone {
        let mut names: Vec<&str> = self.metrics.iter().map(|(_, metric)| *metric).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// The values of both systems, block by block, and whether they are invalid. A repeat that
    /// failed, or that has no figure of the metric, is `None`. A pair with an invalid repeat is
    /// left out, because the machine is the reason for that. If all are invalid, they are the
    /// pairs. A pair also says nothing if a repeat names the metric as missing, if neither has it,
    /// or if this machine cannot measure one of them.
    #[allow(clippy::type_complexity)]
    fn pairs(&self, pair: &Pair<'_>) -> Option<(Vec<(Option<f64>, Option<f64>)>, bool)> {
        // A metric that a measured system has nowhere does not apply to it.
        let applies = |system| {
            !self.measured.contains(system) || self.metrics.contains(&(system, pair.metric))
        };
        if !applies(pair.a) || !applies(pair.b) {
            return None;
        }
        let (mut valid, mut invalid) = (Vec::new(), Vec::new());
        for block in 0..self.count {
            let sides = self.at(pair.a, block, pair).zip(self.at(pair.b, block, pair));
            let Some((a, b)) = sides else { continue };
            let neither = a.has_figures && b.has_figures && a.value.is_none() && b.value.is_none();
            if a.is_missing || b.is_missing || neither {
                continue;
            }
            let values = (a.value, b.value);
            if a.valid && b.valid { valid.push(values) } else { invalid.push(values) }
        }
        match valid.is_empty() {
            true => (!invalid.is_empty()).then_some((invalid, true)),
            false => Some((valid, false)),
        }
    }

    /// The ratio of each pair in which both have a figure, in the order of the blocks.
    fn ratios(&self, pair: &Pair<'_>) -> Vec<f64> {
        let pairs = self.pairs(pair).map(|(pairs, _)| pairs).unwrap_or_default();
        let ratio = |(a, b): (Option<f64>, Option<f64>)| Some(a? / b?);
        pairs.into_iter().filter_map(ratio).filter(|ratio| !ratio.is_nan()).collect()
    }

    /// `None` if the repeat was not run, or if this machine cannot measure it.
    fn at(&self, system: &str, block: u32, pair: &Pair<'_>) -> Option<Repeat> {
        let outcomes = self.by_block.get(&(system, block))?;
        let outcome = outcomes.iter().find(|outcome| outcome.axes == *pair.axes)?;
        if outcome.is_left_out() {
            return None;
        }
        let measured: Option<&Measurement> = figures(outcome);
        Some(Repeat {
            value: measured.and_then(|m| m.metrics.get(pair.metric)).map(|value| value.value),
            valid: measured.is_none_or(|measured| measured.invalid.is_empty()),
            has_figures: measured.is_some(),
            is_missing: measured.is_some_and(|measured| {
                let mut named = measured.missing.iter().flat_map(|missing| &missing.metrics);
                named.any(|metric| metric == pair.metric)
            }),
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Repeat {
    value: Option<f64>,
    valid: bool,
    has_figures: bool,
    /// The metric could not be measured, for a reason that the repeat names.
    is_missing: bool,
}

fn verdict(verdict: stats::Verdict) -> results::Verdict {
    match verdict {
        stats::Verdict::Better => results::Verdict::Better,
        stats::Verdict::Worse => results::Verdict::Worse,
        stats::Verdict::NoDifference => results::Verdict::Same,
        stats::Verdict::Inconclusive => results::Verdict::Inconclusive,
    }
}

#[cfg(test)]
mod tests;
