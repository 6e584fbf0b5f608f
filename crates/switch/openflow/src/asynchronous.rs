use flow::request::FlowEntry;

use super::Version;
use super::flow_statistics::{encode_flow_counters, put_duration};
use super::message::{Header, begin_message, begin_nicira_message, end_message};
use super::octets::Put;
use super::oxm_match::{write_entries, write_match};
use super::plain_match::write_plain_match;

/// Why a rule was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowRemovedReason {
    IdleTimeout = 0,
    HardTimeout = 1,
    Delete = 2,
    GroupDelete = 3,
    MeterDelete = 4,
    Eviction = 5,
}

impl FlowRemovedReason {
    /// Returns the reason that messages of this OpenFlow version give instead of this reason.
    pub(super) fn in_version(self, version: Version) -> Self {
        match self {
            Self::MeterDelete if version < Version::V14 => Self::Delete,
            _ => self,
        }
    }
}

/// Writes a flow_removed message. `is_nicira`: the controller of OpenFlow 1.0 asked for Nicira's
/// match format.
pub(super) fn encode_flow_removed(
    flow: &FlowEntry,
    reason: FlowRemovedReason,
    version: Version,
    is_nicira: bool,
    out: &mut Vec<u8>,
) {
    if version == Version::V10 && is_nicira {
        let start = begin_nicira_message(version, 0, 14, out);
        out.put_u64(flow.cookie);
        out.put_u16(flow.priority);
        out.put_u8(reason as u8);
        // Open vSwitch also writes the table's number plus one, so that 0 means unknown.
        out.put_u8(flow.table.wrapping_add(1));
        put_duration(flow.duration, out);
        out.put_u16(flow.idle_timeout);
        let length = out.len();
        out.put_u16(0);
        out.put_u64(flow.packets);
        out.put_u64(flow.bytes);
        let entries = out.len();
        write_entries(&flow.matching, version, out);
        out.set_u16(length, (out.len() - entries) as u16);
        out.pad_to_8(entries);
        return end_message(start, out);
    }
    let start = begin_message(Header { version, kind: FLOW_REMOVED, xid: 0 }, out);
    match version {
        Version::V10 => {
            write_plain_match(&flow.matching, out);
            out.put_u64(flow.cookie);
            out.put_u16(flow.priority);
            out.put_u8(reason as u8);
            out.put_u8(0);
            put_duration(flow.duration, out);
            out.put_u16(flow.idle_timeout);
            out.put_zeros(2);
            out.put_u64(flow.packets);
            out.put_u64(flow.bytes);
        }
        Version::V11 | Version::V12 | Version::V13 | Version::V14 => {
            out.put_u64(flow.cookie);
            out.put_u16(flow.priority);
            out.put_u8(reason as u8);
            out.put_u8(flow.table);
            put_duration(flow.duration, out);
            out.put_u16(flow.idle_timeout);
            out.put_u16(flow.hard_timeout);
            out.put_u64(flow.packets);
            out.put_u64(flow.bytes);
            write_match(&flow.matching, version, out);
        }
        Version::V15 => {
            out.put_u8(flow.table);
            out.put_u8(reason as u8);
            out.put_u16(flow.priority);
            out.put_u16(flow.idle_timeout);
            out.put_u16(flow.hard_timeout);
            out.put_u64(flow.cookie);
            write_match(&flow.matching, version, out);
            encode_flow_counters(flow, out);
        }
    }
    end_message(start, out);
}

const FLOW_REMOVED: u8 = 11;
