//! Malformed and unusual frames. The same seed gives the same frames.
//!
//! Each kind changes a single property of a frame that a host could send. Afterwards the checksums
//! of all other headers are corrected, so that a receiver parses as far as the change. Only the
//! kind for checksums leaves a checksum wrong.

mod base;
mod layers;

use crate::traffic::mix;
use base::Bases;
use std::net::{Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A valid frame that ends early: each valid frame is cut at each of its bytes in turn.
    Cut,
    /// Frames with wrong length fields: of the IPv4 packet, of the IPv4 header, of IPv6, of UDP, or
    /// of the TCP header.
    Length,
    /// Frames that end at most three bytes after the EtherType of a tag.
    Tpid,
    /// Frames with one to twelve VLAN tags, some of them CAQM's tags.
    Vlan,
    /// Frames with all combinations of TCP flags.
    Flags,
    /// Frames with options of IPv4 and TCP, and with extension headers of IPv6, whose lengths are
    /// wrong.
    Options,
    /// Fragments that overlap, are tiny, or end beyond the maximum length of a packet.
    Fragment,
    Checksum,
    /// Frames with addresses that no sender has, such as group addresses, loopback addresses or the
    /// receiver's own address.
    Address,
    /// Frames with EtherTypes and protocols that hosts rarely receive, and with a payload of
    /// another protocol.
    Type,
    /// Datagrams that look like the beginning of QUIC packets.
    Datagram,
    /// Valid frames with flipped bits.
    Flipped,
    /// Frames with random bytes after the MAC addresses.
    Noise,
}

#[derive(Debug, Clone)]
pub struct Addresses {
    /// The source and destination MAC addresses.
    pub macs: [[u8; 6]; 2],
    pub ipv4: [Ipv4Addr; 2],
    pub ipv6: [Ipv6Addr; 2],
    /// TCP port at which the destination listens; `udp_port` is the destination's UDP port.
    pub tcp_port: u16,
    pub udp_port: u16,
}

#[derive(Debug)]
pub struct Malformed {
    bases: Bases,
    random: Random,
    /// The next frame of `Kind::Cut`: the index of the valid frame, and the number of its bytes to
    /// keep.
    cut: (usize, usize),
    longest: usize,
}

impl Kind {
    pub const ALL: [Self; 13] = [
        Self::Cut,
        Self::Length,
        Self::Tpid,
        Self::Vlan,
        Self::Flags,
        Self::Options,
        Self::Fragment,
        Self::Checksum,
        Self::Address,
        Self::Type,
        Self::Datagram,
        Self::Flipped,
        Self::Noise,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Length => "length",
            Self::Tpid => "tpid",
            Self::Vlan => "vlan",
            Self::Flags => "flags",
            Self::Options => "options",
            Self::Fragment => "fragment",
            Self::Checksum => "checksum",
            Self::Address => "address",
            Self::Type => "type",
            Self::Datagram => "datagram",
            Self::Flipped => "flipped",
            Self::Noise => "noise",
        }
    }
}

impl Malformed {
    /// `longest`: the maximum length of a frame that the port takes, in bytes.
    pub fn new(seed: u64, addresses: &Addresses, longest: usize) -> Self {
        let random = Random { state: mix(seed) };
        Self { bases: Bases::of(addresses), random, cut: (0, 0), longest }
    }

    pub fn write_next(&mut self, frame: &mut Vec<u8>) -> Kind {
        let kind = self.random.one_of(&Kind::ALL);
        self.write(kind, frame);
        kind
    }

    pub fn write(&mut self, kind: Kind, frame: &mut Vec<u8>) {
        frame.clear();
        if kind == Kind::Cut {
            self.cut(frame);
        } else {
            layers::write(kind, &self.bases, &mut self.random, frame);
        }
        frame.truncate(self.longest);
    }

    /// Replaces `frame` by a valid datagram to a port where no program listens, about as long as a
    /// malformed frame.
    pub fn write_ordinary(&mut self, frame: &mut Vec<u8>) {
        self.write_next(frame);
        let len = frame.len();
        self.bases.ordinary(len, frame);
    }

    fn cut(&mut self, frame: &mut Vec<u8>) {
        let (number, len) = self.cut;
        let base = &self.bases.valid[number];
        frame.extend(&base[..len]);
        self.cut = match len + 1 < base.len() {
            true => (number, len + 1),
            false => ((number + 1) % self.bases.valid.len(), 0),
        };
    }
}

