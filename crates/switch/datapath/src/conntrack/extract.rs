//! Extracts the tuple of a packet. Treats the same packets as invalid as Open vSwitch's userspace
//! datapath.

use flow::{Key, word};
use wire::checksum::Sum;

use super::tuple::{ICMP, ICMPV6, Kind, Ports, SCTP, TCP, Tuple, UDP, is_icmp};
use super::view::Headers;
use crate::checksum::crc32c;

/// A packet that can belong to a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extracted {
    pub(super) tuple: Tuple,
    /// For an ICMP error, the headers of the packet that it quotes. `tuple` is then the reverse of
    /// the quoted packet's tuple, which is the direction of the error itself.
    pub(super) inner: Option<Inner>,
    /// Whether this is the first fragment of a packet. The checksum and the length in its transport
    /// header also cover later fragments.
    pub(super) is_fragment: bool,
}

/// Offsets of a quoted packet, which ends where the ICMP error ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inner {
    network: u32,
    transport: u32,
}

impl Inner {
    pub(super) fn headers(self, outer: Headers) -> Headers {
        Headers {
            network: self.network as usize,
            transport: self.transport as usize,
            end: outer.end,
        }
    }
}

/// Reads the tuple of an unfragmented TCP or UDP packet over IPv4 from the key alone. Most packets
/// are of this type.
#[inline]
pub(super) fn quick_tuple(key: &Key, zone: u16) -> Option<Tuple> {
    let words = &key.words;
    let protocol = (words[word::NW] >> 48) as u8;
    let is_fragment = words[word::NW] >> 24 & 0xff != 0;
    let (addresses, ports) = (words[word::IPV4], words[word::TP]);
    if words[word::ETH_SRC] as u16 != 0x0800 || is_fragment || !matches!(protocol, TCP | UDP) {
        return None;
    }
    Some(Tuple {
        source: (addresses >> 32).into(),
        destination: (addresses & 0xffff_ffff).into(),
        ports: Ports { source: (ports >> 48) as u16, destination: (ports >> 32) as u16 },
        zone,
        protocol,
        kind: Kind::V4,
    })
}

/// Selects the checksums to verify.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verify {
    pub(super) network: bool,
    pub(super) transport: bool,
}

/// Reads the tuple of a packet. `None` if the packet is invalid.
#[inline]
pub(super) fn extract(
    frame: &[u8],
    headers: Headers,
    zone: u16,
    protocol: u8,
    verify: Verify,
) -> Option<Extracted> {
    if headers.end > frame.len() || headers.transport <= headers.network {
        return None;
    }
    let packet = frame.get(headers.network..headers.end)?;
    let offset = headers.transport - headers.network;
    let network = network_header(packet, offset, protocol)?;
    if verify.network && network.kind == Kind::V4 && !has_valid_header(packet.get(..offset)?) {
        return None;
    }
    let transport = packet.get(offset..)?;
    let mut tuple = Tuple {
        source: network.source,
        destination: network.destination,
        ports: Ports::default(),
        zone,
        protocol,
        kind: network.kind,
    };
    let is_whole = !network.is_fragment;
    let mut inner = None;
    match (protocol, network.kind.is_v6()) {
        (TCP, _) => {
            let length = usize::from(*transport.get(12)? >> 4) * 4;
            if transport.len() < 20 || length < 20 || (is_whole && length > transport.len()) {
                return None;
            }
            tuple.ports = ports(transport)?;
        }
        (UDP, _) => {
            let length = usize::from(u16_at(transport, 4)?);
            if transport.len() < 8 || length < 8 || (is_whole && length > transport.len()) {
                return None;
            }
            tuple.ports = ports(transport)?;
        }
        (SCTP, _) => {
            if transport.len() < 12 || (is_whole && !has_whole_chunks(transport)) {
                return None;
            }
            tuple.ports = ports(transport)?;
        }
        (ICMP, false) | (ICMPV6, true) => {
            let (kind, code) = (*transport.first()?, transport.get(1)?);
            let rest = u16_at(transport, 4)?;
            transport.get(..8)?;
            if let Some(kind) = tuple.kind.of_icmp(kind) {
                if *code != 0 {
                    return None;
                }
                tuple.kind = kind;
                tuple.ports = Ports { source: rest, destination: rest };
            } else if is_error(kind, network.kind) && is_whole {
                let found = quoted(frame, headers, zone, network.kind)?;
                if found.tuple.source != tuple.destination {
                    return None;
                }
                tuple = found.tuple.reversed();
                inner = Some(found.inner);
            } else {
                return None;
            }
        }
        _ => {}
    }
    if verify.transport && is_whole && !has_valid_checksum(transport, &network, protocol) {
        return None;
    }
    Some(Extracted { tuple, inner, is_fragment: network.is_fragment })
}

