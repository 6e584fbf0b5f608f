//! Changes of rules.

use std::time::{Duration, Instant};

use flow::action::{Action, Learn};
use flow::port_number::PortNumber;
use flow::request::{
    Bucket, Change, CookieFilter, FlowCommand, FlowEntry, FlowFilter, FlowMod, GroupCommand,
    GroupMod, GroupType, MeterCommand, MeterMod, PacketOut, Refusal,
};
use flow::{Field, Key, Match};

use super::packets::{add, bridge, matching, output, outputs, translate, udp};
use crate::{RemovalReason, RuleEvent, Tables};

fn flows(tables: &Tables, now_ms: u64) -> Vec<FlowEntry> {
    tables.flows(&FlowFilter::all(), now_ms).expect("a valid filter")
}

fn to(destination: u32) -> Match {
    matching(&[(Field::EthType, 0x0800), (Field::IpDst, destination.into())])
}

#[test]
fn an_addition_replaces_the_rule_of_its_match_and_priority() {
    let mut tables = bridge(2);
    let former = tables.generation();
    tables.flow_mod(add(0, 5, to(1), vec![output(1)]), 0).expect("added");
    assert_ne!(tables.generation(), former);
    tables.flow_mod(add(0, 6, to(1), vec![output(1)]), 0).expect("added");
    let counters = translate(&tables, &udp(2, 9, 1)).counters;
    counters[0].add(3, 300, 1);
    let mut again = add(0, 6, to(1), vec![output(2)]);
    tables.flow_mod(again.clone(), 1000).expect("replaced");
    assert_eq!(flows(&tables, 1000).len(), 2);
    assert_eq!(flows(&tables, 1000)[0].packets, 3);
    again.flags.reset_counts = true;
    tables.flow_mod(again, 2000).expect("replaced");
    assert_eq!(flows(&tables, 2000)[0].packets, 0);
    // The second replacement kept the time of the last packet.
    assert_eq!(flows(&tables, 2000)[0].idle_age, Duration::from_millis(1999));
    assert_eq!(tables.tables()[0].matched, 3);
}

#[test]
fn groups_and_meters_count_each_rule_that_names_them_once() {
    let mut tables = bridge(2);
    for group in [1, 2, 3] {
        let change = GroupMod {
            command: GroupCommand::Add,
            group,
            kind: GroupType::All,
            buckets: Vec::new(),
            bucket: GroupMod::EVERY,
            selection: Default::default(),
        };
        tables.group_mod(change, 0).expect("added");
    }
    for meter in [4, 5] {
        let change = MeterMod {
            command: MeterCommand::Add,
            meter,
            is_in_packets: false,
            has_burst: false,
            has_statistics: true,
            bands: Vec::new(),
        };
        tables.meter_mod(change, 0).expect("added");
    }
    let nested = Action::WriteActions(vec![Action::Group(1), Action::Group(2)]);
    let rules = [
        vec![Action::Meter(4), Action::Group(1), nested],
        vec![Action::Meter(4), Action::Group(2)],
        vec![output(1)],
    ];
    for (number, actions) in rules.into_iter().enumerate() {
        let rule = add(number as u8, 5, to(1), actions);
        tables.flow_mod(rule, 0).expect("added");
    }
    let groups = |group| {
        let groups = tables.group_statistics(group, 0).into_iter();
        groups.map(|group| (group.group, group.references)).collect::<Vec<_>>()
    };
    assert_eq!(groups(GroupMod::ALL), [(1, 1), (2, 2), (3, 0)]);
    assert_eq!(groups(2), [(2, 2)]);
    let meters = tables.meter_statistics(MeterMod::ALL, 0).expect("all meters");
    let meters: Vec<_> = meters.iter().map(|meter| (meter.meter, meter.flows)).collect();
    assert_eq!(meters, [(4, 2), (5, 0)]);
}

#[test]
fn deleting_groups_removes_the_rules_that_name_the_groups() {
    let mut tables = bridge(2);
    let mut change = GroupMod {
        command: GroupCommand::Add,
        group: 0,
        kind: GroupType::All,
        buckets: Vec::new(),
        bucket: GroupMod::EVERY,
        selection: Default::default(),
    };
    for group in 1..=9 {
        change.group = group;
        tables.group_mod(change.clone(), 0).expect("added");
    }
    for (number, groups) in [(1, vec![1, 9]), (2, vec![4]), (3, vec![])] {
        let mut rule = add(0, 5, to(number), groups.into_iter().map(Action::Group).collect());
        rule.flags.send_flow_removed = true;
        tables.flow_mod(rule, 0).expect("added");
    }
    (change.command, change.group) = (GroupCommand::Delete, GroupMod::ALL);
    tables.group_mod(change, 0).expect("deleted");
    let reasons: Vec<_> = tables.take_removals().iter().map(|removal| removal.reason).collect();
    assert_eq!(reasons, [RemovalReason::GroupDelete; 2]);
    assert_eq!(flows(&tables, 0).len(), 1);
}

