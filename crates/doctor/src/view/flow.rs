use super::End;
use crate::recording::{Connection, ConnectionState, FarEnd, Holder, Path, Period, Recording};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use units::{Bytes, Rate, Span};

/// The data of one connection in its busier direction, with the ends that are on this machine.
#[derive(Debug, Clone)]
pub struct Flow<'a> {
    pub sender: Option<End<'a>>,
    pub receiver: Option<End<'a>>,
    pub far: Option<&'a FarEnd>,
    pub path: Option<&'a Path>,
    /// Whether the flow belongs to the period's test.
    pub tested: bool,
    /// Whether the user asked about the flow.
    pub asked: bool,
    /// Whether the period has a test, of this flow or of another flow.
    pub in_test: bool,
}

impl<'a> Flow<'a> {
    /// Returns the sender's end if it was seen, or else the receiver's.
    pub fn end(&self) -> &End<'a> {
        self.sender.as_ref().or(self.receiver.as_ref()).expect("a flow has at least one end")
    }

    /// Returns the addresses of the sender and of the receiver.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let end = self.end().last();
        if self.sender.is_some() { (end.local, end.remote) } else { (end.remote, end.local) }
    }

    /// Whether both ends are on this machine.
    pub fn is_inside(&self) -> bool {
        self.sender.is_some() && self.receiver.is_some()
    }

    pub fn rate(&self) -> Rate {
        match (&self.sender, &self.receiver) {
            (Some(sender), _) => sender.acked(),
            (None, Some(receiver)) => receiver.received(),
            (None, None) => None,
        }
        .unwrap_or_default()
    }

    pub fn bytes(&self) -> Bytes {
        self.rate().bytes_in(self.end().elapsed())
    }

    /// Whether the SYN of the connection has no reply yet.
    pub fn is_opening(&self) -> bool {
        self.end().last().state == ConnectionState::SynSent
    }

    /// Whether data waits at the sender or stays unread at the receiver, and almost no data
    /// arrived. A request that waits for its answer does not count.
    pub fn is_stalled(&self) -> bool {
        if self.sender.as_ref().is_some_and(End::alternates) {
            return false;
        }
        let waits = match (&self.sender, &self.receiver) {
            (Some(sender), _) => sender.often(|c| c.send_queue > Bytes::ZERO),
            (None, Some(receiver)) => receiver.often(|c| {
                let full = |limit: Bytes| c.receive_queue.count() >= limit.count() / 4;
                c.receive_queue > Bytes::ZERO && c.receive_limit.is_some_and(full)
            }),
            (None, None) => 0.0,
        };
        waits >= 0.9 && self.rate().bits_per_second() < STALLED_BELOW || self.is_left_unread()
    }

    /// Whether a program leaves the little data that arrived unread, because it hangs. Many
    /// programs do not read some connections for a while, so this counts only if the user asks
    /// about the connection.
    pub fn is_left_unread(&self) -> bool {
        let waits = |end: &End<'_>| {
            end.often(|c| c.state == ConnectionState::Established && c.receive_queue > Bytes::ZERO)
        };
        self.asked
            && self.receiver.as_ref().is_some_and(|receiver| waits(receiver) >= 0.9)
            && self.rate().bits_per_second() < STALLED_BELOW
    }

    /// Whether an end waits for an answer that does not come. Many programs do not use some
    /// connections for a while, so this counts only if the user asks about the connection.
    pub fn is_left_waiting(&self) -> bool {
        let mut ends = [&self.sender, &self.receiver].into_iter().flatten();
        self.asked && !self.in_test && ends.any(End::is_left_waiting)
    }

    /// Returns the interface that the flow goes through.
    pub fn interface(&self) -> Option<&'a str> {
        self.path?.interface.as_deref()
    }

    /// Whether the flow moves or waits enough for a diagnosis.
    pub fn is_busy(&self) -> bool {
        let rate = self.rate().bits_per_second();
        let least = if self.asked { 1 } else { BUSY_FROM };
        self.tested
            || self.is_opening()
            || self.is_stalled()
            || self.is_left_waiting()
            || rate >= least
            || self.is_slow()
    }

    /// Whether the sender always has data to send, even if little of it arrives.
    fn is_slow(&self) -> bool {
        self.sender.as_ref().and_then(End::data_waits).is_some_and(|waits| waits >= 0.9)
    }

    /// Returns the names and numbers of the flow's processes.
    pub fn processes(&self) -> String {
        let names: Vec<_> = [&self.sender, &self.receiver]
            .into_iter()
            .flatten()
            .flat_map(|end| &end.last().holders)
            .map(|holder| match holder.pid {
                0 => holder.name.clone(),
                pid => format!("{}[{pid}]", holder.name),
            })
            .collect();
        names.join(", ")
    }

    /// Returns the first process at an end on this machine: at the sender's end, if both ends are
    /// here.
    pub fn holder(&self) -> Option<&'a Holder> {
        let ends = [&self.sender, &self.receiver].into_iter().flatten();
        ends.flat_map(|end| &end.last().holders).next()
    }

    pub fn rtt(&self) -> Option<Span> {
        let receiver = || self.receiver.as_ref()?.median(|c| c.tcp.receive_rtt);
        self.sender.as_ref().and_then(End::rtt).or_else(receiver)
    }
}

