//! A naive model of connection tracking: a list of connections, searched from the front.

use std::net::IpAddr;

use flow::action::{NatAddresses, NatDirection};
use flow::step::Track;

use crate::frames::{End, Frame};

/// Timeouts of the model in milliseconds. Multiples of 256, the wheel's precision, make expiry
/// exact.
pub(crate) mod timeout {
    pub(crate) const SYN_SENT: u64 = 256 * 120;
    pub(crate) const SYN_RECV: u64 = 256 * 110;
    pub(crate) const ESTABLISHED: u64 = 256 * 10_000;
    pub(crate) const FIN_WAIT: u64 = 256 * 900;
    pub(crate) const TIME_WAIT: u64 = 256 * 170;
    pub(crate) const CLOSE: u64 = 256 * 100;
    pub(crate) const UDP_FIRST: u64 = 256 * 230;
    pub(crate) const UDP_SINGLE: u64 = 256 * 240;
    pub(crate) const UDP_MULTIPLE: u64 = 256 * 130;
    pub(crate) const ICMP_FIRST: u64 = 256 * 220;
    pub(crate) const ICMP_REPLY: u64 = 256 * 125;
}

/// The endpoints, the ICMP type of a packet in this direction, the protocol and the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) kind: Option<u8>,
    pub(crate) protocol: u8,
    pub(crate) zone: u16,
}

impl Tuple {
    pub(crate) fn reversed(self) -> Self {
        let kind = self.kind.map(|kind| match kind {
            8 => 0,
            0 => 8,
            128 => 129,
            _ => 128,
        });
        Self { from: self.to, to: self.from, kind, ..self }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) original: Tuple,
    pub(crate) reply: Tuple,
    pub(crate) source_nat: Option<bool>,
    pub(crate) mark: u32,
    pub(crate) label: u128,
    pub(crate) expires: u64,
    has_reply: bool,
    packets: u32,
    peers: [Peer; 2],
}

/// An endpoint, as in `struct tcp_peer` of pf: its window, and the sequence numbers up to which the
/// endpoint has sent and may send.
#[derive(Debug, Clone, Copy, Default)]
struct Peer {
    seqlo: u32,
    seqhi: u32,
    max_win: u32,
    /// The window scale: 0x80 and the shift if it is known, 0x40 if it is unknown.
    wscale: u32,
    /// The state: 0 closed, 1 SYN sent, 2 established, 3 closing, 4 FIN acknowledged, 5 reset.
    state: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) connections: Vec<Connection>,
}

/// The result that the model predicts for a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prediction {
    pub(crate) flags: u16,
    pub(crate) mark: u32,
    pub(crate) label: u128,
    pub(crate) original: Option<Tuple>,
    /// The packet's endpoints after tracking; `None` if a new translation chooses the endpoints.
    pub(crate) ends: Option<(End, End)>,
}

pub(crate) const NEW: u16 = 1;
pub(crate) const EST: u16 = 2;
pub(crate) const REL: u16 = 4;
pub(crate) const RPL: u16 = 8;
pub(crate) const INV: u16 = 16;
pub(crate) const TRK: u16 = 32;
pub(crate) const SNAT: u16 = 64;
pub(crate) const DNAT: u16 = 128;

impl Model {
    pub(crate) fn expire(&mut self, now: u64) {
        self.connections.retain(|connection| connection.expires > now);
    }

