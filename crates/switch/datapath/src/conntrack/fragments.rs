//! Reassembly of IP fragments: fragments wait until their packet is complete. Then the whole packet
//! is tracked, and each fragment gets its connection state and its translation.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flow::word;
use port::Frame;
use units::Time;
use wire::checksum::Sum;

use super::extract::{has_valid_header, u16_at, u32_at};
use crate::{Packet, flag};

/// The limits that `dpctl/ipf-set-…` sets, with Open vSwitch's defaults. Each array has the value
/// for IPv4, then for IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Whether fragments of this IP version are reassembled. Without reassembly, later fragments
    /// are invalid.
    pub is_enabled: [bool; 2],
    /// Minimum length of a fragment. Shorter fragments are invalid, unless they are the last of a
    /// packet.
    pub smallest: [u32; 2],
    /// Maximum number of fragments that wait for the rest of their packets. Further fragments are
    /// invalid.
    pub most: u32,
}

impl Default for FragmentLimits {
    fn default() -> Self {
        Self { is_enabled: [true; 2], smallest: [1200, 1280], most: 1000 }
    }
}

/// The limits and counters of `dpctl/ipf-get-status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FragmentStatus {
    pub limits: FragmentLimits,
    pub waiting: u32,
    pub counts: [FragmentCounts; 2],
    pub packets: Vec<IncompletePacket>,
}

/// Fragments of an IP version since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    pub accepted: u64,
    pub completed: u64,
    pub expired: u64,
    pub too_small: u64,
    pub overlapped: u64,
    /// Fragments discarded because the reassembled packet would be too long.
    pub purged: u64,
}

/// A packet that lacks fragments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncompletePacket {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub recirculation: u32,
    pub identification: u32,
    pub zone: u16,
    /// The IP protocol; 0 for IPv6, whose fragments do not carry the protocol of the packet.
    pub protocol: u8,
    pub fragments: usize,
    pub has_first: bool,
    pub has_last: bool,
}

/// The waiting fragments.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    table: Mutex<Table>,
    /// The number of waiting fragments, readable without the lock.
    waiting: AtomicU32,
}

#[derive(Debug, Default)]
struct Table {
    limits: FragmentLimits,
    counts: [FragmentCounts; 2],
    packets: HashMap<Origin, Pieces>,
}

/// The packet that a fragment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Origin {
    is_v6: bool,
    source: u128,
    destination: u128,
    identification: u32,
    protocol: u8,
    zone: u16,
    recirculation: u32,
}

#[derive(Debug)]
struct Pieces {
    /// The fragments, sorted by the position of their data.
    list: Vec<Piece>,
    has_last: bool,
    /// The time at which the fragments are discarded, in milliseconds of the caller's clock.
    expires: u64,
}

#[derive(Debug)]
struct Piece {
    packet: Packet,
    place: Place,
}

/// The position of a fragment's data, in its frame and in the whole packet.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The first byte of the data in the frame.
    start: usize,
    /// The position of the data in the whole packet, from its first byte to the byte after its
    /// last.
    from: u32,
    to: u32,
    has_more: bool,
    /// The offset of the IPv6 fragment header in the frame.
    header: usize,
}

/// The result of [`Fragments::take`] for a packet.
pub(super) enum Taken {
    /// The packet is tracked as if it were no fragment.
    Whole,
    Invalid,
    /// The fragment is kept until its packet is complete.
    Waits,
    /// The fragment is the last missing fragment of its packet.
    Complete(Box<Assembled>),
}

/// A whole packet, and the fragments that it consists of.
pub(super) struct Assembled {
    pub(super) packet: Packet,
    pieces: Vec<Piece>,
}

impl Fragments {
    /// Takes a fragment. Keeps the fragment if its packet is still incomplete.
    pub(super) fn take(&self, packet: &mut Packet, zone: u16, now: Time, verify: bool) -> Taken {
        let now = super::milliseconds(now);
        let mut table = self.table();
        let table = &mut *table;
        let version = usize::from(packet.layout.has(flag::IPV6));
        if !table.limits.is_enabled[version] {
            return Taken::Whole;
        }
        let located = match version {
            0 => locate_v4(packet, zone, verify),
            _ => locate_v6(packet, zone),
        };
        let Some((origin, place)) = located else { return Taken::Invalid };
        let counts = &mut table.counts[version];
        let size = (packet.layout.end - packet.layout.network).min(u32::from(u16::MAX));
        if place.has_more && size < table.limits.smallest[version] {
            counts.too_small += 1;
            return Taken::Invalid;
        }
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting >= table.limits.most {
            return Taken::Invalid;
        }
        let pieces = table.packets.entry(origin).or_insert_with(|| Pieces {
            list: Vec::new(),
            has_last: false,
            expires: now.saturating_add(LIFETIME_MS),
        });
        if pieces.list.iter().any(|piece| piece.place.overlaps(place)) {
            counts.overlapped += 1;
            return Taken::Invalid;
        }
        let order = |place: Place| (place.from, place.to);
        let at = pieces.list.partition_point(|piece| order(piece.place) < order(place));
        pieces.list.insert(at, Piece { packet: std::mem::take(packet), place });
        pieces.has_last |= !place.has_more;
        counts.accepted += 1;
        self.waiting.store(waiting + 1, Ordering::Relaxed);
        if !pieces.is_complete() {
            return Taken::Waits;
        }
        let pieces = table.packets.remove(&origin).map_or_else(Vec::new, |pieces| pieces.list);
        let count = pieces.len() as u32;
        self.waiting.store((waiting + 1).saturating_sub(count), Ordering::Relaxed);
        match assemble(pieces, origin.is_v6) {
            Some(assembled) => {
                counts.completed += u64::from(count);
                Taken::Complete(Box::new(assembled))
            }
            None => {
                counts.purged += u64::from(count);
                Taken::Waits
            }
        }
    }

