//! Rules that depend on a packet's length: one megaflow serves packets of all lengths, with the
//! same results as if the pipeline translated each packet.

use datapath::{Callees, NoTracker, extract};
use flow::Key;
use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::PacketOut;
use flow::step::Translate;
use pipeline::Translator;
use port::Frame;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Time;

use super::bridge::{Bridge, Collected};
use super::frames::frame;

#[test]
fn packets_of_all_lengths_share_a_megaflow_and_each_counts_for_its_rules() {
    let mut bridge = Bridge::new(&[
        "cookie=0,actions=check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,1)",
        "cookie=1,table=1,reg0=1,actions=mod_dl_dst:02:00:00:00:00:99,output:2,resubmit(,2)",
        "cookie=2,table=1,reg0=0,actions=output:3",
        "cookie=3,table=2,actions=output:4",
    ]);
    let frames: Vec<_> = [99, 100, 101, 300].into_iter().map(of_length).collect();
    for _ in 0..2 {
        let ports: Vec<_> = sent(bridge.process(1, &frames));
        assert_eq!(ports, [(2, 101), (2, 300), (3, 99), (3, 100), (4, 101), (4, 300)]);
    }
    assert_eq!(bridge.datapath.statistics().upcalls, 1);
    assert_eq!(bridge.counts(), [(8, 1200), (4, 802), (4, 398), (4, 802)]);
}

#[test]
fn a_packet_length_check_counts_pushed_vlan_tags() {
    let mut bridge = Bridge::new(&[
        "actions=push_vlan:0x8100,check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,1)",
        "table=1,reg0=1,actions=output:2",
    ]);
    let frames: Vec<_> = [96, 97].into_iter().map(of_length).collect();
    assert_eq!(sent(bridge.process(1, &frames)), [(2, 101)]);
    // If the result of the check returns to the calling rule, the measured length also includes the
    // tag.
    bridge.add(
        "actions=push_vlan:0x8100,resubmit(,1),move:NXM_NX_REG0[0]->NXM_NX_REG1[0],resubmit(,2)",
    );
    bridge.add("table=1,actions=check_pkt_larger(100)->NXM_NX_REG0[0]");
    bridge.add("table=1,reg0=1,actions=drop");
    bridge.add("table=2,reg1=1,actions=output:3");
    assert_eq!(sent(bridge.process(1, &frames)), [(3, 101)]);
}

/// A packet may already have the value that an action writes. The packet's megaflow must also write
/// the value in packets with another value.
#[test]
fn a_megaflow_writes_a_field_even_if_its_first_packet_had_the_value() {
    let mut bridge = Bridge::new(&[
        "actions=resubmit(,1),output:2",
        "table=1,actions=check_pkt_larger(100)->NXM_NX_REG0[0],mod_dl_src:02:00:00:00:00:77",
    ]);
    for source in [0x77, 0x78] {
        let packet = frame(&format!("udp,dl_src=02:00:00:00:00:{source:02x}"));
        let sent = bridge.process(1, &[packet]).sent;
        assert_eq!(sent[0].1[6..12], [2, 0, 0, 0, 0, 0x77]);
    }
}

#[test]
fn a_megaflow_serves_all_lengths_until_a_later_rule_matches_on_the_result() {
    let rule = "actions=resubmit(,1),resubmit(,2)";
    let mut bridge = Bridge::new(&[
        rule,
        "table=1,actions=check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,3)",
        "table=2,actions=output:4",
        "table=3,reg0=1,actions=output:2",
    ]);
    let frames: Vec<_> = [100, 101].into_iter().map(of_length).collect();
    assert_eq!(sent(bridge.process(1, &frames)), [(2, 101), (4, 100), (4, 101)]);
    // The later rule does not match on the result of the length check, so one megaflow serves all
    // lengths.
    assert_eq!(bridge.datapath.len(), 1);
    bridge.add("table=2,reg0=0,priority=40000,actions=output:3");
    assert_eq!(sent(bridge.process(1, &frames)), [(2, 101), (3, 100), (4, 101)]);
    assert_eq!(bridge.datapath.len(), 0);
}

#[test]
fn a_learn_action_in_one_branch_of_a_length_check_learns_only_from_its_packets() {
    let mut bridge = Bridge::new(&[
        "actions=check_pkt_larger(100)->NXM_NX_REG0[0],resubmit(,1)",
        "cookie=1,table=1,reg0=1,actions=learn(table=2,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),output:2",
        "cookie=2,table=1,reg0=0,actions=output:3",
    ]);
    assert_eq!(sent(bridge.process(1, &[of_length(60)])), [(3, 60)]);
    assert_eq!(bridge.counts().len(), 3);
    assert_eq!(sent(bridge.process(1, &[of_length(200)])), [(2, 200)]);
    assert_eq!(bridge.counts().len(), 4);
}

