//! Parses the segmenter's output with an independent implementation.

#![allow(clippy::unwrap_used)]

use etherparse::{
    NetHeaders, PacketBuilder, PacketHeaders, PayloadSlice, TransportHeader, VlanHeader, VlanId,
};
use proptest::prelude::*;
use wire::virtio::{GsoKind, PartialChecksum};
use wire::{Gso, Layout, SegmentError, Segmenter, VirtioHeader};

#[derive(Debug, Clone)]
struct Shape {
    v6: bool,
    udp: bool,
    tags: u8,
    options: usize,
    flags: u8,
    sequence: u32,
    payload: Vec<u8>,
    size: u16,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let payload = (1usize..60_000, any::<u8>())
        .prop_map(|(len, salt)| (0..len).map(|n| ((n * 31) >> 3) as u8 ^ salt).collect());
    let kinds = (any::<bool>(), any::<bool>(), 0u8..=2, 0usize..=10, any::<u8>());
    (kinds, any::<u32>(), payload, 64u16..9000).prop_map(
        |((v6, udp, tags, options, flags), sequence, payload, size)| Shape {
            v6,
            udp,
            tags,
            options: options * 4,
            flags,
            sequence,
            payload,
            size,
        },
    )
}

/// Returns the super-packet as the kernel passes it: the checksum field holds a partial value.
fn super_packet(shape: &Shape) -> (Vec<u8>, VirtioHeader) {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let vlan = |tci| {
        VlanHeader::Single(etherparse::SingleVlanHeader {
            vlan_id: VlanId::try_new(tci).unwrap(),
            ..Default::default()
        })
    };
    let (v4, v6) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [[0xfd; 16], [0xfe; 16]]);
    let ip = match (shape.tags, shape.v6) {
        (0, false) => link.ipv4(v4[0], v4[1], 64),
        (0, true) => link.ipv6(v6[0], v6[1], 64),
        (1, false) => link.vlan(vlan(5)).ipv4(v4[0], v4[1], 64),
        (1, true) => link.vlan(vlan(5)).ipv6(v6[0], v6[1], 64),
        (_, false) => {
            let ids = [5, 6].map(|id| VlanId::try_new(id).unwrap());
            link.double_vlan(ids[0], ids[1]).ipv4(v4[0], v4[1], 64)
        }
        (_, true) => {
            let ids = [5, 6].map(|id| VlanId::try_new(id).unwrap());
            link.double_vlan(ids[0], ids[1]).ipv6(v6[0], v6[1], 64)
        }
    };
    let mut packet = Vec::new();
    if shape.udp {
        ip.udp(4000, 5000).write(&mut packet, &shape.payload).unwrap();
    } else {
        let tcp = ip.tcp(4000, 5000, shape.sequence, 1024).ack(77);
        let tcp = tcp.options_raw(&vec![1; shape.options]).unwrap();
        tcp.write(&mut packet, &shape.payload).unwrap();
    }
    let layout = Layout::parse(&packet).unwrap();
    if !shape.udp {
        packet[layout.transport_offset + 13] = shape.flags;
    }
    let offset = if shape.udp { 6 } else { 16 };
    packet[layout.transport_offset + offset..][..2].copy_from_slice(&[0x12, 0x34]);
    let kind = match (shape.udp, shape.v6) {
        (true, _) => GsoKind::UdpL4,
        (false, false) => GsoKind::TcpV4,
        (false, true) => GsoKind::TcpV6,
    };
    let virtio = VirtioHeader {
        partial_checksum: Some(PartialChecksum {
            start: layout.transport_offset as u16,
            offset: offset as u16,
        }),
        gso: Some(Gso { kind, ecn: false, size: shape.size }),
        ..VirtioHeader::default()
    };
    (packet, virtio)
}

