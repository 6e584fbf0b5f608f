use std::collections::BTreeMap;
use std::sync::Arc;

use flow::{Key, word};

use super::prefixes::{Addresses, Lengths, Prefixes, Searches, Value, Values};
use super::stages::{Stages, hash_all};
use crate::rule::{Mask, Rule};

/// The rules with one mask, in a hash table with open addressing. Rules that differ only in their
/// priority have the same hash.
#[derive(Debug)]
pub(super) struct Tuple {
    mask: Arc<Mask>,
    stages: Stages,
    /// The length is a power of two. At most three quarters of the slots are used.
    slots: Vec<Option<(u32, Arc<Rule>)>>,
    rules: usize,
    priorities: BTreeMap<u16, usize>,
    lengths: Lengths,
    /// The ports of the rules; `None` if the mask has no port bits.
    ports: Option<Ports>,
}

/// The source and destination ports as one number, the source first.
#[derive(Debug)]
struct Ports {
    mask: u32,
    /// The number of leading bits up to the last bit of the mask.
    length: u8,
    values: Prefixes<u32>,
}

impl Tuple {
    pub(super) fn new(mask: Arc<Mask>) -> Self {
        let lengths = Addresses::lengths(&mask.key);
        let ports = ports_in(&mask.key);
        Self {
            stages: Stages::new(&mask),
            mask,
            slots: vec![None; 4],
            rules: 0,
            priorities: BTreeMap::new(),
            lengths,
            ports: (ports != 0).then(|| Ports {
                mask: ports,
                length: 32 - ports.trailing_zeros() as u8,
                values: Prefixes::default(),
            }),
        }
    }

    pub(super) fn mask(&self) -> &Arc<Mask> {
        &self.mask
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules == 0
    }

    pub(super) fn len(&self) -> usize {
        self.rules
    }

    pub(super) fn highest_priority(&self) -> u16 {
        self.priorities.last_key_value().map_or(0, |(priority, _)| *priority)
    }

    pub(super) fn has_priority(&self, priority: u16) -> bool {
        self.priorities.contains_key(&priority)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.slots.iter().flatten().map(|(_, rule)| rule)
    }

    /// Returns the packet's hash, or `None` if the packet's first words already show that no rule
    /// matches. Adds to `mask` the bits that the search has read.
    pub(super) fn probe(
        &self,
        key: &Key,
        mask: &mut Key,
        searches: &mut Searches<'_>,
    ) -> Option<u32> {
        self.stages.probe(&self.mask, self.lengths, key, mask, searches)
    }

    /// Returns the lengths of the address prefixes that the rules match.
    pub(super) fn lengths(&self) -> Lengths {
        self.lengths
    }

    /// Returns the addresses that a rule matches.
    pub(super) fn addresses_of(&self, values: &[u64]) -> Values {
        if self.lengths == [0; 4] {
            return Values::default();
        }
        Values::of(|index| self.value_of(index, values))
    }

    /// Returns the bits of the packet's ports that decide whether a rule can match the packet. The
    /// result is a mask for the key's word of ports.
    pub(super) fn ports_looked_at(&self, key: &Key) -> u64 {
        let Some(ports) = &self.ports else { return 0 };
        let found = ports.values.search(ports_in(key) & ports.mask);
        u64::from(ports.mask & u32::ones(found.depth)) << PORTS
    }

    fn value_of(&self, wanted: usize, values: &[u64]) -> u64 {
        let place = self.mask.words.iter().position(|(index, _)| usize::from(*index) == wanted);
        place.and_then(|place| values.get(place)).copied().unwrap_or(0)
    }

    /// Returns all rules with this hash. May also return other rules.
    pub(super) fn at(&self, hash: u32) -> impl Iterator<Item = &Arc<Rule>> {
        let start = hash as usize;
        let slots = (0..self.slots.len()).map(move |step| &self.slots[self.index(start + step)]);
        let used = slots.map_while(Option::as_ref);
        used.filter(move |(other, _)| *other == hash).map(|(_, rule)| rule)
    }

    /// Returns the rules with this value.
    pub(super) fn equal(&self, value: &Key) -> impl Iterator<Item = &Arc<Rule>> {
        let values = self.mask.pack(value);
        let hash = hash_all(&values);
        self.at(hash).filter(move |rule| rule.values == values)
    }

    pub(super) fn insert(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let hash = hash_all(&rule.values);
        let mut index = self.index(hash as usize);
        while let Some((other, former)) = &mut self.slots[index] {
            if *other == hash && former.priority == rule.priority && former.values == rule.values {
                return Some(std::mem::replace(former, rule));
            }
            index = self.index(index + 1);
        }
        self.rules += 1;
        *self.priorities.entry(rule.priority).or_insert(0) += 1;
        self.stages.add(&rule.values);
        let value = (self.value_of(word::TP, &rule.values) >> PORTS) as u32;
        if let Some(ports) = &mut self.ports {
            ports.values.add(value, ports.length);
        }
        self.slots[index] = Some((hash, rule));
        if self.rules * 4 > self.slots.len() * 3 {
            self.resize(self.slots.len() * 2);
        }
        None
    }

    pub(super) fn remove(&mut self, rule: &Arc<Rule>) -> bool {
        let mut index = self.index(hash_all(&rule.values) as usize);
        loop {
            match &self.slots[index] {
                None => return false,
                Some((_, other)) if Arc::ptr_eq(other, rule) => break,
                Some(_) => index = self.index(index + 1),
            }
        }
        self.slots[index] = None;
        self.close_gap(index);
        self.rules -= 1;
        self.stages.remove(&rule.values);
        let value = (self.value_of(word::TP, &rule.values) >> PORTS) as u32;
        if let Some(ports) = &mut self.ports {
            ports.values.remove(value, ports.length);
        }
        if let Some(count) = self.priorities.get_mut(&rule.priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&rule.priority);
            }
        }
        if self.slots.len() > 64 && self.rules * 8 < self.slots.len() {
            self.resize(self.slots.len() / 4);
        }
        true
    }

    /// Moves later entries back into the freed slot, so that no search stops there too early.
    fn close_gap(&mut self, mut gap: usize) {
        let mut index = gap;
        loop {
            index = self.index(index + 1);
            let Some((hash, _)) = &self.slots[index] else { return };
            let home = self.index(*hash as usize);
            let distance = |from: usize, to: usize| self.index(to.wrapping_sub(from));
            if distance(home, index) >= distance(gap, index) {
                self.slots.swap(gap, index);
                gap = index;
            }
        }
    }

    fn resize(&mut self, size: usize) {
        let former = std::mem::replace(&mut self.slots, vec![None; size]);
        for (hash, rule) in former.into_iter().flatten() {
            let mut index = self.index(hash as usize);
            while self.slots[index].is_some() {
                index = self.index(index + 1);
            }
            self.slots[index] = Some((hash, rule));
        }
    }

    fn index(&self, number: usize) -> usize {
        number & (self.slots.len() - 1)
    }
}

fn ports_in(key: &Key) -> u32 {
    (key.words[word::TP] >> PORTS) as u32
}

/// The lowest bit of the ports in the key's word for ports.
const PORTS: u32 = 32;
