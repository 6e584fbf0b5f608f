//! Events that a peer gets without a request.

use flow::request::{Bridge, FlowEntry, PacketIn, TableStatus};

use super::{Kind, Role, Session, USUAL_MISS_SEND_LEN};
use crate::asynchronous::{FlowRemovedReason, encode_flow_removed};
use crate::event_masks::Event;
use crate::forward::{Forward, Request};
use crate::monitor::FlowUpdate;
use crate::packet::{encode_packet_in, reason_number};
use crate::port_status::PortStatus;
use crate::table_mod::encode_table_status;
use crate::version::Version;

impl Session {
    /// Writes a packet-in if the peer asks for such packet-ins.
    pub fn packet_in(&mut self, packet: &PacketIn, out: &mut Vec<u8>) {
        let reason = reason_number(packet.reason, self.version.unwrap_or(Version::V10));
        let Some(version) = self.takes(Event::PacketIn, reason) else { return };
        if packet.controller == self.controller {
            encode_packet_in(packet, version, self.packet_in_format, out);
        }
    }

    /// Writes a flow_removed message if the peer asks for such messages.
    pub fn flow_removed(&mut self, flow: &FlowEntry, reason: FlowRemovedReason, out: &mut Vec<u8>) {
        let reason = reason.in_version(self.version.unwrap_or(Version::V10));
        if let Some(version) = self.takes(Event::FlowRemoved, reason as u8) {
            encode_flow_removed(flow, reason, version, self.takes_nicira_match, out);
        }
    }

    /// Writes a port_status message if the peer asks for such messages. `is_own`: the peer's own
    /// request changed the configuration. Before OpenFlow 1.5, the peer gets no message about its
    /// own change.
    pub fn port_status(&mut self, status: &PortStatus, is_own: bool, out: &mut Vec<u8>) {
        let is_known =
            |version: &Version| is_own && status.is_of_config() && *version < Version::V15;
        let version = self.takes(Event::PortStatus, status.change as u8);
        if let Some(version) = version.filter(|version| !is_known(version)) {
            status.encode(version, out);
        }
    }

    /// Tells the peer that a table's vacancy crossed a limit, if the peer asks for such messages.
    pub fn table_status(&mut self, status: &TableStatus, out: &mut Vec<u8>) {
        let version = self.takes(Event::TableStatus, status.change as u8);
        if let Some(version) = version.filter(|version| *version >= Version::V14) {
            encode_table_status(status, version, out);
        }
    }

    /// Writes changes of rules if the peer monitors the rules. `own`: the number of the peer's own
    /// request that made the changes.
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

    /// Pauses updates of rules because the peer reads too slowly, and tells the peer.
    pub fn pause_monitors(&mut self, out: &mut Vec<u8>) {
        if let Some(version) = self.version {
            self.monitors.pause(version, out);
        }
    }

    #[must_use]
    pub fn has_paused_monitors(&self) -> bool {
        self.monitors.is_paused()
    }

    /// Writes the updates that were held back since [`Session::pause_monitors`], or begins a reply
    /// with these updates; see [`Session::begin`].
    pub fn resume_monitors(&mut self, bridge: &dyn Bridge, out: &mut Vec<u8>) {
        if let Some(version) = self.version.filter(|_| !self.is_replying()) {
            self.reply = self.monitors.resume(version, bridge);
            self.go_on(bridge, out);
        }
    }

    /// Returns the changes of groups and meters that the peer made since the last call.
    #[must_use]
    pub fn take_forwards(&mut self) -> Vec<Forward> {
        std::mem::take(&mut self.forwards)
    }

    /// Writes another peer's change of groups or meters if this peer asks for such changes.
    pub fn forward(&mut self, forward: &Forward, out: &mut Vec<u8>) {
        let version = self.takes(Event::RequestForward, forward.reason());
        if let Some(version) = version.filter(|version| forward.is_in(*version)) {
            forward.encode(version, out);
        }
    }

    pub(super) fn note(&mut self, xid: u32, request: Request) {
        self.forwards.push(Forward { xid, request });
    }

    /// Returns the session's version if the peer gets events with this reason.
    fn takes(&self, event: Event, reason: u8) -> Option<Version> {
        if self.kind == Kind::Service && self.miss_send_len == 0 {
            return None;
        }
        let is_slave = self.role == Role::Slave;
        self.version.filter(|_| self.masks.takes(event, is_slave, reason))
    }

    /// Turns on packet-ins with the default length for a peer that asks for events.
    pub(super) fn ask_for_events(&mut self) {
        if self.kind == Kind::Service && self.miss_send_len == 0 {
            self.miss_send_len = USUAL_MISS_SEND_LEN;
        }
    }
}