fn segments(packet: &[u8], virtio: &VirtioHeader) -> Vec<Vec<u8>> {
    let mut segmenter = Segmenter::new(packet, virtio).unwrap();
    let count = segmenter.count();
    let mut frames = Vec::new();
    while let Some(len) = segmenter.next_len() {
        // Fill the buffer, because a recycled buffer holds old bytes.
        let mut frame = vec![0xa5; len];
        assert_eq!(segmenter.write_next(&mut frame), Some(len));
        frames.push(frame);
    }
    assert_eq!(frames.len(), count);
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn segmentation_gives_valid_frames_with_the_same_payload(shape in shapes()) {
        let (packet, virtio) = super_packet(&shape);
        let frames = segments(&packet, &virtio);
        let mut bytes = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            let (first, last) = (number == 0, number + 1 == frames.len());
            let headers = PacketHeaders::from_ethernet_slice(frame).unwrap();
            prop_assert_eq!(headers.link_exts.len(), usize::from(shape.tags));
            let (PayloadSlice::Tcp(payload) | PayloadSlice::Udp(payload)) = headers.payload else {
                panic!("no transport payload in {headers:?}");
            };
            prop_assert_eq!(payload.len() == usize::from(shape.size), !last || shape.payload.len() % usize::from(shape.size) == 0);
            let net = headers.net.unwrap();
            if let NetHeaders::Ipv4(ip, _) = &net {
                prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                prop_assert_eq!(usize::from(ip.identification), number);
            }
            let (written, correct) = match (&net, headers.transport.unwrap()) {
                (NetHeaders::Ipv4(ip, _), TransportHeader::Tcp(tcp)) => {
                    check_tcp(&tcp, &shape, bytes.len(), first, last);
                    (tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).unwrap())
                }
                (NetHeaders::Ipv6(ip, _), TransportHeader::Tcp(tcp)) => {
                    check_tcp(&tcp, &shape, bytes.len(), first, last);
                    (tcp.checksum, tcp.calc_checksum_ipv6(ip, payload).unwrap())
                }
                (NetHeaders::Ipv4(ip, _), TransportHeader::Udp(udp)) => {
                    prop_assert_eq!(usize::from(udp.length), 8 + payload.len());
                    (udp.checksum, udp.calc_checksum_ipv4(ip, payload).unwrap())
                }
                (NetHeaders::Ipv6(ip, _), TransportHeader::Udp(udp)) => {
                    prop_assert_eq!(usize::from(udp.length), 8 + payload.len());
                    (udp.checksum, udp.calc_checksum_ipv6(ip, payload).unwrap())
                }
                other => panic!("unexpected {other:?}"),
            };
            prop_assert_eq!(written, correct);
            bytes.extend_from_slice(payload);
        }
        prop_assert!(bytes == shape.payload);
    }

    #[test]
    fn a_completed_checksum_equals_the_checksum_of_the_whole(shape in shapes()) {
        let (mut packet, virtio) = super_packet(&shape);
        let layout = Layout::parse(&packet).unwrap();
        let partial = virtio.partial_checksum.unwrap();
        let (start, offset) = (usize::from(partial.start), usize::from(partial.offset));
        // Put the kernel's value into the field: the pseudo-header's sum, not inverted.
        let at = layout.network_offset;
        let addresses = if shape.v6 { at + 8..at + 40 } else { at + 12..at + 20 };
        let pseudo = wire::checksum::Sum::of(&packet[addresses])
            .plus_word(if shape.udp { 17 } else { 6 })
            .plus_long((packet.len() - start) as u32);
        packet[start + offset..][..2].copy_from_slice(&pseudo.folded().to_be_bytes());
        prop_assert!(wire::checksum::complete(&mut packet, start, offset));

        let headers = PacketHeaders::from_ethernet_slice(&packet).unwrap();
        let (PayloadSlice::Tcp(payload) | PayloadSlice::Udp(payload)) = headers.payload else {
            panic!("no transport payload in {headers:?}");
        };
        let (written, correct) = match (headers.net.unwrap(), headers.transport.unwrap()) {
            (NetHeaders::Ipv4(ip, _), TransportHeader::Tcp(tcp)) => (tcp.checksum, tcp.calc_checksum_ipv4(&ip, payload).unwrap()),
            (NetHeaders::Ipv6(ip, _), TransportHeader::Tcp(tcp)) => (tcp.checksum, tcp.calc_checksum_ipv6(&ip, payload).unwrap()),
            (NetHeaders::Ipv4(ip, _), TransportHeader::Udp(udp)) => (udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap()),
            (NetHeaders::Ipv6(ip, _), TransportHeader::Udp(udp)) => (udp.checksum, udp.calc_checksum_ipv6(&ip, payload).unwrap()),
            other => panic!("unexpected {other:?}"),
        };
        // The two representations of zero in one's complement are equivalent (RFC 1624 section 3).
        prop_assert!(written == correct || (written == 0xffff && correct == 0));
    }
}

#[test]
fn a_packet_of_too_many_segments_is_refused() {
    let shape = |payload: usize| Shape {
        v6: false,
        udp: true,
        tags: 0,
        options: 0,
        flags: 0,
        sequence: 0,
        payload: vec![0; payload],
        size: 2,
    };
    let (packet, virtio) = super_packet(&shape(2 * Segmenter::MOST_FRAMES));
    assert_eq!(segments(&packet, &virtio).len(), Segmenter::MOST_FRAMES);
    let (packet, virtio) = super_packet(&shape(2 * Segmenter::MOST_FRAMES + 1));
    assert_eq!(Segmenter::new(&packet, &virtio).err(), Some(SegmentError::TooMany));
}

fn check_tcp(tcp: &etherparse::TcpHeader, shape: &Shape, done: usize, first: bool, last: bool) {
    assert_eq!(tcp.sequence_number, shape.sequence.wrapping_add(done as u32));
    let asked = |bit: u8| shape.flags & bit != 0;
    assert_eq!(tcp.fin, asked(0x01) && last);
    assert_eq!(tcp.psh, asked(0x08) && last);
    assert_eq!(tcp.cwr, asked(0x80) && first);
    assert_eq!((tcp.syn, tcp.rst), (asked(0x02), asked(0x04)));
    assert_eq!((tcp.ack, tcp.urg, tcp.ece), (asked(0x10), asked(0x20), asked(0x40)));
    assert_eq!(tcp.options.len(), shape.options);
}
