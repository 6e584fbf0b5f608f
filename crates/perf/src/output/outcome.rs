//! The directions of a test's streams, and the totals of each direction.

use super::limits;
use crate::event::{Datagrams, End, Role, StreamInterval, StreamTotal};
use crate::observe::tcp::LimitedBy;
use units::{Bytes, Span};

#[derive(Debug, Clone)]
pub struct DirectionStreams<'a, S> {
    /// True for the direction from the client to the server. In a bidirectional test, iperf3 calls
    /// the opposite direction `bidir_reverse`.
    pub forward: bool,
    pub sends: bool,
    pub streams: Vec<&'a S>,
}

pub trait Sends {
    fn sends(&self) -> bool;
}

/// Groups the streams by direction; the direction from the client to the server comes first.
pub fn directions<S: Sends>(role: Role, streams: &[S]) -> Vec<DirectionStreams<'_, S>> {
    [true, false]
        .into_iter()
        .map(|forward| {
            let sends = forward == (role == Role::Client);
            let streams = streams.iter().filter(|stream| stream.sends() == sends).collect();
            DirectionStreams { forward, sends, streams }
        })
        .filter(|direction| !direction.streams.is_empty())
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    pub bytes: Bytes,
    pub retransmits: Option<u64>,
    pub datagrams: Option<Datagrams>,
    pub cwnd: Option<Bytes>,
    /// The round-trip time; the mean if there are several streams.
    pub rtt: Option<Span>,
}

impl Progress {
    pub fn of(streams: &[&StreamInterval]) -> Self {
        let each = || streams.iter().copied();
        let rtts: Vec<Span> = each().filter_map(|stream| stream.tcp?.rtt).collect();
        let total = rtts.iter().fold(Span::ZERO, |sum, rtt| sum + *rtt);
        Self {
            bytes: each().map(|stream| stream.bytes).sum(),
            retransmits: some_sum(each().map(|stream| stream.retransmits)),
            datagrams: together(each().map(|stream| stream.datagrams)),
            cwnd: some_sum(each().map(|s| Some(s.tcp?.cwnd()?.count()))).map(Bytes::new),
            rtt: (!rtts.is_empty()).then(|| total / rtts.len() as u64),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub sent: End,
    pub received: End,
    pub retransmits: Option<u64>,
    pub bytes_retransmitted: Option<Bytes>,
    pub datagrams_sent: Option<u64>,
    pub datagrams: Option<Datagrams>,
    pub limited_by: Option<LimitedBy>,
}

impl Outcome {
    pub fn of(streams: &[&StreamTotal]) -> Self {
        let each = || streams.iter().copied();
        let paths = || each().filter_map(|s| Some((s.path.as_ref()?, s.sent.elapsed)));
        Self {
            sent: end(each().map(|stream| stream.sent)),
            received: end(each().map(|stream| stream.received)),
            retransmits: some_sum(each().map(|stream| stream.retransmits)),
            bytes_retransmitted: some_sum(
                each().map(|stream| Some(stream.path?.bytes_retransmitted?.count())),
            )
            .map(Bytes::new),
            datagrams_sent: some_sum(each().map(|stream| stream.datagrams_sent)),
            datagrams: together(each().map(|stream| stream.datagrams)),
            limited_by: limits::together(paths()),
        }
    }

    /// Returns the number of sent datagrams by the sender's count, or else by the receiver's.
    pub fn datagrams_of_sender(&self) -> u64 {
        self.datagrams_sent.or(self.datagrams.map(|datagrams| datagrams.count)).unwrap_or(0)
    }
}

impl Sends for StreamInterval {
    fn sends(&self) -> bool {
        self.sends
    }
}

impl Sends for StreamTotal {
    fn sends(&self) -> bool {
        self.sends
    }
}

/// Adds up the bytes of concurrent streams; the time is the time of the longest stream.
fn end(ends: impl Iterator<Item = End>) -> End {
    ends.fold(End::default(), |sum, end| End {
        bytes: sum.bytes + end.bytes,
        elapsed: sum.elapsed.max(end.elapsed),
    })
}

fn some_sum(counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.flatten().reduce(u64::saturating_add)
}

/// Adds up datagram counts. As in iperf3, the jitter of several streams is the mean.
fn together(datagrams: impl Iterator<Item = Option<Datagrams>>) -> Option<Datagrams> {
    let known: Vec<Datagrams> = datagrams.flatten().collect();
    let jitter = known.iter().fold(Span::ZERO, |sum, one| sum + one.jitter);
    let jitter = jitter / (known.len().max(1) as u64);
    let sum = known.into_iter().reduce(|a, b| Datagrams {
        count: a.count.saturating_add(b.count),
        received: a.received.saturating_add(b.received),
        lost: a.lost.saturating_add(b.lost),
        reordered: a.reordered.saturating_add(b.reordered),
        duplicates: a.duplicates.saturating_add(b.duplicates),
        jitter,
    })?;
    Some(Datagrams { jitter, ..sum })
}
