use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::{FlowEntry, FlowFilter, FlowFlags, FlowMod};
use flow::step::Counters;
use flow::{Key, Match, WORDS};

/// A mask, and the words that it uses.
#[derive(Debug, PartialEq, Eq)]
pub struct Mask {
    pub key: Key,
    /// The indices of the used words, ascending, each with the mask's bits in the word.
    pub words: Box<[(u8, u64)]>,
}

impl Mask {
    #[must_use]
    pub fn new(key: &Key) -> Self {
        let words = (0..WORDS).filter(|index| key.words[*index] != 0);
        Self {
            key: key.clone(),
            words: words.map(|index| (index as u8, key.words[index])).collect(),
        }
    }

    /// Returns the masked words of `key` that the mask uses.
    #[must_use]
    pub fn pack(&self, key: &Key) -> Box<[u64]> {
        self.words.iter().map(|(index, mask)| key.words[usize::from(*index)] & mask).collect()
    }
}

/// A rule of a table.
#[derive(Debug)]
pub struct Rule {
    pub(crate) mask: Arc<Mask>,
    pub(crate) values: Box<[u64]>,
    pub table: u8,
    pub priority: u16,
    pub importance: u16,
    pub(crate) idle_timeout: AtomicU16,
    pub(crate) hard_timeout: AtomicU16,
    pub flags: FlowFlags,
    pub(crate) is_conjunctive: bool,
    pub cookie: u64,
    pub created_ms: u64,
    pub modified_ms: u64,
    /// The number of the change that added the rule, and the number of its last change.
    pub(crate) added: u64,
    pub changed: u64,
    pub actions: Arc<[Action]>,
    pub counters: Arc<Counters>,
    /// Counters whose time is the time at which a learn action last confirmed the rule. Megaflows
    /// of packets that would learn the rule again add to these counters.
    pub(crate) refreshed: OnceLock<Arc<Counters>>,
}

impl Rule {
    pub(crate) fn new(mask: Arc<Mask>, table: u8, change: &FlowMod, now_ms: u64) -> Self {
        let counters = Counters::default();
        counters.used.store(now_ms, Ordering::Relaxed);
        Self {
            values: mask.pack(&change.matching.value),
            mask,
            table,
            priority: change.priority,
            importance: change.importance,
            idle_timeout: AtomicU16::new(change.idle_timeout),
            hard_timeout: AtomicU16::new(change.hard_timeout),
            flags: change.flags,
            is_conjunctive: is_conjunctive(&change.actions),
            cookie: change.cookie.unwrap_or(0),
            created_ms: now_ms,
            modified_ms: now_ms,
            added: 0,
            changed: 0,
            actions: change.actions.as_slice().into(),
            counters: Arc::new(counters),
            refreshed: OnceLock::new(),
        }
    }

    /// Returns new counters of zero that keep the time of the last packet.
    pub(crate) fn reset_counters(&self) -> Arc<Counters> {
        let counters = Counters::default();
        counters.used.store(self.counters.used.load(Ordering::Relaxed), Ordering::Relaxed);
        Arc::new(counters)
    }

    /// Builds a copy of the rule with other actions, and with the cookie and counters that follow
    /// from the change.
    pub(crate) fn modified(&self, change: &FlowMod, actions: &Arc<[Action]>, now_ms: u64) -> Self {
        let counters = match change.flags.reset_counts {
            true => self.reset_counters(),
            false => self.counters.clone(),
        };
        Self {
            mask: self.mask.clone(),
            values: self.values.clone(),
            table: self.table,
            priority: self.priority,
            importance: self.importance,
            idle_timeout: AtomicU16::new(self.idle_timeout()),
            hard_timeout: AtomicU16::new(self.hard_timeout()),
            flags: self.flags,
            is_conjunctive: is_conjunctive(actions),
            cookie: change.cookie.filter(|_| !change.keeps_cookie).unwrap_or(self.cookie),
            created_ms: self.created_ms,
            modified_ms: now_ms,
            added: self.added,
            changed: self.changed,
            actions: actions.clone(),
            counters,
            refreshed: self.refreshed.clone(),
        }
    }

