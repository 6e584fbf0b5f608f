//! The commands of the flow-rules report, and their effect on packets.

use super::captures::{self, read, udp};
use super::test_switch::{TestSwitch, sandbox};
use crate::support::await_some;

const FLOWS: u32 = 64;
const ARP_RESPONDER: &str = "table=0,arp,in_port=vdpa3,arp_op=1,arp_tpa=192.168.20.1 \
    actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:ac:10:ff:01:02,\
    load:0x2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],\
    load:0x02ac10ff0102->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
    load:0xc0a81401->NXM_OF_ARP_SPA[],IN_PORT";
const SETS: &str = "mod_dl_src:02:ac:10:ff:01:01,mod_dl_dst:de:75:cc:e1:c6:85,output:pf0";

/// Starts the report's two bridges. Frames arrive at vdpa1 repeatedly, and leave at pf0.
fn start() -> Option<TestSwitch> {
    let sandbox = sandbox()?;
    captures::write(&sandbox, "in.pcap", &(0..FLOWS).map(udp).collect::<Vec<_>>());
    Some(TestSwitch::start(
        sandbox,
        &[
            "--bridge",
            "br0-ovs",
            "--bridge",
            "br1-ovs",
            "--port",
            "br0-ovs:vdpa1=pcap:in.pcap,loop",
            "--port",
            "br0-ovs:pf0=null",
            "--port",
            "br1-ovs:vdpa3=pcap,write=vdpa3.pcap",
            "--port",
            "br1-ovs:pf1=null",
            "--pmd-cpus",
            "1",
        ],
    ))
}

#[test]
fn the_arp_responder_of_the_report_answers_requests() {
    let Some(switch) = start() else { return };
    switch.ofctl(&["mod-flows", "br1-ovs", ARP_RESPONDER]);
    let request = "ffffffffffffde75cc30868408060001080006040001de75cc308684c0a8140a000000000000\
                   c0a81401000000000000000000000000000000000000";
    switch.appctl(&["netdev-dummy/receive", "vdpa3", request]);
    let reply = await_some("the reply", || read(&switch.sandbox, "vdpa3.pcap").pop());
    let mut expected = vec![0xde, 0x75, 0xcc, 0x30, 0x86, 0x84, 0x02, 0xac, 0x10, 0xff, 0x01, 0x02];
    expected.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 0x02, 0xac, 0x10, 0xff, 0x01, 0x02]);
    expected.extend([192, 168, 20, 1, 0xde, 0x75, 0xcc, 0x30, 0x86, 0x84, 192, 168, 20, 10]);
    assert_eq!(reply[..42], expected);
    assert_eq!(switch.packets("br1-ovs", "arp_tpa=192.168.20.1"), 1);
    switch.end();
}

#[test]
fn one_rule_rewrites_and_forwards_every_packet_of_the_generator() {
    let Some(switch) = start() else { return };
    let rule = format!("table=0,ip,nw_src=16.0.0.0/8,nw_dst=48.0.0.0/8 actions={SETS}");
    switch.ofctl(&["add-flow", "br0-ovs", &rule]);
    await_some("packets", || (switch.packets("br0-ovs", "nw_dst=48.0.0.0/8") > 1000).then_some(()));
    let text = switch.appctl(&["dpctl/dump-flows"]);
    for part in [
        "flow-dump from pmd on cpu core: 1",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0)",
        "eth_type(0x0800),ipv4(src=16.0.0.0/255.0.0.0,dst=48.0.0.0/255.0.0.0,frag=no)",
        "actions:set(eth(src=02:ac:10:ff:01:01,dst=de:75:cc:e1:c6:85)),2",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(switch.counted("megaflow hits") > 1000);
    switch.end();
}

#[test]
fn packets_match_the_rule_of_their_destination() {
    let Some(switch) = start() else { return };
    for flow in 0..FLOWS {
        let rule = format!("table=0,ip,nw_dst=48.0.0.{} actions={SETS}", flow + 1);
        switch.ofctl(&["add-flow", "br0-ovs", &rule]);
    }
    await_some("packets", || {
        let text = switch.ofctl(&["dump-flows", "br0-ovs"]);
        let idle = text.lines().filter(|line| line.contains("n_packets=0")).count();
        (idle == 0).then_some(())
    });
    switch.end();
}

#[test]
fn base_mac_and_nat_rules_translate_addresses() {
    let Some(switch) = start() else { return };
    // Adds the report's rules `base`.
    switch.ofctl(&[
        "add-flow",
        "br0-ovs",
        "table=0,ip,priority=10,in_port=vdpa1,nw_dst=48.0.0.0/8  \
         actions=ct(commit,table=1,nat(src=48.128.0.10))",
    ]);
    let table_1 = format!("table=1,ip,nw_src=48.128.0.10,nw_dst=48.0.0.0/8 actions={SETS}");
    switch.ofctl(&["add-flow", "br0-ovs", &table_1]);
    await_some("packets", || (switch.packets("br0-ovs", "table=1") > 1000).then_some(()));
    // Replaces rules by the report's rules `mac`.
    switch.ofctl(&["del-flows", "br0-ovs", "table=1"]);
    for flow in 0..FLOWS {
        let rule =
            format!("table=1,ip,nw_src=48.128.0.10,nw_dst=48.0.0.{} actions={SETS}", flow + 1);
        switch.ofctl(&["add-flow", "br0-ovs", &rule]);
    }
    await_some("packets of each rule", || {
        let text = switch.ofctl(&["dump-flows", "br0-ovs", "table=1"]);
        (!text.contains("n_packets=0")).then_some(())
    });
    // Replaces all rules by the report's rules `nat`.
    switch.ofctl(&["del-flows", "br0-ovs"]);
    switch.appctl(&["dpctl/flush-conntrack"]);
    for flow in 0..FLOWS {
        let rule = format!(
            "table=0,ip,priority=10,in_port=vdpa1,nw_dst=48.0.0.{n} \
             actions=ct(commit,table=1,nat(src=48.128.0.{n}))",
            n = flow + 1
        );
        switch.ofctl(&["add-flow", "br0-ovs", &rule]);
    }
    let table_1 = format!("table=1,ip,nw_src=48.128.0.0/16,nw_dst=48.0.0.0/8 actions={SETS}");
    switch.ofctl(&["add-flow", "br0-ovs", &table_1]);
    await_some("packets of each rule", || {
        let text = switch.ofctl(&["dump-flows", "br0-ovs"]);
        (!text.contains("n_packets=0")).then_some(())
    });
    await_some("all connections", || {
        let text = switch.appctl(&["dpctl/dump-conntrack"]);
        let has = |flow: u32| text.contains(&format!(",dst=48.128.0.{},", flow + 1));
        (0..FLOWS).all(has).then_some(())
    });
    switch.end();
}