#[test]
fn deleting_a_meter_removes_the_rules_that_name_the_meter() {
    let mut tables = bridge(2);
    let change = |command| MeterMod {
        command,
        meter: 4,
        is_in_packets: false,
        has_burst: false,
        has_statistics: true,
        bands: Vec::new(),
    };
    tables.meter_mod(change(MeterCommand::Add), 0).expect("added");
    let mut rule = add(0, 5, to(1), vec![Action::Meter(4), output(1)]);
    rule.flags.send_flow_removed = true;
    tables.flow_mod(rule, 0).expect("added");
    tables.meter_mod(change(MeterCommand::Delete), 0).expect("deleted");
    let reasons: Vec<_> = tables.take_removals().iter().map(|removal| removal.reason).collect();
    assert_eq!(reasons, [RemovalReason::MeterDelete]);
    assert!(flows(&tables, 0).is_empty());
}

#[test]
fn a_removed_rule_no_longer_counts_for_its_group() {
    let mut tables = bridge(2);
    let change = GroupMod {
        command: GroupCommand::Add,
        group: 7,
        kind: GroupType::All,
        buckets: Vec::new(),
        bucket: GroupMod::EVERY,
        selection: Default::default(),
    };
    tables.group_mod(change, 0).expect("added");
    let references = |tables: &Tables| tables.group_statistics(7, 0)[0].references;
    let to_group = |number, group| add(0, 5, to(number), vec![Action::Group(group)]);
    for number in 1..=4 {
        let hard_timeout = u16::from(number == 4);
        let change = FlowMod { hard_timeout, ..to_group(number, 7) };
        tables.flow_mod(change, 0).expect("added");
    }
    assert_eq!(references(&tables), 4);
    tables.flow_mod(add(0, 5, to(1), vec![output(1)]), 0).expect("replaced");
    assert_eq!(references(&tables), 3);
    let strictly = |command, number| FlowMod {
        table: Some(0),
        priority: 5,
        matching: to(number),
        ..FlowMod::new(command)
    };
    tables.flow_mod(strictly(FlowCommand::ModifyStrict, 2), 0).expect("modified");
    assert_eq!(references(&tables), 2);
    tables.flow_mod(strictly(FlowCommand::DeleteStrict, 3), 0).expect("deleted");
    assert_eq!(references(&tables), 1);
    assert_eq!(tables.expire(1001).len(), 1);
    assert_eq!(references(&tables), 0);
    let refused = tables.change_all(vec![to_group(1, 7), to_group(2, 8)], 0);
    assert_eq!((refused, references(&tables)), (Err((1, Refusal::BadOutGroup)), 0));
}

#[test]
fn check_overlap_refuses_an_overlapping_rule() {
    let mut tables = bridge(2);
    tables.flow_mod(add(0, 5, to(1), vec![]), 0).expect("added");
    let mut overlapping = add(0, 5, matching(&[(Field::InPort, 1)]), vec![]);
    overlapping.flags.check_overlap = true;
    assert_eq!(tables.flow_mod(overlapping.clone(), 0), Err(Refusal::Overlap));
    overlapping.priority = 6;
    tables.flow_mod(overlapping, 0).expect("no overlap at another priority");
}

#[test]
fn a_modification_without_a_matching_rule_adds_a_rule_unless_the_modification_filters_by_cookie() {
    let mut tables = bridge(2);
    let mut change = add(0, 5, to(1), vec![output(1)]);
    change.command = FlowCommand::Modify;
    change.cookie_filter = CookieFilter { value: 1, mask: u64::MAX };
    tables.flow_mod(change.clone(), 0).expect("nothing to do");
    assert!(flows(&tables, 0).is_empty());
    change.cookie_filter = CookieFilter::default();
    tables.flow_mod(change.clone(), 0).expect("OpenFlow 1.2 and later add nothing");
    assert!(flows(&tables, 0).is_empty());
    change.cookie = Some(3);
    tables.flow_mod(change.clone(), 0).expect("added");
    assert_eq!(flows(&tables, 0).len(), 1);
    (change.cookie, change.keeps_cookie) = (Some(4), true);
    tables.flow_mod(change, 0).expect("modified");
    assert_eq!(flows(&tables, 0)[0].cookie, 3);
    let mut wider = FlowMod::new(FlowCommand::Modify);
    wider.actions = vec![output(2)];
    tables.flow_mod(wider, 0).expect("modified");
    assert_eq!(flows(&tables, 0)[0].actions, [output(2)]);
}

