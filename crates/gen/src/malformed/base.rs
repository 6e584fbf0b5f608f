//! The valid frames from which malformed frames are made.

use super::Addresses;
use crate::capture::tcp_conversation;
use crate::capture::udp_frame;
use crate::neighbour;
use crate::traffic::as_ipv6;
use std::net::IpAddr;
use units::Bytes;
use wire::checksum::Sum;
use wire::headers::{ICMP, ICMPV6, MAC_HEADER, TCP, UDP};
use wire::vlan::Tag;
use wire::{Layout, Network, Transport};

#[derive(Debug)]
pub(super) struct Bases {
    pub(super) addresses: Addresses,
    pub(super) tcp: Vec<u8>,
    pub(super) udp: Vec<u8>,
    pub(super) tcp6: Vec<u8>,
    pub(super) udp6: Vec<u8>,
    pub(super) echo: Vec<u8>,
    /// The frames in the fields above, frames of ARP and neighbour discovery, and tagged frames.
    pub(super) valid: Vec<Vec<u8>>,
}

impl Bases {
    pub(super) fn of(addresses: &Addresses) -> Self {
        let udp = addressed(&first(&udp_frame(Bytes::new(110))), addresses);
        let tcp = addressed(&data_segment(), addresses);
        let six = |frame: &[u8]| addressed(&as_ipv6(frame).unwrap_or_default(), addresses);
        let (udp6, tcp6) = (six(&udp), six(&tcp));
        let echo = echo(&udp);
        let ask = |own: IpAddr, target: IpAddr| neighbour::request(addresses.macs[0], own, target);
        let [from, to] = addresses.ipv4.map(IpAddr::V4);
        let [from6, to6] = addresses.ipv6.map(IpAddr::V6);
        let resolution = [ask(from, to), ask(from6, to6)].into_iter().flatten();
        let plain = [&tcp, &udp, &tcp6, &udp6, &echo].into_iter().cloned();
        let tagged = [(&tcp, 0x8100), (&udp, 0x88a8)].map(|(frame, tpid)| {
            let mut frame = frame.clone();
            insert_tags(&mut frame, &[Tag { tpid, tci: 1 }]);
            frame
        });
        let valid = plain.chain(resolution).chain(tagged).collect();
        Self { addresses: addresses.clone(), tcp, udp, tcp6, udp6, echo, valid }
    }

    /// Writes a valid datagram to a port where no program listens, in a frame of about `len` bytes.
    pub(super) fn ordinary(&self, len: usize, frame: &mut Vec<u8>) {
        frame.clear();
        frame.extend(&self.udp);
        frame.resize(len.clamp(SHORTEST, LONGEST), 0);
        let total = (frame.len() - MAC_HEADER) as u16;
        frame[MAC_HEADER + 2..MAC_HEADER + 4].copy_from_slice(&total.to_be_bytes());
        frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
        frame[36..38].copy_from_slice(&DISCARD.to_be_bytes());
        seal(frame);
    }
}

/// Inserts tags between the MAC addresses and the EtherType, the outermost tag first.
pub(super) fn insert_tags(frame: &mut Vec<u8>, tags: &[Tag]) {
    let bytes = tags.iter().flat_map(|tag| tag.to_bytes());
    let at = (MAC_HEADER - 2).min(frame.len());
    frame.splice(at..at, bytes);
}

/// Corrects the checksums of a frame, as far as its headers can be parsed.
pub(super) fn seal(frame: &mut [u8]) {
    let Some(layout) = Layout::parse(frame) else { return };
    let (at, transport, end) = (layout.network_offset, layout.transport_offset, layout.end);
    if layout.network == Network::Ipv4 {
        put(frame, at + 10, 0);
        put(frame, at + 10, Sum::of(&frame[at..transport]).checksum());
    }
    let (protocol, offset) = match (layout.transport, layout.network) {
        (Transport::Tcp { .. }, _) => (TCP, 16),
        (Transport::Udp, _) => (UDP, 6),
        (Transport::Icmp, Network::Ipv4) => (ICMP, 2),
        (Transport::Icmp, _) => (ICMPV6, 2),
        _ => return,
    };
    put(frame, transport + offset, 0);
    let mut sum = Sum::of(&frame[transport..end]);
    let addresses = match layout.network {
        Network::Ipv4 if protocol == ICMP => None,
        Network::Ipv4 => Some(at + 12..at + 20),
        _ => Some(at + 8..at + 40),
    };
    if let Some(addresses) = addresses {
        sum = sum
            .plus(Sum::of(&frame[addresses]))
            .plus_word(u16::from(protocol))
            .plus_long((end - transport) as u32);
    }
    let checksum = if protocol == UDP { sum.checksum_nonzero() } else { sum.checksum() };
    put(frame, transport + offset, checksum);
}

/// Corrects the checksum of an IPv4 header, even if the header's length field exceeds the frame.
pub(super) fn seal_ipv4(frame: &mut [u8], at: usize) {
    let Some(first) = frame.get(at).copied() else { return };
    let end = (at + 4 * usize::from(first & 15)).min(frame.len());
    if end < at + 12 {
        return;
    }
    put(frame, at + 10, 0);
    put(frame, at + 10, Sum::of(&frame[at..end]).checksum());
}

pub(super) fn put(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

fn addressed(frame: &[u8], addresses: &Addresses) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let Some(layout) = Layout::parse(&frame) else { return frame };
    frame[..6].copy_from_slice(&addresses.macs[1]);
    frame[6..12].copy_from_slice(&addresses.macs[0]);
    let (at, transport) = (layout.network_offset, layout.transport_offset);
    for side in [0, 1] {
        match layout.network {
            Network::Ipv4 => {
                let at = at + 12 + 4 * side;
                frame[at..at + 4].copy_from_slice(&addresses.ipv4[side].octets());
            }
            Network::Ipv6 => {
                let at = at + 8 + 16 * side;
                frame[at..at + 16].copy_from_slice(&addresses.ipv6[side].octets());
            }
            Network::Other(_) => {}
        }
    }
    match layout.transport {
        Transport::Tcp { .. } => put(&mut frame, transport + 2, addresses.tcp_port),
        Transport::Udp => put(&mut frame, transport + 2, addresses.udp_port),
        _ => {}
    }
    seal(&mut frame);
    frame
}

/// Returns an ICMP echo request (RFC 792) with the addresses of `udp`.
fn echo(udp: &[u8]) -> Vec<u8> {
    let mut frame = udp.to_vec();
    let at = MAC_HEADER + 20;
    frame[MAC_HEADER + 9] = ICMP;
    frame[at..at + 8].copy_from_slice(&[8, 0, 0, 0, 0x12, 0x34, 0, 1]);
    seal(&mut frame);
    frame
}

fn first(capture: &crate::Capture) -> Vec<u8> {
    capture.packets.first().map(|packet| packet.bytes.clone()).unwrap_or_default()
}

fn data_segment() -> Vec<u8> {
    let capture = tcp_conversation(TCP_DATA);
    let longest = capture.packets.iter().max_by_key(|packet| packet.bytes.len());
    longest.map(|packet| packet.bytes.clone()).unwrap_or_default()
}

const TCP_DATA: usize = 100;
const SHORTEST: usize = 60;
const LONGEST: usize = 1514;
/// The discard port (RFC 863); no host of a test listens there.
const DISCARD: u16 = 9;
