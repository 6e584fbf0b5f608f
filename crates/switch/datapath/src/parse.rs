//! The fields of a frame, as Open vSwitch extracts them with its default limit of one VLAN tag. The
//! key also has the second tag, which only dot1q-tunnel ports read.
//!
//! Parsing ends at a header that is truncated, or whose lengths contradict the frame: the fields
//! from there on are 0. No frame causes a panic.

mod ipv6;
pub(crate) mod neighbor;
pub(crate) mod transport;

use flow::{Field, Key, word};

use super::packet::{Layout, flag};

/// Parses a frame that arrived on the OpenFlow port `in_port`, and returns its key.
#[must_use]
pub fn extract(in_port: u32, frame: &[u8]) -> Key {
    let mut key = Key::ZERO;
    key.words[word::IN_PORT] = u64::from(in_port) << 32;
    parse(frame, &mut key, &mut Layout::default());
    key
}

/// Fills the words of `key` from [`word::ETH_SRC`] on, and the layout. The metadata words stay.
#[inline]
pub(crate) fn parse(frame: &[u8], key: &mut Key, layout: &mut Layout) {
    key.words[word::ETH_SRC..].fill(0);
    if parse_common(frame, key, layout).is_none() {
        *layout = parse_any(frame, key);
    }
}

/// Like [`parse`], for a key that holds the fields of a former frame. `is_usual`: the former frame
/// was a usual frame, so only the words of a usual frame are set. Returns whether this frame is a
/// usual frame.
#[inline]
pub(super) fn parse_over(frame: &[u8], key: &mut Key, layout: &mut Layout, is_usual: bool) -> bool {
    if !is_usual {
        key.words[word::ETH_SRC..].fill(0);
    }
    if parse_common(frame, key, layout).is_some() {
        return true;
    }
    key.words[word::ETH_SRC..].fill(0);
    *layout = parse_any(frame, key);
    false
}

/// Parses a usual frame: untagged IPv4 without options and fragments that carries TCP or UDP.
/// Returns `None` for any other frame and for a malformed frame; writes nothing then.
///
/// The function stores the layout field by field. A wider store followed by a narrower load would
/// be fast, but a wider load after narrow stores stalls the processor.
#[inline]
fn parse_common(frame: &[u8], key: &mut Key, layout: &mut Layout) -> Option<()> {
    let head = frame.first_chunk::<42>()?;
    if head[12..15] != [0x08, 0x00, 0x45] {
        return None;
    }
    let rest = frame.len() - 14;
    let length = usize::from(u16::from_be_bytes([head[16], head[17]]));
    let is_fragment = u16::from_be_bytes([head[20], head[21]]) & 0x3fff != 0;
    if length > rest || length < 28 || is_fragment || rest - length > MAX_PADDING {
        return None;
    }
    let mut nw = u64::from(head[23]) << 48 | u64::from(head[15]) << 40 | u64::from(head[22]) << 32;
    match head[23] {
        17 => {}
        6 => {
            let tcp = frame.get(34..54)?;
            let header = usize::from(tcp[12] >> 4) * 4;
            if header < 20 || length < 20 + header {
                return None;
            }
            nw |= u64::from(u16::from_be_bytes([tcp[12], tcp[13]]) & 0x0fff);
        }
        _ => return None,
    }
    key.words[word::ETH_DST] = u64_at(head, 0) & !0xffff;
    key.words[word::ETH_SRC] = u64_at(head, 6);
    key.words[word::IPV4] = u64_at(head, 26);
    key.words[word::NW] = nw;
    key.words[word::TP] = u64_at(head, 34) & !0xffff_ffff;
    layout.network = 14;
    layout.transport = 34;
    layout.end = 14 + length as u32;
    layout.flags = flag::IPV4 | flag::TRANSPORT;
    Some(())
}

