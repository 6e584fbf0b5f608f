//! Replies that list rules, groups, meters, ports, queues or tables. The session writes such a
//! reply in pieces of a limited size. Between the pieces, the switch handles other peers' requests,
//! and the peer reads the bytes written so far.

use std::vec::IntoIter;

use flow::port_number::PortNumber;
use flow::request::{Aggregate, Bridge, Flows};

use super::Version;
use super::flow_statistics::{
    encode_aggregate, encode_flow, encode_nicira_flow, encode_table, encode_v10_flow,
};
use super::group::{encode_group, encode_group_statistics};
use super::meter::{encode_meter, encode_meter_statistics};
use super::monitor::Monitors;
use super::multipart::{Multipart, Part};
use super::port::{encode_port, encode_port_statistics};
use super::queue::{QueueId, encode_queue_description, encode_queue_statistics};
use super::table_features::encode_table_features;
use super::table_mod::encode_table_description;

/// A reply that is not written completely yet.
#[derive(Debug)]
pub(super) struct Reply {
    version: Version,
    xid: u32,
    part: Part,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Rules(Flows, Form),
    Numbers(Entries, IntoIter<u32>),
}

/// The format of a reply that lists rules.
#[derive(Debug)]
pub(super) enum Form {
    Standard,
    Nicira,
    /// The sum of all rules' counters, in one entry.
    Sum(Aggregate),
    /// The rules with which new monitors begin. The value has the numbers of the monitors.
    Initial(Vec<u32>),
    /// The updates for monitors that were paused at the change with this number.
    Changes(u64),
}

/// The entries of a reply about numbered objects, such as groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entries {
    Groups,
    GroupStatistics,
    Meters,
    MeterStatistics,
    Ports,
    PortStatistics,
    Queues,
    QueueStatistics,
    Tables,
    TableFeatures,
    TableStatistics,
}

impl Reply {
    pub(super) fn new(version: Version, xid: u32, part: Part, flows: Flows, form: Form) -> Self {
        Self { version, xid, part, source: Source::Rules(flows, form) }
    }

