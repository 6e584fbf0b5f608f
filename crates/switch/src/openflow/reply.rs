//! Replies that list rules. They are made in pieces, so that other peers' requests are answered
//! between them and no more waits for a peer than it reads.

use super::Version;
use super::flow_statistics::{encode_aggregate, encode_flow, encode_nicira_flow, encode_v10_flow};
use super::monitor::Monitors;
use super::multipart::{Multipart, Part};
use crate::request::{Aggregate, Bridge, Flows};

/// A reply whose last part has not been written.
#[derive(Debug)]
pub(super) struct Reply {
    version: Version,
    xid: u32,
    part: Part,
    flows: Flows,
    form: Form,
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

impl Reply {
    pub(super) fn new(version: Version, xid: u32, part: Part, flows: Flows, form: Form) -> Self {
        Self { version, xid, part, flows, form }
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn is_of_changes(&self) -> bool {
        matches!(self.form, Form::Changes(_))
    }

    /// Writes the next rules in messages of their own. Returns their number, in which those that
    /// it only looks at count little, and whether the reply is over.
    pub(super) fn write_some(
        &mut self,
        monitors: &Monitors,
        bridge: &dyn Bridge,
        out: &mut Vec<u8>,
    ) -> (usize, bool) {
        let (mut count, mut looked) = (0_usize, 0_usize);
        let most = out.len() + PIECE_BYTES;
        let mut reply = Multipart::new(self.version, self.xid, self.part, out);
        while count.max(looked / LOOKS_OF_A_RULE) < PIECE_RULES
            && reply.length() < most
            && !self.flows.is_over()
        {
            looked += 1;
            let Some(flow) = self.flows.look() else { continue };
            match &mut self.form {
                Form::Sum(sum) => {
                    sum.count(&flow);
                    continue;
                }
                Form::Standard if self.version == Version::V10 => {
                    reply.entry(|out| encode_v10_flow(&flow, out));
                }
                Form::Standard => reply.entry(|out| encode_flow(&flow, self.version, out)),
                Form::Nicira => reply.entry(|out| encode_nicira_flow(&flow, out)),
                Form::Initial(ids) => {
                    monitors.initial(ids, &flow, bridge, self.version, &mut reply);
                }
                Form::Changes(since) => {
                    monitors.held_back(*since, &flow, bridge, self.version, &mut reply);
                }
            }
            count += 1;
        }
        let is_over = self.flows.is_over();
        if is_over && let Form::Sum(sum) = self.form {
            reply.entry(|out| encode_aggregate(sum, self.version, out));
        }
        match self.form {
            // Each message has updates of its own.
            Form::Changes(_) => reply.finish_unless_empty(),
            _ if is_over => reply.finish(),
            _ => reply.interrupt(),
        }
        (count.max(looked / LOOKS_OF_A_RULE), is_over)
    }
}

/// The most rules of a piece, and the bytes after which it takes no more rules.
pub(crate) const PIECE_RULES: usize = 128;
const PIECE_BYTES: usize = 64 << 10;
/// A rule that is only looked at takes that much less time than one that is written.
const LOOKS_OF_A_RULE: usize = 16;