    /// `prior`: the flags of an earlier pass in this zone. `quoted`: the tuple of the packet that
    /// an ICMP error quotes.
    pub(crate) fn track(
        &mut self,
        frame: &Frame,
        quoted: Option<Tuple>,
        track: &Track,
        prior: u16,
        now: u64,
    ) -> Prediction {
        self.expire(now);
        let tuple = match quoted {
            Some(tuple) => tuple.reversed(),
            None => tuple_of(frame, track.zone),
        };
        let was_translated = prior & (SNAT | DNAT) != 0;
        let sought = if was_translated { tuple.reversed() } else { tuple };
        let found = self
            .connections
            .iter()
            .position(|connection| connection.original == sought || connection.reply == sought);
        let Some(index) = found else {
            return self.missing(frame, tuple, quoted.is_some(), track, now);
        };
        let connection = &mut self.connections[index];
        let is_reply = (connection.original != sought) != was_translated;
        if track.force && is_reply && quoted.is_none() {
            self.connections.remove(index);
            return self.missing(frame, tuple, false, track, now);
        }
        let mut flags = prior | TRK;
        if quoted.is_some() {
            flags |= REL | if is_reply { RPL } else { 0 };
        } else if prior == 0 || prior & NEW != 0 {
            match connection.update(frame, is_reply, now) {
                Some(Seen::Established) => {
                    flags = flags & !NEW | EST | if is_reply { RPL } else { 0 };
                }
                Some(Seen::New) => flags |= NEW,
                None => flags = INV | TRK,
                Some(Seen::Restart) => {
                    self.connections.remove(index);
                    return self.missing(frame, tuple, false, track, now);
                }
            }
        }
        let connection = &mut self.connections[index];
        let mut ends = ends_of(frame);
        if let Some(source_nat) = connection.source_nat
            && track.nat.is_some()
            && !was_translated
            && flags & INV == 0
        {
            flags |= if source_nat != is_reply { SNAT } else { DNAT };
            let wanted = if is_reply { connection.original } else { connection.reply }.reversed();
            ends = (wanted.from, wanted.to);
        }
        connection.set_marks(track);
        Prediction {
            flags,
            mark: connection.mark,
            label: connection.label,
            original: Some(connection.original),
            ends: quoted.is_none().then_some(ends),
        }
    }

    fn missing(
        &mut self,
        frame: &Frame,
        tuple: Tuple,
        is_error: bool,
        track: &Track,
        now: u64,
    ) -> Prediction {
        let is_reply_type = matches!(tuple.kind, Some(0 | 129));
        let none = |flags, original| Prediction {
            flags,
            mark: 0,
            label: 0,
            original: Some(original),
            ends: (!is_error).then(|| ends_of(frame)),
        };
        if is_error || is_reply_type || !may_start(frame) {
            return none(INV | TRK, tuple);
        }
        if !track.commit {
            return none(NEW | TRK, tuple);
        }
        let nat = track.nat.as_ref().and_then(|nat| nat.direction);
        let is_used = self.is_used(&tuple.reversed());
        // After the end of its connection, a translated packet may have the tuple of another
        // connection.
        if (nat.is_none() && is_used) || self.is_used(&tuple) {
            return none(NEW | TRK, tuple);
        }
        let mut connection = Connection::new(frame, tuple, now);
        connection.set_marks(track);
        let (mark, label) = (connection.mark, connection.label);
        self.connections.push(connection);
        let flags = match nat {
            None => 0,
            Some(NatDirection::Source) => SNAT,
            Some(NatDirection::Destination) => DNAT,
        };
        Prediction {
            flags: NEW | TRK | flags,
            mark,
            label,
            original: Some(tuple),
            ends: nat.is_none().then(|| ends_of(frame)),
        }
    }

