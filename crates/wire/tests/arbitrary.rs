//! No function of this crate may panic, whatever the bytes of a frame.

#![allow(clippy::unwrap_used)]

use etherparse::PacketBuilder;
use proptest::prelude::*;
use wire::virtio::{GsoKind, PartialChecksum};
use wire::{
    Ecn, Gso, Layout, Segmenter, Transport, VirtioHeader, checksum, corrupt, ecn, flow, vlan,
};

/// Generates the start of a valid frame with a few changes. Such frames pass the parsers' first
/// checks.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let change = (0usize..120, any::<u8>());
    let near = (0u8..4, prop::collection::vec(change, 0..6), 0usize..200).prop_map(
        |(kind, changes, len)| {
            let mut frame = sample(kind);
            for (at, byte) in changes {
                if let Some(target) = frame.get_mut(at) {
                    *target = byte;
                }
            }
            frame.truncate(len);
            frame
        },
    );
    let anything = prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![near, anything]
}

fn sample(kind: u8) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let payload = [7; 64];
    let mut frame = Vec::new();
    match kind {
        0 => link.ipv4([10; 4], [11; 4], 9).tcp(1, 2, 3, 4).write(&mut frame, &payload),
        1 => link.ipv6([10; 16], [11; 16], 9).tcp(1, 2, 3, 4).write(&mut frame, &payload),
        2 => link.ipv4([10; 4], [11; 4], 9).udp(1, 2).write(&mut frame, &payload),
        _ => link
            .single_vlan(5.try_into().unwrap())
            .ipv6([10; 16], [11; 16], 9)
            .udp(1, 2)
            .write(&mut frame, &payload),
    }
    .unwrap();
    frame
}

fn headers() -> impl Strategy<Value = VirtioHeader> {
    prop::collection::vec(any::<u8>(), 10).prop_map(|mut bytes| {
        bytes[1] &= 0x87;
        VirtioHeader::parse(&bytes).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_function_panics_on_an_arbitrary_frame(mut frame in frames(), virtio in headers(), random in any::<u64>()) {
        if let Some(layout) = Layout::parse(&frame) {
            prop_assert!(layout.network_offset <= layout.transport_offset);
            prop_assert!(layout.transport_offset <= frame.len() && layout.end <= frame.len());
            if let Some(payload) = layout.payload_offset() {
                prop_assert!(payload <= layout.end);
            }
        }
        flow::hash(&frame, random);
        let mut out = vec![0; frame.len()];
        for kind in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpL4] {
            let size = (random % 70) as u16;
            let virtio = VirtioHeader { gso: Some(Gso { kind, ecn: false, size }), ..virtio };
            if let Ok(mut segmenter) = Segmenter::new(&frame, &virtio) {
                let mut count = 0;
                while segmenter.write_next(&mut out).is_some() {
                    count += 1;
                    prop_assert!(count <= frame.len());
                }
                prop_assert_eq!(segmenter.next_len(), None);
            }
        }
        let _ = Segmenter::new(&frame, &virtio);
        if let Some(PartialChecksum { start, offset }) = virtio.partial_checksum {
            checksum::complete(&mut frame, start.into(), offset.into());
        }
        checksum::complete(&mut frame, (random % 90) as usize, (random >> 32) as usize % 90);
        ecn::mark(&mut frame);
        corrupt::flip_bit(&mut frame, random);
        vlan::remove(&mut frame);
        vlan::insert(&mut frame, vlan::Tag { tpid: 0x8100, tci: 1 });
        VirtioHeader::parse(&frame);
    }

    #[test]
    fn the_optimised_checksum_equals_the_word_by_word_sum(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let mut plain = 0u32;
        for pair in bytes.chunks(2) {
            plain += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            plain = (plain & 0xffff) + (plain >> 16);
        }
        prop_assert_eq!(checksum::Sum::of(&bytes).folded(), plain as u16);
        let mut copy = vec![0; bytes.len() + 1];
        prop_assert_eq!(checksum::Sum::of_copy(&bytes, &mut copy).folded(), plain as u16);
        prop_assert_eq!(&copy[..bytes.len()], &bytes[..]);
    }

    #[test]
    fn an_updated_checksum_equals_a_recomputed_checksum(
        mut words in prop::collection::vec(any::<u16>(), 2..40), at in any::<usize>(), new in any::<u16>()
    ) {
        let sum = |words: &[u16]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            checksum::Sum::of(&bytes).checksum()
        };
        // Avoid words that are all zeros: only then do the two representations of zero in one's
        // complement differ.
        words[0] |= 1;
        let at = 1 + at % (words.len() - 1);
        let before = sum(&words);
        let old = std::mem::replace(&mut words[at], new);
        prop_assert_eq!(checksum::update(before, old, new), sum(&words));
    }
}