    #[must_use]
    pub fn matching(&self) -> Match {
        let mut value = Key::ZERO;
        for ((index, _), word) in self.mask.words.iter().zip(&self.values) {
            value.words[usize::from(*index)] = *word;
        }
        Match { value, mask: self.mask.key.clone() }
    }

    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        let words = self.mask.words.iter().zip(&self.values);
        words
            .into_iter()
            .all(|((index, mask), word)| key.words[usize::from(*index)] & mask == *word)
    }

    /// Whether a filter selects the rule.
    #[must_use]
    pub fn is_taken_by(&self, filter: &FlowFilter) -> bool {
        filter.table.is_none_or(|table| table == self.table)
            && filter.cookie.takes(self.cookie)
            && filter.matching.mask.is_within(&self.mask.key)
            && self.has_values_of(&filter.matching)
            && self.sends_to(filter.out_port)
            && self.has_group(filter.out_group)
    }

    /// Whether the rule matches the values of `wider`, whose mask must be within the rule's mask.
    #[must_use]
    pub(crate) fn has_values_of(&self, wider: &Match) -> bool {
        self.mask.words.iter().zip(&self.values).all(|((index, _), word)| {
            let index = usize::from(*index);
            word & wider.mask.words[index] == wider.value.words[index]
        })
    }

    /// Whether the rule is a table-miss rule: priority 0, and a match of all packets.
    #[must_use]
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.mask.words.is_empty()
    }

    /// Returns the idle timeout in seconds; 0 without an idle timeout.
    #[must_use]
    pub fn idle_timeout(&self) -> u16 {
        self.idle_timeout.load(Ordering::Relaxed)
    }

    /// Returns the hard timeout in seconds; 0 without a hard timeout.
    #[must_use]
    pub fn hard_timeout(&self) -> u16 {
        self.hard_timeout.load(Ordering::Relaxed)
    }

    /// Returns the time of the last change, or of the last packet that would have learned the rule
    /// again.
    #[must_use]
    pub fn confirmed_ms(&self) -> u64 {
        let refreshed = self.refreshed.get().map_or(0, |at| at.used.load(Ordering::Relaxed));
        self.modified_ms.max(refreshed)
    }

    /// Returns the time at which the rule expires if no further packet comes, and whether its idle
    /// timeout is the reason. As in Open vSwitch, a rule expires only when more time than its
    /// timeout has passed.
    #[must_use]
    pub fn deadline(&self) -> Option<(u64, bool)> {
        let after = |seconds: u16, since: u64| {
            (seconds != 0).then(|| since.saturating_add(u64::from(seconds) * 1000 + 1))
        };
        let hard = after(self.hard_timeout(), self.confirmed_ms()).map(|at| (at, false));
        let used = self.counters.used.load(Ordering::Relaxed).max(self.created_ms);
        let idle = after(self.idle_timeout(), used).map(|at| (at, true));
        match (hard, idle) {
            (Some(hard), Some(idle)) => Some(if idle.0 < hard.0 { idle } else { hard }),
            (hard, idle) => hard.or(idle),
        }
    }

    /// Whether an action outputs to `port`, at once or through the action set.
    #[must_use]
    pub fn sends_to(&self, port: PortNumber) -> bool {
        port == PortNumber::NONE || any(&self.actions, &|action| action.sends_to(port))
    }

    #[must_use]
    pub fn has_group(&self, group: u32) -> bool {
        group == FlowMod::ANY_GROUP
            || any(&self.actions, &|action| matches!(action, Action::Group(id) if *id == group))
    }

    #[must_use]
    pub fn entry(&self, now_ms: u64) -> FlowEntry {
        let used = self.counters.used.load(Ordering::Relaxed);
        let since = |then: u64| Duration::from_millis(now_ms.saturating_sub(then));
        FlowEntry {
            table: self.table,
            priority: self.priority,
            cookie: self.cookie,
            matching: self.matching(),
            actions: self.actions.to_vec(),
            idle_timeout: self.idle_timeout(),
            hard_timeout: self.hard_timeout(),
            importance: self.importance,
            flags: self.flags,
            duration: since(self.created_ms),
            idle_age: since(used),
            hard_age: since(self.confirmed_ms()),
            packets: self.counters.packets.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            added: self.added,
            changed: self.changed,
        }
    }
}

/// Whether `test` is true for an action or for an action nested within another action.
pub(crate) fn any(actions: &[Action], test: &dyn Fn(&Action) -> bool) -> bool {
    actions.iter().any(|action| test(action) || any(action.nested(), test))
}

fn is_conjunctive(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Conjunction { .. }))
}
