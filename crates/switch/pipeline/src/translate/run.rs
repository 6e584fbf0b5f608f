//! Searches tables and runs actions.

use std::sync::Arc;

use flow::action::{Action, Controller};
use flow::port_number::PortNumber;
use flow::request::TABLES;
use flow::request::{Fragments, TableMiss};
use flow::step::Step;
use flow::{Field, Key, word};

use super::fields::{IPV4, IPV6, write_part};
use super::{Failure, MOST_STEPS, Way};
use crate::recirculation::Rest;
use crate::rule::Rule;

impl Way<'_> {
    /// Continues in a table. A resubmission (`is_plain` is false) drops a packet that matches no
    /// rule, whatever the table's setting for such packets is.
    pub(super) fn search(&mut self, table: u8, with_ct: bool, is_plain: bool) {
        if table >= TABLES || self.failure.is_some() {
            return;
        }
        let deepens = self.nesting > 0 && table <= self.table;
        if deepens && self.depth >= MAX_DEPTH {
            return self.fail(Failure::TooDeep, "over max translation depth 64");
        }
        if self.resubmits >= MAX_RESUBMITS {
            return self.fail(Failure::TooManyResubmits, "over 4096 resubmit actions");
        }
        if self.steps.len() > MOST_STEPS {
            // The packet keeps the steps so far.
            self.note(">>>> resubmits yielded over 64 kB of actions <<<<");
            self.has_exited = true;
            return;
        }
        if self.stack_size() > MAX_STACK {
            let reason = "resubmits yielded over 64 kB of stack";
            return self.fail(Failure::StackTooDeep, reason);
        }
        if self.nesting >= MAX_NESTING {
            return self.fail(Failure::TooDeep, "over 512 nested tables");
        }
        self.resubmits += 1;
        if self.drops_fragment(table) {
            return;
        }
        if self.tables.is_standalone() && self.nesting == self.floor && table == 0 {
            self.note(">> no controller is connected: NORMAL takes the place of the rules");
            return self.normal();
        }
        let former = (self.table, self.rule.take(), self.cookie);
        let mut table = table;
        let port = self.lookup_port.take();
        let former_port = port.map(|port| self.enter_port(port));
        let mut rule = self.lookup(table, with_ct);
        while is_plain && rule.is_none() && table + 1 < TABLES && self.continues(table) {
            table += 1;
            rule = self.lookup(table, with_ct);
        }
        if let Some(former) = former_port {
            (self.flow.words[word::IN_PORT], self.written.words[word::IN_PORT]) = former;
        }
        self.table = table;
        let nesting = self.nesting;
        if let Some(observer) = self.observer.as_deref_mut() {
            observer.searched(nesting, table, rule.as_deref());
        }
        self.nesting += 1;
        self.depth += u32::from(deepens);
        match rule {
            Some(rule) => self.apply(rule),
            None => self.miss(is_plain),
        }
        self.depth -= u32::from(deepens);
        self.nesting -= 1;
        if nesting > self.floor {
            // The action set runs after the first table, but its actions count as actions of the
            // first table's rule.
            (self.table, self.rule, self.cookie) = former;
        }
    }

    fn apply(&mut self, rule: Arc<Rule>) {
        self.counters.push(rule.counters.clone());
        self.cookie = rule.cookie;
        let actions = rule.actions.clone();
        self.rule = Some(rule);
        let was_in_bucket = std::mem::replace(&mut self.is_in_bucket, false);
        if actions.is_empty() {
            self.note("drop");
        }
        self.run(&actions);
        self.is_in_bucket = was_in_bucket;
    }

    /// Whether a packet that matches no rule of the table continues in the next table.
    fn continues(&mut self, table: u8) -> bool {
        let tables = self.tables;
        let table = tables.table(table);
        let continues = table.config.miss == TableMiss::Continue;
        if continues {
            self.counters.push(table.missed.clone());
        }
        continues
    }

    fn miss(&mut self, is_plain: bool) {
        let (missed, miss) = {
            let table = self.tables.table(self.table);
            (table.missed.clone(), table.config.miss)
        };
        self.counters.push(missed);
        let is_sent = is_plain
            && match miss {
                TableMiss::Default => self.tables.is_miss_sent,
                TableMiss::Controller | TableMiss::Continue => true,
                TableMiss::Drop => false,
            };
        if is_sent {
            self.cookie = 0;
            let controller = Controller {
                max_len: u16::MAX,
                id: 0,
                reason: 0,
                userdata: Vec::new(),
                pause: false,
                meter: None,
            };
            self.send_to_controller(&controller);
        } else {
            self.note("drop");
        }
    }

    fn lookup(&mut self, table: u8, with_ct: bool) -> Option<Arc<Rule>> {
        let mut mask = Key::ZERO;
        let table = self.tables.table(table);
        if with_ct {
            let key = original_direction(&self.flow);
            let found = table.rules.lookup(&key, &mut mask);
            drop(table);
            self.depend_on(&of_tracked(&mask));
            return found;
        }
        let found = if self.is_fragment() && self.tables.fragments() == Fragments::Normal {
            let mut key = self.flow.clone();
            key.write(Field::TcpSrc, 0);
            key.write(Field::TcpDst, 0);
            let found = table.rules.lookup(&key, &mut mask);
            mask.write(Field::TcpSrc, 0);
            mask.write(Field::TcpDst, 0);
            found
        } else {
            table.rules.lookup(&self.flow, &mut mask)
        };
        drop(table);
        self.depend_on(&mask);
        found
    }

    /// Whether the packet is a fragment. Each megaflow for IP packets depends on the result.
    fn is_fragment(&self) -> bool {
        let kind = self.flow.read(Field::EthType) as u16;
        matches!(kind, IPV4 | IPV6) && self.flow.read(Field::IpFrag) != 0
    }

    fn drops_fragment(&mut self, table: u8) -> bool {
        let drops = self.is_fragment() && self.tables.fragments() == Fragments::Drop;
        if drops {
            let nesting = self.nesting;
            if let Some(observer) = self.observer.as_deref_mut() {
                observer.drops_fragment(nesting, table);
            }
        }
        drops
    }

    pub(super) fn run(&mut self, actions: &[Action]) {
        for (index, action) in actions.iter().enumerate() {
            if self.has_exited || self.failure.is_some() || self.lengths.is_over() {
                return;
            }
            if self.was_mpls && needs_packet(action) {
                self.freezing = Some(vec![self.rest(&actions[index..])]);
                return;
            }
            let depth = self.nesting;
            if let Some(observer) = self.observer.as_deref_mut() {
                observer.acts(depth, action);
            }
            self.forget_mirrors(action);
            let rest = &actions[index + 1..];
            if let Action::CheckPacketLarger { destination, length } = action
                && self.check_length(*destination, *length, rest)
            {
                return;
            }
            self.lengths.enter_list(!rest.is_empty());
            let goes_on = self.act(action);
            self.lengths.leave_list(!rest.is_empty());
            if !goes_on {
                return;
            }
            if let Some(frozen) = &self.freezing {
                // A group that waited for the packet's hash runs again after the datapath has
                // hashed the packet.
                let is_again = self.hashing.is_some() && frozen.is_empty();
                let rest = self.rest(if is_again { &actions[index..] } else { rest });
                self.freezing.get_or_insert_default().push(rest);
                return;
            }
        }
    }

    fn rest(&self, actions: &[Action]) -> Rest {
        Rest { table: self.table, cookie: self.cookie, actions: actions.to_vec() }
    }

    /// Runs an action. Returns `false` for an action that ends the actions of this rule.
    fn act(&mut self, action: &Action) -> bool {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len, None),
            Action::OutputRegister { source, max_len } => {
                let port = self.read(*source) as u32;
                let port = if source.width <= 16 {
                    PortNumber::from_16_bits(port as u16)
                } else {
                    PortNumber(port)
                };
                self.output(port, *max_len, None);
            }
            Action::OutputTruncated { port, max_len } => self.output_cut(*port, *max_len),
            Action::Controller(controller) if controller.pause => {
                self.freezing = Some(Vec::new());
                self.pausing = Some(controller.clone());
            }
            Action::Controller(controller) => self.send_to_controller(controller),
            Action::Enqueue { port, queue } => {
                let former = self.flow.read_at(Key::PRIORITY);
                self.flow.write_at(Key::PRIORITY, (*queue).into());
                self.output(*port, u16::MAX, None);
                self.flow.write_at(Key::PRIORITY, former);
            }
            Action::Group(group) => self.group(*group),
            Action::SetField { field, value, mask } => {
                self.depend_on_protocol(*field);
                self.write_masked(*field, *value, *mask);
            }
            Action::Load { destination, value } => {
                self.depend_on_protocol(destination.field);
                self.write(*destination, *value);
            }
            Action::Move { source, destination } => {
                if self.has(source.field.prerequisite()) {
                    let value = self.read(*source);
                    self.write(*destination, value);
                }
            }
            Action::StackPush(source) => {
                let value = self.read(*source);
                if self.stack.len() >= MOST_PUSHED {
                    self.fail(Failure::StackTooDeep, "the stack would exceed its limit");
                    return false;
                }
                self.stack.push((source.width, value));
            }
            Action::StackPop(destination) => match self.stack.pop() {
                Some((_, value)) => self.write(*destination, value),
                None => self.note("stack underflow"),
            },
            Action::SetVlanVid(vid) => self.write_masked(Field::DlVlan, (*vid).into(), u128::MAX),
            Action::SetVlanPcp(pcp) => {
                self.write_masked(Field::DlVlanPcp, (*pcp).into(), 7);
            }
            Action::StripVlan => self.pop_vlan(),
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            Action::PushMpls(ethertype) => self.push_mpls(*ethertype),
            Action::PopMpls(ethertype) => self.pop_mpls(*ethertype),
            Action::SetMplsLabel(label) => self.set(Field::MplsLabel, (*label).into()),
            Action::SetMplsTc(class) => self.set(Field::MplsTc, (*class).into()),
            Action::SetMplsTtl(ttl) => self.set(Field::MplsTtl, (*ttl).into()),
            Action::DecMplsTtl => return self.dec_mpls_ttl(),
            Action::SetEthSrc(address) => self.set(Field::EthSrc, bytes(address)),
            Action::SetEthDst(address) => self.set(Field::EthDst, bytes(address)),
            Action::SetIpv4Src(address) => self.set(Field::IpSrc, address.to_bits().into()),
            Action::SetIpv4Dst(address) => self.set(Field::IpDst, address.to_bits().into()),
            Action::SetIpTos(tos) => self.set(Field::NwTos, (tos >> 2).into()),
            Action::SetIpEcn(ecn) => self.set(Field::NwEcn, (*ecn).into()),
            Action::SetIpTtl(ttl) => self.set(Field::NwTtl, (*ttl).into()),
            Action::SetTpSrc(port) => self.set_port(Field::TcpSrc, *port),
            Action::SetTpDst(port) => self.set_port(Field::TcpDst, *port),
            Action::DecTtl(controllers) => return self.dec_ttl(controllers),
            Action::SetTunnel(id) => self.set(Field::TunId, (*id).into()),
            Action::SetQueue(queue) => self.flow.write_at(Key::PRIORITY, (*queue).into()),
            Action::PopQueue => self.flow.write_at(Key::PRIORITY, self.first_priority.into()),
            Action::FinTimeout { idle, hard } => self.fin_timeout(*idle, *hard),
            Action::Resubmit { port, table, with_ct } => self.resubmit(*port, *table, *with_ct),
            Action::Learn(learn) => self.learn(learn),
            Action::Conjunction { .. }
            | Action::Note(_)
            | Action::Sample(_)
            | Action::CheckPacketLarger { .. } => {}
            Action::Multipath(multipath) => self.multipath(multipath),
            Action::Bundle(bundle) => self.bundle(bundle),
            Action::Exit => self.has_exited = true,
            Action::Ct(ct) => self.track(ct),
            Action::CtClear => self.clear_if_tracked(),
            Action::DebugRecirculate => self.freezing = Some(Vec::new()),
            Action::DebugSlow => self.is_cacheable = false,
            Action::Clone(nested) => self.on_a_copy(|way| way.run(nested)),
            Action::Meter(meter) => {
                let meter = self.tables.meter_id(*meter);
                self.steps.push(Step::Meter(meter));
            }
            Action::ClearActions => {
                self.action_set.clear();
                self.update_actset_output();
            }
            Action::WriteActions(nested) => {
                self.action_set.extend(nested.iter().cloned());
                self.update_actset_output();
            }
            Action::WriteMetadata { value, mask } => {
                self.write_masked(Field::Metadata, (*value).into(), (*mask).into());
            }
            Action::GotoTable(table) => self.search(*table, false, true),
        }
        true
    }

    fn set(&mut self, field: Field, value: u128) {
        self.depend_on_protocol(field);
        self.write_masked(field, value, u128::MAX);
    }

    fn set_port(&mut self, field: Field, port: u16) {
        if self.has_transport(&[6, 17, 132]) {
            self.store(field, port.into(), u128::MAX);
        }
    }

    fn resubmit(&mut self, port: Option<PortNumber>, table: Option<u8>, with_ct: bool) {
        let table = table.unwrap_or(self.table);
        let port = port.filter(|port| *port != PortNumber::IN_PORT);
        self.lookup_port = port;
        self.search(table, with_ct, false);
    }

    /// Sets the input port that lookups see. Returns the state to restore.
    pub(super) fn enter_port(&mut self, port: PortNumber) -> (u64, u64) {
        let former = (self.flow.words[word::IN_PORT], self.written.words[word::IN_PORT]);
        self.flow.write(Field::InPort, port.0.into());
        self.written.write(Field::InPort, u128::MAX);
        former
    }

    /// Returns the size of the stack as Open vSwitch counts it: the bytes of each value plus one
    /// byte per value.
    fn stack_size(&self) -> usize {
        self.stack.iter().map(|(width, _)| usize::from(*width).div_ceil(8) + 1).sum()
    }

    fn dec_ttl(&mut self, controllers: &[u16]) -> bool {
        if !self.has(flow::Prerequisite::Ip) {
            return true;
        }
        self.depend_on_protocol(Field::NwTtl);
        let ttl = self.read_field(Field::NwTtl);
        if ttl > 1 {
            self.store(Field::NwTtl, ttl - 1, u128::MAX);
            return true;
        }
        for id in controllers {
            self.invalid_ttl(*id);
        }
        false
    }

    fn dec_mpls_ttl(&mut self) -> bool {
        if !self.has(flow::Prerequisite::Mpls) {
            return true;
        }
        let ttl = self.read_field(Field::MplsTtl);
        if ttl > 1 {
            self.store(Field::MplsTtl, ttl - 1, u128::MAX);
            return true;
        }
        self.invalid_ttl(0);
        false
    }

    fn invalid_ttl(&mut self, id: u16) {
        self.send_to_controller(&Controller {
            max_len: u16::MAX,
            id,
            reason: 2,
            userdata: Vec::new(),
            pause: false,
            meter: None,
        });
    }
}