#[test]
fn many_length_checks_do_not_multiply_the_translation() {
    let checks = ["check_pkt_larger(100)->NXM_NX_REG0[0]"; 60].join(",");
    let mut bridge = Bridge::new(&[format!("actions={checks},output:2")]);
    assert_eq!(sent(bridge.process(1, &[of_length(60)])), [(2, 60)]);
}

#[test]
fn a_megaflow_with_checks_agrees_with_translations_of_each_packet() {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut hits = 0;
    for set in 0..400 {
        let rules: Vec<_> =
            (0..random.random_range(2..14)).map(|_| random_rule(&mut random)).collect();
        let mut bridge = Bridge::new(&rules);
        let mut alone = Bridge::new(&rules);
        let frames: Vec<_> = (0..40).map(|_| of_length(random.random_range(60..68))).collect();
        let mut together = bridge.process(1, &frames).sent;
        together.sort_unstable();
        let mut expected: Vec<_> =
            frames.iter().flat_map(|frame| process_alone(&mut alone, frame).sent).collect();
        expected.sort_unstable();
        assert_eq!(together, expected, "set {set}: {rules:#?}");
        hits += bridge.datapath.statistics().megaflow_hits;
    }
    assert!(hits > 4000, "{hits} hits");
}

fn of_length(length: usize) -> Vec<u8> {
    let mut bytes = frame("udp,dl_dst=02:00:00:00:00:01,nw_dst=10.0.0.1");
    bytes.resize(length, 0);
    bytes
}

/// Returns the ports and lengths of frames, sorted.
fn sent(collected: Collected) -> Vec<(u16, usize)> {
    let mut sent: Vec<_> =
        collected.sent.iter().map(|(port, bytes)| (*port, bytes.len())).collect();
    sent.sort_unstable();
    sent
}

/// Sends a packet as a packet-out of a controller, whose translation serves only that packet.
fn process_alone(bridge: &mut Bridge, bytes: &[u8]) -> Collected {
    let mut collected = Collected::default();
    let packet = PacketOut {
        in_port: PortNumber(1),
        frame: bytes.to_vec(),
        actions: vec![Action::Output { port: PortNumber::TABLE, max_len: 0 }],
        metadata: Key::ZERO,
    };
    let key = extract(1, bytes);
    let translation = Translator::new(&bridge.tables).packet_out(&packet, &key, 0);
    let slow: &mut dyn Translate = &mut Translator::new(&bridge.tables);
    let mut callees = Callees { slow, tracker: &mut NoTracker, sink: &mut collected };
    let frame = Frame::from_bytes(bytes, Time::ZERO);
    bridge.datapath.execute(1, frame, &translation, Time::ZERO, &mut callees);
    collected
}

fn random_rule(random: &mut Pcg64Mcg) -> String {
    let table = random.random_range(0..4);
    let mut rule = format!("table={table},priority={}", random.random_range(0..6));
    if table > 0 && random.random_range(0..2) == 0 {
        let register = random.random_range(0..2);
        rule += &format!(",reg{register}={}", random.random_range(0..2));
    }
    if random.random_range(0..4) == 0 {
        rule += [",dl_dst=02:00:00:00:00:01", ",udp"][random.random_range(0..2)];
    }
    let count = random.random_range(1..6);
    let actions: Vec<_> = (0..count).map(|_| random_action(random, table)).collect();
    rule + ",actions=" + &actions.join(",")
}

fn random_action(random: &mut Pcg64Mcg, table: u8) -> String {
    let port = random.random_range(2..5);
    let register = random.random_range(0..2);
    match random.random_range(0..14) {
        0..4 => {
            let length = random.random_range(60..70);
            format!("check_pkt_larger({length})->NXM_NX_REG{register}[0]")
        }
        4..7 if table < 3 => format!("resubmit(,{})", random.random_range(table + 1..4)),
        7 => format!("load:{}->NXM_NX_REG{register}[]", port & 1),
        8 => "move:NXM_NX_REG0[]->NXM_NX_REG1[]".into(),
        9 => format!("mod_dl_dst:02:00:00:00:00:0{port}"),
        10 => ["push_vlan:0x8100", "mod_vlan_vid:3"][random.random_range(0..2)].into(),
        11 if table < 3 => {
            let table = random.random_range(table + 1..4);
            let length = random.random_range(60..70);
            format!("clone(check_pkt_larger({length})->NXM_NX_REG{register}[0],resubmit(,{table}))")
        }
        12 => ["exit", "push:NXM_NX_REG0[]", "pop:NXM_NX_REG1[]"][random.random_range(0..3)].into(),
        _ => format!("output:{port}"),
    }
}
