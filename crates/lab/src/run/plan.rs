//! The cells that a run measures, and their order.

use crate::file::{CellFilter, FormSpec, LabFile};
use crate::run::Outcome;
use results::{Axes, Form};
use stats::order;
use std::collections::{BTreeSet, HashMap};
use toml::Spanned;
use units::Span;

/// One system under one combination of axis values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCell {
    pub system: String,
    pub axes: Axes,
}

/// One measurement of one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Index into [`Plan::cells`].
    pub cell: usize,
    /// Every block contains every cell once, in a random order. A block is one repeat.
    pub block: u32,
}

/// Everything a run will do.
#[derive(Debug, Clone)]
pub struct Plan {
    pub form: Form,
    pub duration: Span,
    pub omit: Span,
    pub repeats: u32,
    pub cells: Vec<PlannedCell>,
    pub steps: Vec<Step>,
}

impl Plan {
    /// `systems` are the systems of the file that can run here.
    pub fn new(lab: &LabFile, form: Form, systems: &[String], repeats: Option<u32>) -> Self {
        let spec = form_of(lab, form);
        let workload = lab.workload.get_ref();
        let omit = spec.omit.as_ref().or(workload.omit.as_ref()).map(|omit| *omit.get_ref());
        let repeats = repeats.unwrap_or(*spec.repeats.get_ref());
        let mut cells = Vec::new();
        for axes in places(lab, spec) {
            for system in systems {
                cells.push(PlannedCell { system: system.clone(), axes: axes.clone() });
            }
        }
        let steps = order::blocks(cells.len(), repeats as usize, lab.seed)
            .into_iter()
            .enumerate()
            .flat_map(|(block, cells)| {
                cells.into_iter().map(move |cell| Step { cell, block: block as u32 })
            })
            .collect();
        Self {
            form,
            duration: *spec.duration.get_ref(),
            omit: omit.unwrap_or(Span::ZERO),
            repeats,
            cells,
            steps,
        }
    }

    /// Sorts outcomes by the order of the steps, whichever step finished first.
    pub(crate) fn put_in_order(&self, outcomes: &mut [Outcome]) {
        let places: HashMap<String, usize> = self
            .steps
            .iter()
            .enumerate()
            .map(|(place, step)| {
                let cell = &self.cells[step.cell];
                (name_of(&cell.system, &cell.axes, step.block), place)
            })
            .collect();
        outcomes.sort_by_cached_key(|outcome| {
            places.get(&name_of(&outcome.system, &outcome.axes, outcome.block)).copied()
        });
    }

    /// The steps that have no outcome in `outcomes`.
    pub(crate) fn left(&self, outcomes: &[Outcome]) -> Vec<&Step> {
        let done: BTreeSet<String> =
            outcomes.iter().map(|done| name_of(&done.system, &done.axes, done.block)).collect();
        let left = |step: &&Step| {
            let cell = &self.cells[step.cell];
            !done.contains(&name_of(&cell.system, &cell.axes, step.block))
        };
        self.steps.iter().filter(left).collect()
    }

    /// Keeps only outcomes of steps in this plan.
    pub(crate) fn keep_own(&self, outcomes: &mut Vec<Outcome>) {
        let own: BTreeSet<String> = self
            .steps
            .iter()
            .map(|step| {
                let cell = &self.cells[step.cell];
                name_of(&cell.system, &cell.axes, step.block)
            })
            .collect();
        outcomes.retain(|one| own.contains(&name_of(&one.system, &one.axes, one.block)));
    }
}

/// A text that identifies a step.
fn name_of(system: &str, axes: &Axes, block: u32) -> String {
    let axes: Vec<String> = axes.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
    format!("{system};{block};{}", axes.join(";"))
}

/// The combinations of axis values that a form chooses. The last axis varies fastest.
pub(crate) fn places(lab: &LabFile, form: &FormSpec) -> Vec<Axes> {
    written_out(lab, chosen(lab, form))
}

/// The places of all forms.
pub(crate) fn all_places(lab: &LabFile) -> Vec<Axes> {
    written_out(lab, lab.form.values().flat_map(|form| chosen(lab, form)).collect())
}

