//! The translation of a packet by the tables: its steps, and the bits of the packet on which they
//! depend.

mod action_set;
mod bonds;
mod commit;
mod connection;
mod fields;
mod groups;
mod hash;
mod learn;
mod length;
mod mirrors;
mod normal;
mod output;
mod patch;
mod run;
mod vlan;

use std::sync::Arc;

use flow::action::{Action, Controller};
use flow::port_number::PortNumber;
use flow::request::{PacketOut, Resumption};
use flow::step::{Counters, PacketHash, Step, Translate, Translation};
use flow::{Field, Key, word};

use self::length::Lengths;
use self::vlan::Tags;
use super::patch::Neighbor;
use super::recirculation::{Frozen, Rest};
use super::rule::Rule;
use super::tables::{Tables, lock};

/// Translates packets with the tables of a bridge.
#[derive(Debug, Clone, Copy)]
pub struct Translator<'a> {
    tables: &'a Tables,
    neighbors: &'a [Neighbor<'a>],
}

/// A limit that drops a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("Recursion too deep")]
    TooDeep,
    #[error("Too many resubmits")]
    TooManyResubmits,
    #[error("Stack too deep")]
    StackTooDeep,
    #[error("No recirculation context")]
    NoRecirculation,
    #[error("Too many MPLS labels")]
    TooManyLabels,
}

impl Failure {
    pub const ALL: [Self; 5] = [
        Self::TooDeep,
        Self::TooManyResubmits,
        Self::StackTooDeep,
        Self::NoRecirculation,
        Self::TooManyLabels,
    ];
}

/// Receives the parts of a translation in order, for traces. `depth`: the number of enclosing
/// tables.
pub trait Observe {
    fn searched(&mut self, depth: usize, table: u8, rule: Option<&Rule>);
    fn drops_fragment(&mut self, depth: usize, table: u8);
    fn acts(&mut self, depth: usize, action: &Action);
    fn notes(&mut self, depth: usize, note: &str);
    /// Tells that the actions of a bucket follow.
    fn enters(&mut self, depth: usize, bucket: u32);
    /// Tells that the packet continues in a recirculation state.
    fn thaws(&mut self, depth: usize, state: &Frozen);
    /// Tells that the translation starts again from the beginning.
    fn restarts(&mut self);
    /// Tells that the packet continues in another bridge, until [`Observe::returns`].
    fn crosses(&mut self, depth: usize, bridge: &str);
    fn returns(&mut self);
}

impl<'a> Translator<'a> {
    #[must_use]
    pub fn new(tables: &'a Tables) -> Self {
        Self { tables, neighbors: &[] }
    }

    /// Returns the tables of the bridge in which packets arrive.
    #[must_use]
    pub fn tables(&self) -> &'a Tables {
        self.tables
    }

    /// Lets translations reach other bridges through patch ports.
    #[must_use]
    pub fn with_neighbors(self, neighbors: &'a [Neighbor<'a>]) -> Self {
        Self { neighbors, ..self }
    }

    fn way<'w>(self, key: &Key, frame: &'w [u8], now_ms: u64) -> Way<'w>
    where
        'a: 'w,
    {
        Way { neighbors: self.neighbors, ..Way::new(self.tables, key, frame, now_ms) }
    }

    /// Translates a packet-out to steps, which are valid for this packet only.
    #[must_use]
    pub fn packet_out(&self, packet: &PacketOut, key: &Key, now_ms: u64) -> Translation {
        let mut key = key.clone();
        for index in 0..word::CT {
            key.words[index] |= packet.metadata.words[index];
        }
        key.write(Field::InPort, packet.in_port.0.into());
        let mut way = self.way(&key, &packet.frame, now_ms);
        way.lengths = Lengths::of_this_packet();
        way.is_packet_out = true;
        way.run(&packet.actions);
        way.end_pipeline();
        Translation { is_cacheable: false, ..way.finish().0 }
    }

    /// Translates a packet that a controller resumes. `None` if the packet's state no longer
    /// exists.
    #[must_use]
    pub fn resume(&self, resumption: &Resumption, key: &Key, now_ms: u64) -> Option<Translation> {
        let state = lock(&self.tables.recirculations).state(resumption.state)?;
        let mut state = Frozen::clone(&state);
        let given = &resumption.metadata;
        for index in FROZEN_WORDS {
            state.metadata.words[index] = given.words[index];
        }
        let mut key = key.clone();
        key.words[word::CT..word::ETH_SRC].copy_from_slice(&given.words[word::CT..word::ETH_SRC]);
        let mut way = self.way(&key, &resumption.frame, now_ms);
        way.lengths = Lengths::of_this_packet();
        way.has_given_results = true;
        way.resume(&state);
        way.end_pipeline();
        Some(Translation { is_cacheable: false, ..way.finish().0 })
    }

    /// Translates without effects on the tables, and reports each part. Also returns the packet's
    /// final key, and the limit that dropped the packet.
    pub fn observe(
        &self,
        key: &Key,
        frame: &[u8],
        now_ms: u64,
        observer: &mut dyn Observe,
    ) -> (Translation, Key, Option<Failure>) {
        let make = || self.way(key, frame, now_ms);
        Way::complete(make, Way::start, Some(observer))
    }

    /// Like [`Translator::observe`], for a packet-out.
    pub fn observe_packet_out(
        &self,
        packet: &PacketOut,
        key: &Key,
        now_ms: u64,
        observer: &mut dyn Observe,
    ) -> (Translation, Key, Option<Failure>) {
        let make = || Way { is_packet_out: true, ..self.way(key, &packet.frame, now_ms) };
        Way::complete(make, |way| way.run(&packet.actions), Some(observer))
    }
}

