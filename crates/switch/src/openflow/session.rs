mod bundling;

use std::sync::Arc;

use thiserror::Error;

use super::Version;
use super::asynchronous::{FlowRemovedReason, encode_flow_removed};
use super::bundle::{BundleMemory, Bundles};
use super::connection_flush::{decode_flush, decode_zone_flush};
use super::event_masks::{Event, Masks};
use super::flow_mod;
use super::forward::{Forward, Request};
use super::group::decode_group_mod;
use super::hello::{encode_hello, negotiate};
use super::message::{
    EXPERIMENTER, Header, Message, NICIRA, ONF, begin_experimenter, begin_message,
    begin_nicira_message, end_message,
};
use super::meter::decode_meter_mod;
use super::monitor::{FlowUpdate, Monitors};
use super::multipart::MAX_MESSAGE;
use super::octets::{Put, Reader};
use super::packet::{
    PacketInFormat, decode_packet_out, decode_resume, encode_packet_in, reason_number,
};
use super::parts::Parts;
use super::port::{decode_port_mod, encode_port};
use super::port_status::PortStatus;
use super::queue::answer_queue_config;
use super::refusal_code::{Code, Subject, encode_error};
use super::reply::Reply;
use super::statistics;
use super::table_mod::{decode_table_mod, encode_table_status};
use crate::request::{
    Bridge, Change, FlowEntry, Fragments, PacketIn, PacketInReason, Refusal, TableStatus,
};

/// A reason to close a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error("the peer offers no OpenFlow version that this switch speaks; try -O OpenFlow13")]
    NoCommonVersion,
    #[error("the peer's first message is not a hello; close the connection")]
    NoHello,
    #[error("the peer sent a message of {0} bytes; a header alone has 8")]
    ShortMessage(u16),
}

/// How a connection came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A tool connected to the switch. It gets packets and events only after it asks for them.
    Service,
    /// The switch connected to a controller, which gets them at once.
    Controller,
}

/// A connection's state: the bytes of an incomplete message, the version, and what the peer set.
#[derive(Debug)]
pub struct Session {
    kind: Kind,
    versions: Vec<Version>,
    version: Option<Version>,
    /// The start of a message whose rest has not arrived: at most 64 KiB.
    partial: Vec<u8>,
    flow_mod_has_table: bool,
    packet_in_format: PacketInFormat,
    takes_nicira_match: bool,
    controller: u16,
    config_flags: u16,
    miss_send_len: u16,
    role: Role,
    /// The peer has become master, and others must hear of it.
    has_claimed: bool,
    masks: Masks,
    bundles: Bundles,
    monitors: Monitors,
    parts: Parts,
    /// The reply that is being made. No request is answered before it is over.
    reply: Option<Reply>,
    /// Changes of groups and meters that the peer made since others were last told.
    forwards: Vec<Forward>,
    next_xid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Equal,
    Master,
    Slave,
}

