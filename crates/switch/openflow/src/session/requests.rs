//! Dispatches requests by their message types.

use flow::request::{Bridge, Change, Fragments, PacketInReason, Refusal};

use super::{ECHO_REPLY, ECHO_REQUEST, HELLO, Role, Session};
use crate::flow_mod;
use crate::forward::Request;
use crate::group::decode_group_mod;
use crate::message::{EXPERIMENTER, Message, begin_message, end_message};
use crate::meter::decode_meter_mod;
use crate::multipart::MAX_MESSAGE;
use crate::octets::Put;
use crate::packet::{decode_packet_out, reason_number};
use crate::port::{decode_port_mod, encode_port};
use crate::queue::answer_queue_config;
use crate::statistics;
use crate::table_mod::decode_table_mod;
use crate::version::Version;

impl Session {
    pub(super) fn dispatch(
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
                    // Later versions use event masks instead of this flag.
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
    pub(super) fn decode_change(&self, message: &Message<'_>) -> Result<Change, Refusal> {
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
            // Capabilities: statistics of flows, tables, ports and queues, and matches of ARP
            // addresses.
            out.put_u32(0xc7);
            out.put_u32(0xfff);
            put_ports(bridge, version, start, out);
        } else {
            // Capabilities: statistics of flows, tables, ports, groups and queues, and bundles.
            // Like Open vSwitch 3.1, the switch does not announce monitors.
            out.put_u32(match version {
                // These capabilities include matches of ARP addresses.
                Version::V11 => 0xcf,
                Version::V12 | Version::V13 => 0x4f,
                _ => 0x24f,
            });
            out.put_u32(0);
            if version <= Version::V12 {
                put_ports(bridge, version, start, out);
            }
        }
        end_message(start, out);
    }
}

/// Writes the ports that fit into the message that begins at `start`. The peer learns the other
/// ports from a request for port descriptions.
fn put_ports(bridge: &dyn Bridge, version: Version, start: usize, out: &mut Vec<u8>) {
    for port in bridge.port_numbers().into_iter().filter_map(|number| bridge.port(number)) {
        let end = out.len();
        encode_port(&port, version, out);
        if out.len() - start > MAX_MESSAGE {
            return out.truncate(end);
        }
    }
}

/// Flags of a switch configuration.
const FRAGMENTS: u16 = 3;
const INVALID_TTL: u16 = 1 << 2;

const ERROR: u8 = 1;