#[derive(Debug)]
struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns a random number below `bound`; 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn word(&mut self) -> u16 {
        self.next() as u16
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    fn extend(&mut self, frame: &mut Vec<u8>, count: usize) {
        frame.extend((0..count).map(|_| self.byte()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn addresses() -> Addresses {
        Addresses {
            macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
            ipv4: [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)],
            ipv6: ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()],
            tcp_port: 5201,
            udp_port: 7000,
        }
    }

    fn source(seed: u64) -> Malformed {
        Malformed::new(seed, &addresses(), 1518)
    }

    fn hash_of(seed: u64, count: usize) -> u64 {
        let (mut source, mut frame, mut hash) = (source(seed), Vec::new(), 0_u64);
        for _ in 0..count {
            let kind = source.write_next(&mut frame) as u64;
            hash = mix(hash ^ kind);
            for byte in &frame {
                hash = hash.rotate_left(5) ^ u64::from(*byte);
                hash = hash.wrapping_mul(0x100_0000_01b3);
            }
        }
        hash
    }

    #[test]
    fn the_same_seed_gives_the_same_malformed_frames() {
        assert_eq!(hash_of(7, 50_000), hash_of(7, 50_000));
        assert_ne!(hash_of(7, 1_000), hash_of(8, 1_000));
    }

    #[test]
    fn malformed_frames_of_all_kinds_are_equally_frequent_and_differ() {
        let (mut source, mut frame) = (source(1), Vec::new());
        let mut counts: HashMap<Kind, (usize, HashSet<Vec<u8>>)> = HashMap::new();
        for _ in 0..26_000 {
            let kind = source.write_next(&mut frame);
            assert!(frame.len() <= 1518);
            let (count, seen) = counts.entry(kind).or_default();
            *count += 1;
            seen.insert(frame.clone());
        }
        for kind in Kind::ALL {
            let (count, seen) = &counts[&kind];
            assert!((1_700..2_300).contains(count), "{kind:?}: {count}");
            // Frames of the kind `Tpid` are short, so many of these frames are equal.
            assert!(seen.len() * 4 > *count, "{kind:?}: {} of {count}", seen.len());
        }
    }

    #[test]
    fn each_valid_frame_is_cut_at_each_of_its_bytes() {
        let (mut source, mut frame) = (source(1), Vec::new());
        let lens: Vec<usize> = source.bases.valid.iter().map(Vec::len).collect();
        for (number, len) in lens.iter().enumerate() {
            for at in 0..*len {
                source.write(Kind::Cut, &mut frame);
                assert_eq!(frame, source.bases.valid[number][..at]);
            }
        }
        source.write(Kind::Cut, &mut frame);
        assert!(frame.is_empty(), "the first frame of a new round of cuts is not empty");
    }

    #[test]
    fn ordinary_frames_are_valid_and_as_long_as_malformed_frames() {
        let (mut malformed, mut ordinary) = (source(3), source(3));
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..2_000 {
            malformed.write_next(&mut a);
            ordinary.write_ordinary(&mut b);
            assert_eq!(b.len(), a.len().clamp(60, 1514));
            let sliced = etherparse::PacketHeaders::from_ethernet_slice(&b).unwrap();
            let Some(etherparse::NetHeaders::Ipv4(ip, _)) = &sliced.net else { panic!() };
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            let Some(etherparse::TransportHeader::Udp(udp)) = &sliced.transport else { panic!() };
            let body = sliced.payload.slice();
            assert_eq!(udp.checksum, udp.calc_checksum_ipv4(ip, body).unwrap());
        }
    }

    #[test]
    fn no_parser_panics_on_a_malformed_frame() {
        let (mut source, mut frame) = (source(9), Vec::new());
        for _ in 0..300_000 {
            source.write_next(&mut frame);
            let _ = wire::Layout::parse(&frame);
            let _ = wire::flow::hash(&frame, 1);
            let _ = wire::vlan::outermost(&frame);
            let _ = wire::caqm::read(&frame, wire::caqm::TPID);
            let _ = crate::neighbour::reply(&frame, [2; 6], &[Ipv4Addr::new(10, 0, 0, 2).into()]);
        }
    }
}