#[test]
fn deletions_filter_by_port_and_cookie() {
    let mut tables = bridge(2);
    for number in 0..4_u32 {
        let mut change = add(number as u8, 5, to(number), vec![output(number % 2 + 1)]);
        change.cookie = Some(number.into());
        change.flags.send_flow_removed = true;
        tables.flow_mod(change, 0).expect("added");
    }
    let mut by_port = FlowMod::new(FlowCommand::Delete);
    by_port.out_port = PortNumber(2);
    tables.flow_mod(by_port, 500).expect("deleted");
    let removed = tables.take_removals();
    assert_eq!(removed.len(), 2);
    assert!(removed.iter().all(|removal| removal.reason == RemovalReason::Delete));
    let mut by_cookie = FlowMod::new(FlowCommand::Delete);
    by_cookie.cookie_filter = CookieFilter { value: 2, mask: 2 };
    tables.flow_mod(by_cookie, 500).expect("deleted");
    assert_eq!(flows(&tables, 500).len(), 1);
    let mut strict = FlowMod::new(FlowCommand::DeleteStrict);
    (strict.matching, strict.priority) = (to(0), 4);
    tables.flow_mod(strict.clone(), 500).expect("no such rule");
    assert_eq!(flows(&tables, 500).len(), 1);
    strict.priority = 5;
    tables.flow_mod(strict, 500).expect("deleted");
    assert!(flows(&tables, 500).is_empty());
}

fn learn_into(table: u8, cookie: u64) -> Action {
    Action::Learn(Box::new(Learn {
        table,
        cookie,
        priority: 5,
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        limit: 0,
        result: None,
        send_flow_removed: false,
        delete_learned: true,
        specs: Vec::new(),
    }))
}

#[test]
fn deleting_the_last_learn_action_removes_its_learned_rules() {
    let mut tables = bridge(2);
    let cookies = |tables: &Tables| {
        let mut cookies: Vec<_> = flows(tables, 0).iter().map(|flow| flow.cookie).collect();
        cookies.sort_unstable();
        cookies
    };
    let with_cookie = |cookie, mut change: FlowMod| {
        change.cookie = Some(cookie);
        change
    };
    for number in 1..3_u32 {
        let change = add(0, 5, to(number), vec![learn_into(1, 0x10)]);
        tables.flow_mod(change, 0).expect("added");
    }
    // The test has a learned rule with a learn action, the rule that this action adds, and rules
    // with another table or another cookie.
    let learned = with_cookie(0x10, add(1, 5, to(1), vec![learn_into(2, 0x20)]));
    tables.flow_mod(learned, 0).expect("added");
    for (table, cookie) in [(2, 0x20), (1, 0x11), (3, 0x10)] {
        let other = with_cookie(cookie, add(table, 5, to(9), vec![]));
        tables.flow_mod(other, 0).expect("added");
    }
    let strictly = |command, number: u32, actions: Vec<Action>| {
        let mut change = FlowMod::new(command);
        (change.table, change.priority) = (Some(0), 5);
        (change.matching, change.actions) = (to(number), actions);
        change
    };
    tables.flow_mod(strictly(FlowCommand::DeleteStrict, 1, vec![]), 0).expect("deleted");
    assert_eq!(cookies(&tables), [0, 0x10, 0x10, 0x11, 0x20], "one learn action is left");
    let same = vec![output(1), learn_into(1, 0x10)];
    tables.flow_mod(strictly(FlowCommand::ModifyStrict, 2, same), 0).expect("modified");
    assert_eq!(cookies(&tables), [0, 0x10, 0x10, 0x11, 0x20], "it adds the same");
    let other = vec![learn_into(1, 0x77)];
    tables.flow_mod(strictly(FlowCommand::ModifyStrict, 2, other), 0).expect("modified");
    assert_eq!(cookies(&tables), [0, 0x10, 0x11], "the pupil's pupil went too");
}