impl Translate for Translator<'_> {
    fn translate(&mut self, key: &Key, frame: &[u8], now_ms: u64) -> Translation {
        Way::complete(|| self.way(key, frame, now_ms), Way::start, None).0
    }

    fn generation(&self) -> u64 {
        self.tables.generation()
    }
}

/// The state of the translation of a packet.
struct Way<'a> {
    /// `tables`: the tables of the bridge that the packet has reached. `home`: the tables of the
    /// bridge in which the packet arrived.
    tables: &'a Tables,
    home: &'a Tables,
    neighbors: &'a [Neighbor<'a>],
    now_ms: u64,
    frame: &'a [u8],
    /// The packet with all changes so far.
    flow: Key,
    /// The bits of `flow` that actions have written, so that they no longer come from the same bits
    /// of the original packet.
    written: Key,
    /// The bits of the original packet on which the steps depend.
    mask: Key,
    /// The changed bits that no Rewrite step has written yet.
    pending: Key,
    /// Whether megaflows and steps must equal the megaflows and steps of Open vSwitch, which depend
    /// on more bits.
    is_alike: bool,
    /// The packet as the steps so far leave it in the datapath; used if `is_alike`.
    base: Key,
    /// The queue that the steps so far have set, and the queue with which the packet arrived.
    priority: u32,
    first_priority: u32,
    tags: Tags,
    /// The type of a pushed MPLS entry for which there is no step yet.
    pushed_mpls: Option<u16>,
    /// The number of the packet's MPLS entries: the pushed entries, plus one if the packet arrived
    /// with an entry.
    labels: usize,
    /// Whether the packet lost an MPLS entry. The datapath must then parse the packet again before
    /// the translation reads a field under this entry.
    was_mpls: bool,
    steps: Vec<Step>,
    counters: Vec<Arc<Counters>>,
    is_cacheable: bool,
    stack: Vec<(u8, u128)>,
    action_set: Vec<Action>,
    table: u8,
    rule: Option<Arc<Rule>>,
    cookie: u64,
    /// The number of enclosing resubmissions to the same or an earlier table.
    depth: u32,
    nesting: usize,
    /// The nesting depth at which the packet entered this bridge.
    floor: usize,
    resubmits: u32,
    /// The number of outputs so far, in all copies and branches.
    outputs: usize,
    has_exited: bool,
    failure: Option<Failure>,
    /// The input port for the next lookup, set by a resubmission.
    lookup_port: Option<PortNumber>,
    /// The remaining actions, to be run after the datapath has looked up the packet again.
    freezing: Option<Vec<Rest>>,
    /// The hash that the datapath must compute for a group.
    hashing: Option<PacketHash>,
    /// The controller for which the packet waits; `None` for a packet that waits for the datapath.
    pausing: Option<Box<Controller>>,
    is_packet_out: bool,
    /// Whether a controller gave the results of connection tracking. The datapath does not have
    /// these results.
    has_given_results: bool,
    /// Whether the packet has results of connection tracking, because it continues after
    /// `ct(table=…)`.
    is_tracked: bool,
    /// Whether actions of the action set run (`is_in_set`), or actions of a bucket
    /// (`is_in_bucket`).
    is_in_set: bool,
    is_in_bucket: bool,
    lengths: Lengths,
    /// A bit for each mirror that has already copied the packet.
    mirrored: u32,
    observer: Option<&'a mut dyn Observe>,
}