/// For each value that no place in `places` has, the first of them with that value put in.
pub(crate) fn of_other_values(lab: &LabFile, places: &[Axes]) -> Vec<Axes> {
    let Some(first) = places.first() else { return Vec::new() };
    let values = lab.axes.iter().flat_map(|(axis, values)| {
        values.get_ref().iter().map(move |value| (axis, value.get_ref()))
    });
    values
        .filter(|(axis, value)| !places.iter().any(|axes| axes.get(*axis) == Some(*value)))
        .map(|(axis, value)| {
            let mut other = first.clone();
            other.insert(axis.clone(), value.clone());
            other
        })
        .collect()
}

/// The number of combinations that `filter` chooses.
pub(crate) fn count(lab: &LabFile, filter: &CellFilter) -> usize {
    choices(lab, filter).iter().map(Vec::len).fold(1, usize::saturating_mul)
}

/// Whether `filter` chooses the cell at `axes`.
pub(crate) fn agrees(lab: &LabFile, filter: &CellFilter, axes: &Axes) -> bool {
    axes.iter().all(|(axis, value)| match named(filter, axis) {
        Some(values) => values.iter().any(|one| one.get_ref() == value),
        None => usual(lab, axis).is_none_or(|usual| usual == value),
    })
}

/// The value of `axis` where a choice of cells does not name it.
pub(crate) fn usual<'a>(lab: &'a LabFile, axis: &str) -> Option<&'a str> {
    lab.usual.get(axis).map(|value| value.get_ref().as_str())
}

fn named<'a>(filter: &'a CellFilter, axis: &str) -> Option<&'a Vec<Spanned<String>>> {
    filter.get(axis)
}

/// The chosen places by the indices of their values, in the order of the axes.
fn chosen(lab: &LabFile, form: &FormSpec) -> BTreeSet<Vec<usize>> {
    let all = lab.axes.values().map(|values| (0..values.get_ref().len()).collect());
    match form.cells.as_slice() {
        [] => product(&all.collect::<Vec<_>>()),
        filters => filters.iter().flat_map(|filter| product(&choices(lab, filter))).collect(),
    }
}

/// For each axis the indices of the values that `filter` leaves.
fn choices(lab: &LabFile, filter: &CellFilter) -> Vec<Vec<usize>> {
    lab.axes
        .iter()
        .map(|(axis, values)| {
            let values = values.get_ref().iter().map(|value| value.get_ref().as_str());
            let wanted = |value: &str| match named(filter, axis) {
                Some(named) => named.iter().any(|one| one.get_ref() == value),
                None => usual(lab, axis).is_none_or(|usual| usual == value),
            };
            values.enumerate().filter(|(_, value)| wanted(value)).map(|(place, _)| place).collect()
        })
        .collect()
}

fn product(choices: &[Vec<usize>]) -> BTreeSet<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for places in choices {
        all = all
            .into_iter()
            .flat_map(|before: Vec<usize>| {
                places.iter().map(move |place| [before.as_slice(), &[*place]].concat())
            })
            .collect();
    }
    all.into_iter().collect()
}

fn written_out(lab: &LabFile, places: BTreeSet<Vec<usize>>) -> Vec<Axes> {
    let written = |place: Vec<usize>| {
        let values = place.into_iter().zip(&lab.axes);
        let value = values.filter_map(|(place, (axis, values))| {
            Some((axis.clone(), values.get_ref().get(place)?.get_ref().clone()))
        });
        value.collect()
    };
    places.into_iter().map(written).collect()
}

/// The seed of a step's random streams. It is equal for every system at the same place and repeat,
/// so that systems see the same losses.
pub(crate) fn seed_of(lab: &LabFile, cell: &PlannedCell, block: u32) -> u64 {
    // FNV-1a is stable across versions and platforms, unlike the standard library's hasher.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ lab.seed;
    let text = cell
        .axes
        .iter()
        .flat_map(|(axis, value)| [axis, "=", value, ";"].map(str::as_bytes).concat());
    for byte in text.chain(block.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

fn form_of(lab: &LabFile, form: Form) -> &FormSpec {
    let named = |name: &str| lab.form.iter().find(|(key, _)| key.get_ref() == name).map(|(_, f)| f);
    match named(form.word()).or_else(|| named("full")) {
        Some(spec) => spec,
        // `check` refuses a file without a full form.
        None => unreachable!("a checked lab file has a full form"),
    }
}
