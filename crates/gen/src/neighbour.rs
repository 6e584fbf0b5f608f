//! Address resolution on a port: ARP (RFC 826) and neighbour discovery (RFC 4861). The code does no
//! I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::checksum::Sum;
use wire::headers::{IPV4, IPV6, MAC_HEADER, word};

/// Builds the ARP request or neighbour solicitation for the MAC address of `target`.
pub fn request(own_mac: [u8; 6], own: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (own, target) {
        (IpAddr::V4(own), IpAddr::V4(target)) => {
            Some(arp(REQUEST, (own_mac, own), ([0; 6], target), BROADCAST))
        }
        (IpAddr::V6(own), IpAddr::V6(target)) => {
            // The destination is the solicited-node address (RFC 4291 section 2.7.1) with its MAC
            // address (RFC 2464 section 7).
            let last = target.octets();
            let mut group = [0; 16];
            group[..2].copy_from_slice(&[0xff, 0x02]);
            group[11..13].copy_from_slice(&[1, 0xff]);
            group[13..].copy_from_slice(&last[13..]);
            let mac = [0x33, 0x33, 0xff, last[13], last[14], last[15]];
            Some(discovery(SOLICITATION, 0, (own_mac, own), (mac, group.into()), target))
        }
        _ => None,
    }
}

/// Returns the MAC address of `target` if the frame is its ARP reply or neighbour advertisement.
pub fn answer(frame: &[u8], target: IpAddr) -> Option<[u8; 6]> {
    let found = parse(frame)?;
    (found.is_answer && found.sender == target).then_some(found.sender_mac)
}

/// Builds the reply to an ARP request or neighbour solicitation for one of the addresses `own`.
pub fn reply(frame: &[u8], own_mac: [u8; 6], own: &[IpAddr]) -> Option<Vec<u8>> {
    let found = parse(frame)?;
    if found.is_answer || !own.contains(&found.target) {
        return None;
    }
    match (found.target, found.sender) {
        (IpAddr::V4(target), IpAddr::V4(sender)) => {
            Some(arp(REPLY, (own_mac, target), (found.sender_mac, sender), found.sender_mac))
        }
        (IpAddr::V6(target), IpAddr::V6(sender)) => {
            let to = (found.sender_mac, sender);
            Some(discovery(ADVERTISEMENT, SOLICITED | OVERRIDE, (own_mac, target), to, target))
        }
        _ => None,
    }
}

/// True for frames that hosts exchange on their own: ARP, neighbour discovery and other multicast.
pub fn is_housekeeping(frame: &[u8]) -> bool {
    let Some(layout) = wire::Layout::parse(frame) else { return false };
    match layout.network {
        wire::Network::Other(_) => true,
        wire::Network::Ipv6 => {
            frame[0] & 1 == 1
                || frame.get(layout.transport_offset).is_some_and(|kind| {
                    layout.transport == wire::Transport::Icmp && (133..=137).contains(kind)
                })
        }
        wire::Network::Ipv4 => frame[0] & 1 == 1 && frame[..6] != BROADCAST,
    }
}

struct Exchange {
    is_answer: bool,
    sender_mac: [u8; 6],
    sender: IpAddr,
    target: IpAddr,
}

/// Returns `None` if the sender's MAC address is a group address or zero. RFC 1812 section 3.3.2
/// forbids hosts to accept such a reply, and with such an address all packets of a test would be
/// broadcast.
fn parse(frame: &[u8]) -> Option<Exchange> {
    read(frame).filter(|found| found.sender_mac[0] & 1 == 0 && found.sender_mac != [0; 6])
}