/// The state of a translation that is restored after a bucket or a clone.
#[derive(Clone)]
struct Saved {
    flow: Key,
    written: Key,
    pending: Key,
    base: Key,
    priority: u32,
    tags: Tags,
    pushed_mpls: Option<u16>,
    labels: usize,
    was_mpls: bool,
    stack: Vec<(u8, u128)>,
    action_set: Vec<Action>,
    has_exited: bool,
    is_tracked: bool,
    steps: Vec<Step>,
}

impl<'a> Way<'a> {
    fn new(tables: &'a Tables, key: &Key, frame: &'a [u8], now_ms: u64) -> Self {
        let mut written = Key::ZERO;
        written.write(Field::ConjId, u128::MAX);
        written.write(Field::ActsetOutput, u128::MAX);
        let mut flow = key.clone();
        flow.write(Field::ActsetOutput, PortNumber::UNSET.0.into());
        let mut mask = Key::ZERO;
        // As in Open vSwitch, a megaflow is for one input port and one packet type.
        for field in [Field::RecircId, Field::InPort, Field::EthType] {
            mask.write(field, u128::MAX);
        }
        if matches!(key.read(Field::EthType) as u16, fields::IPV4 | fields::IPV6) {
            mask.write(Field::IpFrag, u128::MAX);
        }
        let has_recirculated = key.read(Field::RecircId) != 0;
        let priority = key.read_at(Key::PRIORITY) as u32;
        Self {
            tables,
            home: tables,
            neighbors: &[],
            now_ms,
            frame,
            flow,
            is_alike: tables.is_alike,
            base: key.clone(),
            priority,
            first_priority: if has_recirculated { 0 } else { priority },
            written,
            mask,
            pending: Key::ZERO,
            tags: Tags::default(),
            pushed_mpls: None,
            labels: matches!(key.read(Field::EthType), 0x8847 | 0x8848).into(),
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
            floor: 0,
            resubmits: 0,
            outputs: 0,
            has_exited: false,
            failure: None,
            lookup_port: None,
            freezing: None,
            hashing: None,
            pausing: None,
            is_packet_out: false,
            has_given_results: false,
            is_tracked: false,
            is_in_set: false,
            is_in_bucket: false,
            lengths: Lengths::default(),
            mirrored: 0,
            observer: None,
        }
    }

    fn start(&mut self) {
        let id = self.flow.read(Field::RecircId) as u32;
        if id == 0 {
            let port = PortNumber(self.read_field(Field::InPort) as u32);
            let ether_type = self.eth_type();
            if self.tables.port_set().is_for_lacp(port, ether_type) {
                // Each of these frames must reach the switch, so no megaflow is installed.
                self.is_cacheable = false;
                return;
            }
            let no_receive = super::ports::config::NO_RECEIVE | super::ports::config::PORT_DOWN;
            if self.tables.port_set().port(port).is_some_and(|port| port.has(no_receive)) {
                return;
            }
            self.arrive(port);
            return;
        }
        let state = lock(&self.tables.recirculations).state(id);
        match state {
            Some(state) => {
                self.priority = state.metadata.read_at(Key::PRIORITY) as u32;
                self.resume(&state);
            }
            None => self.fail(Failure::NoRecirculation, "the state of this recirculation is gone"),
        }
    }

