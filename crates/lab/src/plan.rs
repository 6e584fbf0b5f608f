//! Which cells a run measures, and in which order.

use crate::file::{CellFilter, FormSpec, LabFile};
use crate::outcome::Outcome;
use crate::stats::order;
use report::{Axes, Form};
use units::Span;

/// One system under one combination of axis values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCell {
    pub system: String,
    pub axes: Axes,
}

/// One measurement of one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Index into [`Plan::cells`].
    pub cell: usize,
    /// Every block holds every cell once, in an order of its own; a block is one repeat.
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
    pub turns: Vec<Turn>,
}

impl Plan {
    /// `systems` are those of the file that can run here.
    pub fn new(lab: &LabFile, form: Form, systems: &[String], repeats: Option<u32>) -> Self {
        let spec = form_of(lab, form);
        let workload = lab.workload.get_ref();
        let omit = spec.omit.as_ref().or(workload.omit.as_ref()).map(|omit| *omit.get_ref());
        let repeats = repeats.unwrap_or(*spec.repeats.get_ref());
        let mut cells = Vec::new();
        for axes in combinations(lab).into_iter().filter(|axes| wanted(axes, &spec.cells)) {
            for system in systems {
                cells.push(PlannedCell { system: system.clone(), axes: axes.clone() });
            }
        }
        let turns = order::blocks(cells.len(), repeats as usize, lab.seed)
            .into_iter()
            .enumerate()
            .flat_map(|(block, cells)| {
                cells.into_iter().map(move |cell| Turn { cell, block: block as u32 })
            })
            .collect();
        Self {
            form,
            duration: *spec.duration.get_ref(),
            omit: omit.unwrap_or(Span::ZERO),
            repeats,
            cells,
            turns,
        }
    }

    /// Whether `outcome` is what came of `turn`.
    pub fn is_turn_of(&self, turn: &Turn, outcome: &Outcome) -> bool {
        let cell = &self.cells[turn.cell];
        outcome.block == turn.block && outcome.system == cell.system && outcome.axes == cell.axes
    }

    /// What came of the turns in the order of the turns, whoever was done first.
    pub(crate) fn put_in_order(&self, outcomes: &mut [Outcome]) {
        outcomes.sort_by_cached_key(|outcome| {
            self.turns.iter().position(|turn| self.is_turn_of(turn, outcome))
        });
    }
}

/// Every combination of the file's axis values, the last axis turning fastest.
pub(crate) fn combinations(lab: &LabFile) -> Vec<Axes> {
    let mut all = vec![Axes::new()];
    for (axis, values) in &lab.axes {
        all = all
            .into_iter()
            .flat_map(|axes| {
                values.get_ref().iter().map(move |value| {
                    let mut axes = axes.clone();
                    axes.insert(axis.clone(), value.get_ref().clone());
                    axes
                })
            })
            .collect();
    }
    all
}

/// What sets a turn's random streams: the same for every system at the same place and repeat, so that
/// systems meet the same losses.
pub(crate) fn seed_of(lab: &LabFile, cell: &PlannedCell, block: u32) -> u64 {
    // FNV-1a: stable across versions and platforms, unlike the standard library's hasher.
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

fn wanted(axes: &Axes, filters: &[CellFilter]) -> bool {
    filters.is_empty()
        || filters.iter().any(|filter| {
            filter.iter().all(|(axis, values)| {
                values.iter().any(|value| axes.get(axis.get_ref()) == Some(value.get_ref()))
            })
        })
}
