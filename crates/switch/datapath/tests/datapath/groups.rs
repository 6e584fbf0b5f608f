//! Groups of type select: a connection keeps its bucket, and many connections share few megaflows.

use std::collections::{BTreeMap, BTreeSet};

use datapath::{Callees, NoTracker, extract};
use flow::Field;
use flow::port_number::PortNumber;
use flow::request::PacketOut;
use pipeline::Translator;
use port::Frame;
use text::{PortNames, parse_actions, print_datapath_flow};
use units::Time;

use super::bridge::{Bridge, Collected, group_counts};
use super::frames::frame;

/// Builds a packet of a UDP connection, in the forward or the reply direction.
fn packet(connection: u32, is_back: bool) -> Vec<u8> {
    let (port, host) = (1000 + connection / 200, connection % 200);
    let there = ("10.0.0.1".to_owned(), port, format!("10.0.1.{host}"), 53);
    let (source, from, destination, to) =
        if is_back { (there.2, there.3, there.0, there.1) } else { there };
    frame(&format!("udp,nw_src={source},nw_dst={destination},tp_src={from},tp_dst={to},nw_ttl=64"))
}

/// Returns the output ports of one packet of each connection.
fn ports(bridge: &mut Bridge, connections: u32, is_back: bool) -> Vec<u16> {
    let packets = (0..connections).map(|connection| packet(connection, is_back));
    let sent = packets.map(|packet| bridge.process(1, &[packet]).sent);
    sent.map(|sent| match &sent[..] {
        [(port, _)] => *port,
        [] => 0,
        _ => panic!("{sent:?}"),
    })
    .collect()
}

fn counts(ports: &[u16]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    ports.iter().for_each(|port| *counts.entry(*port).or_default() += 1);
    counts
}

#[test]
fn many_connections_share_a_megaflow_for_each_slot() {
    let mut bridge = Bridge::new(&[
        "group_id=1,type=select,bucket=output:2,bucket=weight:3,actions=output:3",
        "ip actions=group:1",
    ]);
    let there = ports(&mut bridge, 2000, false);
    assert_eq!(bridge.datapath.len(), 17);
    assert_eq!(bridge.datapath.masks(), 2);
    assert_eq!(bridge.datapath.statistics().upcalls, 17);
    assert_eq!(ports(&mut bridge, 2000, true), there);
    assert_eq!(ports(&mut bridge, 2000, false), there);
    assert_eq!(bridge.datapath.len(), 17);
    let counts = counts(&there);
    // The expected counts are 500 packets at port 2 and 1500 packets at port 3.
    assert!((400..600).contains(&counts[&2]) && counts[&2] + counts[&3] == 2000, "{counts:?}");
    let length = packet(0, false).len() as u64;
    let number = |port| 3 * counts[&port] as u64;
    bridge.datapath.credit();
    let expected = [6000, number(2), number(3)].map(|packets| (packets, packets * length));
    assert_eq!(group_counts(&bridge.tables), expected);
}

#[test]
fn printed_megaflows_have_the_packet_hash_and_its_mask() {
    let mut bridge =
        Bridge::new(&["group_id=1,type=select,bucket=output:2", "ip actions=group:1,output:3"]);
    for _ in 0..2 {
        bridge.process(1, &[packet(0, false)]);
    }
    let mut flows: Vec<_> = bridge
        .datapath
        .megaflows()
        .map(|flow| print_datapath_flow(&flow, None, &PortNames::none()))
        .collect();
    flows.sort();
    let rest = "in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(frag=no), packets:1";
    assert!(flows[0].starts_with(&format!("recirc_id(0),{rest}")), "{flows:?}");
    assert!(flows[0].ends_with("actions:hash(sym_l4(0)),recirc(0x1)"), "{flows:?}");
    let (start, end) = flows[1].split_once("/0xf),").expect("the bits of the hash");
    assert!(start.starts_with("recirc_id(0x1),dp_hash(0x"), "{flows:?}");
    assert!(end.starts_with(rest) && end.ends_with("actions:2,3"), "{flows:?}");
    let mut plain = Bridge::new(&[
        "group_id=1,type=select,selection_method=dp_hash,selection_method_param=5,bucket=output:2",
        "ip actions=write_actions(group:1)",
    ]);
    plain.process(1, &[packet(0, false)]);
    let has_hash = |flow: &String| flow.ends_with("actions:hash(l4(5)),recirc(0x1)");
    let flows = plain.datapath.megaflows();
    let flows: Vec<_> =
        flows.map(|flow| print_datapath_flow(&flow, None, &PortNames::none())).collect();
    assert!(flows.iter().any(has_hash), "{flows:?}");
}