#[inline(never)]
fn parse_any(frame: &[u8], key: &mut Key) -> Layout {
    let mut layout = Layout::default();
    let Some(addresses) = frame.first_chunk::<14>() else { return layout };
    key.words[word::ETH_DST] = u64_at(addresses, 0) & !0xffff;
    key.words[word::ETH_SRC] = u64_at(addresses, 6) & !0xffff;
    let mut at = 12;
    let outer = u16_at(frame, 12);
    // A VLAN tag must be followed by a type.
    if is_vlan(outer) && frame.len() >= 18 {
        key.words[word::ETH_DST] |= u64::from(u16_at(frame, 14)) | 0x1000;
        key.words[word::VLAN_TPID] = outer.into();
        if is_vlan(u16_at(frame, 16)) && frame.len() >= 22 {
            key.words[word::VLAN_TPID] |= (u64::from(u16_at(frame, 18)) | 0x1000) << 16;
        }
        layout.flags |= flag::TAGGED;
        at = 16;
    }
    let (kind, network) = ether_type(frame, at);
    key.words[word::ETH_SRC] |= u64::from(kind);
    layout.network = network as u32;
    layout.end = frame.len() as u32;
    match kind {
        0x0800 => ipv4(frame, key, &mut layout),
        0x86dd => ipv6::parse(frame, key, &mut layout),
        0x0806 | 0x8035 => arp(frame, key, &mut layout),
        0x8847 | 0x8848 => {
            if let Some(entry) = frame.get(network..network + 4) {
                key.words[word::MPLS] = u64::from(u32_at(entry, 0)) << 32;
                layout.flags |= flag::MPLS;
            }
        }
        _ => {}
    }
    layout
}

/// Returns the Ethernet type at `at`, or the type in an LLC and SNAP header, and the offset of the
/// next header.
fn ether_type(frame: &[u8], at: usize) -> (u16, usize) {
    let kind = u16_at(frame, at);
    let next = at + 2;
    if kind >= FIRST_TYPE {
        return (kind, next);
    }
    match frame.get(next..next + 8) {
        Some([0xaa, 0xaa, 0x03, 0, 0, 0, high, low]) => {
            let kind = u16::from_be_bytes([*high, *low]);
            if kind >= FIRST_TYPE { (kind, next + 8) } else { (NO_TYPE, next) }
        }
        _ => (NO_TYPE, next),
    }
}

fn ipv4(frame: &[u8], key: &mut Key, layout: &mut Layout) {
    let start = layout.network as usize;
    let packet = &frame[start..];
    let Some(header) = packet.first_chunk::<20>() else { return };
    let header_length = usize::from(header[0] & 0x0f) * 4;
    let length = usize::from(u16_at(header, 2));
    if header_length < 20
        || packet.len() < header_length
        || length > packet.len()
        || header_length > length
        || packet.len() - length > MAX_PADDING
    {
        return;
    }
    let offset = u16_at(header, 6);
    let mut fragment = 0;
    if offset & 0x3fff != 0 {
        fragment = FRAGMENT | if offset & 0x1fff != 0 { LATER } else { 0 };
    }
    key.words[word::IPV4] = u64_at(header, 12);
    key.words[word::NW] = u64::from(header[9]) << 48
        | u64::from(header[1]) << 40
        | u64::from(header[8]) << 32
        | fragment << 24;
    layout.flags |= flag::IPV4;
    layout.transport = (start + header_length) as u32;
    layout.end = (start + length) as u32;
    if fragment & LATER == 0 {
        transport::parse(frame, header[9], key, layout);
    }
}

fn arp(frame: &[u8], key: &mut Key, layout: &mut Layout) {
    let Some(packet) = frame[layout.network as usize..].first_chunk::<28>() else { return };
    // The hardware type must be Ethernet and the protocol type IPv4, with their address lengths.
    if packet[..6] != [0, 1, 8, 0, 6, 4] {
        return;
    }
    let operation = u16_at(packet, 6);
    if operation <= 0xff {
        key.words[word::NW] = u64::from(operation) << 48;
    }
    key.write(Field::ArpSpa, u32_at(packet, 14).into());
    key.write(Field::ArpTpa, u32_at(packet, 24).into());
    key.words[word::ARP_SHA] = u64_at(packet, 8) & !0xffff;
    key.words[word::ARP_THA] = u64_at(packet, 18) & !0xffff;
    layout.flags |= flag::ARP;
}

pub(super) fn is_vlan(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8)
}

#[inline(always)]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_be_bytes(*chunk))
}

/// Reads the eight bytes from `at` on; returns 0 if the slice ends before.
#[inline(always)]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk))
}

/// The bits of the field `ip_frag`.
pub(super) const FRAGMENT: u64 = 1;
pub(super) const LATER: u64 = 2;
/// Open vSwitch refuses packets with more padding after the IP packet.
const MAX_PADDING: usize = 0xffff;
/// Smaller values of the type field are lengths (IEEE 802.3).
const FIRST_TYPE: u16 = 0x600;
/// OpenFlow's type for frames without a type.
const NO_TYPE: u16 = 0x05ff;
