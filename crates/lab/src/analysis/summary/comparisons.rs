//! The comparisons of a run: ratios between systems in the same cell, judged together.

use super::{figures, goals, range, ratio};
use crate::bench::LabFile;
use crate::model::file::{CompareSpec, SystemSpec};
use crate::model::plan::{Plan, place_name};
use crate::model::{Measurement, Outcome};
use indexmap::IndexMap;
use results::{Axes, Comparison, Ratio, metrics};
use stats::Verdict;
use stats::table::{self, Judged};
use std::collections::{HashMap, HashSet};
use toml::Spanned;
use units::Share;

pub(super) fn comparisons(lab: &LabFile, plan: &Plan, outcomes: &[Outcome]) -> Vec<Comparison> {
    let repeats = Repeats::of(plan.repeats, outcomes);
    let rows = rows(lab, plan, &repeats);
    let table: Vec<stats::Row> = rows.iter().filter_map(Row::in_table).cloned().collect();
    let mut judged = table::judged(&table).unwrap_or_default().into_iter();
    let comparison = |row: &Row<'_>| {
        let mut one = match row.in_table() {
            Some(_) => row.judged(&judged.next()?),
            None => row.without_verdict(&repeats),
        };
        one.goal = row.compare.and_then(|compare| goals::goal(compare, lab, &one, outcomes));
        Some(one)
    };
    rows.iter().filter_map(comparison).collect()
}

/// Computes the ratios of each metric, one series for each comparison, in the order of the blocks.
pub(super) fn ratios<'a>(
    lab: &'a LabFile,
    plan: &'a Plan,
    outcomes: &'a [Outcome],
) -> IndexMap<&'a str, Vec<Vec<f64>>> {
    let repeats = Repeats::of(plan.repeats, outcomes);
    let mut all: IndexMap<&str, Vec<Vec<f64>>> = IndexMap::new();
    for row in rows(lab, plan, &repeats).into_iter().filter(|row| row.in_table().is_some()) {
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
        rows.iter_mut().for_each(|row| row.windows = true);
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

/// Compares each system's main metric with the first system's, for a lab without comparisons.
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

/// A pair of systems to compare: one metric in one cell.
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
    of_table: stats::Row,
    threshold: Share,
    /// Whether no pair was valid. A ratio of invalid pairs is shown without a verdict.
    invalid: bool,
    /// Whether the repeats are windows of one start of each system. A comparison of windows has no
    /// verdict, because another start may differ.
    windows: bool,
    primary: bool,
    compare: Option<&'a CompareSpec>,
}

impl<'a> Row<'a> {
    /// Builds the row of a pair. `None` if the metric has no direction, or if no block has a figure
    /// of either system.
    fn of(pair: Pair<'a>, threshold: Share, repeats: &Repeats<'a>) -> Option<Self> {
        let direction = metrics::direction(pair.metric)?;
        let (blocks, invalid) = repeats.pairs(&pair)?;
        // If both systems failed in every block, no figure shows that the systems are equal: make
        // no row.
        if blocks.iter().flatten().all(|(a, b)| a.is_none() && b.is_none()) {
            return None;
        }
        let kind = repeats.kind(pair.metric);
        let of_table = stats::Row::new(&blocks, direction, threshold, kind).ok()?;
        let (windows, primary, compare) = (false, false, None);
        Some(Self { pair, of_table, threshold, invalid, windows, primary, compare })
    }

    /// Returns the row that takes part in the table of the run, if the comparison can have a
    /// verdict.
    const fn in_table(&self) -> Option<&stats::Row> {
        if self.invalid || self.windows { None } else { Some(&self.of_table) }
    }

    fn judged(&self, judged: &Judged) -> Comparison {
        let more_blocks = judged.more_blocks.map(|blocks| blocks as u64);
        self.comparison(ratio(&judged.ratio), judged.verdict, more_blocks)
    }

    fn without_verdict(&self, repeats: &Repeats<'a>) -> Comparison {
        let ratios = repeats.ratios(&self.pair);
        let ratio = Ratio {
            range: range(&ratios),
            n: ratios.len() as u64,
            one_start: self.windows,
            ..Ratio::single(self.of_table.median())
        };
        self.comparison(ratio, Verdict::Undecided, None)
    }

    fn comparison(&self, ratio: Ratio, verdict: Verdict, more_blocks: Option<u64>) -> Comparison {
        Comparison {
            metric: self.pair.metric.to_owned(),
            axes: self.pair.axes.clone(),
            a: self.pair.a.to_owned(),
            b: self.pair.b.to_owned(),
            ratio,
            verdict,
            threshold: Some(self.threshold.fraction()),
            primary: self.primary,
            more_blocks,
            goal: None,
        }
    }
}