    /// Records the translation that the tracker chose for the latest connection. Fails if the
    /// translation is not allowed.
    pub(crate) fn adopt(&mut self, track: &Track, from: End, to: End) -> Result<(), String> {
        let mut latest = self.connections.pop().ok_or("no connection")?;
        let nat = track.nat.as_ref().ok_or("no translation")?;
        let tuple = Tuple { from: to, to: from, ..latest.original.reversed() };
        if self.is_used(&tuple) {
            return Err(format!("{tuple:?} is used"));
        }
        let is_source = nat.direction == Some(NatDirection::Source);
        let (own, chosen) =
            if is_source { (latest.original.from, from) } else { (latest.original.to, to) };
        if !address_allowed(nat.addresses.as_ref(), own.0, chosen.0) {
            return Err(format!("address {chosen:?}"));
        }
        let (kept, original) =
            if is_source { (to, latest.original.to) } else { (from, latest.original.from) };
        if kept.0 != original.0 || (is_source && kept.1 != original.1 && tuple.kind.is_none()) {
            return Err(format!("the other end changed to {kept:?}"));
        }
        if let Some(ports) = &nat.ports {
            if has_ports(tuple.protocol) && (tuple.kind.is_none() || is_source) {
                let chosen = if is_source { from.1 } else { to.1 };
                if !ports.contains(&chosen) {
                    return Err(format!("port {chosen}"));
                }
            }
        } else if latest.original.from.1 != from.1 {
            // The port may differ from the client's own port only if that port is taken.
            let mut kept = tuple;
            kept.to.1 = latest.original.from.1;
            if kept.kind.is_some() {
                kept.from.1 = latest.original.from.1;
            }
            if !self.may_be_used(&kept) {
                return Err(format!("{kept:?} was free"));
            }
        }
        latest.reply = tuple;
        latest.source_nat = Some(is_source);
        self.connections.push(latest);
        Ok(())
    }

    /// Removes the latest connection because the tracker refused its translation. Fails if a
    /// translation was possible.
    pub(crate) fn refuse(&mut self, track: &Track) -> Result<(), String> {
        let latest = self.connections.pop().ok_or("no connection")?;
        let nat = track.nat.as_ref().ok_or("no translation")?;
        let is_source = nat.direction == Some(NatDirection::Source);
        let own = if is_source { latest.original.from.0 } else { latest.original.to.0 };
        let addresses: Vec<IpAddr> = match (&nat.addresses, own) {
            (Some(NatAddresses::V4(range)), IpAddr::V4(_)) => (u32::from(*range.start())
                ..=u32::from(*range.end()))
                .map(|bits| IpAddr::V4(bits.into()))
                .collect(),
            (Some(NatAddresses::V6(range)), IpAddr::V6(_)) => vec![(*range.start()).into()],
            _ => vec![own],
        };
        let ports = match &nat.ports {
            _ if !has_ports(latest.original.protocol) => 0..=0,
            Some(ports) if is_source => ports.clone(),
            _ => return Err("a port must be free".to_owned()),
        };
        for address in addresses {
            for port in ports.clone() {
                let mut tuple = latest.original.reversed();
                if is_source {
                    tuple.to = (address, port);
                } else {
                    tuple.from.0 = address;
                }
                if tuple.kind.is_some() {
                    tuple.from.1 = port;
                }
                if !self.may_be_used(&tuple) {
                    return Err(format!("{tuple:?} is free"));
                }
            }
        }
        Ok(())
    }

    /// Whether the tracker may treat a tuple as used. With several shards, the model also counts
    /// the tuple as used if the reverse tuple is used, because a tuple and its reverse have the
    /// same hash.
    fn may_be_used(&self, tuple: &Tuple) -> bool {
        self.is_used(tuple) || self.is_used(&tuple.reversed())
    }

    fn is_used(&self, tuple: &Tuple) -> bool {
        self.connections
            .iter()
            .any(|connection| connection.original == *tuple || connection.reply == *tuple)
    }
}

enum Seen {
    New,
    Established,
    Restart,
}

impl Connection {
    fn new(frame: &Frame, tuple: Tuple, now: u64) -> Self {
        let mut peers = [Peer::default(); 2];
        let mut timeout = timeout::UDP_FIRST;
        if tuple.kind.is_some() {
            timeout = timeout::ICMP_FIRST;
        }
        if tuple.protocol == 6 {
            timeout = timeout::SYN_SENT;
            let segment = Segment::of(frame);
            peers[0].state = 1;
            peers[0].seqlo = segment.seq;
            peers[0].seqhi = segment.seq.wrapping_add(segment.length).wrapping_add(1);
            peers[0].max_win = segment.win.max(1);
            peers[1].seqhi = 1;
            peers[1].max_win = 1;
            if segment.is(2) {
                peers[0].wscale = segment.wscale;
                let shift = segment.wscale & 15;
                peers[0].max_win = peers[0].max_win.div_ceil(1 << shift);
            } else {
                peers[0].wscale = 0x40;
                peers[1].wscale = 0x40;
            }
        }
        Self {
            original: tuple,
            reply: tuple.reversed(),
            source_nat: None,
            mark: 0,
            label: 0,
            expires: now + timeout,
            has_reply: false,
            packets: 1,
            peers,
        }
    }

