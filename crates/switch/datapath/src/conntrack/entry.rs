use super::settings::{Lifetimes, Phase};
use super::tcp::{self, End, Segment, Update};
use super::tuple::{ICMP, ICMPV6, Kind, Ports, TCP, Tuple, is_icmp};
use crate::{Guess, GuessFor};

/// A connection: two cache lines. A packet over IPv4 needs only the first cache line, except for
/// TCP, which needs both lines.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Entry {
    /// For IPv6: both addresses. For IPv4: word 0 has both addresses, word 1 the translated address
    /// and the reply's ports, word 2 the guesses of both directions for the lookup after tracking,
    /// and word 3 the guesses for the lookup at arrival ([`Entry::guess_v4`]).
    near: [u64; 4],
    ports: Ports,
    zone: u16,
    protocol: u8,
    kind: Kind,
    /// The time at which the connection expires, in milliseconds of the caller's clock.
    pub(super) expires: u64,
    pub(super) mark: u32,
    pub(super) helper: u16,
    stage: Stage,
    flags: u8,
    /// The neighbours in the list of a timer slot; for a free entry, `next` is the next free entry.
    pub(super) next: u32,
    pub(super) previous: u32,

    pub(super) far: Far,
}

/// The second cache line of an [`Entry`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Far {
    label: u128,
    /// `translated` and `reply_ports` are used for connections over IPv6 only.
    translated: u128,
    reply_ports: Ports,
    ends: [End; 2],
    /// The entry's timer slot.
    pub(super) slot: u16,
    /// The index of the counter for the port and the zone in which the connection began.
    holder: u16,
}

/// The progress of a connection that is not TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A single packet, or only ICMP requests.
    First,
    /// Several packets, all from the first endpoint.
    Multiple,
    /// Packets from both endpoints.
    Both,
}

/// The translation of packets of the original direction: the address that changes.
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
    /// The packet starts a new connection that replaces this connection.
    Restart,
}

/// The addresses and the ports of a packet over IPv4, each with the source in the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) addresses: u64,
    pub(super) ports: u32,
}

impl Words {
    #[inline(always)]
    fn reversed(self) -> Self {
        Self { addresses: self.addresses.rotate_left(32), ports: self.ports.rotate_left(16) }
    }
}

impl Entry {
    pub(super) const FREE: Self = Self {
        near: [0; 4],
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
        far: Far {
            label: 0,
            translated: 0,
            reply_ports: Ports { source: 0, destination: 0 },
            ends: [End::FREE; 2],
            slot: 0,
            holder: 0,
        },
    };

    /// Builds a free slot. `next` is the next free slot.
    pub(super) fn free(next: u32) -> Self {
        Self { next, ..Self::FREE }
    }

