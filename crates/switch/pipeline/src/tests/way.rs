//! Tests of single actions.

use flow::action::{
    Action, Controller, Ct, Learn, LearnDestination, LearnSource, LearnSpec, Subfield,
};
use flow::port_number::PortNumber;
use flow::request::{
    Bucket, Fragments, GroupCommand, GroupMod, GroupType, Resumption, TableMiss, TableMod,
};
use flow::step::{PortIndex, Step};
use flow::{Field, Match};

use super::packets::{add, bridge, key, matching, output, outputs, translate, udp};
use crate::{Failure, Translator};

fn steps(actions: Vec<Action>, packet: &flow::Key) -> Vec<Step> {
    let mut tables = bridge(4);
    tables.flow_mod(add(0, 1, Match::any(), actions), 0).expect("added");
    translate(&tables, packet).steps.to_vec()
}

const fn out(port: u16) -> Step {
    Step::Output(PortIndex(port))
}

#[test]
fn a_fourth_mpls_label_drops_the_packet() {
    for labels in 1..=5 {
        let mut tables = bridge(2);
        let mut actions = vec![Action::PushMpls(0x8847); labels];
        actions.push(output(2));
        tables.flow_mod(add(0, 1, Match::any(), actions), 0).expect("added");
        let translation = translate(&tables, &udp(1, 9, 9));
        assert_eq!(outputs(&translation).is_empty(), labels > 3);
        // The limit's counter counts the packets that the limit drops.
        translation.counters.iter().for_each(|counters| counters.add(1, 60, 0));
        assert_eq!(tables.failed_packets(Failure::TooManyLabels), u64::from(labels > 3));
    }
}

#[test]
fn a_packet_after_ct_is_tracked_only_in_the_table_of_ct() {
    let ct = |table| Action::Ct(Box::new(Ct { commit: true, table, ..Ct::default() }));
    let mut tables = bridge(3);
    let fresh = matching(&[(Field::CtState, 0x21)]);
    tables.flow_mod(add(0, 1, Match::any(), vec![ct(Some(1))]), 0).expect("added");
    let actions = vec![ct(None), Action::Resubmit { port: None, table: Some(2), with_ct: false }];
    tables.flow_mod(add(1, 1, Match::any(), actions), 0).expect("added");
    tables.flow_mod(add(2, 2, fresh, vec![output(2)]), 0).expect("added");
    tables.flow_mod(add(2, 1, Match::any(), vec![Action::CtClear, output(3)]), 0).expect("added");
    let mut packet = udp(1, 9, 9);
    let first = translate(&tables, &packet);
    let Some(Step::Recirculate(id)) = first.steps.last() else { panic!("{:?}", first.steps) };
    packet.write(Field::RecircId, (*id).into());
    packet.write(Field::CtState, 0x21);
    let second = translate(&tables, &packet);
    assert_eq!(outputs(&second), [3]);
    assert!(!second.steps.contains(&Step::ClearTracking));
}

#[test]
fn rules_see_the_ports_of_a_first_fragment_only_in_mode_match() {
    let mut tables = bridge(4);
    let dns = matching(&[(Field::EthType, 0x0800), (Field::NwProto, 17), (Field::UdpDst, 53)]);
    let copies = Action::Move {
        source: Subfield::whole(Field::UdpDst),
        destination: Subfield::whole(Field::UdpSrc),
    };
    tables.flow_mod(add(0, 2, dns, vec![copies.clone(), output(2)]), 0).expect("added");
    tables.flow_mod(add(0, 1, matching(&[]), vec![copies, output(3)]), 0).expect("added");
    let mut first = udp(1, 9, 9);
    first.write(Field::IpFrag, 1);
    let mut later = udp(1, 9, 9);
    later.write(Field::IpFrag, 3);
    later.write(Field::UdpSrc, 0);
    later.write(Field::UdpDst, 0);
    for (way, expected) in [
        (Fragments::Normal, [2, 3, 3]),
        (Fragments::Drop, [2, 0, 0]),
        (Fragments::Match, [2, 2, 3]),
    ] {
        let former = tables.generation();
        tables.set_fragments(way);
        assert_eq!(tables.generation() != former, way != Fragments::Normal);
        for (packet, port) in [&udp(1, 9, 9), &first, &later].into_iter().zip(expected) {
            let ports = if port == 0 { vec![] } else { vec![port] };
            let translation = translate(&tables, packet);
            assert_eq!(outputs(&translation), ports, "{way:?}");
            let source = translation.mask.read(Field::UdpSrc);
            assert_eq!(source, 0, "the port is copied to, and no rule looks at it");
            // The action copies the packet's real port, which the rules do not see.
            let copied = translation.steps.iter().find_map(|step| match step {
                Step::Rewrite(rewrite) => Some(rewrite.value.read(Field::UdpSrc)),
                _ => None,
            });
            assert!(copied.is_none_or(|port| port == 53));
        }
    }
}