    fn set_marks(&mut self, track: &Track) {
        if let Some((value, mask)) = track.mark {
            self.mark = self.mark & !mask | value & mask;
        }
        if let Some((value, mask)) = track.label {
            self.label = self.label & !mask | value & mask;
        }
    }

    fn update(&mut self, frame: &Frame, is_reply: bool, now: u64) -> Option<Seen> {
        if self.original.protocol == 6 {
            return self.update_tcp(&Segment::of(frame), is_reply, now);
        }
        self.has_reply |= is_reply;
        self.packets += 1;
        let timeout = match (self.original.kind.is_some(), self.has_reply) {
            (true, true) => timeout::ICMP_REPLY,
            (true, false) => timeout::ICMP_FIRST,
            (false, true) => timeout::UDP_MULTIPLE,
            (false, false) => timeout::UDP_SINGLE,
        };
        self.expires = now + timeout;
        Some(if self.has_reply { Seen::Established } else { Seen::New })
    }

    fn update_tcp(&mut self, segment: &Segment, is_reply: bool, now: u64) -> Option<Seen> {
        if !segment.is_valid() {
            return None;
        }
        let mut src = self.peers[usize::from(is_reply)];
        let mut dst = self.peers[usize::from(!is_reply)];
        if segment.is(2) && !segment.is(16) {
            if src.state >= 4 && dst.state >= 4 {
                return Some(Seen::Restart);
            }
            if src.state <= 1 {
                self.peers[usize::from(is_reply)].state = 1;
                self.expires = now + timeout::SYN_SENT;
                return Some(Seen::New);
            }
        }
        let (mut sws, mut dws) = (0, 0);
        if !segment.is(2) {
            if src.wscale & 0x80 != 0 && dst.wscale & 0x80 != 0 {
                (sws, dws) = (src.wscale & 15, dst.wscale & 15);
            } else if src.wscale & 0x40 != 0 && dst.wscale & 0x40 != 0 {
                (sws, dws) = (14, 14);
            }
        }
        let (mut seq, mut win, mut ack) = (segment.seq, segment.win, segment.ack);
        let mut end = seq.wrapping_add(segment.length);
        let mut check_skew = true;
        if src.state < 1 {
            if segment.is(2) && dst.wscale & 0x80 != 0 {
                src.wscale = segment.wscale;
                if src.wscale & 0x80 != 0 {
                    (sws, dws) = (src.wscale & 15, dst.wscale & 15);
                    win = win.div_ceil(1 << sws);
                } else {
                    dst.max_win = (dst.max_win << (dst.wscale & 15)).min(65_535);
                    dst.wscale = 0;
                }
            }
            src.seqlo = seq;
            src.state = 1;
            let high = end.wrapping_add((dst.max_win << dws).max(1));
            if src.seqhi == 1 || diff(high, src.seqhi) >= 0 {
                src.seqhi = high;
                check_skew = false;
            }
            src.max_win = src.max_win.max(win);
        }
        if !segment.is(16) || (segment.is(4) && ack == 0) {
            ack = dst.seqlo;
        }
        if seq == end {
            seq = src.seqlo;
            end = seq;
        }
        let skew = if check_skew { diff(dst.seqlo, ack) } else { 0 };
        let orig = segment.seq;
        let is_in_window = diff(src.seqhi, end) >= 0
            && diff(seq, src.seqlo.wrapping_sub(dst.max_win << dws)) >= 0
            && skew >= -67_035
            && skew <= 67_035 << sws
            && (!segment.is(4) || diff(orig, src.seqlo).abs() <= 1);
        let is_tolerable = (dst.state < 1 || dst.state >= 4 || src.state >= 4)
            && diff(src.seqhi.wrapping_add(67_035), end) >= 0
            && diff(seq, src.seqlo.wrapping_sub(67_035)) >= 0;
        if is_in_window || is_tolerable {
            src.max_win = src.max_win.max(win);
            if diff(end, src.seqlo) > 0 {
                src.seqlo = end;
            }
            if diff(ack.wrapping_add(win << sws), dst.seqhi) >= 0 {
                dst.seqhi = ack.wrapping_add((win << sws).max(1));
            }
            if segment.is(1) && src.state < 3 {
                src.state = 3;
            }
            if is_in_window && segment.is(16) {
                dst.state = match dst.state {
                    1 => 2,
                    3 => 4,
                    other => other,
                };
            }
            if segment.is(4) {
                src.state = 5;
                dst.state = 5;
            }
        }
        if is_in_window {
            let timeout = if src.state >= 4 && dst.state >= 4 {
                timeout::CLOSE
            } else if src.state >= 3 && dst.state >= 3 {
                timeout::TIME_WAIT
            } else if src.state < 2 || dst.state < 2 {
                timeout::SYN_RECV
            } else if src.state >= 3 || dst.state >= 3 {
                timeout::FIN_WAIT
            } else {
                timeout::ESTABLISHED
            };
            self.expires = now + timeout;
        }
        self.peers[usize::from(is_reply)] = src;
        self.peers[usize::from(!is_reply)] = dst;
        (is_in_window || is_tolerable).then_some(Seen::Established)
    }
}

