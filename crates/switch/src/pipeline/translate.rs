//! The way of a packet through the tables: which steps it gets, and which of its bits that
//! depends on.

mod action_set;
mod commit;
mod connection;
mod fields;
mod groups;
mod hash;
mod learn;
mod normal;
mod output;
mod run;
mod vlan;

use std::sync::Arc;

use self::vlan::Tags;
use super::recirculation::Frozen;
use super::rule::Rule;
use super::tables::{Tables, lock};
use crate::action::Action;
use crate::datapath::step::{Counters, Step, Translate, Translation};
use crate::flow::{Field, Key, word};
use crate::port_number::PortNumber;
use crate::request::PacketOut;

/// Translates packets by the tables of a bridge.
#[derive(Debug, Clone, Copy)]
pub struct Translator<'a> {
    tables: &'a Tables,
}

/// Sees a translation as it goes on, for traces. The number is how deep tables are nested.
pub trait Observe {
    fn searched(&mut self, depth: usize, table: u8, rule: Option<&Rule>);
    fn acts(&mut self, depth: usize, action: &Action);
    fn notes(&mut self, depth: usize, note: &str);
}

impl<'a> Translator<'a> {
    #[must_use]
    pub fn new(tables: &'a Tables) -> Self {
        Self { tables }
    }

    /// The steps of a packet from a controller. They are for this packet alone.
    #[must_use]
    pub fn packet_out(&self, packet: &PacketOut, key: &Key, now_ms: u64) -> Translation {
        let mut key = key.clone();
        for index in 0..word::CT {
            key.words[index] |= packet.metadata.words[index];
        }
        key.write(Field::InPort, packet.in_port.0.into());
        let mut way = Way::new(self.tables, &key, &packet.frame, now_ms);
        way.is_packet_out = true;
        way.run(&packet.actions);
        Translation { is_cacheable: false, ..way.finish().0 }
    }

    /// Translates without effects on the tables, and reports each part. Also returns the packet's
    /// key as it was at the end.
    pub fn observe(
        &self,
        key: &Key,
        frame: &[u8],
        now_ms: u64,
        observer: &mut dyn Observe,
    ) -> (Translation, Key) {
        let mut way = Way::new(self.tables, key, frame, now_ms);
        way.observer = Some(observer);
        way.start();
        way.finish()
    }
}

impl Translate for Translator<'_> {
    fn translate(&mut self, key: &Key, frame: &[u8], now_ms: u64) -> Translation {
        let mut way = Way::new(self.tables, key, frame, now_ms);
        way.start();
        way.finish().0
    }

    fn generation(&self) -> u64 {
        self.tables.generation()
    }
}

/// A packet on its way.
struct Way<'a> {
    tables: &'a Tables,
    now_ms: u64,
    frame: &'a [u8],
    /// The packet with the changes so far.
    flow: Key,
    /// The bits of `flow` that the same bits of the original packet do not decide any more.
    written: Key,
    /// The bits of the original packet that the steps depend on.
    mask: Key,
    /// The bits that no Rewrite has brought to the packet yet.
    pending: Key,
    /// The packet as the datapath has it; kept for traces alone.
    base: Key,
    tags: Tags,
    /// The type of an MPLS entry that was pushed and not emitted.
    pushed_mpls: Option<u16>,
    /// An MPLS entry was popped: the datapath must look at the packet again before a field of what
    /// is under it is read.
    was_mpls: bool,
    steps: Vec<Step>,
    counters: Vec<Arc<Counters>>,
    is_cacheable: bool,
    stack: Vec<(u8, u128)>,
    action_set: Vec<Action>,
    table: u8,
    rule: Option<Arc<Rule>>,
    cookie: u64,
    /// Resubmissions to the same or an earlier table that surround this one.
    depth: u32,
    nesting: usize,
    resubmits: u32,
    has_exited: bool,
    has_failed: bool,
    /// Actions that follow when the datapath has looked at the packet again.
    freezing: Option<Vec<Action>>,
    is_packet_out: bool,
    observer: Option<&'a mut dyn Observe>,
}

/// The parts of a way that a bucket or a clone changes for itself alone.
struct Saved {
    flow: Key,
    written: Key,
    pending: Key,
    base: Key,
    tags: Tags,
    pushed_mpls: Option<u16>,
    was_mpls: bool,
    stack: Vec<(u8, u128)>,
    action_set: Vec<Action>,
    has_exited: bool,
    steps: Vec<Step>,
}

impl<'a> Way<'a> {
    fn new(tables: &'a Tables, key: &Key, frame: &'a [u8], now_ms: u64) -> Self {
        let mut written = Key::ZERO;
        written.write(Field::ConjId, u128::MAX);
        let mut mask = Key::ZERO;
        mask.write(Field::RecircId, u128::MAX);
        Self {
            tables,
            now_ms,
            frame,
            flow: key.clone(),
            base: key.clone(),
            written,
            mask,
            pending: Key::ZERO,
            tags: Tags::default(),
            pushed_mpls: None,
            was_mpls: false,
            steps: Vec::new(),
            counters: Vec::new(),
            is_cacheable: true,
            stack: Vec::new(),
            action_set: Vec::new(),
            table: 0,
            rule: None,
            cookie: u64::MAX,
            depth: 0,
            nesting: 0,
            resubmits: 0,
            has_exited: false,
            has_failed: false,
            freezing: None,
            is_packet_out: false,
            observer: None,
        }
    }

