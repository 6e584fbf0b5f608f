//! Frames whose senders left checksum and segmentation to a network card: the switch treats a
//! super-packet like the frames that it stands for.

use std::sync::Arc;

use datapath::conntrack::{Conntrack, Settings, ThreadTracker};
use datapath::{Meters, Settings as DatapathSettings};
use flow::request::{Band, BandKind, MeterCommand, MeterMod};
use pipeline::Tables;
use port::{Frame, Offload};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::{Span, Time};
use wire::checksum::Sum;
use wire::headers::{Layout, Network, Transport};
use wire::virtio::{GsoKind, PartialChecksum};
use wire::{Gso, VirtioHeader};

use super::bridge::{Bridge, add, tables};

#[test]
fn a_super_packet_is_processed_like_its_frames() {
    let mut random = Pcg64Mcg::seed_from_u64(48);
    let mut meters = Vec::new();
    let [mut whole, mut cut] = [(); 2].map(|()| {
        let (tables, own) = metered();
        meters.push(own.clone());
        let settings = DatapathSettings { meters: own, ..DatapathSettings::default() };
        let conntrack = Conntrack::new(&Settings { seed: 5, ..Settings::default() });
        let tracker = ThreadTracker::new(Arc::new(conntrack));
        (Bridge::with(tables, settings), tracker)
    });
    let mut supers = 0;
    for case in 0..4_000 {
        let frame = unfinished(&mut random);
        supers += usize::from(frame.offload().is_super());
        let mut frames = Vec::new();
        frame.clone().finish(&mut frames);
        assert_eq!(frame.on_wire().0, frames.len() as u64);
        assert_eq!(frame.on_wire().1, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
        let now = whole.0.now + Span::from_millis(random.random_range(0..50));
        (whole.0.now, cut.0.now) = (now, now);
        let mut passed = whole.0.process_frames(1, vec![frame.clone()], &mut whole.1);
        let mut expected = cut.0.process_frames(1, frames, &mut cut.1);
        // The order is defined only among frames of the same port.
        passed.sent.sort_by_key(|(port, _)| *port);
        expected.sent.sort_by_key(|(port, _)| *port);
        for (port, bytes) in &passed.sent {
            assert!(has_right_sum(bytes), "case {case}, port {port}: {bytes:x?}");
        }
        assert_eq!(passed.sent, expected.sent, "case {case}: {:x?}", &frame.bytes()[..54]);
        assert_eq!(passed.packet_ins, expected.packet_ins, "case {case}");
    }
    assert!((1_000..3_900).contains(&supers));
    assert_eq!(whole.0.counts(), cut.0.counts());
    assert_eq!(meters[0].counts(1), meters[1].counts(1));
    assert!(meters[0].counts(1).is_some_and(|counts| counts.bands[0].0 > 10));
    let [whole, cut] = [whole, cut].map(|(bridge, _)| bridge.datapath.statistics().clone());
    assert_eq!(whole.dropped_by_meter, cut.dropped_by_meter);
    assert!(whole.received < cut.received && whole.sent < cut.sent);
}

/// Returns rules that match on the destination port.
fn rules() -> Vec<String> {
    let actions = [
        "set_field:{a}->{src},mod_tp_src:77,output:2,set_field:{b}->{dst},output:3",
        "mod_tp_dst:9,dec_ttl,set_field:{b}->{dst},set_field:{a}->{src},output:2",
        "push_vlan:0x8100,mod_vlan_vid:7,output:2,strip_vlan,output:3",
        "push_vlan:0x88a8,push_vlan:0x8100,output:2",
        "strip_vlan,set_field:{b}->{src},output:2",
        "ct(commit,zone=1,nat(src={a}),table=1)",
        "ct(commit,zone=2,nat(dst={b}),table=1)",
        "ct(zone=3,table=1)",
        "output(port=2,max_len=100),output:3",
        "controller(max_len=200),output:2",
        "meter:1,output:2",
        "check_pkt_larger(600)->NXM_NX_REG0[0],resubmit(,2)",
        "push_mpls:0x8847,output:2",
        "clone(set_field:{a}->{dst},output:3),dec_ttl,output:2",
        "in_port,output:4,output:3",
    ];
    let kinds = [
        ("tcp", "nw_src", "nw_dst", "192.0.2.1", "198.51.100.255"),
        ("udp", "nw_src", "nw_dst", "192.0.2.1", "198.51.100.255"),
        ("tcp6", "ipv6_src", "ipv6_dst", "fd00::9", "2001:db8:ffff::1"),
        ("udp6", "ipv6_src", "ipv6_dst", "fd00::9", "2001:db8:ffff::1"),
    ];
    let mut rules = vec![
        "table=1,actions=output:2".to_owned(),
        "table=2,reg0=1,actions=output:3".to_owned(),
        "table=2,reg0=0,actions=output:2".to_owned(),
    ];
    for (kind, source, destination, a, b) in kinds {
        for (number, actions) in actions.iter().enumerate() {
            let actions = actions.replace("{src}", source).replace("{dst}", destination);
            let actions = actions.replace("{a}", a).replace("{b}", b);
            rules.push(format!("{kind},tp_dst={},actions={actions}", number + 1));
        }
    }
    for (cookie, rule) in rules.iter_mut().enumerate() {
        *rule = format!("cookie={cookie},{rule}");
    }
    rules
}

/// Builds tables with the rules, and the meters that the rules use.
fn metered() -> (Tables, Arc<Meters>) {
    let mut tables = tables(&[] as &[&str]);
    let change = MeterMod {
        command: MeterCommand::Add,
        meter: 1,
        is_in_packets: false,
        has_burst: true,
        has_statistics: true,
        bands: vec![Band { kind: BandKind::Drop, rate: 20, burst: 60 }],
    };
    tables.meter_mod(change, 0).expect("a meter");
    rules().iter().for_each(|rule| add(&mut tables, rule));
    let meters = Meters::default();
    meters.configure(&tables.meters(1).expect("the meter")[0], Time::ZERO);
    (tables, Arc::new(meters))
}

/// Builds a TCP or UDP packet with a partial checksum, as a kernel sends it, usually a
/// super-packet.
fn unfinished(random: &mut Pcg64Mcg) -> Frame {
    let [is_v6, is_tcp] = [(); 2].map(|()| random.random_bool(0.5));
    let payload = random.random_range(0..4_000_usize);
    let mut bytes = vec![2; 12];
    if random.random_bool(0.3) {
        bytes.extend([0x81, 0, 0, 5]);
    }
    let segment = payload + if is_tcp { 32 } else { 8 };
    let protocol = if is_tcp { 6 } else { 17 };
    if is_v6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend((segment as u16).to_be_bytes());
        bytes.extend([protocol, 64]);
    } else {
        bytes.extend([0x08, 0x00, 0x45, 0]);
        bytes.extend((segment as u16 + 20).to_be_bytes());
        bytes.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
    }
    let addresses = bytes.len();
    bytes.extend((0..if is_v6 { 32 } else { 8 }).map(|_| random.random_range(1..=9)));
    if !is_v6 {
        let ip = addresses - 12;
        let sum = Sum::of(&bytes[ip..]).checksum();
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let start = bytes.len();
    let pseudo = Sum::of(&bytes[addresses..]).plus_word(protocol.into());
    let pseudo = pseudo.plus_long(segment as u32).folded().to_be_bytes();
    bytes.extend(random.random_range(1024..u16::MAX).to_be_bytes());
    bytes.extend(random.random_range(1..=16_u16).to_be_bytes());
    if is_tcp {
        bytes.extend([0, 0, 0, 9, 0, 0, 0, 1, 0x80, 0x18, 0xff, 0xff, pseudo[0], pseudo[1], 0, 0]);
        bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    } else {
        bytes.extend((segment as u16).to_be_bytes());
        bytes.extend(pseudo);
    }
    bytes.extend((0..payload).map(|_| random.random::<u8>()));
    let kind = match (is_tcp, is_v6) {
        (true, false) => GsoKind::TcpV4,
        (true, true) => GsoKind::TcpV6,
        (false, _) => GsoKind::UdpL4,
    };
    let size = random.random_range(100..1_500);
    let gso = (payload > usize::from(size)).then_some(Gso { kind, ecn: false, size });
    let offset = if is_tcp { 16 } else { 6 };
    let partial = PartialChecksum { start: start as u16, offset };
    let virtio = VirtioHeader { partial_checksum: Some(partial), gso, ..VirtioHeader::default() };
    let mut frame = Frame::from_bytes(&bytes, Time::ZERO);
    frame.set_offload(Offload::of(&bytes, &virtio).expect("a valid header"));
    frame
}

/// Whether the checksum of a TCP or UDP packet over IP is correct.
fn has_right_sum(frame: &[u8]) -> bool {
    let layout = Layout::parse(frame).expect("a MAC header");
    let protocol = match layout.transport {
        Transport::Tcp { .. } => 6,
        Transport::Udp => 17,
        _ => return true,
    };
    let addresses = match layout.network {
        Network::Ipv4 => layout.network_offset + 12..layout.network_offset + 20,
        _ => layout.network_offset + 8..layout.network_offset + 40,
    };
    let length = match layout.network {
        Network::Ipv4 => usize::from(u16::from_be_bytes([
            frame[layout.network_offset + 2],
            frame[layout.network_offset + 3],
        ])),
        _ => layout.end - layout.network_offset,
    };
    // The checksum of a truncated packet still covers the whole packet.
    if layout.network_offset + length > frame.len() || frame.len() == 100 {
        return true;
    }
    let segment = &frame[layout.transport_offset..layout.end];
    let pseudo = Sum::of(&frame[addresses]).plus_word(protocol).plus_long(segment.len() as u32);
    pseudo.plus(Sum::of(segment)).folded() == 0xffff
}
