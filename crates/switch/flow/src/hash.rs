//! The hash of a packet's connection, by which groups of type select spread connections.

use crate::mix::mix;
use crate::step::PacketHash;
use crate::{Field, Key, word};

impl PacketHash {
    /// Hashes the addresses, the protocol and the ports. Later fragments lack ports, so all
    /// fragments are hashed without ports: the fragments of a packet then have the same hash.
    /// Packets other than IP are hashed by their MAC addresses. The hash is never 0, because 0
    /// means "no hash".
    #[must_use]
    pub fn of(self, key: &Key) -> u32 {
        let words = &key.words;
        let kind = words[word::ETH_SRC] & 0xffff;
        let mut hash = mix(SEED ^ u64::from(self.basis), kind);
        match kind {
            0x0800 => {
                let addresses = words[word::IPV4];
                hash = self.pair(hash, addresses >> 32, addresses & 0xffff_ffff);
            }
            0x86dd => {
                let addresses = (key.read(Field::Ipv6Src), key.read(Field::Ipv6Dst));
                let (first, second) = self.order(addresses.0, addresses.1);
                for address in [first, second] {
                    hash = mix(mix(hash, (address >> 64) as u64), address as u64);
                }
            }
            _ => {
                hash = self.pair(hash, words[word::ETH_SRC] >> 16, words[word::ETH_DST] >> 16);
                return finish(hash);
            }
        }
        let protocol = (words[word::NW] >> 48) as u8;
        let is_fragment = words[word::NW] >> 24 & 0xff != 0;
        hash = mix(hash, protocol.into());
        if matches!(protocol, TCP | UDP | SCTP) && !is_fragment {
            hash = self.pair(hash, words[word::TP] >> 48, words[word::TP] >> 32 & 0xffff);
        }
        finish(hash)
    }

    fn pair(self, hash: u64, source: u64, destination: u64) -> u64 {
        let (first, second) = self.order(source, destination);
        mix(mix(hash, first), second)
    }

    /// Orders a pair, so that a symmetric hash is the same for both directions.
    fn order<T: Ord + Copy>(self, source: T, destination: T) -> (T, T) {
        if self.is_symmetric && destination < source {
            (destination, source)
        } else {
            (source, destination)
        }
    }
}

fn finish(hash: u64) -> u32 {
    ((mix(hash, 0) >> 32) as u32).max(1)
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const SEED: u64 = 0x4528_21e6_38d0_1377;

#[cfg(test)]
mod tests {
    use super::*;

    const SYMMETRIC: PacketHash = PacketHash { is_symmetric: true, basis: 0 };
    const DIRECTED: PacketHash = PacketHash { is_symmetric: false, basis: 0 };

    /// Builds the key of a packet of this Ethernet type and protocol. `source` and `destination`
    /// are both addresses and ports.
    fn packet(kind: u16, protocol: u8, source: u32, destination: u32) -> Key {
        let mut key = Key::ZERO;
        let fields = [
            (Field::EthType, kind.into()),
            (Field::NwProto, protocol.into()),
            (Field::EthSrc, source.into()),
            (Field::EthDst, destination.into()),
        ];
        fields.into_iter().for_each(|(field, value)| key.write(field, value));
        let addresses = match kind {
            0x0800 => [Field::IpSrc, Field::IpDst],
            _ => [Field::Ipv6Src, Field::Ipv6Dst],
        };
        if kind != 0x0806 {
            key.write(addresses[0], source.into());
            key.write(addresses[1], destination.into());
            key.write(Field::TcpSrc, source.into());
            key.write(Field::TcpDst, destination.into());
        }
        key
    }

    #[test]
    fn a_symmetric_hash_is_the_same_in_both_directions() {
        for (kind, protocol) in [(0x0800, TCP), (0x0800, UDP), (0x86dd, SCTP), (0x0806, 0)] {
            let there = packet(kind, protocol, 0x0a00_0001, 0x0a00_0207);
            let back = packet(kind, protocol, 0x0a00_0207, 0x0a00_0001);
            assert_eq!(SYMMETRIC.of(&there), SYMMETRIC.of(&back));
            assert_ne!(DIRECTED.of(&there), DIRECTED.of(&back));
            let other = PacketHash { basis: 1, ..SYMMETRIC };
            assert_ne!(SYMMETRIC.of(&there), other.of(&there));
        }
    }

    #[test]
    fn the_fragments_of_a_packet_have_the_same_hash() {
        let mut first = packet(0x0800, UDP, 5000, 53);
        first.write(Field::IpFrag, 1);
        let mut later = packet(0x0800, UDP, 5000, 53);
        later.write(Field::IpFrag, 3);
        later.write(Field::UdpSrc, 0);
        later.write(Field::UdpDst, 0);
        assert_eq!(SYMMETRIC.of(&first), SYMMETRIC.of(&later));
        assert_ne!(SYMMETRIC.of(&first), SYMMETRIC.of(&packet(0x0800, UDP, 5000, 53)));
    }

    /// Connections that differ in only one field get hashes whose low bits take all values about
    /// equally often.
    #[test]
    fn hashes_of_connections_fill_the_low_bits_evenly() {
        let one_port = |number: u32| {
            let mut key = packet(0x0800, UDP, 0x0a00_0001, 0x0a00_0002);
            key.write(Field::UdpSrc, number.into());
            key
        };
        let one_address = |number: u32| packet(0x0800, 1, 0x0a00_0000 | number, 0x0a00_0002);
        let one_prefix = |number: u32| {
            let mut key = packet(0x86dd, TCP, 1, 2);
            key.write(Field::Ipv6Src, 0xfc00 << 112 | u128::from(number) << 64);
            key
        };
        let makers: [&dyn Fn(u32) -> Key; 3] = [&one_port, &one_address, &one_prefix];
        for maker in makers {
            let mut counts = [0; 256];
            for number in 1..=65_000 {
                counts[SYMMETRIC.of(&maker(number)) as usize % 256] += 1;
            }
            // The expected count per value is 254, with a standard deviation of 16.
            assert!(counts.iter().all(|count| (170..340).contains(count)), "{counts:?}");
        }
    }
}