fn diff(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

struct Segment {
    seq: u32,
    ack: u32,
    win: u32,
    flags: u8,
    length: u32,
    wscale: u32,
}

impl Segment {
    fn of(frame: &Frame) -> Self {
        let tcp = &frame.bytes[frame.headers.transport..];
        let long = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four bytes"));
        let header = usize::from(tcp[12] >> 4) * 4;
        let flags = tcp[13];
        let payload = (tcp.len() - header) as u32;
        // The tests write at most one TCP option.
        let wscale =
            if header > 20 && flags & 2 != 0 { 0x80 | u32::from(tcp[23]).min(14) } else { 0 };
        Self {
            seq: long(4),
            ack: long(8),
            win: u16::from_be_bytes([tcp[14], tcp[15]]).into(),
            flags,
            length: payload + u32::from(flags >> 1 & 1) + u32::from(flags & 1),
            wscale,
        }
    }

    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn is_valid(&self) -> bool {
        let (fin, syn, rst, ack) = (self.is(1), self.is(2), self.is(4), self.is(16));
        if syn { !rst && !fin } else { ack || (rst && !fin) }
    }
}

fn may_start(frame: &Frame) -> bool {
    if frame.protocol() != 6 {
        return true;
    }
    let segment = Segment::of(frame);
    segment.is_valid() && !(segment.is(2) && segment.is(16))
}

pub(crate) fn tuple_of(frame: &Frame, zone: u16) -> Tuple {
    let (from, to) = frame.ends();
    let protocol = frame.protocol();
    let kind = matches!(protocol, 1 | 58).then(|| frame.bytes[frame.headers.transport]);
    let keep = |end: End| if has_ports(protocol) { end } else { (end.0, 0) };
    Tuple { from: keep(from), to: keep(to), kind, protocol, zone }
}

pub(crate) fn ends_of(frame: &Frame) -> (End, End) {
    let tuple = tuple_of(frame, 0);
    (tuple.from, tuple.to)
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 1 | 58 | 6 | 17 | 132)
}

fn address_allowed(addresses: Option<&NatAddresses>, own: IpAddr, chosen: IpAddr) -> bool {
    match (addresses, chosen) {
        (Some(NatAddresses::V4(range)), IpAddr::V4(chosen)) => {
            if range.start().is_unspecified() {
                own == chosen
            } else {
                range.contains(&chosen)
            }
        }
        (Some(NatAddresses::V6(range)), IpAddr::V6(chosen)) => range.contains(&chosen),
        _ => own == chosen,
    }
}
