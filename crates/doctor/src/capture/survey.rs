//! The first pass over a capture: the connections in the capture, and the bytes that each moved.

use super::track::{Ends, ends};
use crate::observe::Focus;
use std::collections::HashMap;
use wire::tcp::Segment;

#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) connections: HashMap<Ends, Seen>,
    pub(super) packets: u64,
    pub(super) segments: u64,
    /// Segments of the connections beyond the first [`MOST_COUNTED`].
    pub(super) uncounted: u64,
    /// Connections beyond the [`MOST_BUSY`] busiest, which are not judged.
    pub(super) unjudged: usize,
    /// Nanoseconds of the first and of the last packet.
    pub(super) times: Option<(u64, u64)>,
    pub(super) opened: u64,
    pub(super) refused: u64,
    pub(super) repeated_syns: u64,
    pub(super) reset: u64,
}

/// The facts about a connection that need no state of its sender or its receiver.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    pub(super) bytes: u64,
    pub(super) first: u64,
    /// The time of the last packet with data, or with an acknowledgement of the other end.
    pub(super) last: u64,
    syn: Option<u32>,
    is_answered: bool,
    is_over: bool,
    waits: bool,
    ways: [bool; 2],
    /// Whether the capture cut the options off a SYN.
    lacks_options: bool,
}

impl Seen {
    /// Whether the connection moved data, and the capture lacks its SYN or the SYN's options.
    pub(super) fn lacks_scale(&self) -> bool {
        (self.syn.is_none() || self.lacks_options) && self.bytes > 0
    }

    /// Whether the capture has one direction only. A SYN without an answer does not count.
    pub(super) fn is_one_way(&self) -> bool {
        let is_opening = self.syn.is_some() && self.bytes == 0;
        self.ways[0] != self.ways[1] && !is_opening
    }
}

impl Survey {
    pub(super) fn take(&mut self, now: u64, segment: &Segment, is_cut: bool) {
        self.segments += 1;
        let ends = ends(segment);
        if self.connections.len() >= MOST_COUNTED && !self.connections.contains_key(&ends) {
            self.uncounted += 1;
            return;
        }
        let seen = self.connections.entry(ends).or_insert(Seen { first: now, ..Seen::default() });
        seen.ways[usize::from(segment.source != ends.0)] = true;
        seen.bytes = seen.bytes.saturating_add(segment.payload.into());
        let flags = segment.flags;
        if flags.syn() && !flags.ack() {
            match seen.syn == Some(segment.sequence) {
                true => self.repeated_syns += 1,
                false => self.opened += 1,
            }
            seen.syn = Some(segment.sequence);
        }
        let has_scale = segment.options.window_scale.is_some();
        seen.lacks_options |= flags.syn() && is_cut && !has_scale;
        if flags.rst() && !seen.is_over {
            match seen.syn.is_some() && !seen.is_answered {
                true => self.refused += 1,
                false => self.reset += u64::from(!seen.waits),
            }
        }
        // A reset behind a FIN is not counted: the connection was ending.
        seen.waits |= flags.fin();
        seen.is_over |= flags.rst();
        seen.is_answered |= flags.ack() && !flags.rst();
        if !seen.is_over {
            seen.last = now;
        }
    }

    /// Returns the connections to judge: connections that moved most data, and some connections
    /// whose SYN got no answer. Also returns the number of further connections.
    pub(super) fn chosen(&self, focus: &Focus) -> (Vec<Ends>, usize) {
        let is_asked = |(one, other): &Ends| match focus {
            Focus::All | Focus::Process(_) => true,
            Focus::Port(port) => one.port() == *port || other.port() == *port,
            Focus::Address(ip) => one.ip() == *ip || other.ip() == *ip,
            Focus::Socket(socket) => one == socket || other == socket,
        };
        let mut all: Vec<_> = self.connections.iter().filter(|(ends, _)| is_asked(ends)).collect();
        all.sort_by_key(|(ends, seen)| (std::cmp::Reverse(seen.bytes), seen.first, **ends));
        let silent = |seen: &Seen| seen.syn.is_some() && !seen.is_answered && !seen.is_over;
        // A diagnosis puts unanswered handshakes first, so a few of them suffice.
        let moved = all.iter().filter(|(_, seen)| seen.bytes > 0).count();
        let busy = if moved > 0 { moved } else { all.len() };
        let (mut chosen, rest) = (Vec::new(), all.split_off(busy.min(MOST_BUSY)));
        chosen.extend(all.into_iter().map(|(ends, _)| *ends));
        let rest = rest.into_iter().filter(|(_, seen)| silent(seen)).take(MOST_SILENT);
        chosen.extend(rest.map(|(ends, _)| *ends));
        (chosen, busy.saturating_sub(MOST_BUSY))
    }

    /// Returns the time from the first to the last packet of the connection that moved most.
    pub(super) fn period(&self, chosen: &[Ends]) -> Option<(u64, u64)> {
        let seen = self.connections.get(chosen.first()?)?;
        let (first, last) = self.times?;
        let until = if seen.is_over || seen.waits { seen.last } else { last };
        // A connection that rests for most of the capture is judged until its last packet.
        let rests = until.saturating_sub(seen.last) > until.saturating_sub(first) / 2;
        let until = if rests && seen.is_answered && seen.bytes > 0 { seen.last } else { until };
        Some((seen.first, until.max(seen.first)))
    }
}

const MOST_COUNTED: usize = 200_000;
pub(super) const MOST_BUSY: usize = 24;
const MOST_SILENT: usize = 4;
