//! Learned rules that go with their teachers: `learn(delete_learned)`, ovs-actions(7).

use std::collections::HashMap;

use super::event::RuleEvent;
use super::expiry::{Removal, RemovalReason};
use super::rule::{Rule, any};
use super::tables::{TABLES, Tables, lock};
use crate::action::Action;

/// The rules that a learn action teaches: a table and a cookie.
type Lesson = (u8, u64);

/// The learn actions with `delete_learned` among all rules: how many teach each lesson.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    teachers: HashMap<Lesson, u32>,
}

impl Lessons {
    fn gain(&mut self, rule: &Rule) {
        for lesson in lessons(&rule.actions) {
            *self.teachers.entry(lesson).or_default() += 1;
        }
    }

    /// Returns the lessons that no rule teaches any more.
    fn lose(&mut self, rule: &Rule) -> Vec<Lesson> {
        let mut over = lessons(&rule.actions);
        over.retain(|lesson| {
            let Some(teachers) = self.teachers.get_mut(lesson) else { return false };
            *teachers -= 1;
            let is_over = *teachers == 0;
            if is_over {
                self.teachers.remove(lesson);
            }
            is_over
        });
        over
    }
}

impl Tables {
    /// Counts the teachers among rules that came and that went, and removes the rules that have
    /// lost their last one. Those may be teachers too.
    pub(super) fn settle_lessons<'a>(
        &self,
        came: impl Iterator<Item = &'a Rule>,
        went: impl Iterator<Item = &'a Rule>,
        now_ms: u64,
    ) {
        let mut over = Vec::new();
        {
            let mut lessons = lock(&self.lessons);
            came.for_each(|rule| lessons.gain(rule));
            went.for_each(|rule| over.extend(lessons.lose(rule)));
        }
        while let Some((number, cookie)) = over.pop() {
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
                over.extend(lock(&self.lessons).lose(&rule));
            }
        }
    }
}

fn lessons(actions: &[Action]) -> Vec<Lesson> {
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