fn read(frame: &[u8]) -> Option<Exchange> {
    let layout = wire::Layout::parse(frame)?;
    let at = layout.network_offset;
    match layout.network {
        wire::Network::Other(ARP) => {
            let body = frame.get(at..)?.first_chunk::<28>()?;
            if body[..6] != [0, 1, 8, 0, 6, 4] {
                return None;
            }
            let four = |at: usize| {
                IpAddr::V4(Ipv4Addr::new(body[at], body[at + 1], body[at + 2], body[at + 3]))
            };
            let operation = u16::from_be_bytes([body[6], body[7]]);
            if !matches!(operation, REQUEST | REPLY) {
                return None;
            }
            Some(Exchange {
                is_answer: operation == REPLY,
                sender_mac: body[8..].first_chunk().copied()?,
                sender: four(14),
                target: four(24),
            })
        }
        wire::Network::Ipv6 => {
            let body = frame[..layout.end].get(layout.transport_offset..)?;
            let kind = *body.first()?;
            let target: [u8; 16] = body.get(8..)?.first_chunk().copied()?;
            let target = IpAddr::V6(Ipv6Addr::from(target));
            let source: [u8; 16] = frame.get(at + 8..)?.first_chunk().copied()?;
            // A hop limit of 255 shows that no router forwarded the packet (RFC 4861 section 7.1).
            if layout.transport != wire::Transport::Icmp || frame[at + 7] != 255 {
                return None;
            }
            let mac: [u8; 6] = match body.get(24..)?.first_chunk::<8>() {
                Some([SOURCE_MAC | TARGET_MAC, 1, mac @ ..]) => *mac,
                _ => frame[6..].first_chunk().copied()?,
            };
            let sender = match kind {
                ADVERTISEMENT => target,
                SOLICITATION => IpAddr::V6(Ipv6Addr::from(source)),
                _ => return None,
            };
            Some(Exchange { is_answer: kind == ADVERTISEMENT, sender_mac: mac, sender, target })
        }
        _ => None,
    }
}

fn arp(
    operation: u16,
    (own_mac, own): ([u8; 6], Ipv4Addr),
    (mac, target): ([u8; 6], Ipv4Addr),
    to: [u8; 6],
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(60);
    frame.extend(to);
    frame.extend(own_mac);
    frame.extend(ARP.to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(IPV4.to_be_bytes());
    frame.extend([6, 4]);
    frame.extend(operation.to_be_bytes());
    frame.extend(own_mac);
    frame.extend(own.octets());
    frame.extend(mac);
    frame.extend(target.octets());
    frame.resize(60, 0);
    frame
}

fn discovery(
    kind: u8,
    flags: u8,
    (own_mac, own): ([u8; 6], Ipv6Addr),
    (mac, to): ([u8; 6], Ipv6Addr),
    target: Ipv6Addr,
) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    body.extend(target.octets());
    body.extend([if kind == SOLICITATION { SOURCE_MAC } else { TARGET_MAC }, 1]);
    body.extend(own_mac);
    let checksum = Sum::of(&own.octets())
        .plus(Sum::of(&to.octets()))
        .plus_long(body.len() as u32)
        .plus_word(u16::from(wire::headers::ICMPV6))
        .plus(Sum::of(&body))
        .checksum();
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = Vec::with_capacity(MAC_HEADER + 40 + body.len());
    frame.extend(mac);
    frame.extend(own_mac);
    frame.extend(IPV6.to_be_bytes());
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((body.len() as u16).to_be_bytes());
    frame.extend([wire::headers::ICMPV6, 255]);
    frame.extend(own.octets());
    frame.extend(to.octets());
    frame.extend(body);
    frame
}

pub fn is_arp(frame: &[u8]) -> bool {
    word(frame, MAC_HEADER - 2) == Some(ARP)
}

const ARP: u16 = 0x0806;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const BROADCAST: [u8; 6] = [0xff; 6];
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arp_or_neighbour_discovery_reply_with_a_group_mac_address_is_ignored() {
        let ours = [2, 0, 0, 0, 0, 1];
        for (own, other) in [("192.168.10.2", "192.168.10.1"), ("fd00::2", "fd00::1")] {
            let (own, other): (IpAddr, IpAddr) = (own.parse().unwrap(), other.parse().unwrap());
            for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
                let question = request(mac, own, other).unwrap();
                assert_eq!(reply(&question, ours, &[other]), None, "{mac:?}");
                let question = request(ours, own, other).unwrap();
                let lie = reply(&question, mac, &[other]).unwrap();
                assert_eq!(answer(&lie, other), None, "{mac:?}");
            }
        }
    }

    #[test]
    fn an_arp_or_neighbour_discovery_request_gets_a_reply_with_the_mac_address() {
        let ours = [2, 0, 0, 0, 0, 1];
        let theirs = [2, 0, 0, 0, 0, 2];
        for (own, other) in [("192.168.10.2", "192.168.10.1"), ("fd00::2", "fd00::1")] {
            let (own, other): (IpAddr, IpAddr) = (own.parse().unwrap(), other.parse().unwrap());
            let question = request(ours, own, other).unwrap();
            assert!(is_housekeeping(&question));
            assert_eq!(reply(&question, theirs, &[own]), None);
            let reply = reply(&question, theirs, &[other]).unwrap();
            assert_eq!(reply[..6], ours);
            assert_eq!(answer(&reply, other), Some(theirs));
            assert_eq!(answer(&question, other), None);
            for len in 0..reply.len() {
                let _ = answer(&reply[..len], other);
            }
        }
    }
}
