use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use flow::request::FlowEntry;

use super::rule::Rule;

/// A rule that was removed from its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    pub rule: FlowEntry,
    pub reason: RemovalReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    IdleTimeout,
    HardTimeout,
    Delete,
    /// The rule's group was deleted.
    GroupDelete,
    /// The rule's meter was deleted.
    MeterDelete,
    /// The rule's table was full.
    Eviction,
}

/// Rules with timeouts, by the earliest time at which one may expire.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
}

#[derive(Debug)]
struct Timer {
    at: u64,
    rule: Weak<Rule>,
}

impl Timers {
    pub(super) fn add(&mut self, rule: &Arc<Rule>) {
        if let Some((at, _)) = rule.deadline() {
            self.heap.push(Reverse(Timer { at, rule: Arc::downgrade(rule) }));
        }
    }

    /// Takes out a rule that may have expired. The caller checks the rule's deadline, and adds the
    /// rule to the timers again if the deadline is later.
    pub(super) fn due(&mut self, now_ms: u64) -> Option<Arc<Rule>> {
        while self.heap.peek().is_some_and(|Reverse(timer)| timer.at <= now_ms) {
            if let Some(rule) = self.heap.pop().and_then(|Reverse(timer)| timer.rule.upgrade()) {
                return Some(rule);
            }
        }
        None
    }

    /// Returns the earliest time at which `due` can return a rule.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(timer)| timer.at)
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}
