//! Monitors of rules: updates of a request in one message, and pauses.

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::{Bridge as _, FlowCommand, FlowEntry};
use openflow::{FlowChange, FlowRemovedReason, FlowUpdate, Kind, Session};
use text::{PortNames, parse_flow};

use super::bridge::Bridge;

/// OpenFlow 1.4's flags of a monitor.
const INITIAL: u16 = 1;
const CHANGES: u16 = 0x0e;
const WHOLE: u16 = 1 << 5;
const ONLY_OWN: u16 = 1 << 6;
/// The events of OpenFlow 1.4's updates.
const STARTED: u16 = 0;
const ADDED: u16 = 1;
const REMOVED: u16 = 2;
const MODIFIED: u16 = 3;
const ABBREVIATED: u16 = 4;
const PAUSED: u16 = 5;
const RESUMED: u16 = 6;

/// Opens a session of OpenFlow 1.4 with a monitor of rules that output to a port. Also returns the
/// events of the reply.
fn monitor(bridge: &mut Bridge, flags: u16, port: u32) -> (Session, Vec<Vec<u16>>) {
    monitor_of(bridge, &monitor_request(7, flags, port))
}

fn monitor_of(bridge: &mut Bridge, request: &[u8]) -> (Session, Vec<Vec<u16>>) {
    let mut session = Session::new(Kind::Service);
    let mut bytes = vec![5, 0, 0, 8, 0, 0, 0, 1];
    bytes.extend(request);
    let mut out = Vec::new();
    session.receive(&bytes, bridge, &mut out).unwrap();
    (session, events(&out))
}

/// Builds OpenFlow 1.4's request for a monitor of rules that output to a port.
fn monitor_request(id: u32, flags: u16, port: u32) -> Vec<u8> {
    let mut bytes = vec![5, 18, 0, 40, 0, 0, 0, 2, 0, 16, 0, 0, 0, 0, 0, 0];
    bytes.extend(id.to_be_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.extend(u32::MAX.to_be_bytes());
    bytes.extend(flags.to_be_bytes());
    bytes.extend([0xff, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
    bytes
}

/// Returns the events in each message of the reply.
fn events(mut bytes: &[u8]) -> Vec<Vec<u16>> {
    let number = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (message, behind) = bytes.split_at(number(bytes, 2).into());
        assert_eq!((message[1], number(message, 8)), (19, 16), "no reply to a monitor");
        let mut entries = &message[16..];
        let mut events = Vec::new();
        while !entries.is_empty() {
            events.push(number(entries, 2));
            entries = &entries[usize::from(number(entries, 0))..];
        }
        messages.push(events);
        bytes = behind;
    }
    messages
}

fn add(bridge: &mut Bridge, rule: &str) -> FlowEntry {
    let change = parse_flow(rule, FlowCommand::Add, &PortNames::none()).unwrap();
    bridge.flow_mod(change).unwrap();
    bridge.flows.last().unwrap().clone()
}

fn write(session: &mut Session, updates: &[FlowUpdate<'_>], own: Option<u32>) -> Vec<Vec<u16>> {
    let mut out = Vec::new();
    session.flows_changed(updates, own, &mut out);
    events(&out)
}

fn update(change: FlowChange, flow: &FlowEntry) -> FlowUpdate<'_> {
    FlowUpdate { change, flow, former: &[] }
}

const GONE: FlowChange = FlowChange::Deleted(FlowRemovedReason::Delete);

#[test]
fn the_changes_of_a_request_are_in_one_monitor_message() {
    let mut bridge = Bridge::default();
    let first = add(&mut bridge, "in_port=1 actions=2");
    let second = add(&mut bridge, "in_port=2 actions=1");
    let (mut session, reply) = monitor(&mut bridge, INITIAL | CHANGES, u32::MAX);
    assert_eq!(reply, [[STARTED, STARTED]]);
    let updates = [update(FlowChange::Modified, &first), update(GONE, &second)];
    assert_eq!(write(&mut session, &updates, None), [[MODIFIED, REMOVED]]);
    // The report about the peer's own request has only the request's number, once.
    assert_eq!(write(&mut session, &updates, Some(9)), [[ABBREVIATED]]);
    let (mut session, _) = monitor(&mut bridge, CHANGES | WHOLE, u32::MAX);
    assert_eq!(write(&mut session, &updates, Some(9)), [[MODIFIED, REMOVED]]);
    // ovs-ofctl also sets this flag, and still wants the changes of all peers.
    let (mut session, reply) = monitor(&mut bridge, CHANGES | ONLY_OWN, u32::MAX);
    assert_eq!(reply, [[] as [u16; 0]]);
    assert_eq!(write(&mut session, &updates, None), [[MODIFIED, REMOVED]]);
    assert_eq!(write(&mut session, &updates, Some(9)), [[MODIFIED, REMOVED]]);
}

/// Builds a request for monitors in Nicira's extension, for an OpenFlow version.
fn nicira_monitor(version: u8, ids: &[u8]) -> Vec<u8> {
    let [high, low] = (24 + 16 * ids.len() as u16).to_be_bytes();
    let mut bytes = vec![version, 18, high, low, 0, 0, 0, 2, 0xff, 0xff];
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x23, 0x20, 0, 0, 0, 2]);
    for id in ids {
        bytes.extend([0, 0, 0, *id, 0, 0x3f, 0xff, 0xff, 0, 0, 0xff, 0, 0, 0, 0, 0]);
    }
    bytes
}