#[derive(Debug, Clone, Copy)]
struct Network {
    source: u128,
    destination: u128,
    kind: Kind,
    is_fragment: bool,
}

/// Reads an IP header. A later fragment has no transport header, and so belongs to no connection.
#[inline]
fn network_header(packet: &[u8], length: usize, protocol: u8) -> Option<Network> {
    let version = packet.first()? >> 4;
    if version == 4 {
        let header: &[u8; 20] = packet.first_chunk()?;
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        if usize::from(header[0] & 0x0f) * 4 != length || fragment & 0x1fff != 0 {
            return None;
        }
        return Some(Network {
            source: u32_at(packet, 12)?.into(),
            destination: u32_at(packet, 16)?.into(),
            kind: Kind::V4,
            is_fragment: fragment & 0x2000 != 0,
        });
    }
    let header: &[u8; 40] = packet.first_chunk()?;
    if version != 6 || length < header.len() {
        return None;
    }
    let is_fragment = match extension_headers(packet) {
        Some(found) if found.offset == length && found.protocol == protocol => found.is_fragment,
        _ => return None,
    };
    Some(Network {
        source: wide_at(packet, 8)?,
        destination: wide_at(packet, 24)?,
        kind: Kind::V6,
        is_fragment,
    })
}

struct Extensions {
    offset: usize,
    protocol: u8,
    is_fragment: bool,
}

/// Skips the extension headers of IPv6. Returns `None` for a later fragment or a truncated chain of
/// headers.
fn extension_headers(packet: &[u8]) -> Option<Extensions> {
    let mut protocol = *packet.get(6)?;
    let mut offset = 40;
    let mut is_fragment = false;
    for _ in 0..MAX_EXTENSIONS {
        let length = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => (usize::from(*packet.get(offset + 1)?) + 1) * 8,
            // The length of this header counts units of four bytes (RFC 4302 section 2.2).
            AUTHENTICATION => (usize::from(*packet.get(offset + 1)?) + 2) * 4,
            FRAGMENT => {
                let word = u16_at(packet, offset + 2)?;
                if word & 0xfff8 != 0 {
                    return None;
                }
                is_fragment |= word & 1 != 0;
                8
            }
            _ => return Some(Extensions { offset, protocol, is_fragment }),
        };
        protocol = *packet.get(offset)?;
        offset += length;
        if offset > packet.len() {
            return None;
        }
    }
    None
}

struct Quoted {
    tuple: Tuple,
    inner: Inner,
}

