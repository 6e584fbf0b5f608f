//! Fields of frames, as Open vSwitch's flow extraction reads them.

use datapath::{Packet, extract, flag};
use flow::{Field, Key, word};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use text::{PortNames, compose, parse_packet};
use units::Time;

use super::frames::{frame, random_frame};

fn key(text: &str) -> Key {
    parse_packet(text, &PortNames::none()).expect("a packet")
}

#[test]
fn a_composed_packet_parses_to_its_own_fields() {
    for text in [
        "in_port=3,udp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,\
         nw_dst=10.0.0.2,nw_tos=40,nw_ecn=1,nw_ttl=64,tp_src=1000,tp_dst=53",
        "in_port=1,tcp,nw_src=10.0.0.1,nw_ttl=1,tp_src=1,tp_dst=2,tcp_flags=0x812",
        "in_port=1,tcp,nw_src=10.0.0.1,nw_ttl=1,tp_src=1,tp_dst=2,tcp_flags=0x10,dl_vlan=5,\
         dl_vlan_pcp=3",
        "in_port=1,sctp,nw_src=10.0.0.1,nw_ttl=9,tp_src=1,tp_dst=2",
        "in_port=1,icmp,nw_src=10.0.0.1,nw_ttl=9,icmp_type=8,icmp_code=0",
        "in_port=1,ip,nw_proto=47,nw_src=10.0.0.1,nw_ttl=9",
        "in_port=1,udp,nw_src=10.0.0.1,nw_ttl=9,nw_frag=first,tp_src=7,tp_dst=8",
        "in_port=1,ip,nw_proto=17,nw_src=10.0.0.1,nw_ttl=9,nw_frag=later",
        "in_port=1,udp6,ipv6_src=fc00::1,ipv6_dst=fc00::2,ipv6_label=0x12345,nw_tos=8,nw_ttl=7,\
         tp_src=7,tp_dst=8",
        "in_port=1,icmp6,ipv6_src=fc00::1,icmp_type=135,icmp_code=0,nd_target=fe80::1,\
         nd_sll=02:00:00:00:00:09,nw_ttl=255",
        "in_port=1,arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_sha=02:00:00:00:00:01,\
         arp_tha=02:00:00:00:00:03",
        "in_port=1,mpls,mpls_label=77,mpls_tc=3,mpls_ttl=9,mpls_bos=1",
        "in_port=1,dl_type=0x88b5",
    ] {
        let mut wanted = key(text);
        let found = extract(wanted.read(Field::InPort) as u32, &compose(&wanted));
        if wanted.read(Field::VlanTci) != 0 {
            wanted.words[word::VLAN_TPID] = 0x8100;
        }
        assert_eq!(found, wanted, "{text}");
    }
}

#[test]
fn padding_does_not_count_as_payload() {
    let mut padded = frame("icmp,nw_src=10.0.0.1,icmp_type=3,nw_ttl=1");
    padded.truncate(42);
    padded[16..18].copy_from_slice(&28_u16.to_be_bytes());
    let short = extract(1, &padded);
    padded.resize(60, 0xff);
    assert_eq!(extract(1, &padded), short);
    // The IP packet ends inside the ICMP header, so that the packet has no ICMP type, even with
    // padding.
    padded[16..18].copy_from_slice(&27_u16.to_be_bytes());
    assert_eq!(extract(1, &padded).read(Field::IcmpType), 0);
}

#[test]
fn the_ethernet_type_behind_a_tag_may_be_the_type_of_an_inner_tag() {
    let mut stacked = frame("udp,nw_src=10.0.0.1,dl_vlan=5");
    stacked.splice(12..12, [0x88, 0xa8, 0x20, 0x07]);
    let found = extract(1, &stacked);
    assert_eq!(found.read(Field::DlVlan), 7);
    assert_eq!(found.words[word::VLAN_TPID], 0x1005_88a8);
    assert_eq!(found.read(Field::EthType), 0x8100);
    assert_eq!(found.read(Field::IpSrc), 0);
    // If a frame ends after a VLAN tag, the type in the tag is the frame's type.
    let found = extract(1, &[&[0; 12][..], &[0x81, 0x00, 0, 5]].concat());
    assert_eq!((found.read(Field::EthType), found.read(Field::VlanTci)), (0x8100, 0));
}

#[test]
fn an_802_3_length_is_not_taken_for_an_ethernet_type() {
    let with = |bytes: &[u8]| extract(1, &[&[2; 12][..], bytes, &[0; 20]].concat());
    assert_eq!(with(&[0, 46, 0x42, 0x42, 3]).read(Field::EthType), 0x05ff);
    let snap = [0, 46, 0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x06];
    assert_eq!(with(&snap).read(Field::EthType), 0x0806);
    let other = [0, 46, 0xaa, 0xaa, 3, 0, 0, 1, 0x08, 0x06];
    assert_eq!(with(&other).read(Field::EthType), 0x05ff);
}