#[test]
fn an_ecn_mark_keeps_the_header_checksum_valid() {
    for kind in 0..4 {
        let mut frame = sample(kind);
        assert_eq!(Ecn::read(&frame), Some(Ecn::NotCapable));
        assert!(!ecn::mark(&mut frame));
        let layout = Layout::parse(&frame).unwrap();
        let at = layout.network_offset;
        for (bits, name) in [(1, Ecn::Ect1), (2, Ecn::Ect0)] {
            let mut frame = frame.clone();
            if frame[at] >> 4 == 4 {
                frame[at + 1] |= bits;
                frame[at + 10..at + 12].fill(0);
                let sum = checksum::Sum::of(&frame[at..at + 20]).checksum();
                frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
            } else {
                frame[at + 1] |= bits << 4;
            }
            assert_eq!(Ecn::read(&frame), Some(name));
            assert!(ecn::mark(&mut frame));
            assert_eq!(Ecn::read(&frame), Some(Ecn::CongestionExperienced));
            if frame[at] >> 4 == 4 {
                assert_eq!(checksum::Sum::of(&frame[at..at + 20]).folded(), 0xffff);
            }
        }
    }
}

#[test]
fn flows_are_distinguished_and_fragments_share_a_flow() {
    let frame = |source: u16| {
        let mut frame = Vec::new();
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10; 4], [11; 4], 9);
        link.udp(source, 53).write(&mut frame, &[0; 30]).unwrap();
        frame
    };
    assert_eq!(flow::hash(&frame(1), 9), flow::hash(&frame(1), 9));
    assert_ne!(flow::hash(&frame(1), 9), flow::hash(&frame(2), 9));
    assert_ne!(flow::hash(&frame(1), 9), flow::hash(&frame(1), 10));
    let fragment = |source: u16, bits: [u8; 2]| {
        let mut frame = frame(source);
        frame[20..22].copy_from_slice(&bits);
        frame
    };
    let (first, second) = (fragment(1, [0x20, 0]), fragment(7, [0x00, 4]));
    assert_eq!(flow::hash(&first, 9), flow::hash(&second, 9));
    assert!(matches!(Layout::parse(&first).unwrap().transport, Transport::Fragment(17)));

    let buckets: std::collections::BTreeSet<u64> =
        (0..1000).map(|source| flow::hash(&frame(source), 3) % 1024).collect();
    assert!(buckets.len() > 550, "1000 flows in only {} of 1024 buckets", buckets.len());
}

#[test]
fn the_flow_hash_depends_on_all_bytes_of_addresses_and_ports_and_on_no_other_byte() {
    let mut frame = Vec::new();
    let link = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10; 4], [11; 4], 9);
    link.udp(1024, 53).write(&mut frame, &[0; 30]).unwrap();
    let whole = flow::hash(&frame, 9);
    // Bytes 26 to 33 are addresses, and bytes 34 to 37 are ports. The hash must not depend on the
    // time to live, the checksums and the payload.
    let others = [22, 24, 40, 42, 60];
    for at in (26..38).chain(others) {
        let mut changed = frame.clone();
        changed[at] ^= 1;
        assert_eq!(flow::hash(&changed, 9) == whole, others.contains(&at), "byte {at}");
    }
}

#[test]
fn ipv6_extension_headers_are_skipped() {
    // The extension headers are hop-by-hop and destination options; UDP follows.
    let mut frame = vec![0; 14 + 40 + 8 + 16 + 8];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14] = 0x60;
    frame[18..20].copy_from_slice(&32u16.to_be_bytes());
    frame[20] = 0;
    frame[54] = 60;
    frame[62] = 17;
    frame[63] = 1;
    let layout = Layout::parse(&frame).unwrap();
    assert_eq!((layout.transport, layout.transport_offset), (Transport::Udp, 78));
    // An atomic fragment header does not make the packet a fragment; any other fragment header
    // does.
    frame[20] = 44;
    frame[54] = 17;
    frame[55..62].fill(0);
    let atomic = Layout::parse(&frame).unwrap();
    assert_eq!((atomic.transport, atomic.transport_offset), (Transport::Udp, 62));
    frame[57] = 1;
    assert_eq!(Layout::parse(&frame).unwrap().transport, Transport::Fragment(17));
}
