//! Traces, compared with Open vSwitch 3.1's output for the same rules and packets.

use flow::action::{Action, Ct, Nat, NatAddresses, NatDirection, Subfield};
use flow::port_number::PortNumber;
use flow::request::GroupCommand;
use flow::step::Step;
use flow::{Field, Key, Match, word};
use text::{
    PortNames, parse_group, print_actions, print_connection_state, print_match,
    print_megaflow_match, print_steps,
};

use super::packets::{add, bridge, matching, output, udp};
use crate::{Print, Tables, Trace};

/// A printer for tests: prints only the fields and the types of actions.
pub(super) struct Names;

impl Print for Names {
    fn matching(&self, matching: &Match) -> String {
        let fields = [Field::InPort, Field::EthSrc, Field::IpSrc, Field::IpDst, Field::NwTtl];
        let set = fields.iter().filter(|field| matching.is_set(**field));
        set.map(|field| format!("{}={}", field.name(), matching.value.read(*field)))
            .collect::<Vec<_>>()
            .join(",")
    }

    fn megaflow(&self, matching: &Match) -> String {
        let id = matching.value.read(Field::RecircId);
        let tag = if matching.is_set(Field::VlanTci) { "tci," } else { "" };
        format!("recirc_id={id},eth,{tag}{}", self.matching(matching))
    }

    fn steps(&self, steps: &[Step], key: &Key) -> String {
        print_steps(steps, key, &PortNames::none())
    }

    fn connection_state(&self, state: u16) -> String {
        print_connection_state(state)
    }

    fn actions(&self, actions: &[Action]) -> String {
        let texts: Vec<_> = actions
            .iter()
            .map(|action| match action {
                Action::Output { port: PortNumber(port), .. } => format!("output:{port}"),
                Action::Resubmit { table, .. } => format!("resubmit(,{})", table.unwrap_or(0)),
                Action::SetVlanVid(vid) => format!("mod_vlan_vid:{vid}"),
                Action::StripVlan => "strip_vlan".to_owned(),
                Action::DecTtl(_) => "dec_ttl".to_owned(),
                Action::SetTpDst(port) => format!("mod_tp_dst:{port}"),
                Action::Ct(ct) if ct.commit => "ct(commit)".to_owned(),
                Action::Ct(_) => "ct(nat)".to_owned(),
                _ => format!("{action:?}"),
            })
            .collect();
        texts.join(",")
    }
}

fn trace(tables: &Tables) -> String {
    let packet = udp(1, 0x1000_0001, 0x3000_0003);
    Trace::new(tables, "br0", Names).run(&packet, &[0; 60], 0)
}

#[test]
fn debug_actions_recirculate_and_keep_packets_out_of_the_cache() {
    let mut tables = bridge(3);
    let actions = vec![Action::DebugSlow, output(2), Action::DebugRecirculate, output(3)];
    tables.flow_mod(add(0, 1, matching(&[]), actions), 0).expect("added");
    let text = trace(&tables);
    assert!(text.contains("Datapath actions: 2,recirc(0x1)\nThis flow is handled by"), "{text}");
    // Without tracking, the trace does not follow the recirculated packet.
    assert!(text.ends_with("supported by datapath.\n"), "{text}");
    let mut packet = udp(1, 0x1000_0001, 0x3000_0003);
    packet.write(Field::RecircId, 1);
    let text = Trace::new(&tables, "br0", Names).run(&packet, &[0; 60], 0);
    assert!(text.ends_with("Megaflow: recirc_id=1,eth,in_port=1\nDatapath actions: 3\n"), "{text}");
}

#[test]
fn a_length_check_shows_both_branches() {
    let resubmit = |table| Action::Resubmit { port: None, table: Some(table), with_ct: false };
    let result = Subfield { field: Field::Reg0, start: 0, width: 1 };
    let check = Action::CheckPacketLarger { destination: result, length: 200 };
    let rules = [
        (0, 1, matching(&[]), vec![resubmit(1), output(4)]),
        (1, 1, matching(&[]), vec![check, resubmit(2)]),
        (2, 2, matching(&[(Field::Reg0, 1)]), vec![output(2), output(3)]),
        (2, 1, matching(&[]), vec![]),
    ];
    let mut tables = bridge(4);
    for (table, priority, matching, actions) in rules {
        tables.flow_mod(add(table, priority, matching, actions), 0).expect("added");
    }
    let steps = "check_pkt_len(size=200,gt(2,3),le(drop)),4";
    let text = trace(&tables);
    assert!(text.ends_with(&format!("Datapath actions: {steps}\n")), "{text}");
    // A later rule outside the branches matches on the result, so the trace covers only this
    // packet's length.
    let actions = vec![resubmit(1), resubmit(3)];
    tables.flow_mod(add(0, 1, matching(&[]), actions), 0).expect("added");
    let outside = matching(&[(Field::Reg0, 0)]);
    tables.flow_mod(add(3, 1, outside, vec![output(4)]), 0).expect("added");
    let text = trace(&tables);
    assert!(text.ends_with("Datapath actions: 4\n"), "{text}");
    assert_eq!(text.matches("CheckPacketLarger").count(), 1, "{text}");
}