/// Returns all flows of a period, the busiest first.
pub(super) fn of<'a>(recording: &'a Recording, period: &'a Period) -> Vec<Flow<'a>> {
    type Key = (SocketAddr, SocketAddr, u64);
    let mut ends: BTreeMap<Key, End<'a>> = BTreeMap::new();
    for sample in &period.samples {
        for connection in &sample.connections {
            let key = (connection.local, connection.remote, connection.cookie);
            let all = &mut ends.entry(key).or_insert(End { all: Vec::new() }).all;
            // A file may have a connection several times in a sample.
            if all.last().is_none_or(|(at, _)| *at != sample.at) {
                all.push((sample.at, connection));
            }
        }
    }
    ends.retain(|_, end| end.all.len() > 1);
    let attempt = period.attempt.as_ref();
    let tested = attempt.into_iter().flat_map(|attempt| &attempt.connections).copied().collect();
    let mut others: BTreeMap<_, _> =
        ends.keys().map(|key| ((key.0, key.1), *key)).collect::<BTreeMap<_, _>>();
    let mut flows = Vec::new();
    while let Some((key, end)) = ends.pop_first() {
        others.remove(&(key.0, key.1));
        let other = others.remove(&(key.1, key.0)).and_then(|key| ends.remove(&key));
        flows.push(joined(recording, period, &tested, end, other));
    }
    flows.sort_by(|a, b| {
        let rank = |flow: &Flow<'_>| {
            let urgent = flow.is_stalled() || flow.is_opening();
            (flow.tested, urgent, flow.bytes())
        };
        rank(b).cmp(&rank(a)).then_with(|| a.addresses().cmp(&b.addresses()))
    });
    flows
}

fn joined<'a>(
    recording: &'a Recording,
    period: &'a Period,
    tested: &BTreeSet<(SocketAddr, SocketAddr)>,
    one: End<'a>,
    other: Option<End<'a>>,
) -> Flow<'a> {
    let amount = |end: &End<'_>, of: fn(&Connection) -> Option<Bytes>| {
        let (later, earlier) = (of(end.last()), of(end.first()));
        later.zip(earlier).map_or(0, |(later, earlier)| later.saturating_sub(earlier).count())
    };
    let sent = amount(&one, |c| c.tcp.bytes_acked);
    let received = amount(&one, |c| c.tcp.bytes_received);
    let attempt = period.attempt.as_ref();
    // Both ends of a test may be on this machine.
    let (local, remote) = (one.last().local, one.last().remote);
    let tested_here = tested.contains(&(local, remote));
    let tested_there = tested.contains(&(remote, local));
    let tested = tested_here || tested_there;
    let waits = one.often(|connection| connection.send_queue > Bytes::ZERO) > 0.5;
    let sends = match attempt {
        Some(attempt) if tested => attempt.sends == tested_here,
        _ => {
            sent > received
                || sent == received && waits
                || one.last().state == ConnectionState::SynSent
        }
    };
    let remote = one.last().remote.ip();
    Flow {
        path: recording.machine.paths.get(&remote),
        far: attempt.filter(|_| tested).and_then(|attempt| attempt.far.as_ref()),
        tested,
        asked: recording.focus.is_some(),
        in_test: attempt.is_some(),
        sender: if sends { Some(one.clone()) } else { other.clone() },
        receiver: if sends { other } else { Some(one) },
    }
}

/// Minimum rate of a transfer, in bits per second: an interactive session is slower.
const BUSY_FROM: u64 = 64_000;
const STALLED_BELOW: u64 = 8_000;
