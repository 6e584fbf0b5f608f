//! Output to a patch port. As in Open vSwitch, the translation continues in the other bridge with a
//! copy of the packet. The steps of the other bridge become part of the same megaflow.

use flow::port_number::PortNumber;
use flow::{Field, word};

use super::{MOST_STEPS, Way};
use crate::patch::{Neighbor, Patch};
use crate::ports::config;

impl<'a> Way<'a> {
    /// Returns the bridge with this index: a bridge that patch ports reach, or the bridge in which
    /// the packet arrived.
    pub(super) fn neighbor(&self, place: u16) -> Option<Neighbor<'a>> {
        let mut neighbors = self.neighbors.iter().copied();
        neighbors.find(|neighbor| neighbor.tables.place == place).or_else(|| {
            (self.home.place == place).then_some(Neighbor { name: "", tables: self.home })
        })
    }

    /// Starts the pipeline of the bridge that the packet has reached, for a packet that arrives at
    /// a port.
    pub(super) fn arrive(&mut self, port: PortNumber) {
        self.mirror_received(port);
        if self.was_mpls {
            // The datapath must first parse the packet under the popped MPLS entry.
            self.commit();
            return self.recirculate(Some(0), Vec::new(), None);
        }
        self.search(0, false, true);
    }

    /// Runs the other bridge's pipeline on a copy of the packet. The packet itself stays unchanged.
    pub(super) fn cross(&mut self, patch: &Patch) {
        self.counters.extend([patch.sent.clone(), patch.received.clone()]);
        let Some(neighbor) = self.neighbor(patch.bridge) else { return };
        let depth = self.nesting;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.crosses(depth, neighbor.name);
        }
        let former = Former {
            tables: std::mem::replace(&mut self.tables, neighbor.tables),
            table: self.table,
            rule: self.rule.take(),
            cookie: self.cookie,
            floor: std::mem::replace(&mut self.floor, self.nesting + 1),
            mirrored: self.mirrored,
            is_in_set: std::mem::replace(&mut self.is_in_set, false),
            is_in_bucket: std::mem::replace(&mut self.is_in_bucket, false),
        };
        if !std::ptr::eq(former.tables, self.tables) {
            self.mirrored = 0;
        }
        self.nesting += 1;
        self.on_a_copy(|way| way.enter(patch.port));
        self.nesting -= 1;
        self.tables = former.tables;
        (self.table, self.rule, self.cookie) = (former.table, former.rule, former.cookie);
        (self.floor, self.mirrored) = (former.floor, former.mirrored);
        (self.is_in_set, self.is_in_bucket) = (former.is_in_set, former.is_in_bucket);
        // A limit that is reached in the other bridge ends the translation only in the other
        // bridge. A refused resubmission there may have set an input port, which must not apply to
        // the next lookup in this bridge.
        self.failure = None;
        self.lookup_port = None;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.returns();
        }
    }

    /// Enters a bridge through a patch port. The packet loses its metadata, its stack and its
    /// tracking results.
    fn enter(&mut self, port: PortNumber) {
        if self.outputs > MOST_STEPS {
            // The check in `search` counts only the steps of this copy.
            self.note(">>>> patch ports yielded over 64 kB of actions <<<<");
            return;
        }
        self.lengths.enter_pipeline();
        self.stack.clear();
        self.lookup_port = None;
        self.enter_port(port);
        for index in [word::METADATA, word::TUN_ID].into_iter().chain(word::REGISTERS..word::CT) {
            self.flow.words[index] = 0;
            self.written.words[index] = u64::MAX;
        }
        self.flow.write(Field::ActsetOutput, PortNumber::UNSET.0.into());
        self.clear_tracking(false);
        let no_receive = config::NO_RECEIVE | config::PORT_DOWN;
        let port_set = self.tables.port_set();
        if port_set.port(port).is_some_and(|port| !port.has(no_receive)) {
            self.arrive(port);
            self.end_pipeline();
        }
    }
}

/// The parts of a translation's state that belong to one bridge.
struct Former<'a> {
    tables: &'a crate::tables::Tables,
    table: u8,
    rule: Option<std::sync::Arc<crate::rule::Rule>>,
    cookie: u64,
    floor: usize,
    mirrored: u32,
    is_in_set: bool,
    is_in_bucket: bool,
}