#[test]
fn only_the_port_in_port_sends_to_the_input_port() {
    let in_port = Action::Output { port: PortNumber::IN_PORT, max_len: 0 };
    assert_eq!(steps(vec![output(1), output(2)], &udp(1, 1, 2)), [out(2)]);
    assert_eq!(steps(vec![in_port], &udp(1, 1, 2)), [out(1)]);
}

#[test]
fn a_vlan_tag_is_pushed_with_its_fields_and_popped() {
    let packet = udp(1, 1, 2);
    let actions = vec![
        Action::SetVlanVid(10),
        Action::SetVlanPcp(3),
        output(2),
        Action::StripVlan,
        output(3),
    ];
    let push = Step::PushVlan { tpid: 0x8100, tci: 0x700a };
    assert_eq!(steps(actions, &packet), [push, out(2), Step::PopVlan, out(3)]);
    let nothing = vec![Action::SetVlanVid(10), Action::StripVlan, output(3)];
    assert_eq!(steps(nothing, &packet), [out(3)]);
    let mut tagged = packet;
    tagged.write(Field::VlanTci, 0x1005);
    let inner = vec![
        Action::PushVlan(0x88a8),
        Action::SetVlanVid(7),
        Action::PushVlan(0x8100),
        Action::SetVlanVid(8),
        output(2),
    ];
    let pushes = [
        Step::PushVlan { tpid: 0x88a8, tci: 0x1007 },
        Step::PushVlan { tpid: 0x8100, tci: 0x1008 },
        out(2),
    ];
    assert_eq!(steps(inner, &tagged), pushes);
}

#[test]
fn a_new_vlan_keeps_the_priority_of_the_tag() {
    let mut packet = udp(1, 1, 2);
    packet.write(Field::VlanTci, 0x700a);
    let steps = steps(vec![Action::SetVlanVid(5), output(2)], &packet);
    let [Step::Rewrite(tag), last] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((tag.value.read(Field::DlVlan), last), (5, &out(2)));
    assert_eq!(tag.mask.read(Field::VlanTci), 0xfff);
}

#[test]
fn a_change_of_a_tag_comes_after_the_pop_that_uncovers_the_tag() {
    let mut packet = udp(1, 1, 2);
    packet.write(Field::VlanTci, 0x100a);
    let actions = vec![
        Action::PushVlan(0x88a8),
        output(2),
        Action::SetEthDst([2, 0, 0, 0, 0, 9]),
        Action::StripVlan,
        Action::SetVlanVid(5),
        output(3),
    ];
    let steps = steps(actions, &packet);
    let [
        Step::PushVlan { .. },
        first,
        Step::Rewrite(address),
        Step::PopVlan,
        Step::Rewrite(tag),
        last,
    ] = &steps[..]
    else {
        panic!("{steps:?}");
    };
    assert_eq!((first, last), (&out(2), &out(3)));
    assert_eq!(
        (address.mask.read(Field::VlanTci), address.value.read(Field::EthDst)),
        (0, 0x0200_0000_0009)
    );
    assert_eq!((tag.mask.read(Field::EthDst), tag.value.read(Field::DlVlan)), (0, 5));
}