    /// Begins a reply about the objects with these numbers. An object that is removed before its
    /// entry is written gets no entry.
    pub(super) fn of_numbers(
        version: Version,
        xid: u32,
        part: Part,
        entries: Entries,
        numbers: Vec<u32>,
    ) -> Self {
        Self { version, xid, part, source: Source::Numbers(entries, numbers.into_iter()) }
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn is_of_changes(&self) -> bool {
        matches!(self.source, Source::Rules(_, Form::Changes(_)))
    }

    /// Writes the next entries in separate messages. Returns the number of written entries, and
    /// whether the reply is complete. A rule that the filter leaves out counts as a fraction of an
    /// entry.
    pub(super) fn write_some(
        &mut self,
        monitors: &Monitors,
        bridge: &dyn Bridge,
        out: &mut Vec<u8>,
    ) -> (usize, bool) {
        let version = self.version;
        let most = out.len() + PIECE_BYTES;
        let mut reply = Multipart::new(version, self.xid, self.part, out);
        let (count, is_over) = match &mut self.source {
            Source::Rules(flows, form) => {
                let count = write_rules(flows, form, monitors, bridge, version, most, &mut reply);
                (count, flows.is_over())
            }
            Source::Numbers(entries, left) => {
                let count = write_entries(*entries, left, bridge, version, most, &mut reply);
                (count, left.as_slice().is_empty())
            }
        };
        match self.source {
            // Each message of updates is complete in itself, so the reply needs no part that marks
            // its end.
            Source::Rules(_, Form::Changes(_)) => reply.finish_unless_empty(),
            _ if is_over => reply.finish(),
            _ => reply.interrupt(),
        }
        (count, is_over)
    }
}

fn write_rules(
    flows: &mut Flows,
    form: &mut Form,
    monitors: &Monitors,
    bridge: &dyn Bridge,
    version: Version,
    most: usize,
    reply: &mut Multipart<'_>,
) -> usize {
    let (mut count, mut looked) = (0_usize, 0_usize);
    while count.max(looked / LOOKS_OF_A_RULE) < PIECE_RULES
        && reply.length() < most
        && !flows.is_over()
    {
        looked += 1;
        let Some(flow) = flows.look() else { continue };
        match form {
            Form::Sum(sum) => {
                sum.count(&flow);
                continue;
            }
            Form::Standard if version == Version::V10 => {
                reply.entry(|out| encode_v10_flow(&flow, out));
            }
            Form::Standard => reply.entry(|out| encode_flow(&flow, version, out)),
            Form::Nicira => reply.entry(|out| encode_nicira_flow(&flow, out)),
            Form::Initial(ids) => monitors.initial(ids, &flow, bridge, version, reply),
            Form::Changes(since) => monitors.held_back(*since, &flow, bridge, version, reply),
        }
        count += 1;
    }
    if let Form::Sum(sum) = form
        && flows.is_over()
    {
        reply.entry(|out| encode_aggregate(*sum, version, out));
    }
    count.max(looked / LOOKS_OF_A_RULE)
}

fn write_entries(
    entries: Entries,
    left: &mut IntoIter<u32>,
    bridge: &dyn Bridge,
    version: Version,
    most: usize,
    reply: &mut Multipart<'_>,
) -> usize {
    // Open vSwitch writes the statistics of all tables in one message.
    let piece = if entries == Entries::TableStatistics { MAX_TABLES } else { PIECE_RULES };
    let mut count = 0;
    while count < piece && reply.length() < most {
        let Some(number) = left.next() else { break };
        count += 1;
        reply.entry(|out| write_entry(entries, number, bridge, version, out));
    }
    count
}

/// Writes the entry of the object with this number, or nothing if the object no longer exists.
fn write_entry(
    entries: Entries,
    number: u32,
    bridge: &dyn Bridge,
    version: Version,
    out: &mut Vec<u8>,
) {
    match entries {
        Entries::Groups => {
            if let Some(group) = bridge.group(number) {
                encode_group(&group, version, out);
            }
        }
        Entries::GroupStatistics => {
            if let Some(group) = bridge.group_statistics(number) {
                encode_group_statistics(&group, version, out);
            }
        }
        Entries::Meters => {
            if let Some(meter) = bridge.meter(number) {
                encode_meter(&meter, out);
            }
        }
        Entries::MeterStatistics => {
            if let Some(meter) = bridge.meter_statistics(number) {
                encode_meter_statistics(&meter, out);
            }
        }
        Entries::Ports => {
            if let Some(port) = bridge.port(PortNumber(number)) {
                encode_port(&port, version, out);
            }
        }
        Entries::PortStatistics => {
            if let Some(port) = bridge.port_statistics(PortNumber(number)) {
                encode_port_statistics(&port, version, out);
            }
        }
        Entries::Queues | Entries::QueueStatistics => {
            let id = QueueId::of_number(number);
            let Some(port) = bridge.port_statistics(id.port()) else { return };
            match entries {
                Entries::Queues => encode_queue_description(&port, id, out),
                _ => encode_queue_statistics(&port, id, version, out),
            }
        }
        Entries::Tables | Entries::TableFeatures | Entries::TableStatistics => {
            let table = u8::try_from(number).ok().and_then(|number| bridge.table(number));
            let Some(table) = table else { return };
            match entries {
                Entries::Tables => encode_table_description(&table, out),
                Entries::TableFeatures => encode_table_features(&table, version, out),
                _ => encode_table(&table, version, out),
            }
        }
    }
}

/// Maximum number of entries in a piece. `PIECE_BYTES`: the size above which a piece gets no
/// further entry.
pub const PIECE_RULES: usize = 128;
const MAX_TABLES: usize = 255;
const PIECE_BYTES: usize = 64 << 10;
/// The number of rules that the filter can check in the time that writing one rule takes.
const LOOKS_OF_A_RULE: usize = 16;