#[test]
fn each_rule_change_is_recorded_once_for_monitors() {
    let mut tables = bridge(2);
    tables.is_watched = true;
    tables.flow_mod(add(0, 5, to(1), vec![output(1)]), 0).expect("added");
    tables.flow_mod(add(0, 5, to(1), vec![output(2)]), 0).expect("replaced");
    let mut modify = FlowMod::new(FlowCommand::Modify);
    modify.actions = vec![output(1)];
    tables.flow_mod(modify.clone(), 0).expect("modified");
    tables.flow_mod(modify, 0).expect("nothing differs");
    tables.flow_mod(FlowMod::new(FlowCommand::Delete), 0).expect("deleted");
    let events: Vec<_> = tables.take_events().into_iter().map(|recorded| recorded.event).collect();
    let [first, replaced, modified, deleted] = events.as_slice() else { panic!("{events:?}") };
    assert!(matches!(first, RuleEvent::Added { former, .. } if former.is_empty()), "{first:?}");
    assert!(
        matches!(replaced, RuleEvent::Added { flow, former }
            if flow.actions == [output(2)] && *former == [output(1)] && flow.added < flow.changed),
        "{replaced:?}"
    );
    assert!(
        matches!(modified, RuleEvent::Modified { flow, former }
            if flow.actions == [output(1)] && *former == [output(2)]),
        "{modified:?}"
    );
    assert!(matches!(deleted, RuleEvent::Deleted { .. }), "{deleted:?}");
}

#[test]
fn a_change_by_a_packet_is_not_marked_as_requested() {
    let mut tables = bridge(2);
    tables.is_watched = true;
    let learn = add(0, 5, to(1), vec![learn_into(1, 0x10)]);
    tables.requested(|tables| tables.flow_mod(learn, 0)).expect("added");
    translate(&tables, &udp(2, 9, 1));
    let events = tables.take_events();
    let requested: Vec<_> = events.iter().map(|recorded| recorded.is_requested).collect();
    assert_eq!(requested, [true, false]);
    assert!(matches!(&events[1].event, RuleEvent::Added { flow, .. } if flow.cookie == 0x10));
}

#[test]
fn change_all_makes_all_rule_changes_or_none() {
    let mut tables = bridge(2);
    for number in 0..10_u32 {
        tables.flow_mod(add(0, 5, to(number), vec![output(1)]), 0).expect("added");
    }
    let before = flows(&tables, 0);
    let mut changes = vec![
        FlowMod::new(FlowCommand::Delete),
        add(0, 5, to(3), vec![output(2)]),
        add(0, 7, to(3), vec![output(2)]),
    ];
    let mut modify = FlowMod::new(FlowCommand::Modify);
    modify.actions = vec![output(2)];
    changes.push(modify);
    let mut failing = changes.clone();
    failing.push(add(254, 7, to(3), vec![]));
    assert_eq!(tables.change_all(failing, 0), Err((4, Refusal::BadTable)));
    let metered = add(0, 1, matching(&[]), vec![Action::Meter(77)]);
    assert_eq!(tables.flow_mod(metered, 0), Err(Refusal::BadMeter));
    let sorted = |mut flows: Vec<FlowEntry>| {
        flows.sort_by_key(|flow| flow.matching.value.words);
        flows
    };
    assert_eq!(sorted(flows(&tables, 0)), sorted(before));
    assert!(tables.take_removals().is_empty());
    tables.change_all(changes, 0).expect("all valid");
    assert_eq!(flows(&tables, 0).len(), 2);
}

fn group(command: GroupCommand, group: u32) -> Change {
    let bucket = Bucket {
        id: 0,
        weight: 1,
        watch_port: PortNumber::NONE,
        watch_group: FlowMod::ANY_GROUP,
        actions: vec![output(1)],
    };
    let buckets = if command == GroupCommand::Delete { Vec::new() } else { vec![bucket] };
    Change::Group(GroupMod {
        command,
        group,
        kind: GroupType::All,
        buckets,
        bucket: GroupMod::EVERY,
        selection: None,
    })
}