#[test]
fn a_trace_indents_a_resubmission_unless_it_is_the_last_action() {
    let resubmit = |table| Action::Resubmit { port: None, table: Some(table), with_ct: false };
    let mut tables = bridge(4);
    let first = vec![resubmit(5), output(2), resubmit(1)];
    tables.flow_mod(add(0, 10, Match::any(), first), 0).expect("added");
    tables
        .flow_mod(add(1, 10, matching(&[(Field::InPort, 1)]), vec![output(1)]), 0)
        .expect("added");
    let expected = "\
Flow: in_port=1,eth_src=2199023255562,ip_src=268435457,ip_dst=805306371,nw_ttl=64

bridge(\"br0\")
-------------
 0. priority 10
    resubmit(,5)
     5. No match.
            drop
    output:2
    resubmit(,1)
 1. in_port=1, priority 10
    output:1
     >> skipping output to input port

Final flow: unchanged
Megaflow: recirc_id=0,eth,in_port=1
Datapath actions: 2
";
    assert_eq!(trace(&tables), expected);
}

#[test]
fn the_megaflow_of_an_untagged_packet_has_no_tag() {
    let mut tables = bridge(3);
    let normal = Action::Output { port: PortNumber::NORMAL, max_len: 0 };
    tables.flow_mod(add(0, 1, matching(&[]), vec![normal]), 0).expect("added");
    let text = trace(&tables);
    assert!(text.contains("Megaflow: recirc_id=0,eth,in_port=1,eth_src="), "{text}");
    let mut packet = udp(1, 0x1000_0001, 0x3000_0003);
    packet.words[word::VLAN_TPID] = 0x8100;
    packet.write(Field::VlanTci, 0x1005);
    let text = Trace::new(&tables, "br0", Names).run(&packet, &[0; 60], 0);
    assert!(text.contains("Megaflow: recirc_id=0,eth,tci,in_port=1,"), "{text}");
    // The text of the packet has a VLAN tag without the tag's Ethernet type.
    packet.words[word::VLAN_TPID] = 0;
    let text = Trace::new(&tables, "br0", Names).run(&packet, &[0; 60], 0);
    assert!(text.contains("Megaflow: recirc_id=0,eth,tci,in_port=1,"), "{text}");
}

#[test]
fn a_trace_shows_the_registers_that_are_not_zero() {
    let mut tables = bridge(3);
    let destination = Subfield { field: Field::Reg2, start: 0, width: 32 };
    let load = Action::Load { value: 7, destination };
    tables.flow_mod(add(0, 1, matching(&[]), vec![load, output(2)]), 0).expect("added");
    let packet = udp(1, 0x1000_0001, 0x3000_0003);
    let text = Trace::new(&tables, "br0", Whole).run(&packet, &[0; 60], 0);
    let end = text.lines().find(|line| line.starts_with("Final flow:")).expect("a final flow");
    assert!(end.contains("reg2=0x7,"), "{end}");
    for zero in ["reg0=", "reg1=", "reg3="] {
        assert!(!end.contains(zero), "{end}");
    }
}

#[test]
fn a_trace_prints_datapath_actions_as_open_vswitch_prints_them() {
    let in_port = Action::Output { port: PortNumber::IN_PORT, max_len: 0 };
    let rules: [(Vec<Action>, &str); 4] = [
        (
            vec![
                Action::SetVlanVid(10),
                Action::SetVlanPcp(3),
                output(2),
                Action::StripVlan,
                output(3),
                in_port,
                Action::DecTtl(vec![0]),
                Action::SetTpDst(77),
                output(4),
            ],
            "push_vlan(vid=10,pcp=3),2,pop_vlan,3,1,set(ipv4(ttl=63)),set(udp(dst=77)),4",
        ),
        (
            vec![
                Action::SetEthSrc([0x02, 0xac, 0x10, 0xff, 0x01, 0x01]),
                Action::SetEthDst([0xde, 0x75, 0xcc, 0xe1, 0xc6, 0x85]),
                output(2),
            ],
            "set(eth(src=02:ac:10:ff:01:01,dst=de:75:cc:e1:c6:85)),2",
        ),
        // The packet already has this address.
        (vec![Action::SetEthDst([2, 0, 0, 0, 0, 0x0b]), output(3)], "3"),
        (
            vec![
                Action::DecTtl(vec![0]),
                output(2),
                Action::PushMpls(0x8847),
                Action::SetMplsLabel(9),
                output(3),
            ],
            "set(ipv4(ttl=63)),2,push_mpls(label=9,tc=0,ttl=63,bos=1,eth_type=0x8847),3",
        ),
    ];
    for (actions, expected) in rules {
        let mut tables = bridge(4);
        tables.flow_mod(add(0, 1, Match::any(), actions), 0).expect("added");
        let text = trace(&tables);
        let last = text.lines().last().unwrap_or_default();
        assert_eq!(last, format!("Datapath actions: {expected}"));
    }
}

#[test]
fn a_tracked_packet_continues_with_its_translated_address() {
    let address = "48.128.0.10".parse().expect("an address");
    let nat = Nat {
        direction: Some(NatDirection::Source),
        addresses: Some(NatAddresses::V4(address..=address)),
        ..Nat::default()
    };
    let ct = Ct { commit: true, table: Some(1), nat: Some(nat), ..Ct::default() };
    let mut tables = bridge(4);
    let rule = add(0, 1, Match::any(), vec![Action::Ct(Box::new(ct))]);
    tables.flow_mod(rule, 0).expect("added");
    let from = matching(&[(Field::IpSrc, 0x3080_000a)]);
    tables.flow_mod(add(1, 1, from, vec![output(2)]), 0).expect("added");
    let text = trace(&tables);
    let first = "\
 0. priority 1
    ct(commit)
    nat
     -> A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table 1.
     -> Sets the packet to an untracked state, and clears all the conntrack fields.

Final flow: unchanged
";
    assert!(text.contains(first), "{text}");
    assert!(text.contains("Datapath actions: ct(commit,nat(src=48.128.0.10)),recirc(0x1)\n\n==="));
    let second = "\
-------------
    thaw
        Resuming from table 1
 1. ip_src=813694986, priority 1
    output:2
";
    assert!(text.contains(second), "{text}");
    assert!(text.ends_with("Datapath actions: 2\n"), "{text}");
}

/// A printer that prints everything as ovs-appctl does.
struct Whole;

impl Print for Whole {
    fn matching(&self, matching: &Match) -> String {
        print_match(matching)
    }

    fn megaflow(&self, matching: &Match) -> String {
        print_megaflow_match(matching, &PortNames::none())
    }

    fn actions(&self, actions: &[Action]) -> String {
        print_actions(actions)
    }

    fn steps(&self, steps: &[Step], key: &Key) -> String {
        print_steps(steps, key, &PortNames::none())
    }

    fn connection_state(&self, state: u16) -> String {
        print_connection_state(state)
    }
}

#[test]
fn a_group_that_selects_continues_with_the_hash_of_the_datapath() {
    let mut tables = bridge(4);
    let group = "group_id=1,type=select,bucket=bucket_id:7,actions=output:2,\
                 bucket=bucket_id:8,actions=output:3";
    let group = parse_group(group, GroupCommand::Add, &PortNames::none()).expect("a group");
    tables.group_mod(group, 0).expect("added");
    let rule = add(0, 1, matching(&[]), vec![Action::Group(1), output(4)]);
    tables.flow_mod(rule, 0).expect("added");
    let trace = |packet: &Key| Trace::new(&tables, "br0", Whole).run(packet, &[0; 60], 0);
    let mut packet = udp(1, 0x1000_0001, 0x3000_0003);
    let expected = "
bridge(\"br0\")
-------------
 0. priority 1
    group:1

Final flow: unchanged
Megaflow: recirc_id=0,eth,ip,in_port=1,nw_frag=no
Datapath actions: hash(sym_l4(0)),recirc(0x1)
";
    let text = trace(&packet);
    assert!(text.ends_with(expected), "{text}");
    packet.write(Field::RecircId, 1);
    // The packet has no datapath hash yet.
    let text = trace(&packet);
    assert!(text.ends_with("Datapath actions: hash(sym_l4(0)),recirc(0x1)\n"), "{text}");
    packet.write(Field::DpHash, 0x105);
    let expected = "
bridge(\"br0\")
-------------
    thaw
            Resuming from table 0
        Restoring actions: group:1,output:4
    group:1
     -> using bucket 8
    bucket 8
            output:3
    output:4

Final flow: unchanged
Megaflow: recirc_id=0x1,dp_hash=0x5/0xf,eth,ip,in_port=1,nw_frag=no
Datapath actions: 3,4
";
    let text = trace(&packet);
    assert!(text.starts_with("Flow: recirc_id=0x1,dp_hash=0x105,eth,udp,in_port=1"), "{text}");
    assert!(text.ends_with(expected), "{text}");
}
