//! Counts the rules that name each group and meter, so that replies need no search of the rules.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use flow::action::Action;

use super::rule::{Rule, any};

/// A group or meter that an action names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Named {
    Group(u32),
    Meter(u32),
}

/// The counts are signed: if two threads replace a rule one after the other, a removal may be
/// counted before the addition of the same rule.
#[derive(Debug, Default)]
pub(super) struct References(HashMap<Named, i64>);

impl References {
    pub(super) fn add(&mut self, rule: &Rule) {
        self.change(rule, 1);
    }

    pub(super) fn remove(&mut self, rule: &Rule) {
        self.change(rule, -1);
    }

    /// Returns the number of rules that name a group or meter.
    pub(super) fn of(&self, named: Named) -> u32 {
        self.0.get(&named).map_or(0, |rules| u32::try_from(*rules).unwrap_or(0))
    }

    fn change(&mut self, rule: &Rule, by: i64) {
        for named in named_by(rule) {
            let rules = self.0.entry(named).or_insert(0);
            *rules += by;
            if *rules == 0 {
                self.0.remove(&named);
            }
        }
    }
}

/// Returns the groups and meters that a rule names, each once.
fn named_by(rule: &Rule) -> BTreeSet<Named> {
    let found = RefCell::new(BTreeSet::new());
    any(&rule.actions, &|action| {
        found.borrow_mut().extend(match action {
            Action::Group(group) => Some(Named::Group(*group)),
            Action::Meter(meter) => Some(Named::Meter(*meter)),
            _ => None,
        });
        false
    });
    found.into_inner()
}
