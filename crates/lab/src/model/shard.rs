//! A part of a run that a machine measures by itself. The parts of all machines together are the
//! plan of the whole run.

use super::checksum::sha256;
use super::file::Document;
use super::plan::{Plan, place_name};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A shard such as `2/16`: the second of sixteen parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    number: u32,
    of: u32,
}

impl Shard {
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Returns the number of all shards of the run.
    pub const fn of(self) -> u32 {
        self.of
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("a shard is I/N, as in 2/16, with I from 1 to N and N at most {MOST_SHARDS}")
        };
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let of: u32 = of.parse().map_err(|_| wrong())?;
        let is_fine = (1..=of).contains(&number) && of <= MOST_SHARDS;
        is_fine.then_some(Self { number, of }).ok_or_else(wrong)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Plan {
    /// Keeps only the steps of one shard. Keeps all cells, so that every shard has the whole table.
    pub(crate) fn keep_shard(&mut self, lab: &Document, shard: Shard) {
        let shards = self.shards(lab, shard.of);
        let mut own = shards.iter().map(|number| *number == shard.number);
        self.steps.retain(|_| own.next().unwrap_or(false));
    }

    /// Assigns each step to one of `of` shards, and returns the shard number of each step. All
    /// systems of a place and block stay together, because comparisons are paired within a block.
    /// The blocks of a place whose steps share a start stay together, and so do the two blocks of
    /// an order ABBA or BAAB. A hash of the lab file, the seed and the name assigns each place and
    /// block.
    pub(crate) fn shards(&self, lab: &Document, of: u32) -> Vec<u32> {
        let file = sha256(&*lab.text());
        let key = |cell: usize, block: u32| {
            let place = place_name(&self.cells[cell].axes);
            let block = match (lab.keeps_cells, lab.state.is_some()) {
                (true, _) => 0,
                (false, true) => block / 2,
                (false, false) => block,
            };
            sha256(format!("{file}\n{}\n{place}\n{block}", lab.seed))
        };
        let keys: Vec<String> = self.steps.iter().map(|step| key(step.cell, step.block)).collect();
        let sorted: BTreeMap<&str, ()> = keys.iter().map(|key| (key.as_str(), ())).collect();
        let numbers: BTreeMap<&str, u32> =
            sorted.into_keys().zip((1..=of.max(1)).cycle()).collect();
        keys.iter().map(|key| numbers[key.as_str()]).collect()
    }
}

/// Maximum number of shards. An array job of a cluster usually has fewer tasks.
const MOST_SHARDS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::builtin;
    use results::Form;

    #[test]
    fn a_shard_is_parsed_as_number_of_count() {
        assert_eq!("2/16".parse::<Shard>().unwrap().to_string(), "2/16");
        for wrong in ["", "2", "0/3", "4/3", "1/0", "-1/3", "1/3/5", "1/10001", "a/b"] {
            assert!(wrong.parse::<Shard>().unwrap_err().contains("as in 2/16"), "{wrong}");
        }
    }

    #[test]
    fn the_shards_make_up_the_plan_and_keep_pairs_together() {
        for (lab, of) in [("cc-grid", 1), ("cc-grid", 3), ("quic-tun", 16), ("before-after", 3)] {
            let lab = builtin::open(lab).unwrap();
            let systems: Vec<String> = lab.systems().map(|one| one.name().to_owned()).collect();
            let whole = Plan::new(&lab, Form::Full, &systems, Some(4));
            let mut parts = Vec::new();
            for number in 1..=of {
                let mut part = whole.clone();
                part.keep_shard(&lab, Shard { number, of });
                parts.push(part.steps);
            }
            let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
            assert_eq!(sizes.iter().sum::<usize>(), whole.steps.len());
            let groups = whole.steps.len() / systems.len();
            assert!(sizes.iter().all(|size| *size > 0) || groups < of as usize, "{sizes:?}");
            for (number, steps) in parts.iter().enumerate() {
                for step in steps {
                    assert!(whole.steps.contains(step));
                    let axes = &whole.cells[step.cell].axes;
                    let apart = parts.iter().enumerate().any(|(other, steps)| {
                        let is_pair = |one: &crate::model::plan::Step| {
                            one.block == step.block && whole.cells[one.cell].axes == *axes
                        };
                        other != number && steps.iter().any(is_pair)
                    });
                    assert!(!apart, "{step:?}");
                }
            }
        }
    }

    #[test]
    fn the_seed_decides_the_shard_of_each_step() {
        let mut lab = builtin::open("cc-grid").unwrap();
        let plan = Plan::new(&lab, Form::Quick, &["cubic".to_owned()], Some(4));
        let first = plan.shards(&lab, 3);
        assert_eq!(first, plan.shards(&lab, 3));
        lab.set_seed(lab.seed + 1).unwrap();
        assert_ne!(first, plan.shards(&lab, 3));
    }
}