#[test]
fn monitors_of_openflow_1_1_and_1_2_have_the_actions_of_their_version() {
    for version in [2, 3] {
        let mut bridge = Bridge::default();
        add(&mut bridge, "in_port=1 actions=2");
        let mut session = Session::new(Kind::Service);
        let mut out = Vec::new();
        session.receive(&[version, 0, 0, 8, 0, 0, 0, 1], &mut bridge, &mut out).unwrap();
        session.receive(&nicira_monitor(version, &[1]), &mut bridge, &mut out).unwrap();
        // The output action has a port of 32 bits and a length.
        let output = [0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(out[out.len() - 16..], output, "version {version}");
    }
}

#[test]
fn a_rule_that_several_monitors_select_is_sent_once() {
    let mut bridge = Bridge::default();
    for port in 1..=10 {
        add(&mut bridge, &format!("in_port={port} actions=2"));
    }
    let mut session = Session::new(Kind::Service);
    let mut out = Vec::new();
    session.receive(&[3, 0, 0, 8, 0, 0, 0, 1], &mut bridge, &mut out).unwrap();
    session.receive(&nicira_monitor(3, &[1, 2, 3, 4]), &mut bridge, &mut out).unwrap();
    let length = |at: usize| usize::from(u16::from_be_bytes([out[at], out[at + 1]]));
    let (mut at, mut count) = (24, 0);
    while at < length(2) {
        at += length(at);
        count += 1;
    }
    assert_eq!(count, 10);
}

/// The switch compares each rule with each monitor, so the number of monitors must be bounded.
#[test]
fn the_number_of_monitors_is_limited_and_a_refused_message_begins_no_monitor() {
    let mut bridge = Bridge::default();
    let mut session = Session::new(Kind::Service);
    let mut out = Vec::new();
    session.receive(&[3, 0, 0, 8, 0, 0, 0, 1], &mut bridge, &mut out).unwrap();
    let ids: Vec<u8> = (1..=65).collect();
    for (ids, begins) in [(&ids[..], false), (&[1, 1], false), (&ids[..64], true)] {
        out.clear();
        session.receive(&nicira_monitor(3, ids), &mut bridge, &mut out).unwrap();
        assert_eq!((out[1] == 1, session.is_monitoring()), (!begins, begins));
    }
}

#[test]
fn reusing_a_monitor_id_or_cancelling_an_unknown_monitor_is_refused() {
    let mut bridge = Bridge::default();
    let nicira: [(u8, &[u8]); 2] = [
        (2, &[0xb0, 0xc2, 0, 0, 0, 0, 0x23, 0x20, 0, 1, 2, 5]),
        (3, &[0xff, 0xff, 0, 6, 0, 0, 0x23, 0x20]),
    ];
    for (version, code) in nicira {
        let (mut session, mut out) = (Session::new(Kind::Service), Vec::new());
        session.receive(&[version, 0, 0, 8, 0, 0, 0, 1], &mut bridge, &mut out).unwrap();
        out.clear();
        session.receive(&nicira_monitor(version, &[1, 1]), &mut bridge, &mut out).unwrap();
        assert_eq!((out[1], &out[8..8 + code.len()]), (1, code));
    }
    let (mut session, _) = monitor(&mut bridge, CHANGES, u32::MAX);
    let mut end = monitor_request(9, CHANGES, u32::MAX);
    end[31] = 2;
    for (request, code) in [(monitor_request(7, CHANGES, u32::MAX), 1), (end, 3)] {
        let mut out = Vec::new();
        session.receive(&request, &mut bridge, &mut out).unwrap();
        assert_eq!((out[1], &out[8..12]), (1, &[0, 16, 0, code][..]));
    }
}

#[test]
fn a_message_with_an_invalid_table_begins_no_monitor() {
    let mut bridge = Bridge::default();
    let mut session = Session::new(Kind::Service);
    let mut out = Vec::new();
    session.receive(&[5, 0, 0, 8, 0, 0, 0, 1], &mut bridge, &mut out).unwrap();
    let mut request = monitor_request(7, CHANGES, u32::MAX);
    request[30] = 254;
    session.receive(&request, &mut bridge, &mut out).unwrap();
    assert_eq!((out[1], session.is_monitoring()), (1, false));
}

/// A packet may add a rule right after the first reply has listed the rules.
#[test]
fn changes_are_recorded_before_a_monitor_lists_rules() {
    let mut bridge = Bridge::default();
    add(&mut bridge, "in_port=1 actions=2");
    let (session, reply) = monitor(&mut bridge, INITIAL | CHANGES, u32::MAX);
    assert_eq!(reply, [[STARTED]]);
    assert!(session.is_monitoring() && !bridge.has_listed_unwatched.get());
}

#[test]
fn a_monitor_of_a_port_gets_rules_that_stop_outputting_to_the_port() {
    let mut bridge = Bridge::default();
    let flow = add(&mut bridge, "in_port=1 actions=1");
    let (mut session, _) = monitor(&mut bridge, CHANGES, 2);
    let other = FlowUpdate { change: FlowChange::Modified, flow: &flow, former: &[] };
    assert!(write(&mut session, &[other], None).is_empty());
    let former = [Action::Output { port: PortNumber(2), max_len: 0 }];
    let left = FlowUpdate { former: &former, ..other };
    assert_eq!(write(&mut session, &[left], None), [[MODIFIED]]);
}

#[test]
fn a_monitor_of_a_group_gets_only_rules_that_now_have_the_group() {
    let mut bridge = Bridge::default();
    let flow = add(&mut bridge, "in_port=1 actions=group:1");
    let mut request = monitor_request(7, CHANGES, u32::MAX);
    request[24..28].copy_from_slice(&1_u32.to_be_bytes());
    let (mut session, _) = monitor_of(&mut bridge, &request);
    let joined =
        FlowUpdate { change: FlowChange::Modified, flow: &flow, former: &[Action::Group(2)] };
    assert_eq!(write(&mut session, &[joined], None), [[MODIFIED]]);
    let other = add(&mut bridge, "in_port=2 actions=group:2");
    let left = FlowUpdate { flow: &other, former: &[Action::Group(1)], ..joined };
    assert!(write(&mut session, &[left], None).is_empty());
}

#[test]
fn a_paused_monitor_gets_removals_of_known_rules_and_other_changes_later() {
    let mut bridge = Bridge::default();
    let gone = add(&mut bridge, "in_port=1 actions=2");
    let changed = add(&mut bridge, "in_port=2 actions=1");
    add(&mut bridge, "in_port=3 actions=1");
    let (mut session, _) = monitor(&mut bridge, CHANGES, u32::MAX);
    let mut out = Vec::new();
    session.pause_monitors(&mut out);
    assert_eq!(events(&out), [[PAUSED]]);
    assert!(session.has_paused_monitors());
    let new = add(&mut bridge, "in_port=4 actions=1");
    let brief = add(&mut bridge, "in_port=5 actions=1");
    for flow in [&new, &brief] {
        assert!(write(&mut session, &[update(FlowChange::Added, flow)], None).is_empty());
    }
    // The peer does not know the rule that was added and removed during the pause.
    bridge.flows.retain(|flow| flow.matching != brief.matching && flow.matching != gone.matching);
    assert!(write(&mut session, &[update(GONE, &brief)], None).is_empty());
    assert_eq!(write(&mut session, &[update(GONE, &gone)], Some(3)), [[REMOVED]]);
    let mut change = parse_flow("in_port=2 actions=3", FlowCommand::Modify, &PortNames::none());
    change.as_mut().unwrap().table = Some(0);
    bridge.flow_mod(change.unwrap()).unwrap();
    assert!(write(&mut session, &[update(FlowChange::Modified, &changed)], None).is_empty());
    out.clear();
    session.resume_monitors(&bridge, &mut out);
    assert_eq!(events(&out), [vec![ADDED, MODIFIED], vec![RESUMED]]);
    assert!(!session.has_paused_monitors());
}

/// Opens a session whose new monitor selects more rules than fit in one piece of a reply. Also
/// returns the first piece and the rules.
fn begin_monitor(bridge: &mut Bridge) -> (Session, Vec<u8>, Vec<FlowEntry>) {
    let flows = (0..300).map(|vlan| add(bridge, &format!("dl_vlan={vlan} actions=1"))).collect();
    let (mut session, _) = monitor(bridge, CHANGES, 3);
    let mut out = Vec::new();
    session.begin(&monitor_request(8, INITIAL | CHANGES, u32::MAX), bridge, &mut out).unwrap();
    assert!(session.is_replying() && out.is_empty());
    assert!(session.go_on(bridge, &mut out) < 300);
    assert!(session.is_replying());
    (session, out, flows)
}

fn finish(session: &mut Session, bridge: &Bridge) -> Vec<Vec<u16>> {
    let mut out = Vec::new();
    while session.is_replying() {
        session.go_on(bridge, &mut out);
    }
    events(&out)
}

#[test]
fn a_rule_removed_before_a_reply_reaches_it_is_left_out() {
    let mut bridge = Bridge::default();
    let (mut session, out, flows) = begin_monitor(&mut bridge);
    let told = events(&out).concat().len();
    let (known, unknown) = (&flows[0], &flows[299]);
    bridge.flows.retain(|flow| flow.added != known.added && flow.added != unknown.added);
    assert_eq!(write(&mut session, &[update(GONE, known)], None), [[REMOVED]]);
    // The peer does not know this rule, and ignores its removal.
    assert_eq!(write(&mut session, &[update(GONE, unknown)], None), [[REMOVED]]);
    assert_eq!(finish(&mut session, &bridge).concat(), vec![STARTED; 300 - told - 1]);
    assert!(!session.has_paused_monitors());
}

#[test]
fn changes_during_a_monitors_first_reply_follow_the_reply() {
    let mut bridge = Bridge::default();
    let (mut session, out, flows) = begin_monitor(&mut bridge);
    let told = events(&out).concat().len();
    // The peer has not yet got the update of a change that preceded the request.
    let former = update(FlowChange::Modified, &flows[299]);
    assert_eq!(write(&mut session, &[former], None), [[MODIFIED]]);
    let new = add(&mut bridge, "in_port=1 actions=2");
    assert_eq!(write(&mut session, &[update(FlowChange::Added, &new)], None), [[PAUSED]]);
    assert_eq!(write(&mut session, &[former], None), [[MODIFIED]]);
    let mut change = parse_flow("dl_vlan=299 actions=3", FlowCommand::Modify, &PortNames::none());
    change.as_mut().unwrap().table = Some(0);
    bridge.flow_mod(change.unwrap()).unwrap();
    let changed = bridge.flows[299].clone();
    assert!(write(&mut session, &[update(FlowChange::Modified, &changed)], None).is_empty());
    assert_eq!(finish(&mut session, &bridge).concat(), vec![STARTED; 300 - told]);
    let mut out = Vec::new();
    session.resume_monitors(&bridge, &mut out);
    assert_eq!(events(&out), [vec![ADDED, MODIFIED], vec![RESUMED]]);
}

#[test]
fn held_back_updates_are_sent_in_pieces_before_the_pause_ends() {
    let mut bridge = Bridge::default();
    let (mut session, _) = monitor(&mut bridge, CHANGES, u32::MAX);
    let mut out = Vec::new();
    session.pause_monitors(&mut out);
    let flows: Vec<_> =
        (0..300).map(|vlan| add(&mut bridge, &format!("dl_vlan={vlan} actions=1"))).collect();
    let updates: Vec<_> = flows.iter().map(|flow| update(FlowChange::Added, flow)).collect();
    assert!(write(&mut session, &updates, None).is_empty());
    out.clear();
    session.resume_monitors(&bridge, &mut out);
    let told = events(&out).concat().len();
    assert!(session.is_replying() && told < 300, "{told} updates in a piece");
    let new = add(&mut bridge, "in_port=1 actions=2");
    assert!(write(&mut session, &[update(FlowChange::Added, &new)], None).is_empty());
    bridge.flows.retain(|flow| flow.added != flows[299].added);
    assert_eq!(write(&mut session, &[update(GONE, &flows[299])], None), [[REMOVED]]);
    assert_eq!(finish(&mut session, &bridge).concat(), vec![ADDED; 300 - told - 1]);
    // The rule that was added meanwhile makes a further resumption necessary.
    assert!(session.has_paused_monitors());
    out.clear();
    session.resume_monitors(&bridge, &mut out);
    assert_eq!(events(&out), [[ADDED], [RESUMED]]);
    assert!(!session.has_paused_monitors());
}

#[test]
fn a_paused_monitor_gets_removals_of_rules_that_a_later_reply_listed() {
    let mut bridge = Bridge::default();
    let (mut session, _) = monitor(&mut bridge, CHANGES, 3);
    let mut out = Vec::new();
    session.pause_monitors(&mut out);
    let flow = add(&mut bridge, "in_port=1 actions=2");
    assert!(write(&mut session, &[update(FlowChange::Added, &flow)], None).is_empty());
    out.clear();
    session
        .receive(&monitor_request(8, INITIAL | CHANGES, u32::MAX), &mut bridge, &mut out)
        .unwrap();
    assert_eq!(events(&out), [[STARTED]]);
    // A further reply without rules must not change which removals the peer gets.
    bridge.flows.clear();
    session
        .receive(&monitor_request(9, INITIAL | CHANGES, u32::MAX), &mut bridge, &mut out)
        .unwrap();
    assert_eq!(write(&mut session, &[update(GONE, &flow)], None), [[REMOVED]]);
}