    /// Builds a connection that starts with a packet of this tuple. For TCP, `segment` is required.
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
        let mut entry = Self {
            near: near(tuple),
            ports: tuple.ports,
            zone: tuple.zone,
            protocol: tuple.protocol,
            kind: tuple.kind,
            expires: now.saturating_add(lifetimes.of(phase)),
            flags: IN_USE,
            ..Self::FREE
        };
        entry.far.ends = segment.map_or([End::FREE; 2], tcp::start);
        entry
    }

    /// Adds a translation, which makes `reply` the tuple of the reply direction.
    pub(super) fn translate(&mut self, translation: Translation, reply: &Tuple) {
        let (flag, address) = match translation {
            Translation::Source => (SOURCE, reply.destination),
            Translation::Destination => (DESTINATION, reply.source),
        };
        self.flags |= flag;
        if self.kind.is_v6() {
            (self.far.translated, self.far.reply_ports) = (address, reply.ports);
        } else {
            let ports = u64::from(reply.ports.source) << 16 | u64::from(reply.ports.destination);
            self.near[1] = (address as u64) << 32 | ports;
        }
    }

    #[inline]
    pub(super) fn original(&self) -> Tuple {
        let [first, second, third, fourth] = self.near;
        let (source, destination) = if self.kind.is_v6() {
            (wide(first, second), wide(third, fourth))
        } else {
            ((first >> 32).into(), (first & 0xffff_ffff).into())
        };
        Tuple {
            source,
            destination,
            ports: self.ports,
            zone: self.zone,
            protocol: self.protocol,
            kind: self.kind,
        }
    }

    #[inline]
    pub(super) fn reply(&self) -> Tuple {
        let mut reply = self.original().reversed();
        let Some(translation) = self.translation() else { return reply };
        let address;
        (address, reply.ports) = if self.kind.is_v6() {
            (self.far.translated, self.far.reply_ports)
        } else {
            let word = self.near[1];
            let ports = Ports { source: (word >> 16) as u16, destination: word as u16 };
            ((word >> 32).into(), ports)
        };
        match translation {
            Translation::Source => reply.destination = address,
            Translation::Destination => reply.source = address,
        }
        reply
    }

    /// Most connections have no label and need no access to the second cache line.
    #[inline]
    pub(super) fn label(&self) -> u128 {
        if self.flags & LABEL == 0 { 0 } else { self.far.label }
    }

    pub(super) fn set_label(&mut self, label: u128) {
        self.far.label = label;
        self.flags = self.flags & !LABEL | if label == 0 { 0 } else { LABEL };
    }

    /// Returns the guess that [`Entry::set_guess`] stored for a direction, or [`Guess::NONE`].
    #[inline(always)]
    pub(super) fn guess_v4(&self, lookup: GuessFor, is_reply: bool) -> Guess {
        let (word, shift) = guess_place(lookup, is_reply);
        Guess((self.near[word] >> shift) as u32)
    }

    /// Returns the guess for a packet that arrives with these addresses, before the lookup shows
    /// whether the packet belongs to this connection.
    #[inline(always)]
    pub(super) fn guess_at_arrival(&self, addresses: u64) -> Option<Guess> {
        let is_reply = self.is_reply_v4(addresses);
        (!self.kind.is_v6()).then(|| self.guess_v4(GuessFor::Arrival, is_reply))
    }

    /// Stores a guess. Connections over IPv6 have no space for guesses.
    pub(super) fn set_guess(&mut self, lookup: GuessFor, is_reply: bool, Guess(guess): Guess) {
        if !self.kind.is_v6() {
            let (word, shift) = guess_place(lookup, is_reply);
            self.near[word] = self.near[word] & !(0xffff_ffff << shift) | u64::from(guess) << shift;
        }
    }

    /// Whether a packet of this connection over IPv4 that arrives with these addresses is a reply.
    pub(super) fn is_reply_v4(&self, addresses: u64) -> bool {
        self.near[0] != addresses
    }

    #[inline]
    pub(super) fn translation(&self) -> Option<Translation> {
        match self.flags & (SOURCE | DESTINATION) {
            SOURCE => Some(Translation::Source),
            DESTINATION => Some(Translation::Destination),
            _ => None,
        }
    }

    /// `Some(true)` for the tuple of the reply direction, `Some(false)` for the original tuple,
    /// `None` for a tuple of another connection.
    #[inline]
    pub(super) fn direction(&self, tuple: &Tuple) -> Option<bool> {
        if self.flags & IN_USE == 0 {
            return None;
        }
        if self.is_original(tuple) {
            return Some(false);
        }
        (self.reply() == *tuple).then_some(true)
    }

    #[inline]
    fn is_original(&self, tuple: &Tuple) -> bool {
        let [first, second, third, fourth] = near(tuple);
        let is_wide = self.kind.is_v6();
        let rest = (self.near[1] ^ second) | (self.near[2] ^ third) | (self.near[3] ^ fourth);
        self.near[0] == first
            && (!is_wide || rest == 0)
            && self.ports == tuple.ports
            && (self.zone, self.protocol, self.kind) == (tuple.zone, tuple.protocol, tuple.kind)
    }

    /// [`Entry::direction`] for the addresses and ports of a packet over IPv4.
    #[inline(always)]
    pub(super) fn direction_v4(&self, packet: Words, zone: u16, protocol: u8) -> Option<bool> {
        // A connection with a helper, or that a helper expected, takes the slower path.
        if self.flags & (IN_USE | ASSISTED) != IN_USE
            || (self.zone, self.protocol, self.kind) != (zone, protocol, Kind::V4)
        {
            return None;
        }
        if self.original_v4() == packet {
            return Some(false);
        }
        (self.reply_v4() == packet).then_some(true)
    }

    /// Returns the words of the original direction over IPv4.
    #[inline(always)]
    pub(super) fn original_v4(&self) -> Words {
        let Ports { source, destination } = self.ports;
        Words { addresses: self.near[0], ports: u32::from(source) << 16 | u32::from(destination) }
    }

    #[inline(always)]
    fn reply_v4(&self) -> Words {
        let Words { addresses, ports } = self.original_v4().reversed();
        let (translated, new_ports) = (self.near[1] >> 32, self.near[1] as u32);
        let (low, high) = (addresses & 0xffff_ffff, addresses >> 32);
        match self.translation() {
            None => Words { addresses, ports },
            Some(Translation::Source) => {
                Words { addresses: high << 32 | translated, ports: new_ports }
            }
            Some(Translation::Destination) => {
                Words { addresses: translated << 32 | low, ports: new_ports }
            }
        }
    }

    /// Returns the addresses and ports with which a packet over IPv4 leaves after translation: the
    /// reverse of the addresses and ports of the other direction.
    #[inline(always)]
    pub(super) fn translated_v4(&self, is_reply: bool) -> Words {
        let other = if is_reply { self.original_v4() } else { self.reply_v4() };
        other.reversed()
    }

    /// Whether the connection has this tuple in either direction and has not expired.
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

    pub(super) fn holder(&self) -> u16 {
        self.far.holder
    }

    pub(super) fn set_holder(&mut self, holder: u16) {
        self.far.holder = holder;
    }

    /// Whether both endpoints have sent packets.
    pub(super) fn has_reply(&self) -> bool {
        match self.protocol {
            TCP => !self.is_half_open(),
            _ => self.stage == Stage::Both,
        }
    }

    /// Whether this is a TCP connection whose handshake is not complete.
    pub(super) fn is_half_open(&self) -> bool {
        let [first, second] = &self.far.ends;
        self.protocol == TCP
            && first.state.min(second.state) < tcp::State::Established
            && first.state.max(second.state) <= tcp::State::Established
    }

    /// Whether the connection has a helper, or was expected by a helper.
    #[inline]
    pub(super) fn is_assisted(&self) -> bool {
        self.flags & ASSISTED != 0
    }

    pub(super) fn set_assisted(&mut self) {
        self.flags |= ASSISTED;
    }

    /// Returns the later of the states of the connection's two endpoints.
    pub(super) fn tcp_state(&self) -> Option<tcp::State> {
        let [first, second] = &self.far.ends;
        (self.protocol == TCP).then(|| first.state.max(second.state))
    }

    /// Updates the connection's state and expiry with a packet of the connection.
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
            let update =
                tcp::update(&mut self.far.ends, segment, is_reply, rules.checks_tcp_sequence);
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
        // Write only a changed value: a write makes the cache line dirty, which costs more than the
        // comparison.
        if self.expires != expires {
            self.expires = expires;
        }
        verdict
    }
}

