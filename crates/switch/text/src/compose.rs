//! Builds frames from keys.

use flow::{Field, Key, word};

/// The length of the payload that Open vSwitch's netdev-dummy appends: bytes 0, 1, 2 and so on.
const PAYLOAD: usize = 64;
const VLAN_PRESENT: u128 = 0x1000;

/// Builds a frame with the headers of a key, with valid lengths and checksums. The payload has 64
/// bytes if the protocol has a payload.
#[must_use]
pub fn compose(key: &Key) -> Vec<u8> {
    let mut frame = Vec::with_capacity(128);
    put(&mut frame, key.read(Field::EthDst), 6);
    put(&mut frame, key.read(Field::EthSrc), 6);
    let tci = key.read(Field::VlanTci);
    if tci & VLAN_PRESENT != 0 {
        let tpid = key.words[word::VLAN_TPID] as u16;
        put(&mut frame, if tpid == 0 { 0x8100 } else { tpid.into() }, 2);
        put(&mut frame, tci & !VLAN_PRESENT, 2);
    }
    let kind = key.read(Field::EthType);
    put(&mut frame, kind, 2);
    match kind {
        0x0800 => ipv4(&mut frame, key),
        0x86dd => ipv6(&mut frame, key),
        0x0806 | 0x8035 => arp(&mut frame, key),
        0x8847 | 0x8848 => put(&mut frame, key.words[word::MPLS] as u128 >> 32, 4),
        0x8100 | 0x88a8 if key.read_at(Key::INNER_TCI) != 0 => {
            put(&mut frame, key.read_at(Key::INNER_TCI) & !VLAN_PRESENT, 2);
            put(&mut frame, 0, 2);
        }
        _ => {}
    }
    frame
}

/// Appends the low `bytes` bytes of a number, the most significant first.
fn put(frame: &mut Vec<u8>, value: u128, bytes: usize) {
    frame.extend_from_slice(&value.to_be_bytes()[16 - bytes..]);
}

fn ipv4(frame: &mut Vec<u8>, key: &Key) {
    let segment = transport(key);
    let start = frame.len();
    put(frame, 0x45, 1);
    put(frame, key.read(Field::NwTos) << 2 | key.read(Field::NwEcn), 1);
    put(frame, 20 + segment.len() as u128, 2);
    put(frame, 0, 2);
    // Sets the flag "more fragments", and a nonzero offset for later fragments.
    let offset = match key.read(Field::IpFrag) & 3 {
        0 => 0,
        1 => 0x2000,
        _ => 0x2000 | 100,
    };
    put(frame, offset, 2);
    put(frame, key.read(Field::NwTtl), 1);
    put(frame, key.read(Field::NwProto), 1);
    put(frame, 0, 2);
    put(frame, key.read(Field::IpSrc), 4);
    put(frame, key.read(Field::IpDst), 4);
    let sum = checksum(&frame[start..], 0);
    frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    let pseudo = pseudo_header(&frame[start + 12..start + 20], key, segment.len());
    append(frame, segment, key, pseudo);
}

fn ipv6(frame: &mut Vec<u8>, key: &Key) {
    let segment = transport(key);
    let start = frame.len();
    let class = key.read(Field::NwTos) << 2 | key.read(Field::NwEcn);
    put(frame, 6 << 28 | class << 20 | key.read(Field::Ipv6Label), 4);
    put(frame, segment.len() as u128, 2);
    put(frame, key.read(Field::NwProto), 1);
    put(frame, key.read(Field::NwTtl), 1);
    put(frame, key.read(Field::Ipv6Src), 16);
    put(frame, key.read(Field::Ipv6Dst), 16);
    let pseudo = pseudo_header(&frame[start + 8..start + 40], key, segment.len());
    append(frame, segment, key, pseudo);
}

/// Sums the addresses, the protocol and the length, which the checksums of TCP, UDP and ICMPv6
/// cover.
fn pseudo_header(addresses: &[u8], key: &Key, length: usize) -> u32 {
    sum(addresses) + key.read(Field::NwProto) as u32 + length as u32
}

/// Appends a segment with its checksum.
fn append(frame: &mut Vec<u8>, mut segment: Vec<u8>, key: &Key, pseudo: u32) {
    let (at, start) = match key.read(Field::NwProto) {
        1 => (2, 0),
        6 => (16, pseudo),
        17 => (6, pseudo),
        58 => (2, pseudo),
        _ => (usize::MAX, 0),
    };
    if at < segment.len() {
        let mut value = checksum(&segment, start);
        if at == 6 && value == 0 {
            value = 0xffff;
        }
        segment[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    frame.extend_from_slice(&segment);
}

/// Returns the transport header and the payload. A later fragment has no transport header and no
/// payload.
fn transport(key: &Key) -> Vec<u8> {
    let mut segment = Vec::new();
    if key.read(Field::IpFrag) & 2 != 0 {
        return segment;
    }
    let (source, destination) = (key.read(Field::TcpSrc), key.read(Field::TcpDst));
    let has_payload = match key.read(Field::NwProto) {
        6 => {
            let flags = key.read(Field::TcpFlags);
            put(&mut segment, source, 2);
            put(&mut segment, destination, 2);
            put(&mut segment, 0, 8);
            put(&mut segment, 5 << 12 | flags, 2);
            put(&mut segment, 0, 6);
            // Segments with FIN, SYN or RST have no payload.
            flags & 7 == 0
        }
        17 => {
            put(&mut segment, source, 2);
            put(&mut segment, destination, 2);
            put(&mut segment, 8 + PAYLOAD as u128, 2);
            put(&mut segment, 0, 2);
            true
        }
        132 => {
            put(&mut segment, source, 2);
            put(&mut segment, destination, 2);
            put(&mut segment, 0, 8);
            false
        }
        1 => {
            let kind = icmp(&mut segment, key);
            matches!(kind, 0 | 8)
        }
        58 => {
            let kind = icmp(&mut segment, key);
            if matches!(kind, 135 | 136) {
                discovery(&mut segment, key);
            }
            matches!(kind, 128 | 129)
        }
        _ => false,
    };
    if has_payload {
        segment.extend((0..PAYLOAD).map(|index| index as u8));
    }
    segment
}

/// Writes the header of ICMP. Returns the ICMP type if the code is 0, and otherwise a value that is
/// not an ICMP type.
fn icmp(segment: &mut Vec<u8>, key: &Key) -> u128 {
    let (kind, code) = (key.read(Field::IcmpType), key.read(Field::IcmpCode));
    put(segment, kind, 1);
    put(segment, code, 1);
    put(segment, 0, 6);
    if code == 0 { kind } else { u128::MAX }
}

fn discovery(segment: &mut Vec<u8>, key: &Key) {
    put(segment, key.read(Field::NdTarget), 16);
    for (option, field) in [(1, Field::NdSll), (2, Field::NdTll)] {
        if key.read(field) != 0 {
            put(segment, option, 1);
            put(segment, 1, 1);
            put(segment, key.read(field), 6);
        }
    }
}

fn arp(frame: &mut Vec<u8>, key: &Key) {
    put(frame, 1, 2);
    put(frame, 0x0800, 2);
    put(frame, 6, 1);
    put(frame, 4, 1);
    put(frame, key.read(Field::ArpOp), 2);
    put(frame, key.read(Field::ArpSha), 6);
    put(frame, key.read(Field::ArpSpa), 4);
    put(frame, key.read(Field::ArpTha), 6);
    put(frame, key.read(Field::ArpTpa), 4);
}

fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum()
}

/// Computes the Internet checksum of RFC 1071.
fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut total = sum(bytes) + start;
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}