    /// Discards the fragments of packets that were not completed in time.
    pub(super) fn expire(&self, now: u64) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut table = self.table();
        let Table { packets, counts, .. } = &mut *table;
        let mut waiting = 0;
        packets.retain(|origin, pieces| {
            let count = pieces.list.len() as u32;
            if now < pieces.expires {
                waiting += count;
                return true;
            }
            counts[usize::from(origin.is_v6)].expired += u64::from(count);
            false
        });
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut FragmentLimits)) {
        change(&mut self.table().limits);
    }

    pub(super) fn status(&self) -> FragmentStatus {
        let table = self.table();
        let mut packets: Vec<_> = table.packets.iter().collect();
        packets.sort_by_key(|(origin, _)| **origin);
        FragmentStatus {
            limits: table.limits,
            waiting: self.waiting.load(Ordering::Relaxed),
            counts: table.counts,
            packets: packets.into_iter().map(|(origin, pieces)| pieces.shown(origin)).collect(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pieces {
    /// Whether the fragments cover the whole packet. Stored fragments do not overlap.
    fn is_complete(&self) -> bool {
        let mut next = 0;
        self.has_last
            && self.list.iter().all(|piece| {
                let is_next = piece.place.from == next;
                next = piece.place.to;
                is_next
            })
            && self.list.last().is_some_and(|piece| !piece.place.has_more)
    }

    fn shown(&self, origin: &Origin) -> IncompletePacket {
        let address = |address: u128| match origin.is_v6 {
            true => Ipv6Addr::from(address).into(),
            false => Ipv4Addr::from(address as u32).into(),
        };
        IncompletePacket {
            source: address(origin.source),
            destination: address(origin.destination),
            recirculation: origin.recirculation,
            identification: origin.identification,
            zone: origin.zone,
            protocol: origin.protocol,
            fragments: self.list.len(),
            has_first: self.list.first().is_some_and(|piece| piece.place.from == 0),
            has_last: self.has_last,
        }
    }
}

impl Place {
    /// Whether two fragments overlap. Two fragments without data overlap if they have the same
    /// position.
    fn overlaps(self, other: Self) -> bool {
        let is_same = (self.from, self.to) == (other.from, other.to);
        is_same || self.from < other.to && other.from < self.to
    }
}

impl Assembled {
    /// Returns the fragments in the order of their data. Each has the whole packet's connection
    /// state and addresses; the first also has its transport header.
    pub(super) fn spread(self) -> Vec<Packet> {
        let Self { packet: whole, pieces } = self;
        let is_v6 = whole.layout.has(flag::IPV6);
        let source = whole.frame.bytes();
        let network = whole.layout.network as usize;
        let addresses = if is_v6 { 8..40 } else { 12..20 };
        let changed = source.get(network + addresses.start..network + addresses.end);
        let each = pieces.into_iter().map(|Piece { mut packet, place }| {
            let tracked = word::CT..word::ETH_SRC;
            packet.key.words[tracked.clone()].copy_from_slice(&whole.key.words[tracked]);
            let own = packet.layout.network as usize;
            let end = packet.layout.end as usize;
            let bytes = packet.frame.bytes_mut();
            let field = bytes.get_mut(own + addresses.start..own + addresses.end);
            if let (Some(field), Some(changed)) = (field, changed) {
                field.copy_from_slice(changed);
            }
            if !is_v6 {
                complete_header(bytes.get_mut(own..place.start).unwrap_or_default());
            }
            if place.from == 0 {
                // The first fragment and the whole packet have headers of the same length before
                // the data.
                let data = bytes.get_mut(place.start..end).unwrap_or_default();
                if let Some(changed) = source.get(place.start..place.start + data.len()) {
                    data.copy_from_slice(changed);
                }
            }
            packet.parse();
            packet
        });
        each.collect()
    }
}

fn locate_v4(packet: &Packet, zone: u16, verify: bool) -> Option<(Origin, Place)> {
    let (network, end) = (packet.layout.network as usize, packet.layout.end as usize);
    let bytes = packet.frame.bytes().get(network..end)?;
    let header: &[u8; 20] = bytes.first_chunk()?;
    let length = usize::from(header[0] & 0x0f) * 4;
    if verify && !has_valid_header(bytes.get(..length)?) {
        return None;
    }
    let offset = u16_at(header, 6)?;
    let origin = Origin {
        is_v6: false,
        source: u32_at(header, 12)?.into(),
        destination: u32_at(header, 16)?.into(),
        identification: u16_at(header, 4)?.into(),
        protocol: header[9],
        zone,
        recirculation: packet.key.words[word::IN_PORT] as u32,
    };
    let from = u32::from(offset & 0x1fff) * 8;
    let place = placed(network + length, end, from, offset & 0x2000 != 0, 0)?;
    Some((origin, place))
}

fn locate_v6(packet: &Packet, zone: u16) -> Option<(Origin, Place)> {
    let (network, end) = (packet.layout.network as usize, packet.layout.end as usize);
    let bytes = packet.frame.bytes().get(network..end)?;
    let header: &[u8; 40] = bytes.first_chunk()?;
    let (mut kind, mut at) = (header[6], header.len());
    while kind != FRAGMENT {
        let length = match kind {
            HOP_BY_HOP | ROUTING | DESTINATION => (usize::from(*bytes.get(at + 1)?) + 1) * 8,
            AUTHENTICATION => (usize::from(*bytes.get(at + 1)?) + 2) * 4,
            _ => return None,
        };
        kind = *bytes.get(at)?;
        at += length;
    }
    let fragment: &[u8; 8] = bytes.get(at..)?.first_chunk()?;
    let offset = u16_at(fragment, 2)?;
    let wide = |at: usize| Some(u128::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let origin = Origin {
        is_v6: true,
        source: wide(8)?,
        destination: wide(24)?,
        identification: u32_at(fragment, 4)?,
        protocol: 0,
        zone,
        recirculation: packet.key.words[word::IN_PORT] as u32,
    };
    let start = network + at + fragment.len();
    let place = placed(start, end, u32::from(offset & 0xfff8), offset & 1 != 0, network + at)?;
    Some((origin, place))
}

/// Finds the position of a fragment's data; `None` if the fragment is invalid. A first fragment
/// without data is invalid, because it has no transport header. A later fragment without data waits
/// like any other fragment, as in Open vSwitch.
fn placed(start: usize, end: usize, from: u32, has_more: bool, header: usize) -> Option<Place> {
    let length = u32::try_from(end.checked_sub(start)?).ok()?;
    if length == 0 && from == 0 {
        return None;
    }
    Some(Place { start, from, to: from + length, has_more, header })
}

/// Builds the whole packet from its fragments; `None` if it would be longer than an IP packet can
/// be.
fn assemble(pieces: Vec<Piece>, is_v6: bool) -> Option<Assembled> {
    let Piece { packet: first, place } = pieces.first()?;
    let network = first.layout.network as usize;
    let head = first.frame.bytes().get(..place.start)?;
    let data = pieces.last()?.place.to as usize;
    let length = place.start - network + data;
    if length > usize::from(u16::MAX) + if is_v6 { 40 } else { 0 } {
        return None;
    }
    let mut frame = Frame::with_len(place.start + data, first.frame.arrival());
    let bytes = frame.bytes_mut();
    bytes[..place.start].copy_from_slice(head);
    for Piece { packet, place: own } in &pieces {
        let from = packet.frame.bytes().get(own.start..packet.layout.end as usize)?;
        let at = place.start + own.from as usize;
        bytes.get_mut(at..at + from.len())?.copy_from_slice(from);
    }
    if is_v6 {
        let length = (length - 40) as u16;
        bytes.get_mut(network + 4..network + 6)?.copy_from_slice(&length.to_be_bytes());
        // A fragment offset and flags of 0 mark an unfragmented packet (RFC 8200 section 4.5).
        bytes.get_mut(place.header + 2..place.header + 4)?.fill(0);
    } else {
        let length = length as u16;
        let header = bytes.get_mut(network..place.start)?;
        header.get_mut(2..4)?.copy_from_slice(&length.to_be_bytes());
        *header.get_mut(6)? &= !MORE_FRAGMENTS;
        complete_header(header);
    }
    let mut packet = Packet { frame, key: first.key.clone(), ..Packet::default() };
    packet.parse();
    Some(Assembled { packet, pieces })
}

/// Updates the checksum of an IPv4 header.
fn complete_header(header: &mut [u8]) {
    let Some(field) = header.get_mut(10..12) else { return };
    field.fill(0);
    let sum = Sum::of(header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Maximum time that a fragment waits, as in Open vSwitch.
const LIFETIME_MS: u64 = 15_000;
/// The flag "more fragments" in byte 6 of an IPv4 header.
const MORE_FRAGMENTS: u8 = 0x20;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