impl Session {
    /// A session that speaks all versions.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self::with_versions(kind, &Version::ALL)
    }

    /// A session whose bundles share memory with those of others.
    #[must_use]
    pub fn sharing(kind: Kind, memory: Arc<BundleMemory>) -> Self {
        Self { bundles: Bundles::new(memory), ..Self::new(kind) }
    }

    #[must_use]
    pub fn with_versions(kind: Kind, versions: &[Version]) -> Self {
        Self {
            kind,
            versions: versions.to_vec(),
            version: None,
            partial: Vec::new(),
            flow_mod_has_table: false,
            packet_in_format: PacketInFormat::Standard,
            takes_nicira_match: false,
            controller: 0,
            config_flags: 0,
            miss_send_len: if kind == Kind::Controller { USUAL_MISS_SEND_LEN } else { 0 },
            role: Role::Equal,
            has_claimed: false,
            masks: Masks::usual(Version::V10),
            forwards: Vec::new(),
            bundles: Bundles::new(Arc::default()),
            monitors: Monitors::default(),
            parts: Parts::default(),
            reply: None,
            next_xid: 2,
        }
    }

    /// Writes the hello with which a connection begins.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        encode_hello(&self.versions, out);
    }

    /// The version that both sides speak, once the peer's hello has arrived.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Whether the peer monitors the bridge's rules.
    #[must_use]
    pub fn is_monitoring(&self) -> bool {
        !self.monitors.is_empty()
    }

    /// Whether packets that no rule takes are for this peer: it speaks OpenFlow 1.0 and takes
    /// packets. Later versions drop them.
    #[must_use]
    pub fn takes_misses(&self) -> bool {
        self.version == Some(Version::V10) && self.miss_send_len > 0 && self.controller == 0
    }

    /// Takes bytes from the peer, gives the requests in them to the bridge, and writes whole
    /// replies. After an error the connection must be closed, once `out` is sent.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let mut rest = bytes;
        if !self.partial.is_empty() {
            rest = self.complete_partial(rest, bridge, out)?;
        }
        while let Some(length) = message_length(rest)? {
            let Some((message, behind)) = rest.split_at_checked(length) else { break };
            self.handle_whole(message, bridge, out)?;
            rest = behind;
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    /// As [`Session::receive`], for one whole message and not behind the start of another. A reply
    /// that may be long is only begun: until [`Session::is_replying`] is false, call
    /// [`Session::go_on`] and not this.
    pub fn begin(
        &mut self,
        message: &[u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        match message_length(message)? {
            Some(_) => self.handle(message, bridge, out),
            None => Ok(()),
        }
    }

    /// Whether a reply has been begun that is not over.
    #[must_use]
    pub fn is_replying(&self) -> bool {
        self.reply.is_some()
    }

    /// Writes the next piece of the reply, and returns the number of rules in it.
    pub fn go_on(&mut self, bridge: &dyn Bridge, out: &mut Vec<u8>) -> usize {
        let Some(reply) = &mut self.reply else { return 0 };
        let (count, is_over) = reply.write_some(&self.monitors, bridge, out);
        if is_over {
            self.monitors.replied(reply.is_of_changes(), reply.version(), out);
            self.reply = None;
        }
        count
    }

    /// Writes a packet-in, if the peer takes it.
    pub fn packet_in(&mut self, packet: &PacketIn, out: &mut Vec<u8>) {
        let reason = reason_number(packet.reason, self.version.unwrap_or(Version::V10));
        let Some(version) = self.takes(Event::PacketIn, reason) else { return };
        if packet.controller == self.controller {
            encode_packet_in(packet, version, self.packet_in_format, out);
        }
    }

    /// Writes that a rule is gone, if the peer takes it.
    pub fn flow_removed(&mut self, flow: &FlowEntry, reason: FlowRemovedReason, out: &mut Vec<u8>) {
        let reason = reason.in_version(self.version.unwrap_or(Version::V10));
        if let Some(version) = self.takes(Event::FlowRemoved, reason as u8) {
            encode_flow_removed(flow, reason, version, self.takes_nicira_match, out);
        }
    }

    /// Writes that a port changed, if the peer takes it. `is_own` says that the peer's own request
    /// changed the configuration: before OpenFlow 1.5 it is not told of that.
    pub fn port_status(&mut self, status: &PortStatus, is_own: bool, out: &mut Vec<u8>) {
        let is_known =
            |version: &Version| is_own && status.is_of_config() && *version < Version::V15;
        let version = self.takes(Event::PortStatus, status.change as u8);
        if let Some(version) = version.filter(|version| !is_known(version)) {
            status.encode(version, out);
        }
    }

    /// Writes that a table's vacancy crossed a limit, if the peer takes that.
    pub fn table_status(&mut self, status: &TableStatus, out: &mut Vec<u8>) {
        let version = self.takes(Event::TableStatus, status.change as u8);
        if let Some(version) = version.filter(|version| *version >= Version::V14) {
            encode_table_status(status, version, out);
        }
    }

    /// Writes changes of rules, if the peer monitors them. `own` is the number of the peer's own
    /// request that made them.
    pub fn flows_changed(
        &mut self,
        updates: &[FlowUpdate<'_>],
        own: Option<u32>,
        out: &mut Vec<u8>,
    ) {
        if let Some(version) = self.version {
            self.monitors.changed(updates, own, version, out);
        }
    }

    /// Stops updates of rules because the peer reads too slowly, and writes that.
    pub fn pause_monitors(&mut self, out: &mut Vec<u8>) {
        if let Some(version) = self.version {
            self.monitors.pause(version, out);
        }
    }

    #[must_use]
    pub fn has_paused_monitors(&self) -> bool {
        self.monitors.is_paused()
    }

    /// Writes the updates that were held back since [`Session::pause_monitors`], or begins to, as
    /// [`Session::begin`] does.
    pub fn resume_monitors(&mut self, bridge: &dyn Bridge, out: &mut Vec<u8>) {
        if let Some(version) = self.version.filter(|_| !self.is_replying()) {
            self.reply = self.monitors.resume(version, bridge);
            self.go_on(bridge, out);
        }
    }

    /// The changes of groups and meters that the peer made since the last call.
    #[must_use]
    pub fn take_forwards(&mut self) -> Vec<Forward> {
        std::mem::take(&mut self.forwards)
    }

    /// Writes another peer's change of groups or meters, if this one asks for those.
    pub fn forward(&mut self, forward: &Forward, out: &mut Vec<u8>) {
        let version = self.takes(Event::RequestForward, forward.reason());
        if let Some(version) = version.filter(|version| forward.is_in(*version)) {
            forward.encode(version, out);
        }
    }

    /// Whether the peer has become master since the last call: then no other is.
    pub fn take_claim(&mut self) -> bool {
        std::mem::take(&mut self.has_claimed)
    }

    /// Makes a master a slave, because another peer has become master, and writes that.
    pub fn demote(&mut self, generation: Option<u64>, out: &mut Vec<u8>) {
        if self.role != Role::Master {
            return;
        }
        self.role = Role::Slave;
        let start = match self.version {
            Some(version) if version >= Version::V14 => {
                begin_message(Header { version, kind: ROLE_STATUS, xid: 0 }, out)
            }
            Some(version @ Version::V13) => {
                begin_experimenter(version, 0, ONF, ONF_ROLE_STATUS, out)
            }
            _ => return,
        };
        out.put_u32(SLAVE);
        // The reason: another peer asked for it.
        out.put_u8(0);
        out.put_zeros(3);
        out.put_u64(generation.unwrap_or(u64::MAX));
        end_message(start, out);
    }

    /// Removes bundles that were left alone for too long, and writes that.
    pub fn expire_bundles(&mut self, now_ms: u64, out: &mut Vec<u8>) {
        let Some(version) = self.version else { return };
        for (xid, message) in self.bundles.expire(now_ms) {
            encode_error(version, xid, Code::bundle(TIMED_OUT, version), &message, out);
        }
    }

    /// Writes a request that the peer must answer, to learn whether it is alive.
    pub fn echo(&mut self, out: &mut Vec<u8>) {
        let version = self.version.unwrap_or(Version::V10);
        let header = Header { version, kind: ECHO_REQUEST, xid: self.next_xid };
        self.next_xid = self.next_xid.wrapping_add(1);
        let start = begin_message(header, out);
        end_message(start, out);
    }

    /// Completes the partial message with the front of `bytes`, and returns what is behind.
    fn complete_partial<'a>(
        &mut self,
        bytes: &'a [u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<&'a [u8], ProtocolError> {
        let mut rest = bytes;
        let wanted = |partial: &[u8]| message_length(partial).map(|length| length.unwrap_or(8));
        for _ in ["header", "body"] {
            let missing = wanted(&self.partial)?.saturating_sub(self.partial.len());
            let (taken, behind) = rest.split_at(missing.min(rest.len()));
            self.partial.extend_from_slice(taken);
            rest = behind;
        }
        if message_length(&self.partial)?.is_some_and(|length| length == self.partial.len()) {
            let message = std::mem::take(&mut self.partial);
            self.handle_whole(&message, bridge, out)?;
            self.partial = message;
            self.partial.clear();
        }
        Ok(rest)
    }

    fn handle_whole(
        &mut self,
        message: &[u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        self.handle(message, bridge, out)?;
        while self.is_replying() {
            self.go_on(bridge, out);
        }
        Ok(())
    }

    fn handle(
        &mut self,
        bytes: &[u8],
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let kind = bytes[1];
        let xid = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let Some(version) = self.version else {
            return self.greet(kind, xid, bytes, out);
        };
        let message = Message { header: Header { version, kind, xid }, bytes };
        if bytes[0] != version.number() && kind != HELLO {
            // The error is in the version of the request that it repeats, if there is such a one.
            let version = Version::from_number(bytes[0]).unwrap_or(version);
            let code = Code::of(Refusal::BadVersion, Subject::Other, version);
            encode_error(version, xid, code, bytes, out);
            return Ok(());
        }
        if let Err(refusal) = self.dispatch(&message, bridge, out) {
            let code = Code::of(refusal, subject(kind, bytes, version), version);
            encode_error(version, xid, code, bytes, out);
        }
        Ok(())
    }

    fn greet(
        &mut self,
        kind: u8,
        xid: u32,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        if kind != HELLO {
            return Err(ProtocolError::NoHello);
        }
        self.version = negotiate(&self.versions, bytes);
        if let Some(version) = self.version {
            self.masks = Masks::usual(version);
        } else {
            let version = self.versions.iter().max().copied().unwrap_or(Version::V10);
            encode_error(version, xid, Code::Standard(0, 0), bytes, out);
            return Err(ProtocolError::NoCommonVersion);
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        message: &Message<'_>,
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let version = message.header.version;
        let is_v10 = version == Version::V10;
        let kind = message.header.kind;
        match kind {
            HELLO | ERROR | ECHO_REPLY => Ok(()),
            ECHO_REQUEST => {
                let start = begin_message(message.reply(ECHO_REPLY), out);
                out.extend_from_slice(message.body().rest());
                end_message(start, out);
                Ok(())
            }
            EXPERIMENTER => self.experimenter(message, bridge, out),
            5 => {
                self.features(message, bridge, out);
                Ok(())
            }
            7 => {
                let start = begin_message(message.reply(8), out);
                out.put_u16(self.config_flags | bridge.fragments().number());
                out.put_u16(self.miss_send_len);
                end_message(start, out);
                Ok(())
            }
            9 => {
                let mut body = message.body();
                let flags = body.u16()?;
                self.miss_send_len = body.u16()?;
                if let Some(fragments) = Fragments::from_number(flags & FRAGMENTS)
                    && self.role != Role::Slave
                {
                    bridge.set_fragments(fragments);
                }
                if version <= Version::V12 {
                    // Later versions have masks of events for that.
                    self.config_flags = flags & INVALID_TTL;
                    let reason = reason_number(PacketInReason::InvalidTtl, version);
                    self.masks.set_packet_in(reason, flags & INVALID_TTL != 0);
                }
                Ok(())
            }
            13..=16 if !(is_v10 && kind == 16) => {
                if self.role == Role::Slave {
                    return Err(Refusal::IsSlave);
                }
                match self.decode_change(message)? {
                    Change::Flow(change) => bridge.flow_mod(change),
                    Change::Group(change) => {
                        bridge.group_mod(change.clone())?;
                        self.note(message.header.xid, Request::Group(change));
                        Ok(())
                    }
                    Change::Port(change) => bridge.port_mod(&change),
                    Change::PacketOut(packet) => bridge.packet_out(packet),
                }
            }
            16 | 18 if is_v10 == (kind == 16) => {
                if self.role == Role::Slave && statistics::is_change(message) {
                    return Err(Refusal::IsSlave);
                }
                let (monitors, parts) = (&mut self.monitors, &mut self.parts);
                self.reply = statistics::answer(message, monitors, parts, bridge, out)?;
                Ok(())
            }
            18 | 20 if is_v10 == (kind == 18) => {
                let start = begin_message(message.reply(kind + 1), out);
                end_message(start, out);
                Ok(())
            }
            20 | 22 if is_v10 == (kind == 20) && version <= Version::V13 => {
                answer_queue_config(message, bridge, out)
            }
            17 if !is_v10 => {
                if self.role == Role::Slave {
                    return Err(Refusal::IsSlave);
                }
                bridge.table_mod(&decode_table_mod(message.body(), version)?)
            }
            24 if version >= Version::V12 => self.change_role(message, bridge, out),
            26 if version >= Version::V13 => {
                let start = begin_message(message.reply(27), out);
                self.masks.encode(version, out);
                end_message(start, out);
                Ok(())
            }
            28 if version >= Version::V13 => {
                self.ask_for_events();
                match version {
                    Version::V13 => self.masks.decode(message.body(), version),
                    _ => self.masks.decode_properties(message.body(), version),
                }
            }
            29 if version >= Version::V13 => {
                if self.role == Role::Slave {
                    return Err(Refusal::IsSlave);
                }
                let change = decode_meter_mod(message.body())?;
                bridge.meter_mod(change.clone())?;
                self.note(message.header.xid, Request::Meter(change));
                Ok(())
            }
            33 if version >= Version::V14 => {
                self.bundle_control(message, message.body(), bridge, out)
            }
            34 if version >= Version::V14 => self.bundle_add(message, message.body()),
            _ => Err(Refusal::BadType),
        }
    }

    /// Reads a message that changes the bridge.
    fn decode_change(&self, message: &Message<'_>) -> Result<Change, Refusal> {
        let version = message.header.version;
        let body = message.body();
        Ok(match (message.header.kind, version) {
            (13, _) => Change::PacketOut(decode_packet_out(body, version)?),
            (14, Version::V10) => {
                Change::Flow(flow_mod::decode_v10(body, self.flow_mod_has_table)?)
            }
            (14, _) => Change::Flow(flow_mod::decode_later(body, version)?),
            (15, Version::V10) | (16, _) => Change::Port(decode_port_mod(body, version)?),
            (15, _) => Change::Group(decode_group_mod(body, version)?),
            _ => return Err(Refusal::BadType),
        })
    }

    fn features(&self, message: &Message<'_>, bridge: &dyn Bridge, out: &mut Vec<u8>) {
        let version = message.header.version;
        let start = begin_message(message.reply(6), out);
        out.put_u64(bridge.datapath_id());
        out.put_u32(0);
        out.put_u8(254);
        out.put_zeros(3);
        if version == Version::V10 {
            // Statistics of flows, tables, ports and queues; matches of addresses in ARP.
            out.put_u32(0xc7);
            out.put_u32(0xfff);
            put_ports(bridge, version, start, out);
        } else {
            // Statistics of flows, tables, ports, groups and queues; bundles and monitors.
            out.put_u32(match version {
                // Matches of addresses in ARP.
                Version::V11 => 0xcf,
                Version::V12 | Version::V13 => 0x4f,
                _ => 0x64f,
            });
            out.put_u32(0);
            if version <= Version::V12 {
                put_ports(bridge, version, start, out);
            }
        }
        end_message(start, out);
    }

    fn experimenter(
        &mut self,
        message: &Message<'_>,
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let mut body = message.body();
        let experimenter = body.u32()?;
        let subtype = body.u32()?;
        match experimenter {
            NICIRA => self.nicira(subtype, message, body, bridge, out),
            ONF if message.header.version == Version::V13 => match subtype {
                ONF_BUNDLE_CONTROL => self.bundle_control(message, body, bridge, out),
                ONF_BUNDLE_ADD => self.bundle_add(message, body),
                ONF_MONITOR_CANCEL => self.monitors.cancel(body.u32()?),
                _ => Err(Refusal::BadType),
            },
            _ => Err(Refusal::BadExperimenter),
        }
    }

    fn nicira(
        &mut self,
        subtype: u32,
        message: &Message<'_>,
        mut body: Reader<'_>,
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Header { version, xid, .. } = message.header;
        match subtype {
            10 => {
                let role = body.u32()?;
                self.role = match role {
                    0 => Role::Equal,
                    1 => Role::Master,
                    2 => Role::Slave,
                    _ => return Err(Refusal::BadRole),
                };
                self.has_claimed |= self.role == Role::Master;
                let start = begin_nicira_message(version, xid, 11, out);
                out.put_u32(role);
                end_message(start, out);
            }
            12 => {
                self.takes_nicira_match = match body.u32()? {
                    0 => false,
                    2 => true,
                    _ => return Err(Refusal::NotPermitted),
                };
            }
            13 => {
                if self.role == Role::Slave {
                    return Err(Refusal::IsSlave);
                }
                let change = flow_mod::decode_nicira(body, version, self.flow_mod_has_table)?;
                bridge.flow_mod(change)?;
            }
            15 => self.flow_mod_has_table = body.u8()? != 0,
            16 => {
                self.packet_in_format = match body.u32()? {
                    0 => PacketInFormat::Standard,
                    1 => PacketInFormat::Nicira,
                    2 => PacketInFormat::Nicira2,
                    _ => return Err(Refusal::NotPermitted),
                };
            }
            // Ages are in all of Nicira's replies.
            18 => {}
            19 => {
                self.ask_for_events();
                self.masks.decode(body, version)?;
            }
            20 => {
                body.skip(6)?;
                self.controller = body.u16()?;
            }
            21 => self.monitors.cancel(body.u32()?)?,
            25 => {
                // No tunnel options are mapped.
                let start = begin_nicira_message(version, xid, 26, out);
                out.put_zeros(16);
                end_message(start, out);
            }
            27 => {
                self.ask_for_events();
                self.masks.decode_properties(body, version)?;
            }
            28 => bridge.resume(decode_resume(body, version)?)?,
            29 => bridge.flush_connections(&decode_zone_flush(body)?),
            32 => bridge.flush_connections(&decode_flush(body)?),
            31 if version == Version::V10 => {
                if self.role == Role::Slave {
                    return Err(Refusal::IsSlave);
                }
                let change = decode_group_mod(body, version)?;
                bridge.group_mod(change.clone())?;
                self.note(xid, Request::Group(change));
            }
            _ => return Err(Refusal::BadType),
        }
        Ok(())
    }

    fn change_role(
        &mut self,
        message: &Message<'_>,
        bridge: &mut dyn Bridge,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let mut body = message.body();
        let role = body.u32()?;
        body.skip(4)?;
        let generation = body.u64()?;
        if matches!(role, 2 | 3) {
            let last = bridge.generation();
            if last.is_some_and(|last| (generation.wrapping_sub(last) as i64) < 0) {
                return Err(Refusal::StaleRole);
            }
            *last = Some(generation);
        }
        self.role = match role {
            0 => self.role,
            1 => Role::Equal,
            2 => Role::Master,
            3 => Role::Slave,
            _ => return Err(Refusal::BadRole),
        };
        self.has_claimed |= role == MASTER;
        let start = begin_message(message.reply(25), out);
        out.put_u32(match self.role {
            Role::Equal => 1,
            Role::Master => MASTER,
            Role::Slave => SLAVE,
        });
        out.put_zeros(4);
        out.put_u64(bridge.generation().unwrap_or(u64::MAX));
        end_message(start, out);
        Ok(())
    }

    fn note(&mut self, xid: u32, request: Request) {
        self.forwards.push(Forward { xid, request });
    }

    /// The session's version, if the peer takes an event of this reason.
    fn takes(&self, event: Event, reason: u8) -> Option<Version> {
        if self.kind == Kind::Service && self.miss_send_len == 0 {
            return None;
        }
        let is_slave = self.role == Role::Slave;
        self.version.filter(|_| self.masks.takes(event, is_slave, reason))
    }

    /// A peer that asks for events gets them, also if it did not ask for packets: then their usual
    /// length counts.
    fn ask_for_events(&mut self) {
        if self.kind == Kind::Service && self.miss_send_len == 0 {
            self.miss_send_len = USUAL_MISS_SEND_LEN;
        }
    }
}

/// Writes the ports for which the message that begins at `start` has room. A peer that misses ports
/// asks for their descriptions.
fn put_ports(bridge: &dyn Bridge, version: Version, start: usize, out: &mut Vec<u8>) {
    for port in bridge.port_numbers().into_iter().filter_map(|number| bridge.port(number)) {
        let end = out.len();
        encode_port(&port, version, out);
        if out.len() - start > MAX_MESSAGE {
            return out.truncate(end);
        }
    }
}

/// The length in a message's header, once it has arrived.
fn message_length(bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let Some(header) = bytes.first_chunk::<8>() else { return Ok(None) };
    let length = u16::from_be_bytes([header[2], header[3]]);
    if length < 8 {
        return Err(ProtocolError::ShortMessage(length));
    }
    Ok(Some(length.into()))
}

fn subject(kind: u8, bytes: &[u8], version: Version) -> Subject {
    let nicira = bytes.get(8..16).is_some_and(|head| head[..4] == NICIRA.to_be_bytes());
    match (kind, version) {
        (14, _) => Subject::Flow,
        (15, Version::V10) => Subject::Port,
        (15, _) => Subject::Group,
        (16, version) if version > Version::V10 => Subject::Port,
        (17, version) if version > Version::V10 => Subject::Table,
        (29, _) => Subject::Meter,
        (EXPERIMENTER, _) if nicira && bytes[15] == 13 => Subject::Flow,
        (EXPERIMENTER, _) if nicira && bytes[15] == 31 => Subject::Group,
        _ => Subject::Other,
    }
}

/// The bytes of a packet that a controller gets unless it asks for another number.
const USUAL_MISS_SEND_LEN: u16 = 128;

/// Flags of a connection's configuration.
const FRAGMENTS: u16 = 3;
const INVALID_TTL: u16 = 1 << 2;

const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;

const ROLE_STATUS: u8 = 30;
const MASTER: u32 = 2;
const SLAVE: u32 = 3;

const ONF_MONITOR_CANCEL: u32 = 1870;
const ONF_ROLE_STATUS: u32 = 1911;
const ONF_BUNDLE_CONTROL: u32 = 2300;
const ONF_BUNDLE_ADD: u32 = 2301;

const TIMED_OUT: u16 = 14;

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
