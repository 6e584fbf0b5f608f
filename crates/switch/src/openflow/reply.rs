//! Replies that list rules, groups or meters. They are made in pieces, so that other peers'
//! requests are answered between them and no more waits for a peer than it reads.

use std::vec::IntoIter;

use super::Version;
use super::flow_statistics::{encode_aggregate, encode_flow, encode_nicira_flow, encode_v10_flow};
use super::group::{encode_group, encode_group_statistics};
use super::meter::{encode_meter, encode_meter_statistics};
use super::monitor::Monitors;
use super::multipart::{Multipart, Part};
use crate::request::{Aggregate, Bridge, Flows};

/// A reply whose last part has not been written.
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

/// The way in which a reply has its rules.
#[derive(Debug)]
pub(super) enum Form {
    Standard,
    Nicira,
    /// One entry for all of them.
    Sum(Aggregate),
    /// For new monitors, by their numbers.
    Initial(Vec<u32>),
    /// Updates of monitors that were paused at this change.
    Changes(u64),
}

/// The entries of a reply about groups or meters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entries {
    Groups,
    GroupStatistics,
    Meters,
    MeterStatistics,
}

impl Reply {
    pub(super) fn new(version: Version, xid: u32, part: Part, flows: Flows, form: Form) -> Self {
        Self { version, xid, part, source: Source::Rules(flows, form) }
    }

    /// A reply about the groups or meters of these numbers. Those that go before their turn comes
    /// have no entry.
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

    /// Writes the next entries in messages of their own. Returns their number, in which rules that
    /// it only looks at count little, and whether the reply is over.
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
            // Each message has updates of its own.
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
    let mut count = 0;
    while count < PIECE_RULES && reply.length() < most {
        let Some(number) = left.next() else { break };
        count += 1;
        match entries {
            Entries::Groups => {
                if let Some(group) = bridge.group(number) {
                    reply.entry(|out| encode_group(&group, version, out));
                }
            }
            Entries::GroupStatistics => {
                if let Some(group) = bridge.group_statistics(number) {
                    reply.entry(|out| encode_group_statistics(&group, version, out));
                }
            }
            Entries::Meters => {
                if let Some(meter) = bridge.meter(number) {
                    reply.entry(|out| encode_meter(&meter, out));
                }
            }
            Entries::MeterStatistics => {
                if let Some(meter) = bridge.meter_statistics(number) {
                    reply.entry(|out| encode_meter_statistics(&meter, out));
                }
            }
        }
    }
    count
}

/// The most entries of a piece, and the bytes after which it takes no more.
pub(crate) const PIECE_RULES: usize = 128;
const PIECE_BYTES: usize = 64 << 10;
/// A rule that is only looked at takes that much less time than one that is written.
const LOOKS_OF_A_RULE: usize = 16;
