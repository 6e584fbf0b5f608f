//! Tuple space search: all rules with the same mask share a hash table. A lookup searches the
//! tables in the order of their highest priorities.

mod prefixes;
mod stages;
mod tuple;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flow::action::Action;
use flow::{Field, Key, Match, word};

use self::prefixes::{Addresses, Searches};
use self::tuple::Tuple;
use super::rule::{Mask, Rule};

/// The rules of one table of the pipeline.
#[derive(Debug, Default)]
pub struct Classifier {
    tuples: Vec<Tuple>,
    by_mask: HashMap<Key, usize>,
    /// Indexes of `tuples`, the highest priority first.
    order: Vec<usize>,
    addresses: Addresses,
    last: usize,
    rules: usize,
    conjunctive: usize,
}

impl Classifier {
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// Finds the rule of the highest priority that matches the packet. Adds to `mask` the bits of
    /// the key on which the result depends.
    #[must_use]
    pub fn lookup(&self, key: &Key, mask: &mut Key) -> Option<Arc<Rule>> {
        if self.conjunctive == 0 {
            return self.search(key, mask, None).cloned();
        }
        let mut soft = Vec::new();
        let hard = self.search(key, mask, Some(&mut soft)).cloned();
        soft.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        for rules in soft.chunk_by(|a, b| a.priority == b.priority) {
            let priority = rules[0].priority;
            if hard.as_ref().is_some_and(|hard| hard.priority >= priority) {
                break;
            }
            for id in complete_conjunctions(rules) {
                let mut key = key.clone();
                key.write(Field::ConjId, id.into());
                // The rule that matches on conj_id has no conjunction action, so this search treats
                // the rule as an ordinary rule.
                if let Some(rule) = self.search(&key, mask, Some(&mut Vec::new()))
                    && rule.priority >= priority
                {
                    return Some(rule.clone());
                }
            }
        }
        hard
    }

    /// Finds the rule with this match and priority.
    #[must_use]
    pub fn find(&self, matching: &Match, priority: u16) -> Option<&Arc<Rule>> {
        let tuple = &self.tuples[self.tuple_of(&matching.mask)?];
        tuple.equal(&matching.value).find(|rule| rule.priority == priority)
    }

    /// Returns the mask as an object that rules of this table share.
    pub(crate) fn mask(&self, mask: &Key) -> Arc<Mask> {
        match self.tuple_of(mask) {
            Some(index) => self.tuples[index].mask().clone(),
            None => Arc::new(Mask::new(mask)),
        }
    }

    /// Adds a rule. Returns the replaced rule, which had the same match and priority.
    pub fn insert(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let index = match self.tuple_of(&rule.mask.key) {
            Some(index) => index,
            None => {
                self.tuples.push(Tuple::new(rule.mask.clone()));
                let index = self.tuples.len() - 1;
                self.by_mask.insert(rule.mask.key.clone(), index);
                self.order.push(index);
                index
            }
        };
        self.last = index;
        self.conjunctive += usize::from(rule.is_conjunctive);
        let former_priority = self.tuples[index].highest_priority();
        let addresses = self.tuples[index].addresses_of(&rule.values);
        let replaced = self.tuples[index].insert(rule);
        match &replaced {
            Some(replaced) => self.conjunctive -= usize::from(replaced.is_conjunctive),
            None => {
                self.rules += 1;
                self.addresses.add(addresses, self.tuples[index].lengths());
            }
        }
        if self.tuples[index].highest_priority() != former_priority {
            self.sort();
        }
        replaced
    }

    /// Removes exactly this rule: a later rule with the same match and priority stays.
    pub fn remove(&mut self, rule: &Arc<Rule>) -> bool {
        let Some(index) = self.tuple_of(&rule.mask.key) else { return false };
        let former_priority = self.tuples[index].highest_priority();
        if !self.tuples[index].remove(rule) {
            return false;
        }
        self.rules -= 1;
        self.conjunctive -= usize::from(rule.is_conjunctive);
        let tuple = &self.tuples[index];
        self.addresses.remove(tuple.addresses_of(&rule.values), tuple.lengths());
        if self.tuples[index].is_empty() {
            self.by_mask.remove(&rule.mask.key);
            self.tuples.swap_remove(index);
            if let Some(moved) = self.tuples.get(index) {
                self.by_mask.insert(moved.mask().key.clone(), index);
            }
            self.order = (0..self.tuples.len()).collect();
            self.sort();
        } else if self.tuples[index].highest_priority() != former_priority {
            self.sort();
        }
        true
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.tuples.iter().flat_map(Tuple::iter)
    }

