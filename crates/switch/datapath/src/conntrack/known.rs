//! A fast path for the usual packet of a known connection: TCP or UDP over IPv4, without options
//! and fragments.

use std::sync::atomic::Ordering;

use flow::word;

use super::Conntrack;
use super::entry::{Translation, Verdict, Words};
use super::extract::{has_valid_header, has_valid_sum_v4, u16_at};
use super::shard::Shard;
use super::tcp::Segment;
use super::track::set_marks;
use super::tuple::{TCP, UDP};
use super::view::state;
use crate::checksum::{Change, fixed};
use crate::{Guess, GuessFor, Packet, TrackCall, flag};

impl Conntrack {
    /// Tracks a packet; `number` is the entry that was found for the packet. Returns the guess for
    /// the lookup after tracking. Returns `None` without a change if the packet or its connection
    /// needs [`Conntrack::track`], which handles all packets.
    ///
    /// Addresses and ports stay in registers here, because building a tuple takes longer than
    /// comparing one.
    #[inline(always)]
    pub(super) fn track_known(
        &self,
        shard: &mut Shard,
        number: u32,
        packet: &mut Packet,
        call: &TrackCall<'_>,
        now: u64,
    ) -> Option<Guess> {
        let layout = packet.layout;
        let is_unfinished = layout.has(flag::UNFINISHED);
        let verify = self.verify_checksums && !is_unfinished;
        let words = &mut packet.key.words;
        let protocol = (words[word::NW] >> 48) as u8;
        let former = words[word::CT];
        let is_tracked = former as u16 & state::TRACKED != 0 && (former >> 16) as u16 == call.zone;
        let (network, transport) = (layout.network as usize, layout.transport as usize);
        if is_tracked
            || call.force
            || !layout.has(flag::IPV4 | flag::TRANSPORT)
            || transport != network + HEADER
        {
            return None;
        }
        let bytes = packet.frame.bytes_mut().get_mut(network..layout.end as usize)?;
        let (header, segment) = bytes.split_first_chunk_mut::<HEADER>()?;
        let packet = Words { addresses: words[word::IPV4], ports: (words[word::TP] >> 32) as u32 };
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        if header[0] != 0x45
            || is_fragment
            || packet.ports >> 16 == 0
            || packet.ports & 0xffff == 0
            || self.verify_checksums && !has_valid_header(header)
            || !is_sound(segment, packet.addresses, protocol, verify)
        {
            return None;
        }
        let tcp = if protocol == TCP { Some(Segment::read(segment)?) } else { None };

        let Shard { entries, rules, wheel, .. } = shard;
        let entry = entries.get_mut(number)?;
        let is_reply = entry.direction_v4(packet, call.zone, protocol)?;
        if entry.has_expired(now) {
            return None;
        }
        let expires_before = entry.expires;
        let mut flags = state::TRACKED;
        match entry.update(tcp.as_ref(), is_reply, rules, now) {
            Verdict::Established if is_reply => flags |= state::ESTABLISHED | state::REPLY,
            Verdict::Established => flags |= state::ESTABLISHED,
            Verdict::New => flags |= state::NEW,
            Verdict::Invalid => {
                flags |= state::INVALID;
                self.totals.invalid.fetch_add(1, Ordering::Relaxed);
            }
            // Use the general path: the update has not changed the connection.
            Verdict::Restart => return None,
        }
        if call.has_nat
            && flags & state::INVALID == 0
            && let Some(translation) = entry.translation()
        {
            let wanted = entry.translated_v4(is_reply);
            rewrite(header, segment, protocol, packet, wanted, is_unfinished);
            words[word::IPV4] = wanted.addresses;
            words[word::TP] = u64::from(wanted.ports) << 32 | words[word::TP] & 0xffff_ffff;
            flags |= match (translation, is_reply) {
                (Translation::Source, false) | (Translation::Destination, true) => {
                    state::SOURCE_NAT
                }
                _ => state::DESTINATION_NAT,
            };
        }
        if call.has_marks {
            set_marks(entry, call.track());
        }
        let (label, original) = (entry.label(), entry.original_v4());
        let guess = entry.guess_v4(GuessFor::Tracked, is_reply);
        words[word::CT] =
            u64::from(flags) | u64::from(call.zone) << 16 | u64::from(entry.mark) << 32;
        words[word::CT_LABEL] = (label >> 64) as u64;
        words[word::CT_LABEL + 1] = label as u64;
        words[word::CT_NW] = original.addresses;
        words[word::CT_NW + 1..word::CT_TP].fill(0);
        words[word::CT_TP] = u64::from(protocol) << 32 | u64::from(original.ports);
        if entry.expires < expires_before {
            // An entry must not stay in a timer slot that is later than its new expiry.
            wheel.remove(entries, number);
            wheel.insert(entries, number);
        }
        Some(guess)
    }
}

/// Whether the segment is complete and its checksum is right. A UDP datagram may have no checksum.
#[inline(always)]
fn is_sound(segment: &[u8], addresses: u64, protocol: u8, verify: bool) -> bool {
    let has_none = match protocol {
        UDP => {
            let Some(header) = segment.first_chunk::<8>() else { return false };
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            if length < header.len() || length > segment.len() {
                return false;
            }
            header[6..8] == [0, 0]
        }
        TCP => {
            let Some(header) = segment.first_chunk::<20>() else { return false };
            let length = usize::from(header[12] >> 4) * 4;
            if length < header.len() || length > segment.len() {
                return false;
            }
            false
        }
        _ => return false,
    };
    !verify || has_none || has_valid_sum_v4(segment, addresses, protocol)
}

/// Replaces a packet's addresses and ports.
#[inline(always)]
fn rewrite(
    header: &mut [u8; HEADER],
    segment: &mut [u8],
    protocol: u8,
    packet: Words,
    wanted: Words,
    is_unfinished: bool,
) {
    let change = Change::of(packet.addresses, wanted.addresses);
    let checksum = change.apply(u16::from_be_bytes([header[10], header[11]]));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header[12..].copy_from_slice(&wanted.addresses.to_be_bytes());
    if let Some(ports) = segment.first_chunk_mut::<4>() {
        *ports = wanted.ports.to_be_bytes();
    }
    let at = if protocol == TCP { 16 } else { 6 };
    let Some(checksum) = u16_at(segment, at) else { return };
    if protocol == UDP && checksum == 0 && !is_unfinished {
        return;
    }
    let ports = Change::of(packet.ports.into(), wanted.ports.into());
    let checksum = match fixed(checksum, change, ports, is_unfinished) {
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    };
    if let Some(field) = segment.get_mut(at..at + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The length of an IPv4 header without options.
const HEADER: usize = 20;
