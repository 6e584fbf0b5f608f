use super::settings::{Lifetimes, Phase};
use super::tcp::{self, End, Segment, Update};
use super::tuple::{ICMP, ICMPV6, Kind, Ports, TCP, Tuple, is_icmp};

/// A connection: two cache lines. A packet of a protocol other than TCP needs the first one alone,
/// if the connection has no label and no translation.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Entry {
    source: u128,
    destination: u128,
    ports: Ports,
    zone: u16,
    protocol: u8,
    kind: Kind,
    /// Milliseconds of the caller's clock. The connection has expired at this time.
    pub(super) expires: u64,
    pub(super) mark: u32,
    pub(super) helper: u16,
    stage: Stage,
    flags: u8,
    /// Neighbours in the list of a timer slot, or of free entries.
    pub(super) next: u32,
    pub(super) previous: u32,

    pub(super) label: u128,
    translated: u128,
    ends: [End; 2],
    reply_ports: Ports,
    /// The timer slot.
    pub(super) slot: u16,
}

/// The progress of a connection that is not TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// One packet, or for ICMP requests alone.
    First,
    /// Several packets from the first end.
    Multiple,
    /// Packets from both ends.
    Both,
}

/// Which address a connection's translation replaces in packets of the original direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Translation {
    Source,
    Destination,
}

/// The effect of a packet on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Established,
    New,
    Invalid,
    /// The packet starts another connection in place of this one.
    Restart,
}

impl Entry {
    pub(super) const FREE: Self = Self {
        source: 0,
        destination: 0,
        ports: Ports { source: 0, destination: 0 },
        zone: 0,
        protocol: 0,
        kind: Kind::V4,
        expires: 0,
        mark: 0,
        helper: 0,
        stage: Stage::First,
        flags: 0,
        next: NONE,
        previous: NONE,
        label: 0,
        translated: 0,
        ends: [End::FREE; 2],
        reply_ports: Ports { source: 0, destination: 0 },
        slot: 0,
    };

    /// A free place, in front of another one.
    pub(super) fn free(next: u32) -> Self {
        Self { next, ..Self::FREE }
    }

    /// A connection that starts with a packet of this tuple. TCP needs the segment.
    pub(super) fn new(
        tuple: &Tuple,
        segment: Option<&Segment>,
        lifetimes: &Lifetimes,
        now: u64,
    ) -> Self {
        let phase = match tuple.protocol {
            TCP => Phase::TcpSynSent,
            ICMP | ICMPV6 => Phase::IcmpFirst,
            _ => Phase::UdpFirst,
        };
        Self {
            source: tuple.source,
            destination: tuple.destination,
            ports: tuple.ports,
            zone: tuple.zone,
            protocol: tuple.protocol,
            kind: tuple.kind,
            expires: now.saturating_add(lifetimes.of(phase)),
            flags: IN_USE,
            ends: segment.map_or([End::FREE; 2], tcp::start),
            reply_ports: tuple.ports.reversed(),
            ..Self::FREE
        }
    }

    /// Adds a translation, which makes `reply` the tuple of the reply direction.
    pub(super) fn translate(&mut self, translation: Translation, reply: &Tuple) {
        self.reply_ports = reply.ports;
        (self.flags, self.translated) = match translation {
            Translation::Source => (self.flags | SOURCE, reply.destination),
            Translation::Destination => (self.flags | DESTINATION, reply.source),
        };
    }

    pub(super) fn original(&self) -> Tuple {
        Tuple {
            source: self.source,
            destination: self.destination,
            ports: self.ports,
            zone: self.zone,
            protocol: self.protocol,
            kind: self.kind,
        }
    }

    pub(super) fn reply(&self) -> Tuple {
        let mut reply = self.original().reversed();
        match self.translation() {
            Some(Translation::Source) => reply.destination = self.translated,
            Some(Translation::Destination) => reply.source = self.translated,
            None => return reply,
        }
        reply.ports = self.reply_ports;
        reply
    }

