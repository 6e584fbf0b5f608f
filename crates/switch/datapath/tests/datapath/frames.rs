//! Frames for tests.

use flow::{Field, Key};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use text::{PortNames, compose, parse_packet};

/// Builds the frame of a packet in OpenFlow's syntax: `udp,nw_dst=10.0.0.1`.
pub(super) fn frame(text: &str) -> Vec<u8> {
    let key = parse_packet(text, &PortNames::none());
    compose(&key.unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// Builds a valid random frame from few distinct values, so that rules match and megaflows are
/// shared.
pub(super) fn random_frame(random: &mut Pcg64Mcg) -> Vec<u8> {
    let mut key = Key::ZERO;
    let mut set = |field, values: std::ops::Range<u128>| {
        let value = random.random_range(values);
        key.write(field, value);
    };
    set(Field::EthSrc, 0x0200_0000_0001..0x0200_0000_0004);
    set(Field::EthDst, 0x0200_0000_0011..0x0200_0000_0014);
    set(Field::NwTtl, 1..4);
    set(Field::NwTos, 10..13);
    set(Field::NwEcn, 0..3);
    let kind =
        [0x0800, 0x0800, 0x0800, 0x86dd, 0x86dd, 0x0806, 0x8847, 0x88b5][random.random_range(0..8)];
    key.write(Field::EthType, kind);
    let low = |random: &mut Pcg64Mcg| random.random_range(1..6_u128);
    match kind {
        0x0806 => {
            key.write(Field::ArpOp, random.random_range(1..3));
            key.write(Field::ArpSpa, 0x0a00_0000 | low(random));
            key.write(Field::ArpTpa, 0x0a00_0000 | low(random));
            key.write(Field::ArpSha, 0x0200_0000_0001);
        }
        0x8847 => {
            key.write(Field::MplsLabel, low(random));
            key.write(Field::MplsTtl, random.random_range(1..4));
            key.write(Field::MplsBos, random.random_range(0..2));
        }
        _ => {
            key.write(Field::IpSrc, 0x0a00_0000 | low(random));
            key.write(Field::IpDst, 0x0a00_0000 | low(random));
            key.write(Field::Ipv6Src, 0xfc00 << 112 | low(random));
            key.write(Field::Ipv6Dst, 0xfc00 << 112 | low(random));
            let icmp = if kind == 0x0800 { 1 } else { 58 };
            key.write(Field::NwProto, [6, 17, 17, 132, icmp, 47][random.random_range(0..6)]);
            key.write(Field::TcpSrc, random.random_range(1..4));
            key.write(Field::TcpDst, random.random_range(1..4));
            if key.read(Field::NwProto) == icmp {
                let kinds: [u128; 3] = if icmp == 1 { [0, 8, 3] } else { [128, 135, 136] };
                key.write(Field::IcmpType, kinds[random.random_range(0..3)]);
                key.write(Field::IcmpCode, 0);
                key.write(Field::NdTarget, 0xfe80 << 112 | low(random));
                key.write(Field::NdSll, 0x0200_0000_0077);
            }
            key.write(Field::TcpFlags, [2, 16, 17][random.random_range(0..3)]);
            if random.random_range(0..10) == 0 {
                key.write(Field::IpFrag, [1, 3][random.random_range(0..2)]);
            }
        }
    }
    if random.random_range(0..3) == 0 {
        let tci = 0x1000 | random.random_range(1..4) | random.random_range(0..2) << 13;
        key.write(Field::VlanTci, tci);
    }
    let mut frame = compose(&key);
    if random.random_range(0..12) == 0 {
        // Adds a second VLAN tag.
        let tag = [0x81, 0x00, 0x00, random.random_range(1..4)];
        frame.splice(12..12, tag);
    }
    if random.random_range(0..4) == 0 {
        frame.resize(frame.len().max(60), 0);
    }
    if random.random_range(0..8) == 0 && kind == 0x0800 && frame[12..14] == [8, 0] {
        // Removes the checksum of a UDP datagram.
        if frame[23] == 17 && frame.len() >= 42 && frame[20] & 0x3f == 0 {
            frame[40..42].fill(0);
        }
    }
    frame
}