    /// Returns the rules that match only packets that `wider` matches.
    #[must_use]
    pub fn within(&self, wider: &Match) -> Vec<Arc<Rule>> {
        let mut found = Vec::new();
        for tuple in &self.tuples {
            if tuple.mask().key == wider.mask {
                found.extend(tuple.equal(&wider.value).cloned());
            } else if wider.mask.is_within(&tuple.mask().key) {
                let rules = tuple.iter().filter(|rule| rule.has_values_of(wider));
                found.extend(rules.cloned());
            }
        }
        found
    }

    /// Returns the number of masks and rules that [`Classifier::within`] checks. May return any
    /// number above `most` if there are more than `most`.
    #[must_use]
    pub fn search_length(&self, wider: &Match, most: usize) -> usize {
        let masks = self.tuples.len();
        if masks > most {
            return masks;
        }
        let rules = |tuple: &Tuple| {
            if tuple.mask().key == wider.mask {
                tuple.equal(&wider.value).count()
            } else if wider.mask.is_within(&tuple.mask().key) {
                tuple.len()
            } else {
                0
            }
        };
        masks + self.tuples.iter().map(rules).sum::<usize>()
    }

    /// Whether some packet matches both `matching` and a rule of this priority.
    #[must_use]
    pub fn overlaps(&self, matching: &Match, priority: u16) -> bool {
        self.tuples.iter().filter(|tuple| tuple.has_priority(priority)).any(|tuple| {
            let mut rules = tuple.iter().filter(|rule| rule.priority == priority);
            rules.any(|rule| rule.matching().overlaps(matching))
        })
    }

    fn search<'a>(
        &'a self,
        key: &Key,
        mask: &mut Key,
        mut soft: Option<&mut Vec<&'a Arc<Rule>>>,
    ) -> Option<&'a Arc<Rule>> {
        let mut best: Option<&Arc<Rule>> = None;
        let mut searches = Searches::new(&self.addresses);
        for index in &self.order {
            let tuple = &self.tuples[*index];
            if best.is_some_and(|best| best.priority >= tuple.highest_priority()) {
                break;
            }
            let former = mask.words[word::TP];
            let Some(hash) = tuple.probe(key, mask, &mut searches) else { continue };
            let mut is_any = false;
            for rule in tuple.at(hash).filter(|rule| rule.matches(key)) {
                is_any = true;
                if let (true, Some(soft)) = (rule.is_conjunctive, soft.as_deref_mut()) {
                    soft.push(rule);
                } else if best.is_none_or(|best| best.priority < rule.priority) {
                    best = Some(rule);
                }
            }
            if !is_any {
                // No rule matches. The mismatch shows in fewer port bits than the mask has.
                mask.words[word::TP] = former | tuple.ports_looked_at(key);
            }
        }
        best
    }

    fn tuple_of(&self, mask: &Key) -> Option<usize> {
        if self.tuples.get(self.last).is_some_and(|tuple| tuple.mask().key == *mask) {
            return Some(self.last);
        }
        self.by_mask.get(mask).copied()
    }

    fn sort(&mut self) {
        let tuples = &self.tuples;
        self.order.sort_by_key(|index| std::cmp::Reverse(tuples[*index].highest_priority()));
    }
}

/// Returns the complete conjunctions: those with a rule in `rules` for each of their clauses. All
/// these rules have the same priority.
fn complete_conjunctions(rules: &[&Arc<Rule>]) -> Vec<u32> {
    let mut clauses: BTreeMap<u32, (u64, u8)> = BTreeMap::new();
    for action in rules.iter().flat_map(|rule| rule.actions.iter()) {
        if let Action::Conjunction { id, clause, clauses: count } = action {
            let entry = clauses.entry(*id).or_insert((0, *count));
            entry.0 |= 1_u64.checked_shl((*clause).into()).unwrap_or(0);
        }
    }
    let complete = clauses.into_iter().filter(|(_, (seen, count))| {
        let all = 1_u64.checked_shl((*count).into()).unwrap_or(0).wrapping_sub(1);
        seen & all == all
    });
    complete.map(|(id, _)| id).collect()
}