    pub(super) fn translation(&self) -> Option<Translation> {
        match self.flags & (SOURCE | DESTINATION) {
            SOURCE => Some(Translation::Source),
            DESTINATION => Some(Translation::Destination),
            _ => None,
        }
    }

    /// `Some(true)` if the tuple is that of the reply direction, `None` if it is another
    /// connection's.
    #[inline]
    pub(super) fn direction(&self, tuple: &Tuple) -> Option<bool> {
        if self.flags & IN_USE == 0 {
            return None;
        }
        if self.original() == *tuple {
            return Some(false);
        }
        (self.reply() == *tuple).then_some(true)
    }

    /// Whether the tuple is one of this connection's, which has not expired.
    pub(super) fn is_live_as(&self, tuple: &Tuple, now: u64) -> bool {
        self.direction(tuple).is_some() && !self.has_expired(now)
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.flags & IN_USE != 0
    }

    #[inline]
    pub(super) fn has_expired(&self, now: u64) -> bool {
        now >= self.expires
    }

    pub(super) fn zone(&self) -> u16 {
        self.zone
    }

    pub(super) fn protocol(&self) -> u8 {
        self.protocol
    }

    /// A TCP connection whose handshake is not complete.
    pub(super) fn is_half_open(&self) -> bool {
        let [first, second] = &self.ends;
        self.protocol == TCP
            && first.state.min(second.state) < tcp::State::Established
            && first.state.max(second.state) <= tcp::State::Established
    }

    /// The later of both ends' states.
    pub(super) fn tcp_state(&self) -> Option<tcp::State> {
        let [first, second] = &self.ends;
        (self.protocol == TCP).then(|| first.state.max(second.state))
    }

    /// Takes a packet of the connection into account.
    #[inline]
    pub(super) fn update(
        &mut self,
        segment: Option<&Segment>,
        is_reply: bool,
        rules: &Rules,
        now: u64,
    ) -> Verdict {
        if self.protocol == TCP {
            let Some(segment) = segment else {
                return Verdict::Invalid;
            };
            let update = tcp::update(&mut self.ends, segment, is_reply, rules.checks_tcp_sequence);
            return match update {
                Update::Valid(phase) => self.prolong(phase, rules, now, Verdict::Established),
                Update::New(phase) => self.prolong(phase, rules, now, Verdict::New),
                Update::Tolerated => Verdict::Established,
                Update::Invalid => Verdict::Invalid,
                Update::Restart => Verdict::Restart,
            };
        }
        if is_icmp(self.protocol) {
            if is_reply {
                self.stage = Stage::Both;
            }
            return if self.stage == Stage::Both {
                self.prolong(Phase::IcmpReply, rules, now, Verdict::Established)
            } else {
                self.prolong(Phase::IcmpFirst, rules, now, Verdict::New)
            };
        }
        if is_reply {
            self.stage = Stage::Both;
        } else if self.stage == Stage::First {
            self.stage = Stage::Multiple;
        }
        if self.stage == Stage::Both {
            self.prolong(Phase::UdpMultiple, rules, now, Verdict::Established)
        } else {
            self.prolong(Phase::UdpSingle, rules, now, Verdict::New)
        }
    }

    #[inline]
    fn prolong(&mut self, phase: Phase, rules: &Rules, now: u64, verdict: Verdict) -> Verdict {
        let expires = now.saturating_add(rules.lifetimes.of(phase));
        // A write makes the line dirty, which costs more than the comparison.
        if self.expires != expires {
            self.expires = expires;
        }
        verdict
    }
}

/// The settings that an update needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) lifetimes: Lifetimes,
    pub(super) checks_tcp_sequence: bool,
}

/// No entry.
pub(super) const NONE: u32 = u32::MAX;
const IN_USE: u8 = 1;
const SOURCE: u8 = 1 << 1;
const DESTINATION: u8 = 1 << 2;

const _: () = assert!(size_of::<Entry>() == 128);
