//! Random rules and packets: the datapath and the reference send the same frames, and have the same
//! counts.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::bridge::{Bridge, add, counts, group_counts, tables};
use super::frames::random_frame;
use super::plain_frame::complete_sctp;
use super::reference::Reference;

#[test]
fn the_datapath_agrees_with_the_reference() {
    compare(1, 300, 200);
}

/// Run with `cargo test -p weir-switch-datapath --test datapath -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn the_datapath_agrees_with_the_reference_in_a_million_cases() {
    compare(2, 10_000, 100);
}

/// Compares datapath and reference for `sets` sets of rules, each with `packets` packets.
fn compare(seed: u64, sets: usize, packets: usize) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut hits = 0;
    for set in 0..sets {
        let mut rules: Vec<_> =
            (1..=GROUPS).rev().map(|id| random_group(&mut random, id)).collect();
        rules
            .extend((0..random.random_range(1..25)).map(|number| random_rule(&mut random, number)));
        let mut bridge = Bridge::new(&rules);
        let mut plain = tables(&rules);
        let mut left = packets;
        while left > 0 {
            let count = random.random_range(1..=70).min(left);
            left -= count;
            let frames: Vec<_> =
                (0..count).map(|_| complete_sctp(random_frame(&mut random))).collect();
            let in_port = random.random_range(1..4);
            let collected = bridge.process(in_port, &frames);
            let mut reference = Reference::default();
            for frame in &frames {
                reference.process(&plain, in_port, frame);
            }
            let mut sent = collected.sent;
            sent.sort();
            reference.sent.sort();
            if sent != reference.sent {
                explain(&sent, &reference.sent, set, in_port, &rules, &frames);
            }
            let mut packet_ins: Vec<_> =
                collected.packet_ins.into_iter().map(|packet| packet.frame).collect();
            packet_ins.sort();
            reference.packet_ins.sort();
            assert_eq!(packet_ins, reference.packet_ins, "set {set}: {rules:#?}");
            if random.random_range(0..4) == 0 {
                let rule = match random.random_range(0..4) {
                    0 => {
                        let id = random.random_range(1..=GROUPS);
                        random_group(&mut random, id)
                    }
                    _ => random_rule(&mut random, rules.len()),
                };
                bridge.add(&rule);
                add(&mut plain, &rule);
                rules.push(rule);
            }
        }
        assert_eq!(bridge.counts(), counts(&plain), "set {set}: {rules:#?}");
        let groups = (group_counts(&bridge.tables), group_counts(&plain));
        assert_eq!(groups.0, groups.1, "set {set}: {rules:#?}");
        hits += bridge.datapath.statistics().megaflow_hits;
    }
    assert!(hits > (sets * packets) as u64 / 4, "{hits} hits");
}

/// Panics with the first difference between sent and expected frames.
fn explain(
    sent: &[(u16, Vec<u8>)],
    expected: &[(u16, Vec<u8>)],
    set: usize,
    in_port: u32,
    rules: &[String],
    frames: &[Vec<u8>],
) -> ! {
    for frame in frames {
        let mut bridge = Bridge::new(rules);
        let mut reference = Reference::default();
        reference.process(&tables(rules), in_port, frame);
        let mut once = bridge.process(in_port, std::slice::from_ref(frame)).sent;
        once.sort();
        reference.sent.sort();
        assert_eq!(once, reference.sent, "set {set}, port {in_port}, {frame:02x?}: {rules:#?}");
    }
    let extra = sent.iter().find(|frame| !expected.contains(frame));
    let missing = expected.iter().find(|frame| !sent.contains(frame));
    panic!("set {set}, together only: {extra:02x?} for {missing:02x?}: {rules:#?}");
}

/// Builds a random group. The buckets of a group may lead only to groups with higher numbers.
fn random_group(random: &mut Pcg64Mcg, id: usize) -> String {
    let kind = ["select", "select", "select", "all", "ff"][random.random_range(0..5)];
    let mut group = format!("group_id={id},type={kind}");
    if kind == "select" {
        group += [
            "",
            "",
            ",selection_method=dp_hash",
            ",selection_method=dp_hash,selection_method_param=0x100000007",
            ",selection_method=hash,fields=eth_dst",
        ][random.random_range(0..5)];
    }
    for _ in 0..random.random_range(1..4) {
        group += ",bucket=";
        if kind == "select" {
            group += &format!("weight:{},", [0, 1, 1, 3, 40, 300][random.random_range(0..6)]);
        }
        if kind == "ff" || random.random_range(0..4) == 0 {
            // Port 5 does not exist.
            group += &format!("watch_port:{},", random.random_range(1..=5));
        }
        let low = random.random_range(1..5);
        group += "actions=";
        group += &match random.random_range(0..8) {
            0 => format!("mod_dl_src:02:00:00:00:00:{low:02x},output:{low}"),
            1 => format!("mod_dl_dst:02:00:00:00:00:{low:02x},output:{low}"),
            2 => format!("strip_vlan,output:{low}"),
            3 => format!("push_mpls:0x8847,output:{low}"),
            4 => format!("load:{}->NXM_NX_REG0[],resubmit(,2)", low & 1),
            5 if id < GROUPS => format!("group:{}", random.random_range(id + 1..=GROUPS)),
            _ => format!("output:{low}"),
        };
    }
    group
}