    fn start(&mut self) {
        let id = self.flow.read(Field::RecircId) as u32;
        if id == 0 {
            let port = PortNumber(self.read_field(Field::InPort) as u32);
            let no_receive = super::ports::config::NO_RECEIVE | super::ports::config::PORT_DOWN;
            if self.tables.port_set().port(port).is_some_and(|port| port.has(no_receive)) {
                return;
            }
            self.search(0, false);
            return;
        }
        let state = lock(&self.tables.recirculations).state(id);
        match state {
            Some(state) => self.resume(&state),
            None => self.fail("the state of this recirculation is gone"),
        }
    }

    fn resume(&mut self, state: &Frozen) {
        for index in FROZEN_WORDS {
            self.flow.words[index] = state.metadata.words[index];
            self.written.words[index] = u64::MAX;
        }
        self.stack = state.stack.clone();
        self.action_set = state.action_set.clone();
        (self.table, self.cookie) = state.rule;
        match state.table {
            Some(table) => {
                self.note("thaw");
                self.note(&format!("    Resuming from table {table}"));
                self.search(table, false);
            }
            None => self.run(&state.actions),
        }
    }

    /// Ends the way. Also returns the packet as it is at the end.
    fn finish(mut self) -> (Translation, Key) {
        self.end_pipeline();
        if self.has_failed {
            self.steps.clear();
        }
        self.flatten_last();
        let translation = Translation {
            mask: self.mask,
            steps: self.steps.into(),
            counters: self.counters,
            is_cacheable: self.is_cacheable,
        };
        (translation, self.flow)
    }

    /// The action set, or the state in which the packet waits.
    fn end_pipeline(&mut self) {
        if self.freezing.is_none() && !self.action_set.is_empty() && !self.has_failed {
            let set = std::mem::take(&mut self.action_set);
            self.note("--. Executing action set:");
            self.run_set(&set);
        }
        if let Some(actions) = self.freezing.take() {
            self.commit();
            self.recirculate(None, actions, None);
        }
    }

    /// Stores the state of the packet, and lets the datapath look at it again.
    fn recirculate(&mut self, table: Option<u8>, actions: Vec<Action>, zone: Option<u16>) {
        let mut metadata = Key::ZERO;
        for index in FROZEN_WORDS {
            self.depend(index, u64::MAX);
            metadata.words[index] = self.flow.words[index];
        }
        metadata.write(Field::RecircId, 0);
        let frozen = Frozen {
            table,
            metadata,
            stack: self.stack.clone(),
            action_set: self.action_set.clone(),
            zone,
            actions,
            rule: if table.is_some() { (0, 0) } else { (self.table, self.cookie) },
        };
        match lock(&self.tables.recirculations).intern(frozen, self.now_ms) {
            Some((id, users)) => {
                self.counters.push(users);
                self.steps.push(Step::Recirculate(id));
            }
            None => self.has_failed = true,
        }
    }

    /// Does `act` on a copy of the packet.
    fn on_a_copy(&mut self, act: impl FnOnce(&mut Self)) {
        let saved = Saved {
            flow: self.flow.clone(),
            written: self.written.clone(),
            pending: self.pending.clone(),
            base: self.base.clone(),
            tags: self.tags.clone(),
            pushed_mpls: self.pushed_mpls,
            was_mpls: self.was_mpls,
            stack: self.stack.clone(),
            action_set: std::mem::take(&mut self.action_set),
            has_exited: self.has_exited,
            steps: std::mem::take(&mut self.steps),
        };
        act(self);
        if let Some(actions) = self.freezing.take() {
            self.commit();
            self.recirculate(None, actions, None);
        }
        self.flatten_last();
        let inner = std::mem::replace(&mut self.steps, saved.steps);
        let is_plain = |step: &Step| {
            matches!(
                step,
                Step::Output(_) | Step::Truncate(_) | Step::Controller(_) | Step::Clone(_)
            )
        };
        if inner.iter().all(is_plain) {
            self.steps.extend(inner);
        } else {
            self.steps.push(Step::Clone(inner.into()));
        }
        self.flow = saved.flow;
        self.written = saved.written;
        self.pending = saved.pending;
        self.base = saved.base;
        self.tags = saved.tags;
        self.pushed_mpls = saved.pushed_mpls;
        self.was_mpls = saved.was_mpls;
        self.stack = saved.stack;
        self.action_set = saved.action_set;
        self.has_exited = saved.has_exited;
    }

    /// A copy at the end needs no copying: nothing follows that would use the packet.
    fn flatten_last(&mut self) {
        while let Some(Step::Clone(inner)) = self.steps.last() {
            let inner = inner.clone();
            self.steps.pop();
            self.steps.extend(inner.iter().cloned());
        }
    }

    fn fail(&mut self, reason: &str) {
        self.note(&format!(">>>> {reason} <<<<"));
        self.has_failed = true;
    }

    fn note(&mut self, note: &str) {
        let depth = self.nesting;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.notes(depth, note);
        }
    }
}

/// The words that a packet keeps while the datapath looks at it again.
const FROZEN_WORDS: [usize; 12] = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12];