/// Returns the packet's key as in its connection's original direction, before translation.
fn original_direction(flow: &Key) -> Key {
    let mut key = flow.clone();
    key.words[word::IPV4] = flow.words[word::CT_NW];
    for step in 0..2 {
        key.words[word::IPV6_SRC + step] = flow.words[word::CT_IPV6_SRC + step];
        key.words[word::IPV6_DST + step] = flow.words[word::CT_IPV6_DST + step];
    }
    key.write(Field::NwProto, flow.read(Field::CtNwProto));
    key.write(Field::TcpSrc, flow.read(Field::CtTpSrc));
    key.write(Field::TcpDst, flow.read(Field::CtTpDst));
    key
}

/// Returns the bits of the packet that correspond to the bits of `mask` in [`original_direction`].
fn of_tracked(mask: &Key) -> Key {
    let mut bits = mask.clone();
    bits.words[word::CT_NW] |= std::mem::take(&mut bits.words[word::IPV4]);
    for step in 0..2 {
        let source = std::mem::take(&mut bits.words[word::IPV6_SRC + step]);
        bits.words[word::CT_IPV6_SRC + step] |= source;
        let destination = std::mem::take(&mut bits.words[word::IPV6_DST + step]);
        bits.words[word::CT_IPV6_DST + step] |= destination;
    }
    let fields = [
        (Field::NwProto, Field::CtNwProto),
        (Field::TcpSrc, Field::CtTpSrc),
        (Field::TcpDst, Field::CtTpDst),
    ];
    for (field, tracked) in fields {
        let read = bits.read(field);
        bits.write(field, 0);
        write_part(&mut bits, flow::action::Subfield::whole(tracked), read | mask.read(tracked));
    }
    bits
}

/// Whether an action may read or change fields under an MPLS entry.
fn needs_packet(action: &Action) -> bool {
    if let Action::Output { port, .. } = action {
        // An output to TABLE searches the tables, whose rules may match on fields under an MPLS
        // entry.
        return *port == PortNumber::TABLE;
    }
    !matches!(
        action,
        Action::OutputTruncated { .. }
            | Action::Controller(_)
            | Action::Enqueue { .. }
            | Action::Note(_)
            | Action::Exit
            | Action::DebugRecirculate
            | Action::DebugSlow
            | Action::Conjunction { .. }
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
    )
}

fn bytes(address: &[u8; 6]) -> u128 {
    address.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

const MAX_DEPTH: u32 = 64;
const MAX_RESUBMITS: u32 = 4096;
/// Maximum number of nested tables. A search in a later table does not add to the depth, but needs
/// stack space.
const MAX_NESTING: usize = 512;
/// A resubmission with a larger stack fails.
const MAX_STACK: usize = 65_535;
/// Maximum number of values on the stack. A rule's actions alone cannot reach this number.
const MOST_PUSHED: usize = 65_536;