fn random_rule(random: &mut Pcg64Mcg, number: usize) -> String {
    let table = random.random_range(0..3);
    let priority = random.random_range(0..6);
    let low = |random: &mut Pcg64Mcg| random.random_range(1..6);
    let mut rule = format!("table={table},priority={priority},cookie={number}");
    let kind = random.random_range(0..8);
    let is_ipv4 = matches!(kind, 1..=3);
    rule += ["", ",ip", ",udp", ",tcp", ",ipv6", ",arp", ",mpls", ",udp6"][kind];
    if random.random_range(0..3) == 0 {
        rule += &format!(",in_port={}", random.random_range(1..4));
    }
    if is_ipv4 && random.random_range(0..2) == 0 {
        rule += &format!(",nw_dst=10.0.0.{}/{}", low(random), random.random_range(29..33));
    }
    if matches!(kind, 2 | 3 | 7) && random.random_range(0..2) == 0 {
        rule += &format!(",tp_dst={}", random.random_range(1..4));
    }
    if kind == 4 && random.random_range(0..2) == 0 {
        rule += &format!(",ipv6_src=fc00::{}/127", low(random));
    }
    if random.random_range(0..5) == 0 {
        rule +=
            [",dl_vlan=1", ",vlan_tci=0", ",dl_dst=02:00:00:00:00:11"][random.random_range(0..3)];
    }
    if table > 0 && random.random_range(0..4) == 0 {
        rule += &format!(",reg0={}", random.random_range(0..2));
    }
    let mut actions: Vec<_> =
        (0..random.random_range(0..5)).map(|_| random_action(random, kind, table)).collect();
    if random.random_range(0..8) == 0 {
        actions.push(format!("write_actions(group:{})", random.random_range(1..=GROUPS)));
    }
    if actions.is_empty() {
        return rule + " actions=drop";
    }
    rule + " actions=" + &actions.join(",")
}

fn random_action(random: &mut Pcg64Mcg, kind: usize, table: u8) -> String {
    let low = random.random_range(1..6);
    let is_ipv4 = matches!(kind, 1..=3);
    let is_ipv6 = matches!(kind, 4 | 7);
    match random.random_range(0..37) {
        0 => format!("mod_dl_src:02:00:00:00:00:{low:02x}"),
        1 => format!("mod_dl_dst:02:00:00:00:00:{low:02x}"),
        2 => format!("mod_vlan_vid:{low}"),
        3 => format!("mod_vlan_pcp:{low}"),
        4 => "strip_vlan".into(),
        5 if is_ipv4 || is_ipv6 => "dec_ttl".into(),
        6 if is_ipv4 => format!("mod_nw_src:10.0.0.{low}"),
        7 if is_ipv4 => format!("mod_nw_dst:10.1.0.{low}"),
        8 if is_ipv4 => format!("mod_nw_tos:{}", low * 4),
        9 if matches!(kind, 2 | 3) => format!("mod_tp_dst:{low}"),
        10 if matches!(kind, 2 | 3) => format!("mod_tp_src:{low}"),
        11 if is_ipv6 => format!("set_field:fc00::{low}->ipv6_dst"),
        12 if is_ipv6 => format!("set_field:{low}->ipv6_label"),
        13 if kind == 5 => "load:2->NXM_OF_ARP_OP[]".into(),
        14 if kind == 5 => "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]".into(),
        15 if kind == 5 => format!("load:0x0a00000{low}->NXM_OF_ARP_SPA[]"),
        16 if kind == 6 => format!("set_mpls_label:{low}"),
        17 if kind == 6 => "dec_mpls_ttl".into(),
        18 => format!("load:{}->NXM_NX_REG0[]", low & 1),
        19 => "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]".into(),
        20 if table < 2 => format!("resubmit(,{})", random.random_range(table + 1..3)),
        21 => format!("clone(mod_dl_src:02:00:00:00:00:{low:02x},output:{})", low.min(4)),
        22 => format!("output(port={},max_len={})", low.min(4), 14 + low * 8),
        23 => "CONTROLLER:40".into(),
        24 => "in_port".into(),
        25 if is_ipv4 => "set_field:1->nw_ecn".into(),
        26 => format!("set_queue:{low}"),
        27 => format!("enqueue:{}:{low}", low.min(4)),
        28 => "pop_queue".into(),
        29 => format!("check_pkt_larger({})->NXM_NX_REG0[0]", 50 + low * 4),
        // The buckets of a group may lead to the last table, so only rules of earlier tables may
        // lead to groups.
        30..33 if table < 2 => format!("group:{}", random.random_range(1..=GROUPS)),
        _ => format!("output:{}", low.min(4)),
    }
}

/// The number of groups in a set of rules.
const GROUPS: usize = 3;
