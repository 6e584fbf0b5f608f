//! The rules of the reference report: an ARP responder, NAT, and rules by destination.

use flow::action::{Action, Ct, Nat, NatAddresses, NatDirection, Subfield};
use flow::port_number::PortNumber;
use flow::step::{PortIndex, Step, Track};
use flow::{Field, Key};

use super::packets::{add, bridge, key, matching, output, translate, udp};
use crate::Tables;

const GATEWAY: u128 = 0x02ac_10ff_0101;
const SERVER: u128 = 0xde75_cce1_c685;

fn forward() -> Vec<Action> {
    vec![
        Action::SetEthSrc([0x02, 0xac, 0x10, 0xff, 0x01, 0x01]),
        Action::SetEthDst([0xde, 0x75, 0xcc, 0xe1, 0xc6, 0x85]),
        output(2),
    ]
}

fn nat() -> Nat {
    let address = "48.128.0.10".parse().expect("an address");
    Nat {
        direction: Some(NatDirection::Source),
        addresses: Some(NatAddresses::V4(address..=address)),
        ..Nat::default()
    }
}

fn base() -> Tables {
    let mut tables = bridge(3);
    let whole = Subfield::whole;
    let copy = |from, to| Action::Move { source: whole(from), destination: whole(to) };
    let load = |to, value| Action::Load { destination: whole(to), value };
    let request = [
        (Field::EthType, 0x0806),
        (Field::InPort, 1),
        (Field::ArpOp, 1),
        (Field::ArpTpa, 0xc0a8_0a01),
    ];
    let responder = vec![
        copy(Field::EthSrc, Field::EthDst),
        Action::SetEthSrc([0x02, 0xac, 0x10, 0xff, 0x01, 0x01]),
        load(Field::ArpOp, 2),
        copy(Field::ArpSha, Field::ArpTha),
        load(Field::ArpSha, GATEWAY),
        copy(Field::ArpSpa, Field::ArpTpa),
        load(Field::ArpSpa, 0xc0a8_0a01),
        Action::Output { port: PortNumber::IN_PORT, max_len: 0 },
    ];
    tables.flow_mod(add(0, 0x8000, matching(&request), responder), 0).expect("added");
    let mut to_servers = matching(&[(Field::EthType, 0x0800), (Field::InPort, 1)]);
    to_servers.set_masked(Field::IpDst, 48 << 24, 0xff00_0000);
    let ct = Ct { commit: true, table: Some(1), nat: Some(nat()), ..Ct::default() };
    tables.flow_mod(add(0, 10, to_servers, vec![Action::Ct(Box::new(ct))]), 0).expect("added");
    let mut translated = matching(&[(Field::EthType, 0x0800), (Field::IpSrc, 0x3080_000a)]);
    translated.set_masked(Field::IpDst, 48 << 24, 0xff00_0000);
    tables.flow_mod(add(1, 0x8000, translated, forward()), 0).expect("added");
    tables
}

#[test]
fn the_arp_responder_answers_on_the_port_of_the_request() {
    let tables = base();
    let request = key(&[
        (Field::InPort, 1),
        (Field::EthSrc, 0xaa),
        (Field::EthDst, 0xffff_ffff_ffff),
        (Field::EthType, 0x0806),
        (Field::ArpOp, 1),
        (Field::ArpSha, 0xaa),
        (Field::ArpSpa, 0xc0a8_0a02),
        (Field::ArpTpa, 0xc0a8_0a01),
    ]);
    let translation = translate(&tables, &request);
    let [Step::Rewrite(rewrite), Step::Output(PortIndex(1))] = &*translation.steps else {
        panic!("{:?}", translation.steps);
    };
    let expected = [
        (Field::EthSrc, GATEWAY),
        (Field::EthDst, 0xaa),
        (Field::ArpOp, 2),
        (Field::ArpSha, GATEWAY),
        (Field::ArpTha, 0xaa),
        (Field::ArpSpa, 0xc0a8_0a01),
        (Field::ArpTpa, 0xc0a8_0a02),
    ];
    assert_eq!(rewrite.value, key(&expected));
    // The ARP reply does not depend on fields that the rule overwrites without reading them.
    assert_eq!(translation.mask.read(Field::EthDst), 0);
    assert_eq!(translation.mask.read(Field::ArpTha), 0);
    assert_eq!(translation.mask.read(Field::ArpSpa), u128::from(u32::MAX));
}

#[test]
fn a_nat_rule_tracks_then_continues_in_the_next_table() {
    let tables = base();
    let packet = udp(1, 0x1000_0001, 0x3000_0003);
    let first = translate(&tables, &packet);
    let [Step::Track(track), Step::Recirculate(id)] = &*first.steps else {
        panic!("{:?}", first.steps);
    };
    assert_eq!(**track, Track { commit: true, nat: Some(nat()), ..Track::default() });
    let mask = key(&[
        (Field::RecircId, u128::MAX),
        (Field::InPort, u128::MAX),
        (Field::EthType, u128::MAX),
        (Field::IpFrag, u128::MAX),
        (Field::IpDst, 0xff00_0000),
    ]);
    assert_eq!(without_metadata(&first.mask), without_metadata(&mask));
    let mut tracked = udp(1, 0x3080_000a, 0x3000_0003);
    tracked.write(Field::RecircId, (*id).into());
    tracked.write(Field::CtState, 0x21);
    let second = translate(&tables, &tracked);
    let [Step::Rewrite(rewrite), Step::Output(PortIndex(2))] = &*second.steps else {
        panic!("{:?}", second.steps);
    };
    assert_eq!(rewrite.value, key(&[(Field::EthSrc, GATEWAY), (Field::EthDst, SERVER)]));
    assert_eq!(second.mask.read(Field::EthSrc), 0);
    assert_eq!(second.mask.read(Field::IpSrc), u128::from(u32::MAX));
    assert_eq!(second.mask.read(Field::IpDst), 0xff00_0000);
    assert_eq!(second.mask.read(Field::CtState), 0);
    assert_eq!(second.mask.read(Field::UdpSrc), 0);
}

#[test]
fn rules_with_the_same_ct_action_share_a_recirculation_id() {
    let mut tables = bridge(2);
    for number in 0..256_u32 {
        let ct = Ct { commit: true, table: Some(1), nat: Some(nat()), ..Ct::default() };
        let to = matching(&[(Field::EthType, 0x0800), (Field::IpDst, number.into())]);
        tables.flow_mod(add(0, 10, to, vec![Action::Ct(Box::new(ct))]), 0).expect("added");
    }
    let last = |number| translate(&tables, &udp(1, 9, number)).steps.last().cloned();
    let first = last(0);
    assert!(matches!(first, Some(Step::Recirculate(_))));
    assert!((1..256).all(|number| last(number) == first));
}

fn without_metadata(mask: &Key) -> Key {
    let mut mask = mask.clone();
    for word in &mut mask.words[1..flow::word::CT] {
        *word = 0;
    }
    mask
}