#[test]
fn connections_leave_a_bucket_that_is_not_live() {
    let group = |watched: u32| {
        format!(
            "group_id=1,type=select,bucket=watch_port:{watched},actions=output:2,\
             bucket=output:3,bucket=weight:0,actions=output:4"
        )
    };
    let mut bridge = Bridge::new(&[group(2), "ip actions=group:1".to_owned()]);
    let former = ports(&mut bridge, 500, false);
    assert_eq!(counts(&former).into_keys().collect::<Vec<_>>(), [2, 3]);
    // Port 5 does not exist.
    bridge.add(&group(5));
    assert_eq!(ports(&mut bridge, 500, false), [3; 500]);
    bridge.add(&group(2));
    assert_eq!(ports(&mut bridge, 500, false), former);
    for dead in [
        "group_id=1,type=select,bucket=watch_port:5,actions=output:2",
        "group_id=1,type=select,bucket=weight:0,actions=output:2",
        "group_id=1,type=select",
    ] {
        bridge.add(dead);
        assert_eq!(ports(&mut bridge, 500, false), [0; 500]);
    }
}

#[test]
fn a_bucket_is_live_while_the_group_that_it_watches_has_a_live_bucket() {
    let watching = "group_id=1,type=select,bucket=watch_group:2,actions=output:2";
    for (watched, is_live) in [
        ("group_id=2,type=select,bucket=output:3", true),
        ("group_id=2,type=select,bucket=weight:0,actions=output:3", false),
        ("group_id=2,type=all,bucket=output:3", true),
        ("group_id=2,type=ff,bucket=watch_port:5,actions=output:3", false),
        ("group_id=2,type=ff,bucket=watch_port:3,actions=output:3", true),
    ] {
        let mut bridge = Bridge::new(&[watched, watching, "ip actions=group:1"]);
        assert_eq!(ports(&mut bridge, 1, false), [if is_live { 2 } else { 0 }], "{watched}");
    }
}

#[test]
fn a_group_whose_weights_need_too_many_slots_selects_in_the_pipeline() {
    let mut bridge = Bridge::new(&[
        "group_id=1,type=select,bucket=output:2,bucket=weight:1000,actions=output:3",
        "ip actions=group:1",
    ]);
    let there = ports(&mut bridge, 1000, false);
    assert_eq!(bridge.datapath.len(), 1000);
    assert!(!counts(&there).contains_key(&0));
    let back: BTreeSet<_> =
        there.iter().zip(ports(&mut bridge, 1000, true)).map(|(one, two)| *one == two).collect();
    assert_eq!(back, BTreeSet::from([true]));
}