/// The repeats of a run, by system, block and place on the axes.
#[derive(Debug)]
struct Repeats<'a> {
    count: u32,
    /// The index of each place: a combination of axis values.
    places: HashMap<String, usize>,
    by_place: HashMap<(&'a str, u32, usize), &'a Outcome>,
    /// The systems with a measured repeat. `metrics` has each metric that a system measured, with
    /// the system.
    measured: HashSet<&'a str>,
    metrics: HashSet<(&'a str, &'a str)>,
}

impl<'a> Repeats<'a> {
    fn of(count: u32, outcomes: &'a [Outcome]) -> Self {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut by_place: HashMap<(&str, u32, usize), &Outcome> = HashMap::new();
        let (mut measured, mut metrics) = (HashSet::new(), HashSet::new());
        for outcome in outcomes {
            let system = outcome.system.as_str();
            let next = places.len();
            let place = *places.entry(place_name(&outcome.axes)).or_insert(next);
            by_place.entry((system, outcome.block, place)).or_insert(outcome);
            if let Some(found) = figures(outcome) {
                measured.insert(system);
                metrics.extend(found.metrics.keys().map(|metric| (system, metric.as_str())));
            }
        }
        Self { count, places, by_place, measured, metrics }
    }

    /// Returns the names of all metrics, sorted.
    fn names(&self) -> impl Iterator<Item = &'a str> + Clone {
        let mut names: Vec<&str> = self.metrics.iter().map(|(_, metric)| *metric).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// Returns a number for each metric: rows of the same metric have similar spreads.
    fn kind(&self, metric: &str) -> usize {
        self.names().position(|name| name == metric).unwrap_or(usize::MAX)
    }

    /// Returns the values of both systems, block by block, and whether the values are invalid. A
    /// repeat that failed, or that has no figure of the metric, is `None`. A pair with an invalid
    /// repeat is left out, because the machine disturbed the repeat. If all pairs are invalid,
    /// returns the invalid pairs. A pair is also left out if a repeat names the metric as missing,
    /// if neither repeat has the metric, or if this machine cannot measure one of the systems.
    fn pairs(&self, pair: &Pair<'_>) -> Option<(Vec<Option<table::Pair>>, bool)> {
        // If a measured system has the metric in no repeat, the metric does not apply to the
        // system.
        let applies = |system| {
            !self.measured.contains(system) || self.metrics.contains(&(system, pair.metric))
        };
        if !applies(pair.a) || !applies(pair.b) {
            return None;
        }
        let place = *self.places.get(&place_name(pair.axes))?;
        let (mut valid, mut invalid) = (Vec::new(), Vec::new());
        for block in 0..self.count {
            let pair = self.pair_of(pair, block, place);
            valid.push(pair.filter(|(_, valid)| *valid).map(|(values, _)| values));
            invalid.push(pair.filter(|(_, valid)| !valid).map(|(values, _)| values));
        }
        let has_pairs = |all: &[Option<table::Pair>]| all.iter().any(Option::is_some);
        match has_pairs(&valid) {
            true => Some((valid, false)),
            false => has_pairs(&invalid).then_some((invalid, true)),
        }
    }

    /// Returns the values of both systems in a block, and whether the values are valid.
    fn pair_of(&self, pair: &Pair<'_>, block: u32, place: usize) -> Option<(table::Pair, bool)> {
        let at = |system| self.at(system, block, place, pair.metric);
        let (a, b) = at(pair.a).zip(at(pair.b))?;
        let neither = a.has_figures && b.has_figures && a.value.is_none() && b.value.is_none();
        let is_pair = !a.is_missing && !b.is_missing && !neither;
        is_pair.then_some(((a.value, b.value), a.valid && b.valid))
    }

    /// Returns the ratio of each pair in which both systems have a figure, in the order of the
    /// blocks.
    fn ratios(&self, pair: &Pair<'_>) -> Vec<f64> {
        let pairs = self.pairs(pair).map(|(pairs, _)| pairs).unwrap_or_default();
        let ratio = |(a, b): table::Pair| Some(a? / b?);
        pairs.into_iter().flatten().filter_map(ratio).filter(|ratio| !ratio.is_nan()).collect()
    }

    /// Returns a system's repeat. `None` if the repeat was not run, or if this machine cannot
    /// measure the cell.
    fn at(&self, system: &str, block: u32, place: usize, metric: &str) -> Option<Repeat> {
        let outcome = self.by_place.get(&(system, block, place))?;
        if outcome.is_left_out() {
            return None;
        }
        let measured: Option<&Measurement> = figures(outcome);
        Some(Repeat {
            value: measured.and_then(|m| m.metrics.get(metric)).map(|value| value.value),
            valid: measured.is_none_or(|measured| measured.invalid.is_empty()),
            has_figures: measured.is_some(),
            is_missing: measured.is_some_and(|measured| {
                let mut named = measured.missing.iter().flat_map(|missing| &missing.metrics);
                named.any(|named| named == metric)
            }),
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Repeat {
    value: Option<f64>,
    valid: bool,
    has_figures: bool,
    /// Whether the repeat lists the metric as missing, with a reason.
    is_missing: bool,
}

#[cfg(test)]
mod tests;
