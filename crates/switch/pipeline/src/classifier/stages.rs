use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use flow::mix::{SEED, mix};
use flow::{Key, word};

use super::prefixes::{Lengths, Searches, has_addresses};
use crate::rule::Mask;

/// Sets of the possible values of the first words of a tuple's rules: metadata, then Ethernet, then
/// IP. If a packet's words are not in the set of a stage, no rule matches, and the search ignores
/// the later words.
#[derive(Debug)]
pub(super) struct Stages {
    /// For each stage except the last: the number of words up to the end of the stage, and the
    /// number of rules for each hash of these words.
    sets: Vec<(usize, Counts)>,
}

impl Stages {
    pub(super) fn new(mask: &Mask) -> Self {
        let mut sets: Vec<(usize, Counts)> = Vec::new();
        for first_of_next in [word::ETH_SRC, word::IPV4, word::TP] {
            let end = mask.words.partition_point(|(index, _)| usize::from(*index) < first_of_next);
            let former = sets.last().map_or(0, |(end, _)| *end);
            if end > former && end < mask.words.len() {
                sets.push((end, HashMap::default()));
            }
        }
        Self { sets }
    }

    pub(super) fn add(&mut self, values: &[u64]) {
        for (end, set) in &mut self.sets {
            *set.entry(hash_up_to(values, *end)).or_insert(0) += 1;
        }
    }

    pub(super) fn remove(&mut self, values: &[u64]) {
        for (end, set) in &mut self.sets {
            let hash = hash_up_to(values, *end);
            if let Some(count) = set.get_mut(&hash) {
                *count -= 1;
                if *count == 0 {
                    set.remove(&hash);
                }
            }
        }
    }

    pub(super) fn probe(
        &self,
        of: &Mask,
        lengths: Lengths,
        key: &Key,
        mask: &mut Key,
        searches: &mut Searches<'_>,
    ) -> Option<u32> {
        let mut exclude = |words: &[(u8, u64)], mask: &mut Key| {
            let is_their_stage = words.iter().any(|(index, _)| has_addresses(*index));
            is_their_stage && searches.exclude(lengths, key, mask)
        };
        let mut hash = SEED;
        let mut from = 0;
        for (end, set) in &self.sets {
            if exclude(&of.words[from..*end], mask) {
                return None;
            }
            hash = advance(hash, &of.words[from..*end], key, mask);
            from = *end;
            if !set.contains_key(&hash) {
                return None;
            }
        }
        if exclude(&of.words[from..], mask) {
            return None;
        }
        hash = advance(hash, &of.words[from..], key, mask);
        Some((hash >> 32) as u32)
    }
}

/// Returns the hash of all words of a rule.
pub(super) fn hash_all(values: &[u64]) -> u32 {
    (hash_up_to(values, values.len()) >> 32) as u32
}

fn hash_up_to(values: &[u64], end: usize) -> u64 {
    values[..end].iter().fold(SEED, |hash, word| mix(hash, *word))
}

fn advance(hash: u64, words: &[(u8, u64)], key: &Key, mask: &mut Key) -> u64 {
    words.iter().fold(hash, |hash, (index, bits)| {
        let index = usize::from(*index);
        mask.words[index] |= bits;
        mix(hash, key.words[index] & bits)
    })
}

type Counts = HashMap<u64, u32, BuildHasherDefault<Identity>>;

/// A hasher that returns its input: the keys are hashes already.
#[derive(Debug, Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| mix(hash, (*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