/// Reads the packet that an ICMP error quotes: an IP header and at least eight bytes.
fn quoted(frame: &[u8], headers: Headers, zone: u16, kind: Kind) -> Option<Quoted> {
    let start = headers.transport + 8;
    let packet = frame.get(start..headers.end)?;
    let (length, protocol) = if kind.is_v6() {
        let found = extension_headers(packet)?;
        (found.offset, found.protocol)
    } else {
        (usize::from(*packet.first()? & 0x0f) * 4, *packet.get(9)?)
    };
    if length < 20 {
        return None;
    }
    let network = network_header(packet, length, protocol)?;
    if network.kind != kind {
        return None;
    }
    let transport = packet.get(length..)?;
    let mut tuple = Tuple {
        source: network.source,
        destination: network.destination,
        ports: Ports::default(),
        zone,
        protocol,
        kind,
    };
    if is_icmp(protocol) {
        if (protocol == ICMPV6) != kind.is_v6() || transport.len() < 8 {
            return None;
        }
        tuple.kind = kind.of_icmp(transport[0])?;
        let identifier = u16_at(transport, 4)?;
        tuple.ports = Ports { source: identifier, destination: identifier };
    } else if tuple.has_ports() {
        transport.get(..8)?;
        tuple.ports = ports(transport)?;
    }
    let inner = Inner {
        network: u32::try_from(start).ok()?,
        transport: u32::try_from(start + length).ok()?,
    };
    Some(Quoted { tuple, inner })
}

fn is_error(kind: u8, version: Kind) -> bool {
    // ICMP types: unreachable, source quench, redirect, time exceeded, parameter problem. ICMPv6
    // types: unreachable, too big, time exceeded, parameter problem.
    if version.is_v6() { matches!(kind, 1..=4) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) }
}

/// Reads the ports. Port 0 is invalid.
#[inline]
fn ports(transport: &[u8]) -> Option<Ports> {
    let ports = Ports { source: u16_at(transport, 0)?, destination: u16_at(transport, 2)? };
    (ports.source != 0 && ports.destination != 0).then_some(ports)
}

fn has_whole_chunks(transport: &[u8]) -> bool {
    let mut at = 12;
    while at < transport.len() {
        let Some(length) = u16_at(transport, at + 2) else {
            return false;
        };
        if length < 4 {
            return false;
        }
        at += usize::from(length).next_multiple_of(4);
    }
    at == transport.len()
}

/// Whether the header's checksum is right. A sum over the header and its checksum does not depend
/// on the byte order.
#[inline]
pub(super) fn has_valid_header(header: &[u8]) -> bool {
    let (words, _) = header.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[inline]
fn has_valid_checksum(transport: &[u8], network: &Network, protocol: u8) -> bool {
    let sum = match (protocol, network.kind.is_v6()) {
        (ICMP, false) => Sum::of(transport),
        (SCTP, _) => return crc32c(transport) == stored_crc(transport),
        // A UDP checksum of 0 means no checksum in IPv4, and is wrong in IPv6 (RFC 8200 section
        // 8.1).
        (UDP, false) if transport[6..8] == [0, 0] => return true,
        (TCP | UDP, false) => {
            let addresses = (network.source as u64) << 32 | u64::from(network.destination as u32);
            return has_valid_sum_v4(transport, addresses, protocol);
        }
        (TCP | UDP | ICMPV6, true) => {
            let addresses = network.source.to_be_bytes();
            let length = transport.len() as u32;
            Sum::of(&addresses)
                .plus(Sum::of(&network.destination.to_be_bytes()))
                .plus_long(length)
                .plus_word(protocol.into())
                .plus(Sum::of(transport))
        }
        _ => return true,
    };
    sum.folded() == 0xffff
}

/// Whether the checksum of a TCP or UDP packet over IPv4 is right.
#[inline]
pub(super) fn has_valid_sum_v4(transport: &[u8], addresses: u64, protocol: u8) -> bool {
    let sum = Sum::of(transport)
        .plus_long((addresses >> 32) as u32)
        .plus_long(addresses as u32)
        .plus_word(transport.len() as u16)
        .plus_word(protocol.into());
    sum.folded() == 0xffff
}

fn stored_crc(transport: &[u8]) -> u32 {
    transport[8..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[inline]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn wide_at(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

const MAX_EXTENSIONS: usize = 8;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
