use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses and ports of one direction of a connection, with its protocol and zone.
///
/// For ICMP and ICMPv6, both ports are the identifier, and `kind` includes the message type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    /// IPv4 addresses are in the low 32 bits.
    pub(super) source: u128,
    pub(super) destination: u128,
    pub(super) ports: Ports,
    pub(super) zone: u16,
    pub(super) protocol: u8,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Ports {
    pub(super) source: u16,
    pub(super) destination: u16,
}

/// The IP version, and for ICMP the type of request and whether the message is a request or its
/// reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kind(u8);

impl Kind {
    pub(super) const V4: Self = Self(0);
    pub(super) const V6: Self = Self(V6_BIT);

    pub(super) fn is_v6(self) -> bool {
        self.0 & V6_BIT != 0
    }

    /// Returns the kind of an ICMP or ICMPv6 request or reply; `None` for other messages.
    pub(super) fn of_icmp(self, kind: u8) -> Option<Self> {
        let list = if self.is_v6() { ICMPV6_TYPES } else { ICMP_TYPES };
        let position = list.iter().position(|listed| *listed == kind)?;
        Some(Self(self.0 | position as u8))
    }

    /// Returns the ICMP type of a message in this direction.
    pub(super) fn icmp_type(self) -> u8 {
        let list = if self.is_v6() { ICMPV6_TYPES } else { ICMP_TYPES };
        list.get(usize::from(self.0 & !V6_BIT)).copied().unwrap_or(0)
    }

    /// Whether a connection can start in this direction.
    pub(super) fn is_request(self, protocol: u8) -> bool {
        !is_icmp(protocol) || self.0 & 1 == 0
    }

    fn reversed(self, protocol: u8) -> Self {
        if is_icmp(protocol) { Self(self.0 ^ 1) } else { self }
    }

    /// Returns the kind without the direction.
    fn undirected(self) -> u8 {
        self.0 & !1
    }
}

impl Ports {
    pub(super) fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

impl Tuple {
    pub(super) fn reversed(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            ports: self.ports.reversed(),
            kind: self.kind.reversed(self.protocol),
            ..*self
        }
    }

    pub(super) fn source_address(&self) -> IpAddr {
        address(self.source, self.kind)
    }

    pub(super) fn destination_address(&self) -> IpAddr {
        address(self.destination, self.kind)
    }

    /// Returns the ports that ct_tp_src and ct_tp_dst show: type and code for ICMP.
    pub(super) fn shown_ports(&self) -> Ports {
        if is_icmp(self.protocol) {
            return Ports { source: self.kind.icmp_type().into(), destination: 0 };
        }
        self.ports
    }

    /// Whether ports (or ICMP identifiers) distinguish connections of this protocol.
    pub(super) fn has_ports(&self) -> bool {
        matches!(self.protocol, TCP | UDP | SCTP) || is_icmp(self.protocol)
    }
}

pub(super) fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, ICMP | ICMPV6)
}

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;

/// A keyed hash of tuples. The hash is the same for both directions of an untranslated connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hasher {
    keys: [u64; 4],
}

/// A tuple's position in the hash table. `home` chooses the shard and depends only on zone and
/// addresses, so that all ports that a translation may choose from are in one shard. `tag` is the
/// key in that shard's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) home: u32,
    pub(super) tag: u32,
}

impl Hasher {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        // SplitMix64. A key is odd, and so never zero.
        let keys = [(); 4].map(|()| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ mixed >> 31) | 1
        });
        Self { keys }
    }

    #[inline]
    pub(super) fn place(&self, tuple: &Tuple) -> Place {
        let source = self.address(tuple.source);
        let destination = self.address(tuple.destination);
        let zone = u64::from(tuple.zone) << 1;
        let home =
            fold(source.wrapping_add(destination).wrapping_add(zone) ^ self.keys[2], self.keys[3]);
        // Each port is hashed with its address: a sum of ports would be equal for 1→2 and 2→1.
        let ends = fold(source ^ u64::from(tuple.ports.source), self.keys[0])
            .wrapping_add(fold(destination ^ u64::from(tuple.ports.destination), self.keys[0]));
        let rest = u64::from(tuple.protocol) | u64::from(tuple.kind.undirected()) << 8 | zone << 16;
        let tag = fold(ends ^ rest.wrapping_mul(self.keys[1]), self.keys[2]);
        Place { home: (home >> 32) as u32, tag: (tag >> 32) as u32 ^ tag as u32 }
    }

    /// Hashes `words` for the choice of a translation: the source address, or the whole tuple.
    pub(super) fn choice(&self, words: &[u64]) -> u64 {
        words.iter().fold(self.keys[1], |hash, word| fold(hash ^ word, self.keys[3]))
    }

    #[inline]
    fn address(&self, address: u128) -> u64 {
        fold(address as u64 ^ self.keys[0], (address >> 64) as u64 ^ self.keys[1])
    }
}

#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

fn address(bits: u128, kind: Kind) -> IpAddr {
    if kind.is_v6() { Ipv6Addr::from(bits).into() } else { Ipv4Addr::from(bits as u32).into() }
}

const V6_BIT: u8 = 0x80;
/// Requests at even indices, each followed by its reply: echo, timestamp, information.
const ICMP_TYPES: &[u8] = &[8, 0, 13, 14, 15, 16];
const ICMPV6_TYPES: &[u8] = &[128, 129];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_hash_to_the_same_shard_and_tag() {
        let hasher = Hasher::new(7);
        let tuple = Tuple {
            source: 0x0a00_0001,
            destination: 0x0a00_0002,
            ports: Ports { source: 99, destination: 99 },
            zone: 5,
            protocol: ICMP,
            kind: Kind::V4.of_icmp(8).expect("echo request"),
        };
        assert_eq!(hasher.place(&tuple), hasher.place(&tuple.reversed()));
        assert_eq!(tuple.reversed().kind.icmp_type(), 0);
        assert_ne!(hasher.place(&tuple).tag, hasher.place(&Tuple { zone: 6, ..tuple }).tag);
    }

    #[test]
    fn swapped_ports_hash_to_another_tag() {
        let hasher = Hasher::new(7);
        let ports = Ports { source: 700, destination: 5001 };
        let (source, destination) = (0x0a00_0004, 0x0a00_0002);
        let tuple = Tuple { source, destination, ports, zone: 0, protocol: TCP, kind: Kind::V4 };
        let swapped = Tuple { ports: ports.reversed(), ..tuple };
        assert_ne!(hasher.place(&tuple).tag, hasher.place(&swapped).tag);
    }

    #[test]
    fn the_ports_do_not_change_the_shard_of_a_tuple() {
        let hasher = Hasher::new(7);
        let tuple = Tuple {
            source: 1,
            destination: 2,
            ports: Ports { source: 1000, destination: 80 },
            zone: 0,
            protocol: TCP,
            kind: Kind::V4,
        };
        let mut tags = Vec::new();
        for port in 1..2000 {
            let place =
                hasher.place(&Tuple { ports: Ports { source: port, destination: 80 }, ..tuple });
            assert_eq!(place.home, hasher.place(&tuple).home);
            tags.push(place.tag & 0xffff);
        }
        tags.sort_unstable();
        tags.dedup();
        assert!(tags.len() > 1900, "{}", tags.len());
    }
}