#[test]
fn ports_are_found_after_ipv4_options() {
    let mut packet = frame("udp,nw_src=10.0.0.1,nw_ttl=3,tp_src=9,tp_dst=10");
    packet.splice(34..34, [1; 8]);
    packet[14] = 0x47;
    packet[17] += 8;
    let found = extract(1, &packet);
    assert_eq!((found.read(Field::UdpSrc), found.read(Field::UdpDst)), (9, 10));
    // A header that is longer than the packet is invalid.
    packet[17] = 24;
    assert_eq!(extract(1, &packet).read(Field::IpSrc), 0);
}

#[test]
fn ports_are_found_after_ipv6_extension_headers() {
    let base = frame("udp6,ipv6_src=fc00::1,nw_ttl=3,tp_src=9,tp_dst=10");
    let insert = |chain: &[u8], first: u8| {
        let mut packet = base.clone();
        packet[20] = first;
        let length = u16::from_be_bytes([packet[18], packet[19]]) + chain.len() as u16;
        packet[18..20].copy_from_slice(&length.to_be_bytes());
        packet.splice(54..54, chain.iter().copied());
        packet
    };
    let ports = |packet: &[u8]| {
        let key = extract(1, packet);
        (key.read(Field::NwProto), key.read(Field::UdpSrc), key.read(Field::IpFrag))
    };
    let options = [60, 0, 1, 4, 0, 0, 0, 0, 17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(ports(&insert(&options, 0)), (17, 9, 0));
    // An authentication header counts its length in words of four bytes.
    let authentication = [17, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(ports(&insert(&authentication, 51)), (17, 9, 0));
    let first_fragment = [17, 0, 0, 1, 0, 0, 0, 1];
    assert_eq!(ports(&insert(&first_fragment, 44)), (17, 9, 1));
    let later_fragment = [17, 0, 0, 9, 0, 0, 0, 1];
    assert_eq!(ports(&insert(&later_fragment, 44)), (44, 0, 3));
    // An atomic fragment is a whole packet.
    assert_eq!(ports(&insert(&[17, 0, 0, 0, 0, 0, 0, 1], 44)), (17, 9, 0));
    // The chain of headers is truncated, so only the addresses are read.
    let cut = insert(&[17, 200, 0, 0, 0, 0, 0, 0], 43);
    let key = extract(1, &cut);
    assert_eq!((key.read(Field::NwProto), key.read(Field::NwTtl)), (0, 0));
    assert_eq!(key.read(Field::Ipv6Src), 0xfc00 << 112 | 1);
    let mut packet = Packet::arrived(
        1,
        port::Frame::from_bytes(&insert(&[17, 0, 0, 2, 0, 0, 0, 0], 43), Time::ZERO),
    );
    assert!(packet.layout.has(flag::ROUTED | flag::TRANSPORT));
    // The checksum covers the last destination, which the rewrite does not change.
    let before = packet.segment()[6..8].to_vec();
    packet.write(word::IPV6_DST + 1, 99, u64::MAX);
    assert_eq!(packet.segment()[6..8], before);
}

#[test]
fn a_rewritten_packet_parses_to_the_rewritten_key() {
    use rand::RngExt;
    let mut random = Pcg64Mcg::seed_from_u64(5);
    for _ in 0..20_000 {
        let bytes = random_frame(&mut random);
        let mut packet = Packet::arrived(2, port::Frame::from_bytes(&bytes, Time::ZERO));
        let parsed = packet.key.clone();
        assert_eq!(extract(2, &bytes), parsed);
        for _ in 0..3 {
            let index = random.random_range(word::ETH_SRC..flow::WORDS);
            // Skip fields on which the position of other fields depends, and fields that no action
            // writes.
            let mask = match index {
                word::NW if parsed.read(Field::EthType) == 0x0806 => 0xff << 48,
                word::NW => 0xffff << 32,
                word::ETH_DST | word::ETH_SRC => !0x1000,
                word::TP if matches!(packet.protocol(), 1 | 2 | 58) => 0xff << 32,
                word::TP => 0xffff_ffff << 32,
                word::MPLS if parsed.read(Field::EthType) == 0x86dd => 0xf_ffff,
                word::MPLS => 0xffff_feff_0000_0000,
                word::ARP_SHA | word::ARP_THA => !0xffff,
                word::VLAN_TPID => 0,
                _ => u64::MAX,
            };
            packet.write(index, random.random(), mask & random.random::<u64>());
        }
        let changed = packet.key.clone();
        packet.parse();
        if parsed.read(Field::IcmpCode) == changed.read(Field::IcmpCode) {
            assert_eq!(packet.key, changed, "{bytes:02x?}");
        }
    }
}
