//! The cells that a run measures, and their order.

use crate::model::Outcome;
use crate::model::file::Document;
use crate::model::file::{FormSpec, axes};
use results::{Axes, Form};
use stats::order;
use std::collections::{BTreeSet, HashMap};
use units::Span;

/// A cell: a system under a combination of axis values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCell {
    pub system: String,
    pub axes: Axes,
}

/// A step of a run: one measurement of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The index of the step's cell in [`Plan::cells`].
    pub cell: usize,
    /// The number of the repeat. Every block contains every cell once, in a random order. If the
    /// steps of a cell share programs or tables, the blocks of one cell precede the blocks of the
    /// next cell.
    pub block: u32,
}

/// The steps of a run, and their conditions.
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
    /// Plans the run. `systems` are the systems of the file that can run here.
    pub fn new(lab: &Document, form: Form, systems: &[String], repeats: Option<u32>) -> Self {
        let spec = form_of(lab, form);
        let workload = lab.workload.get_ref();
        let omit = spec.omit.as_ref().or(workload.omit.as_ref()).map(|omit| *omit.get_ref());
        let repeats = repeats.unwrap_or(*spec.repeats.get_ref());
        let mut cells = Vec::new();
        for axes in axes::places(lab, spec) {
            for system in systems {
                cells.push(PlannedCell { system: system.clone(), axes: axes.clone() });
            }
        }
        let state = lab.state.as_ref().filter(|_| systems.len() == 2);
        let steps = match (lab.keeps_cells, state) {
            (false, Some(state)) => {
                abba(cells.len() / 2, repeats, state.get_ref().places(), lab.seed)
            }
            (false, None) => blocks(cells.len(), repeats, lab.seed),
            (true, _) => place_by_place(cells.len(), systems.len(), repeats, lab.seed),
        };
        Self {
            form,
            duration: *spec.duration.get_ref(),
            omit: omit.unwrap_or(Span::ZERO),
            repeats,
            cells,
            steps,
        }
    }

    /// Returns the systems that the plan measures, in the order of the file.
    pub(crate) fn systems(&self) -> Vec<String> {
        let mut systems: Vec<String> = Vec::new();
        for cell in &self.cells {
            if !systems.contains(&cell.system) {
                systems.push(cell.system.clone());
            }
        }
        systems
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
        outcomes.sort_by_cached_key(|outcome| places.get(&outcome.step_name()).copied());
    }

    /// Returns the steps that have no outcome in `outcomes`.
    pub(crate) fn left(&self, outcomes: &[Outcome]) -> Vec<&Step> {
        let done: BTreeSet<String> = outcomes.iter().map(Outcome::step_name).collect();
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
        outcomes.retain(|one| own.contains(&one.step_name()));
    }
}

/// Plans blocks of all cells, each block in a random order of its own.
fn blocks(cells: usize, repeats: u32, seed: u64) -> Vec<Step> {
    let blocks = order::blocks(cells, repeats as usize, seed).into_iter().zip(0..);
    let steps =
        blocks.flat_map(|(order, block)| order.into_iter().map(move |cell| Step { cell, block }));
    steps.collect()
}

/// Plans pairs of blocks. A pair measures each group of places four times in a row, in the random
/// order ABBA or BAAB of the states. The second half has the places in reverse order. Therefore a
/// steady drift of the machine affects both states of each place alike. In each block, the turns of
/// a place in both states are one group's length apart. With an odd number of blocks, the last
/// block has the order AB or BA.
fn abba(places: usize, repeats: u32, in_group: usize, seed: u64) -> Vec<Step> {
    let pairs = repeats.div_ceil(2);
    let orders = order::blocks(places, pairs as usize, seed);
    // Divide the places into groups of nearly equal size.
    let groups = places.div_ceil(in_group).max(1);
    let in_group = places.div_ceil(groups).max(1);
    let mut first_states =
        order::blocks(2, orders.len() * groups, seed.wrapping_add(1)).into_iter();
    let mut steps = Vec::new();
    for (pair, places) in (0..).zip(orders) {
        for group in places.chunks(in_group) {
            let first = first_states.next().and_then(|order| order.first().copied()).unwrap_or(0);
            let (early, late) = (2 * pair, 2 * pair + 1);
            let quarters = [(first, early), (1 - first, early), (1 - first, late), (first, late)];
            for (state, block) in quarters.into_iter().filter(|(_, block)| *block < repeats) {
                let step = |place: &usize| Step { cell: 2 * place + state, block };
                match block == early {
                    true => steps.extend(group.iter().map(step)),
                    false => steps.extend(group.iter().rev().map(step)),
                }
            }
        }
    }
    steps
}