#[test]
fn a_bundle_commits_all_rules_groups_and_packet_outs_or_none() {
    let mut tables = bridge(2);
    let packet_out = |actions| PacketOut {
        frame: vec![0; 60],
        in_port: PortNumber(1),
        metadata: Key::ZERO,
        actions,
    };
    let to_group = |group| Change::Flow(add(0, 5, to(group), vec![Action::Group(group)]));
    let mut changes = vec![
        group(GroupCommand::Add, 7),
        to_group(7),
        Change::PacketOut(packet_out(vec![Action::Group(7)])),
        group(GroupCommand::Delete, 7),
    ];
    let mut seen = Vec::new();
    let mut see = |tables: &Tables, _: &PacketOut| {
        seen.push((flows(tables, 0).len(), tables.groups(GroupMod::ALL).len()));
    };
    tables.commit(&changes, 0, &mut see).expect("all valid");
    assert!(flows(&tables, 0).is_empty() && tables.groups(GroupMod::ALL).is_empty());
    changes.insert(3, Change::PacketOut(packet_out(vec![Action::Group(8)])));
    let refused = tables.commit(&changes, 0, &mut |_, _| ());
    assert_eq!(refused, Err((3, Refusal::BadOutGroup)));
    assert!(flows(&tables, 0).is_empty() && tables.groups(GroupMod::ALL).is_empty());
    // A refusal restores a deleted group and the rule that names this group.
    tables.commit(&changes[..2], 0, &mut |_, _| ()).expect("all valid");
    let refused = tables.commit(&[changes[4].clone(), to_group(9)], 0, &mut |_, _| ());
    assert_eq!(refused, Err((1, Refusal::BadOutGroup)));
    assert_eq!((flows(&tables, 0).len(), tables.groups(GroupMod::ALL).len()), (1, 1));
    // The packet-out passed through the rule and the group that earlier changes had added.
    assert_eq!(seen, [(1, 1)]);
}

#[test]
fn a_bucket_may_name_a_group_that_is_added_later() {
    let mut tables = bridge(2);
    let leading = |number, to| {
        let Change::Group(mut change) = group(GroupCommand::Add, number) else { unreachable!() };
        change.buckets[0].actions = vec![Action::Group(to)];
        change
    };
    tables.group_mod(leading(7, 8), 0).expect("group 8 may come later");
    tables.flow_mod(add(0, 5, to(1), vec![Action::Group(7)]), 0).expect("added");
    assert_eq!(outputs(&translate(&tables, &udp(2, 9, 1))), [] as [u16; 0]);
    assert_eq!(tables.group_mod(leading(8, 7), 0), Err(Refusal::GroupLoop));
    let Change::Group(last) = group(GroupCommand::Add, 8) else { unreachable!() };
    tables.group_mod(last, 0).expect("added");
    assert_eq!(outputs(&translate(&tables, &udp(2, 9, 1))), [1]);
}

#[test]
fn output_actions_accept_every_unreserved_port_number() {
    let mut tables = bridge(2);
    for port in [0, 1, 0xfeff] {
        tables.flow_mod(add(0, 5, to(1), vec![output(port)]), 0).expect("added");
    }
    let reserved = Action::Output { port: PortNumber(0xff00), max_len: 0 };
    let refused = tables.flow_mod(add(0, 5, to(1), vec![reserved]), 0);
    assert_eq!(refused, Err(Refusal::BadOutPort));
}

#[test]
fn rules_expire_at_their_idle_and_hard_timeouts() {
    let mut tables = bridge(2);
    let mut idle = add(0, 5, to(1), vec![output(1)]);
    idle.idle_timeout = 10;
    let mut hard = add(0, 5, to(2), vec![output(1)]);
    (hard.idle_timeout, hard.hard_timeout) = (30, 15);
    tables.flow_mod(idle, 0).expect("added");
    tables.flow_mod(hard, 0).expect("added");
    translate(&tables, &udp(2, 9, 1)).counters[0].add(1, 60, 8_000);
    assert!(tables.expire(10_001).is_empty());
    // A rule expires only when more time than its timeout has passed.
    assert!(tables.expire(15_000).is_empty());
    let removed = tables.expire(15_001);
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].reason, RemovalReason::HardTimeout);
    assert!(tables.expire(18_000).is_empty());
    let removed = tables.expire(18_001);
    assert_eq!(removed[0].reason, RemovalReason::IdleTimeout);
    assert_eq!(outputs(&translate(&tables, &udp(2, 9, 1))), [] as [u16; 0]);
    assert_eq!(tables.next_expiry_ms(), None);
}

#[test]
fn many_rules_of_one_mask_can_be_added_and_deleted() {
    let mut tables = bridge(2);
    let changes: Vec<_> =
        (0..262_144_u32).map(|number| add(0, 10, to(number), vec![output(1)])).collect();
    let start = Instant::now();
    tables.change_all(changes, 0).expect("all valid");
    println!("262,144 rules took {} ms", start.elapsed().as_millis());
    assert_eq!(tables.tables()[0].active, 262_144);
    assert_eq!(outputs(&translate(&tables, &udp(2, 9, 77_777))), [1]);
    let start = Instant::now();
    tables.flow_mod(FlowMod::new(FlowCommand::Delete), 0).expect("deleted");
    println!("their deletion took {} ms", start.elapsed().as_millis());
    assert_eq!(tables.tables()[0].active, 0);
}
