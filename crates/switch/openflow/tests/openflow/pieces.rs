//! Replies about many groups, meters or tables: the session writes such replies in pieces.

use flow::request::{Bridge as _, GroupCommand, GroupMod, GroupType, MeterCommand, MeterMod};
use openflow::{Kind, Session};

use super::bridge::Bridge;

/// Builds a bridge with groups and meters from 0 to 299.
fn bridge() -> Bridge {
    let mut bridge = Bridge::default();
    for number in 0..300 {
        let group = GroupMod {
            command: GroupCommand::Add,
            group: number,
            kind: GroupType::All,
            buckets: Vec::new(),
            bucket: GroupMod::EVERY,
            selection: Default::default(),
        };
        bridge.group_mod(group).unwrap();
        let meter = MeterMod {
            command: MeterCommand::Add,
            meter: number,
            is_in_packets: false,
            has_burst: false,
            has_statistics: true,
            bands: Vec::new(),
        };
        bridge.meter_mod(meter).unwrap();
    }
    bridge
}

/// Returns the numbers of the entries in a reply. `length` and `number`: the offsets of an entry's
/// length and of its number.
fn numbers(mut bytes: &[u8], length: usize, number: usize) -> Vec<u32> {
    let length_at = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        let (message, behind) = bytes.split_at(length_at(bytes, 2).into());
        assert_eq!(message[11], u8::from(!behind.is_empty()), "the last part says so");
        let mut entries = &message[16..];
        while !entries.is_empty() {
            numbers.push(u32::from_be_bytes(entries[number..number + 4].try_into().unwrap()));
            entries = &entries[usize::from(length_at(entries, length))..];
        }
        bytes = behind;
    }
    numbers
}

#[test]
fn groups_and_meters_are_sent_in_pieces() {
    // The requests ask for statistics and descriptions of all groups, then of all meters.
    let requests = [(6, 0xfc, 0, 4), (7, 0xfc, 0, 4), (9, 0xff, 4, 0), (10, 0xff, 0, 4)];
    for (kind, all, length, number) in requests {
        let mut bridge = bridge();
        let (mut session, mut out) = (Session::new(Kind::Service), Vec::new());
        session.receive(&[4, 0, 0, 8, 0, 0, 0, 1], &mut bridge, &mut out).unwrap();
        out.clear();
        let mut request = vec![4, 18, 0, 24, 0, 0, 0, 2, 0, kind, 0, 0, 0, 0, 0, 0];
        request.extend([0xff, 0xff, 0xff, all, 0, 0, 0, 0]);
        session.begin(&request, &mut bridge, &mut out).unwrap();
        assert!(session.is_replying() && out.is_empty());
        assert!(session.go_on(&bridge, &mut out) < 300);
        assert!(session.is_replying());
        // The reply leaves out objects that are removed before their entries are written.
        bridge.groups.retain(|group| group.group < 299);
        bridge.meters.retain(|meter| meter.meter < 299);
        while session.is_replying() {
            session.go_on(&bridge, &mut out);
        }
        assert!(numbers(&out, length, number).into_iter().eq(0..299), "kind {kind}");
    }
}

#[test]
fn the_features_of_tables_are_sent_in_pieces() {
    let mut bridge = Bridge::default();
    let (mut session, mut out) = (Session::new(Kind::Service), Vec::new());
    session.receive(&[4, 0, 0, 8, 0, 0, 0, 1], &mut bridge, &mut out).unwrap();
    out.clear();
    let request = [4, 18, 0, 16, 0, 0, 0, 2, 0, 12, 0, 0, 0, 0, 0, 0];
    session.begin(&request, &mut bridge, &mut out).unwrap();
    assert!(session.is_replying() && out.is_empty());
    let mut pieces = 0;
    while session.is_replying() {
        let before = out.len();
        session.go_on(&bridge, &mut out);
        assert!(out.len() - before < 128 << 10);
        pieces += 1;
    }
    assert!(pieces > 2, "{pieces} pieces");
    // A table's number has only one byte.
    let tables = numbers(&out, 0, 2).into_iter().map(|number| number >> 24);
    assert!(tables.eq(0..254));
}

#[test]
fn port_statistics_are_sorted_and_leave_out_ports_without_counters() {
    let mut bridge = Bridge::default();
    let (mut session, mut out) = (Session::new(Kind::Service), Vec::new());
    session.receive(&[5, 0, 0, 8, 0, 0, 0, 1], &mut bridge, &mut out).unwrap();
    out.clear();
    // A request for the statistics of all ports.
    let request = [5, 18, 0, 24, 0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let request = [&request[..], &[0; 4][..]].concat();
    session.begin(&request, &mut bridge, &mut out).unwrap();
    assert!(session.is_replying() && out.is_empty());
    session.go_on(&bridge, &mut out);
    assert!(!session.is_replying());
    assert_eq!(numbers(&out, 0, 4), [1, 2]);
}