/// Returns the word of `near` that holds a guess, and the guess's lowest bit in this word.
#[inline(always)]
fn guess_place(lookup: GuessFor, is_reply: bool) -> (usize, u32) {
    let word = match lookup {
        GuessFor::Tracked => 2,
        GuessFor::Arrival => 3,
    };
    (word, u32::from(is_reply) * 32)
}

/// Returns the addresses of a new connection in the layout of [`Entry`].
#[inline]
fn near(tuple: &Tuple) -> [u64; 4] {
    let (source, destination) = (tuple.source, tuple.destination);
    if tuple.kind.is_v6() {
        let high = |address: u128| (address >> 64) as u64;
        return [high(source), source as u64, high(destination), destination as u64];
    }
    [(source as u64) << 32 | destination as u64, 0, 0, 0]
}

fn wide(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// The settings that an update needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) lifetimes: Lifetimes,
    pub(super) checks_tcp_sequence: bool,
}

/// The number that means "no entry".
pub(super) const NONE: u32 = u32::MAX;
const IN_USE: u8 = 1;
const SOURCE: u8 = 1 << 1;
const DESTINATION: u8 = 1 << 2;
const LABEL: u8 = 1 << 3;
const ASSISTED: u8 = 1 << 4;

const _: () = assert!(size_of::<Entry>() == 128);
