//! The rules that `learn(delete_learned)` actions have added: these rules are removed together with
//! the last such action (ovs-actions(7)).

use std::collections::HashMap;

use flow::action::Action;
use flow::request::TABLES;

use super::event::RuleEvent;
use super::expiry::{Removal, RemovalReason};
use super::rule::{Rule, any};
use super::tables::{Tables, lock};

/// The table and the cookie of the rules that a learn action adds.
type Target = (u8, u64);

/// The number of learn actions with `delete_learned` among all rules, by target.
#[derive(Debug, Default)]
pub(super) struct LearnedCookies {
    actions: HashMap<Target, u32>,
}

impl LearnedCookies {
    fn add(&mut self, rule: &Rule) {
        for target in targets(&rule.actions) {
            *self.actions.entry(target).or_default() += 1;
        }
    }

    /// Uncounts the rule's learn actions. Returns the targets for which no learn action is left.
    fn remove(&mut self, rule: &Rule) -> Vec<Target> {
        let mut unused = targets(&rule.actions);
        unused.retain(|target| {
            let Some(actions) = self.actions.get_mut(target) else { return false };
            *actions -= 1;
            let is_unused = *actions == 0;
            if is_unused {
                self.actions.remove(target);
            }
            is_unused
        });
        unused
    }
}

impl Tables {
    /// Updates the counts of groups, meters and learn actions for added and removed rules. Removes
    /// the learned rules whose last learn action is gone. The removed rules may themselves have
    /// learn actions.
    pub(super) fn count_rules<'a>(
        &self,
        came: impl Iterator<Item = &'a Rule>,
        went: impl Iterator<Item = &'a Rule>,
        now_ms: u64,
    ) {
        let mut unused = Vec::new();
        {
            let mut cookies = lock(&self.learned_cookies);
            let mut references = lock(&self.references);
            for rule in came {
                cookies.add(rule);
                references.add(rule);
            }
            for rule in went {
                unused.extend(cookies.remove(rule));
                references.remove(rule);
            }
        }
        while let Some((number, cookie)) = unused.pop() {
            if number >= TABLES {
                continue;
            }
            let mut table = self.table_mut(number);
            let learned = table.rules.iter().filter(|rule| rule.cookie == cookie);
            for rule in learned.cloned().collect::<Vec<_>>() {
                table.take(&rule);
                let reason = RemovalReason::Delete;
                self.record(|| Some(RuleEvent::Deleted { flow: rule.entry(now_ms), reason }));
                if rule.flags.send_flow_removed {
                    lock(&self.removals).push(Removal { rule: rule.entry(now_ms), reason });
                }
                unused.extend(lock(&self.learned_cookies).remove(&rule));
                lock(&self.references).remove(&rule);
            }
        }
    }
}

fn targets(actions: &[Action]) -> Vec<Target> {
    let found = std::cell::RefCell::new(Vec::new());
    any(actions, &|action| {
        if let Action::Learn(learn) = action
            && learn.delete_learned
        {
            found.borrow_mut().push((learn.table, learn.cookie));
        }
        false
    });
    found.into_inner()
}