/// As in Open vSwitch, the datapath hashes a packet once, also for groups inside a group's buckets.
#[test]
fn a_group_in_a_group_uses_the_same_hash() {
    let mut bridge = Bridge::new(&[
        "group_id=2,type=select,bucket=output:2,bucket=weight:4,actions=output:3",
        "group_id=1,type=select,bucket=group:2,bucket=output:4,bucket=weight:14,actions=group:2",
        "ip actions=group:1",
    ]);
    let there = ports(&mut bridge, 1000, false);
    assert_eq!(counts(&there).into_keys().collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(ports(&mut bridge, 1000, true), there);
    assert_eq!(bridge.datapath.len(), 17);
    let counted = group_counts(&bridge.tables);
    assert_eq!(counted.len(), 3 + 4);
}

#[test]
fn a_packet_that_gets_an_mpls_label_is_hashed_again() {
    let mut bridge = Bridge::new(&[
        "group_id=2,type=select,bucket=output:2,bucket=output:3",
        "group_id=1,type=select,bucket=push_mpls:0x8847,group:2",
        "ip actions=group:1",
    ]);
    let sent = bridge.process(1, &[packet(0, false)]).sent;
    assert_eq!(sent.len(), 1);
    let mut again: Vec<_> = bridge
        .datapath
        .megaflows()
        .map(|flow| print_datapath_flow(&flow, None, &PortNames::none()))
        .filter(|flow| flow.contains("hash(sym_l4(0))"))
        .collect();
    again.sort();
    assert_eq!(again.len(), 2, "{again:?}");
    assert!(again[1].contains("push_mpls"), "{again:?}");
}

/// Hashed packets and packets without a hash need different recirculation states: in the same
/// state, their megaflows would contradict each other.
#[test]
fn hashed_packets_do_not_share_a_recirculation_state_with_others() {
    let mut bridge = Bridge::new(&[
        "group_id=1,type=select,bucket=actions=ct(table=1)",
        "group_id=2,type=select,bucket=output:2,bucket=output:3",
        "priority=2,ip,dl_src=02:00:00:00:00:aa actions=ct(table=1)",
        "priority=1,ip actions=group:1",
        "table=1 actions=group:2",
    ]);
    let hashed = ports(&mut bridge, 200, false);
    let plain: Vec<_> = (0..200)
        .map(|connection| {
            let mut packet = packet(connection, false);
            packet[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xaa]);
            bridge.process(1, &[packet]).sent[0].0
        })
        .collect();
    assert_eq!(plain, hashed);
    assert_eq!(counts(&plain).len(), 2);
}

#[test]
fn a_packet_out_selects_the_same_bucket_in_both_directions() {
    let mut bridge = Bridge::new(&["group_id=1,type=select,bucket=output:2,bucket=output:3"]);
    let mut ports = [Vec::new(), Vec::new()];
    for (is_back, ports) in [false, true].into_iter().zip(&mut ports) {
        for connection in 0..50 {
            let bytes = packet(connection, is_back);
            let request = PacketOut {
                frame: bytes.clone(),
                in_port: PortNumber::CONTROLLER,
                metadata: flow::Key::ZERO,
                actions: parse_actions("group:1,output:4", &PortNames::none()).expect("actions"),
            };
            let key = extract(PortNumber::CONTROLLER.0, &bytes);
            assert_eq!(key.read(Field::DpHash), 0);
            let translator = &mut Translator::new(&bridge.tables);
            let translation = translator.packet_out(&request, &key, 0);
            let mut collected = Collected::default();
            let mut callees =
                Callees { slow: translator, tracker: &mut NoTracker, sink: &mut collected };
            let frame = Frame::from_bytes(&bytes, Time::ZERO);
            let in_port = PortNumber::CONTROLLER.0;
            bridge.datapath.execute(in_port, frame, &translation, Time::ZERO, &mut callees);
            let mut sent: Vec<_> = collected.sent.into_iter().map(|(port, _)| port).collect();
            sent.sort_unstable();
            assert_eq!((sent.len(), sent[1]), (2, 4));
            ports.push(sent[0]);
        }
    }
    assert_eq!(ports[0], ports[1]);
    assert_eq!(counts(&ports[0]).len(), 2);
    bridge.datapath.credit();
    assert_eq!(group_counts(&bridge.tables)[0].0, 100);
}

#[test]
fn a_controller_does_not_see_the_hash() {
    let mut bridge = Bridge::new(&[
        "group_id=1,type=select,bucket=actions=load:7->NXM_NX_PKT_MARK[],controller",
        "ip actions=group:1",
    ]);
    for connection in 0..100 {
        let packets = bridge.process(1, &[packet(connection, false)]).packet_ins;
        let [packet] = &packets[..] else { panic!("{packets:?}") };
        assert_eq!(packet.metadata.read(Field::DpHash), 0);
        assert_eq!(packet.metadata.read(Field::PktMark), 7);
    }
    assert_eq!(bridge.datapath.len(), 17);
}