/// Plans all repeats of a cell before the next cell. Cells that differ only in their system are
/// shuffled among themselves.
fn place_by_place(cells: usize, systems: usize, repeats: u32, seed: u64) -> Vec<Step> {
    let systems = systems.max(1);
    let orders = order::blocks(systems, cells.div_ceil(systems), seed);
    let cells = (0..)
        .step_by(systems)
        .zip(orders)
        .flat_map(|(first, order)| order.into_iter().map(move |system| first + system));
    cells.flat_map(|cell| (0..repeats).map(move |block| Step { cell, block })).collect()
}

/// Returns a text that identifies a step.
pub(crate) fn name_of(system: &str, axes: &Axes, block: u32) -> String {
    format!("{system};{block};{}", place_name(axes))
}

/// Returns a text that identifies a place on the axes: `loss=1%;rtt=20ms`.
pub(crate) fn place_name(axes: &Axes) -> String {
    let axes: Vec<String> = axes.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
    axes.join(";")
}

/// Returns the seed of a step's random streams. All systems at the same place and repeat have equal
/// seeds, and so the same losses.
pub(crate) fn seed_of(lab: &Document, cell: &PlannedCell, block: u32) -> u64 {
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

/// Returns the file's settings of a form. In a file without a short form, these are the settings of
/// the full form.
pub(crate) fn form_of(lab: &Document, form: Form) -> &FormSpec {
    let named = |name: &str| lab.form.iter().find(|(key, _)| key.get_ref() == name).map(|(_, f)| f);
    match named(form.word()).or_else(|| named("full")) {
        Some(spec) => spec,
        // `check` refuses a file without a full form.
        None => unreachable!("a checked lab file has a full form"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_alternate_as_abba_or_baab_and_every_block_has_every_cell() {
        for (repeats, in_group) in [(1, 1), (2, 3), (5, 1), (5, 4), (6, 100)] {
            let steps = abba(7, repeats, in_group, 3);
            assert_eq!(steps.len(), 14 * repeats as usize);
            for block in 0..repeats {
                let mut cells: Vec<usize> =
                    steps.iter().filter(|step| step.block == block).map(|step| step.cell).collect();
                cells.sort_unstable();
                assert_eq!(cells, (0..14).collect::<Vec<_>>());
            }
        }
        let steps = abba(7, 6, 1, 3);
        let mut firsts = BTreeSet::new();
        for four in steps.chunks(4) {
            let cells: Vec<usize> = four.iter().map(|step| step.cell).collect();
            assert_eq!((cells[0], cells[1]), (cells[3], cells[2]));
            assert_eq!(cells[0] / 2, cells[1] / 2);
            assert!(four[0].block == four[1].block && four[2].block == four[3].block);
            firsts.insert(cells[0] % 2);
        }
        assert_eq!(firsts.len(), 2, "both orders occur");
    }

    #[test]
    fn all_axis_places_of_a_group_run_between_two_state_changes() {
        let steps = abba(61, 6, 10, 3);
        let states: Vec<usize> = steps.iter().map(|step| step.cell % 2).collect();
        let changes = states.windows(2).filter(|two| two[0] != two[1]).count();
        assert!(changes <= 7 * 3 * 3, "{changes} changes");
        // A steady drift affects both states of each place alike, because both have the same mean
        // position.
        for place in 0..61 {
            for pair in 0..3 {
                let sum = |state: usize| -> usize {
                    let own =
                        |step: &Step| step.cell == 2 * place + state && step.block / 2 == pair;
                    (0..steps.len()).filter(|at| own(&steps[*at])).sum()
                };
                assert_eq!(sum(0), sum(1), "place {place}, pair {pair}");
            }
        }
    }
}