#[test]
fn an_expired_ttl_goes_to_the_controller_and_ends_the_rule() {
    let mut packet = udp(1, 1, 2);
    packet.write(Field::NwTtl, 1);
    let steps = steps(vec![Action::DecTtl(vec![0]), output(2)], &packet);
    let [Step::Controller(controller)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(controller.reason, 2);
}

#[test]
fn a_group_of_type_all_gives_each_bucket_a_separate_copy() {
    let bucket = |id, actions| Bucket {
        id,
        weight: 0,
        watch_port: PortNumber::NONE,
        watch_group: u32::MAX,
        actions,
    };
    let mut tables = bridge(4);
    let change = GroupMod {
        command: GroupCommand::Add,
        group: 7,
        kind: GroupType::All,
        buckets: vec![bucket(0, vec![Action::SetTpDst(99), output(2)]), bucket(1, vec![output(3)])],
        bucket: 0,
        selection: None,
    };
    tables.group_mod(change, 0).expect("added");
    let rule = add(0, 1, Match::any(), vec![Action::Group(7)]);
    tables.flow_mod(rule, 0).expect("added");
    let translation = translate(&tables, &udp(1, 1, 2));
    let [Step::Clone(first), Step::Output(PortIndex(3))] = &*translation.steps else {
        panic!("{:?}", translation.steps);
    };
    assert!(matches!(&**first, [Step::Rewrite(_), Step::Output(PortIndex(2))]));
}

#[test]
fn endless_resubmission_drops_the_packet() {
    let again = Action::Resubmit { port: None, table: Some(0), with_ct: false };
    assert_eq!(steps(vec![output(2), again], &udp(1, 1, 2)), []);
}

#[test]
fn a_chain_of_all_tables_ends_without_exhausting_the_stack() {
    let mut tables = bridge(4);
    for table in 0..254_u8 {
        let next = Action::Resubmit { port: None, table: Some((table + 1) % 254), with_ct: false };
        let rule = add(table, 1, Match::any(), vec![next, output(2)]);
        tables.flow_mod(rule, 0).expect("added");
    }
    assert!(translate(&tables, &udp(1, 1, 2)).steps.is_empty());
    let last = add(253, 1, Match::any(), vec![output(3)]);
    tables.flow_mod(last, 0).expect("replaced");
    assert_eq!(translate(&tables, &udp(1, 1, 2)).steps.len(), 254);
    // The branches of length checks also use the stack.
    for table in 0..100_u8 {
        let destination = Subfield { field: Field::Reg0, start: 0, width: 1 };
        let check = Action::CheckPacketLarger { destination, length: 100 };
        let next = Action::Resubmit { port: None, table: Some(table + 1), with_ct: false };
        let rule = add(table, 1, Match::any(), vec![check, next, output(2)]);
        tables.flow_mod(rule, 0).expect("replaced");
    }
    assert_eq!(translate(&tables, &udp(1, 1, 2)).steps.len(), 254);
}

#[test]
fn both_branches_of_a_packet_length_check_count_for_the_size_of_a_megaflow() {
    for (outputs, is_cacheable) in [(4000, true), (4200, false)] {
        let destination = Subfield { field: Field::Reg0, start: 0, width: 1 };
        let mut actions = vec![Action::CheckPacketLarger { destination, length: 100 }];
        actions.resize(1 + outputs, output(2));
        let mut tables = bridge(2);
        tables.flow_mod(add(0, 1, Match::any(), actions), 0).expect("added");
        assert_eq!(translate(&tables, &udp(1, 1, 2)).is_cacheable, is_cacheable);
    }
}

#[test]
fn normal_learns_the_source_and_floods_or_forwards_by_the_destination() {
    let normal = Action::Output { port: PortNumber::NORMAL, max_len: 0 };
    let mut tables = bridge(4);
    tables.flow_mod(add(0, 1, Match::any(), vec![normal]), 0).expect("added");
    let packet = udp(1, 1, 2);
    let generation = tables.generation();
    assert_eq!(outputs(&translate(&tables, &packet)), [2, 3, 4]);
    assert_ne!(tables.generation(), generation);
    let mut answer = packet.clone();
    answer.write(Field::InPort, 3);
    answer.write(Field::EthSrc, packet.read(Field::EthDst));
    answer.write(Field::EthDst, packet.read(Field::EthSrc));
    assert_eq!(outputs(&translate(&tables, &answer)), [1]);
    assert_eq!(outputs(&translate(&tables, &packet)), [3]);
    let mut lldp = packet;
    lldp.write(Field::EthDst, 0x0180_c200_000e);
    assert_eq!(outputs(&translate(&tables, &lldp)), [] as [u16; 0]);
    assert_eq!(tables.mac_entries(5000).len(), 2);
}

#[test]
fn the_next_packet_matches_a_learned_rule() {
    let mut tables = bridge(4);
    let whole = Subfield::whole;
    let part = Subfield { field: Field::InPort, start: 0, width: 16 };
    let learn = Learn {
        idle_timeout: 0,
        hard_timeout: 10,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: 5,
        cookie: 0,
        send_flow_removed: false,
        delete_learned: false,
        table: 1,
        limit: 0,
        result: None,
        specs: vec![
            LearnSpec {
                source: LearnSource::Field(whole(Field::EthSrc)),
                destination: LearnDestination::Match(whole(Field::EthDst)),
                width: 48,
            },
            LearnSpec {
                source: LearnSource::Field(part),
                destination: LearnDestination::Output,
                width: 16,
            },
        ],
    };
    let next = Action::Resubmit { port: None, table: Some(1), with_ct: false };
    let rule = add(0, 1, Match::any(), vec![Action::Learn(Box::new(learn)), next]);
    tables.flow_mod(rule, 0).expect("added");
    let flood = Action::Output { port: PortNumber::FLOOD, max_len: 0 };
    tables.flow_mod(add(1, 0, Match::any(), vec![flood]), 0).expect("added");
    let packet = udp(1, 1, 2);
    let first = translate(&tables, &packet);
    assert!(first.is_cacheable);
    assert_eq!(outputs(&first), [2, 3, 4]);
    let generation = tables.generation();
    translate(&tables, &packet);
    assert_eq!(tables.generation(), generation);
    let mut answer = packet.clone();
    answer.write(Field::InPort, 2);
    answer.write(Field::EthSrc, packet.read(Field::EthDst));
    answer.write(Field::EthDst, packet.read(Field::EthSrc));
    assert_eq!(outputs(&translate(&tables, &answer)), [1]);
    for counters in &first.counters {
        counters.add(1, 60, 5000);
    }
    assert_eq!(tables.expire(10_001).len(), 1);
    assert_eq!(tables.expire(15_001).len(), 1);
}

#[test]
fn a_conjunction_needs_a_rule_of_each_clause() {
    let mut tables = bridge(4);
    let clause = |clause| vec![Action::Conjunction { id: 9, clause, clauses: 2 }];
    for source in [1, 2] {
        let from = matching(&[(Field::EthType, 0x0800), (Field::IpSrc, source)]);
        tables.flow_mod(add(0, 5, from, clause(0)), 0).expect("added");
    }
    let to = matching(&[(Field::EthType, 0x0800), (Field::IpDst, 7)]);
    tables.flow_mod(add(0, 5, to, clause(1)), 0).expect("added");
    let both = matching(&[(Field::EthType, 0x0800), (Field::ConjId, 9)]);
    tables.flow_mod(add(0, 5, both, vec![output(2)]), 0).expect("added");
    tables.flow_mod(add(0, 1, Match::any(), vec![output(3)]), 0).expect("added");
    assert_eq!(outputs(&translate(&tables, &udp(1, 2, 7))), [2]);
    assert_eq!(outputs(&translate(&tables, &udp(1, 3, 7))), [3]);
    assert_eq!(outputs(&translate(&tables, &udp(1, 2, 8))), [3]);
}

/// Returns the output ports of the tables that a packet reaches if no rule matches, and whether
/// controllers get the packet.
fn way_of_a_miss(miss: TableMiss, action: Action) -> (Vec<u16>, bool) {
    let mut tables = bridge(4);
    tables.is_miss_sent = true;
    tables.flow_mod(add(0, 1, Match::any(), vec![action]), 0).expect("added");
    let other = matching(&[(Field::InPort, 4)]);
    tables.flow_mod(add(1, 1, other, vec![output(1)]), 0).expect("added");
    tables.flow_mod(add(2, 1, Match::any(), vec![output(3)]), 0).expect("added");
    let change = TableMod { table: Some(1), miss: Some(miss), is_evicting: None, vacancy: None };
    tables.table_mod(&change).expect("changed");
    let translation = translate(&tables, &udp(1, 1, 2));
    let is_sent = translation.steps.iter().any(|step| matches!(step, Step::Controller(_)));
    (outputs(&translation), is_sent)
}

#[test]
fn the_table_miss_setting_applies_to_packets_without_a_matching_rule() {
    let nowhere: Vec<u16> = Vec::new();
    let goto = || Action::GotoTable(1);
    assert_eq!(way_of_a_miss(TableMiss::Default, goto()), (nowhere.clone(), true));
    assert_eq!(way_of_a_miss(TableMiss::Controller, goto()), (nowhere.clone(), true));
    assert_eq!(way_of_a_miss(TableMiss::Drop, goto()), (nowhere.clone(), false));
    assert_eq!(way_of_a_miss(TableMiss::Continue, goto()), (vec![3], false));
    // A resubmission drops a packet that matches no rule, for any setting of the table.
    for miss in [TableMiss::Default, TableMiss::Controller, TableMiss::Continue] {
        let resubmit = Action::Resubmit { port: None, table: Some(1), with_ct: false };
        assert_eq!(way_of_a_miss(miss, resubmit), (nowhere.clone(), false));
    }
}

#[test]
fn a_resubmission_changes_the_port_for_the_lookup_alone() {
    let mut tables = bridge(4);
    let as_other = Action::Resubmit { port: Some(PortNumber(9)), table: None, with_ct: false };
    let in_port = Action::Output { port: PortNumber::IN_PORT, max_len: 0 };
    tables.flow_mod(add(0, 1, Match::any(), vec![as_other]), 0).expect("added");
    let from_other = matching(&[(Field::InPort, 9)]);
    tables.flow_mod(add(0, 2, from_other, vec![in_port, output(2)]), 0).expect("added");
    assert_eq!(outputs(&translate(&tables, &udp(1, 1, 2))), [1, 2]);
}

#[test]
fn actset_output_matches_the_output_port_in_the_action_set() {
    let mut tables = bridge(4);
    let unset = (Field::ActsetOutput, u128::from(PortNumber::UNSET.0));
    let write = vec![Action::WriteActions(vec![output(2)]), Action::GotoTable(1)];
    tables.flow_mod(add(0, 1, matching(&[unset]), write), 0).expect("added");
    let is_two = matching(&[(Field::ActsetOutput, 2)]);
    let clear = vec![output(3), Action::ClearActions, Action::GotoTable(2)];
    tables.flow_mod(add(1, 1, is_two, clear), 0).expect("added");
    tables.flow_mod(add(2, 1, matching(&[unset]), vec![output(4)]), 0).expect("added");
    assert_eq!(outputs(&translate(&tables, &udp(1, 1, 2))), [3, 4]);
}

#[test]
fn a_packet_that_a_controller_resumes_continues_after_the_pause() {
    let mut tables = bridge(4);
    let pause = Action::Controller(Box::new(Controller {
        max_len: u16::MAX,
        id: 0,
        reason: 1,
        userdata: Vec::new(),
        pause: true,
        meter: None,
    }));
    let next = Action::Resubmit { port: None, table: Some(1), with_ct: false };
    let set = |value| Action::SetField { field: Field::Reg0, value, mask: u128::MAX };
    let first = vec![Action::WriteActions(vec![output(4)]), set(7), next, output(3)];
    tables.flow_mod(add(0, 1, Match::any(), first), 0).expect("added");
    tables.flow_mod(add(1, 1, Match::any(), vec![pause, output(2)]), 0).expect("added");
    let packet = udp(1, 1, 2);
    let translation = translate(&tables, &packet);
    let [Step::Controller(step)] = &*translation.steps else { panic!("{:?}", translation.steps) };
    assert_eq!(step.metadata.read(Field::Reg0), 7);
    let state = step.continuation.expect("a state");
    let resumption = Resumption { frame: vec![0; 60], metadata: step.metadata.clone(), state };
    let translator = Translator::new(&tables);
    let resumed = translator.resume(&resumption, &packet, 0).expect("a state");
    assert_eq!(outputs(&resumed), [2, 3, 4]);
    let unknown = Resumption { state: 999, ..resumption };
    assert!(translator.resume(&unknown, &packet, 0).is_none());
}

#[test]
fn packet_ins_carry_the_reason_of_their_output() {
    let to_controller = || Action::Output { port: PortNumber::CONTROLLER, max_len: 0 };
    let reason = |priority, matching: Match, actions| {
        let mut tables = bridge(4);
        tables.flow_mod(add(0, priority, matching, actions), 0).expect("added");
        let translation = translate(&tables, &udp(1, 1, 2));
        translation.steps.iter().find_map(|step| match step {
            Step::Controller(step) => Some(step.reason),
            _ => None,
        })
    };
    let some = || matching(&[(Field::InPort, 1)]);
    assert_eq!(reason(1, some(), vec![to_controller()]), Some(1));
    assert_eq!(reason(0, Match::any(), vec![to_controller()]), Some(6));
    assert_eq!(reason(1, some(), vec![Action::WriteActions(vec![to_controller()])]), Some(3));
}

#[test]
fn the_action_set_runs_at_the_end_in_its_own_order() {
    let set = Action::WriteActions(vec![output(2), Action::SetTpDst(99)]);
    let steps = steps(vec![set, output(3)], &udp(1, 1, 2));
    assert!(matches!(&steps[..], [Step::Output(PortIndex(3)), Step::Rewrite(_), Step::Output(_)]));
    assert_eq!(key(&[]).used_words(), 0);
}