    fn resume(&mut self, state: &Frozen) {
        let hash = if state.is_hashed { self.flow.read(Field::DpHash) } else { 0 };
        for index in FROZEN_WORDS {
            self.flow.words[index] = state.metadata.words[index];
            self.written.words[index] = u64::MAX;
        }
        self.flow.write(Field::DpHash, hash);
        if state.is_hashed {
            self.written.write(Field::DpHash, 0);
        }
        self.flow.write_at(Key::PRIORITY, state.metadata.read_at(Key::PRIORITY));
        if let Some(place) = state.bridge {
            let Some(neighbor) = self.neighbor(place) else {
                let reason = "the bridge of this recirculation is gone";
                return self.fail(Failure::NoRecirculation, reason);
            };
            self.tables = neighbor.tables;
        }
        self.is_tracked = state.is_tracked;
        self.mirrored = state.mirrored;
        if !self.is_tracked {
            self.clear_tracking(false);
        }
        self.stack = state.stack.clone();
        self.action_set = state.action_set.clone();
        self.update_actset_output();
        let depth = self.nesting;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.thaws(depth, state);
        }
        match state.table {
            Some(table) => self.search(table, false, true),
            None => self.run_rest(&state.rest),
        }
    }

    /// Ends the translation. Also returns the final packet.
    fn finish(mut self) -> (Translation, Key, Option<Failure>) {
        if let Some(failure) = self.failure {
            self.steps.clear();
            self.counters.push(self.home.failures[failure as usize].clone());
        }
        self.flatten_last();
        // A megaflow of this size would take more memory than it saves time.
        self.is_cacheable &= !is_oversized(&self.steps) && self.counters.len() <= MOST_STEPS;
        let translation = Translation {
            mask: self.mask,
            steps: self.steps.into(),
            counters: self.counters,
            is_cacheable: self.is_cacheable,
        };
        // Only the pipeline knows this field; the datapath and dumps do not.
        self.flow.write(Field::ActsetOutput, 0);
        (translation, self.flow, self.failure)
    }

    /// Runs the action set, or stores the state of a packet that has to wait.
    fn end_pipeline(&mut self) {
        if self.freezing.is_none() && !self.action_set.is_empty() && self.failure.is_none() {
            let set = std::mem::take(&mut self.action_set);
            self.note("--. Executing action set:");
            self.is_in_set = true;
            self.run_set(&set);
            self.is_in_set = false;
        }
        self.freeze();
    }

    /// Ends the translation of a packet that waits for the datapath or a controller.
    fn freeze(&mut self) {
        let Some(rest) = self.freezing.take() else { return };
        self.commit();
        match self.pausing.take() {
            None => self.recirculate(None, rest, None),
            Some(controller) => {
                // The controller resumes the packet in the controller's own bridge.
                if let Some(id) = self.intern(self.tables, None, rest, None) {
                    self.send_with(&controller, Some(id));
                }
            }
        }
    }

    /// Runs the actions that remained when the packet's state was stored.
    fn run_rest(&mut self, rest: &[Rest]) {
        for (index, part) in rest.iter().enumerate() {
            (self.table, self.cookie) = (part.table, part.cookie);
            let goes_on = index + 1 < rest.len();
            self.lengths.enter_list(goes_on);
            self.run(&part.actions);
            self.lengths.leave_list(goes_on);
            if let Some(frozen) = &mut self.freezing {
                frozen.extend_from_slice(&rest[index + 1..]);
                return;
            }
        }
    }

    /// Stores the packet's state, and adds a step that recirculates the packet.
    fn recirculate(&mut self, table: Option<u8>, rest: Vec<Rest>, zone: Option<u16>) {
        if let Some(id) = self.intern(self.home, table, rest, zone) {
            self.steps.extend(self.hashing.map(Step::Hash));
            self.steps.push(Step::Recirculate(id));
        }
        self.hashing = None;
    }

    /// Stores the packet's state and returns the state's number. The state is kept as long as a
    /// megaflow uses the state.
    fn intern(
        &mut self,
        of: &Tables,
        table: Option<u8>,
        rest: Vec<Rest>,
        zone: Option<u16>,
    ) -> Option<u32> {
        let mut metadata = Key::ZERO;
        for index in FROZEN_WORDS {
            metadata.words[index] = self.read_metadata(index);
        }
        metadata.write_at(Key::PRIORITY, self.flow.read_at(Key::PRIORITY));
        metadata.write(Field::RecircId, 0);
        let frozen = Frozen {
            bridge: (self.tables.place != of.place).then_some(self.tables.place),
            table,
            metadata,
            stack: self.stack.clone(),
            action_set: self.action_set.clone(),
            zone,
            is_tracked: self.is_tracked,
            mirrored: self.mirrored,
            is_hashed: self.hashing.is_some() || self.flow.read(Field::DpHash) != 0,
            rest,
        };
        match lock(&of.recirculations).intern(frozen, self.now_ms) {
            Some((id, users)) => {
                self.counters.push(users);
                Some(id)
            }
            None => {
                self.failure = Some(Failure::NoRecirculation);
                None
            }
        }
    }

    /// Runs `act` on a copy of the packet.
    fn on_a_copy(&mut self, act: impl FnOnce(&mut Self)) {
        let (saved, lengths) = self.begin_copy();
        act(self);
        self.end_copy(saved, lengths);
    }

    // Copies may nest deeply, so the saved packet is on the heap. A separate function keeps the
    // packet out of each stack frame.
    #[inline(never)]
    fn begin_copy(&mut self) -> (Box<Saved>, Lengths) {
        let saved = Box::new(self.save());
        self.action_set.clear();
        let lengths = self.lengths.enter_copy(&saved.steps);
        (saved, lengths)
    }

    #[inline(never)]
    fn end_copy(&mut self, saved: Box<Saved>, lengths: Lengths) {
        self.freeze();
        self.flatten_last();
        self.lengths.leave_copy(lengths);
        let inner = std::mem::take(&mut self.steps);
        let (base, priority) = (self.base.clone(), self.priority);
        self.restore(*saved);
        let is_sent = |step: &Step| {
            matches!(
                step,
                Step::Output(_)
                    | Step::Truncate(_)
                    | Step::Controller(_)
                    | Step::SetPriority(_)
                    | Step::CheckLength(_)
            )
        };
        let is_reversible = |step: &Step| is_sent(step) || matches!(step, Step::Rewrite(_));
        let is_plain = |step: &Step| is_sent(step) || matches!(step, Step::Clone(_));
        if inner.iter().all(is_plain) {
            self.steps.extend(inner);
            self.priority = priority;
        } else if self.is_alike && inner.iter().all(is_reversible) {
            // As in Open vSwitch, further rewrites restore the former values for later actions, so
            // that no clone is necessary.
            for step in &inner {
                if let Step::Rewrite(rewrite) = step {
                    self.pending.unite(&rewrite.mask);
                }
            }
            self.steps.extend(inner);
            self.base = base;
            self.priority = priority;
        } else {
            self.steps.push(Step::Clone(inner.into()));
        }
    }

    /// Saves the state: takes the steps out of it, and copies the other fields.
    fn save(&mut self) -> Saved {
        Saved {
            flow: self.flow.clone(),
            written: self.written.clone(),
            pending: self.pending.clone(),
            base: self.base.clone(),
            priority: self.priority,
            tags: self.tags.clone(),
            pushed_mpls: self.pushed_mpls,
            labels: self.labels,
            was_mpls: self.was_mpls,
            stack: self.stack.clone(),
            action_set: self.action_set.clone(),
            has_exited: self.has_exited,
            is_tracked: self.is_tracked,
            steps: std::mem::take(&mut self.steps),
        }
    }

    fn restore(&mut self, saved: Saved) {
        self.flow = saved.flow;
        self.written = saved.written;
        self.pending = saved.pending;
        self.base = saved.base;
        self.priority = saved.priority;
        self.tags = saved.tags;
        self.pushed_mpls = saved.pushed_mpls;
        self.labels = saved.labels;
        self.was_mpls = saved.was_mpls;
        self.stack = saved.stack;
        self.action_set = saved.action_set;
        self.has_exited = saved.has_exited;
        self.is_tracked = saved.is_tracked;
        self.steps = saved.steps;
    }

    /// Replaces a clone at the end of the steps by the steps of the clone, because no later step
    /// uses the packet.
    fn flatten_last(&mut self) {
        while let Some(Step::Clone(inner)) = self.steps.last() {
            let inner = inner.clone();
            self.steps.pop();
            self.steps.extend(inner.iter().cloned());
        }
    }

    fn fail(&mut self, failure: Failure, reason: &str) {
        self.note(&format!(">>>> {reason} <<<<"));
        self.failure = Some(failure);
    }

    fn note(&mut self, note: &str) {
        let depth = self.nesting;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.notes(depth, note);
        }
    }
}

/// Whether Open vSwitch's datapath would refuse the steps, because they have more than 64 kB at 8
/// bytes per output.
pub(super) fn is_oversized(steps: &[Step]) -> bool {
    fn count(steps: &[Step]) -> usize {
        let nested = |step: &Step| match step {
            Step::Clone(nested) => 1 + count(nested),
            Step::CheckLength(check) => {
                1 + check.branches().map(|branch| count(&branch.steps)).sum::<usize>()
            }
            _ => 1,
        };
        steps.iter().map(nested).sum()
    }
    count(steps) > MOST_STEPS
}

const MOST_STEPS: usize = 65_535 / 8;
/// The words of a packet that its recirculation state keeps.
const FROZEN_WORDS: [usize; 12] = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12];
