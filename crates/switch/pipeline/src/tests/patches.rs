//! Translations that continue, through patch ports, in other bridges.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flow::action::{Action, Ct, Subfield};
use flow::port_number::PortNumber;
use flow::request::{MeterCommand, MeterMod, PortDescription};
use flow::step::{Counters, MeterId, PortIndex, Step, Translate, Translation};
use flow::{Field, Key};

use super::packets::{add, matching, output, outputs, udp};
use crate::{BridgePort, Neighbor, Patch, Tables, Translator};

/// The number of the patch port in each bridge.
const PATCH: u32 = 9;

/// Builds two bridges with one port each (1 and 2), connected by patch ports.
fn pair() -> [Tables; 2] {
    let mut pair = [Tables::at(0), Tables::at(1)];
    let cable: [Arc<Counters>; 4] = Default::default();
    for (place, tables) in pair.iter_mut().enumerate() {
        for (number, index) in
            [(place as u32 + 1, PortIndex(place as u16 + 1)), (PATCH, PortIndex::NONE)]
        {
            tables.insert_port(BridgePort {
                index,
                description: PortDescription {
                    number: PortNumber(number),
                    hardware_address: [2, 0, 0, 0, place as u8, number as u8],
                    name: format!("p{number}"),
                    config: 0,
                    state: 0,
                    current_speed_kbit: 0,
                    max_speed_kbit: 0,
                },
            });
        }
        let patch = Patch {
            bridge: 1 - place as u16,
            port: PortNumber(PATCH),
            sent: cable[2 * place].clone(),
            received: cable[2 * place + 1].clone(),
        };
        tables.set_patch(PortNumber(PATCH), Some(patch));
    }
    pair
}

fn rule(tables: &Tables, table: u8, fields: &[(Field, u128)], actions: Vec<Action>) {
    let priority = fields.len() as u16;
    tables.change(&add(table, priority, matching(fields), actions), 0).unwrap();
}

fn translate([first, second]: &[Tables; 2], key: &Key) -> Translation {
    let neighbors = [Neighbor { name: "br1", tables: second }];
    Translator::new(first).with_neighbors(&neighbors).translate(key, &[0; 60], 0)
}

#[test]
fn a_translation_includes_the_bridge_that_a_patch_port_reaches() {
    let mut bridges = pair();
    let meter = MeterMod {
        command: MeterCommand::Add,
        meter: 3,
        is_in_packets: true,
        has_burst: false,
        has_statistics: false,
        bands: Vec::new(),
    };
    bridges[1].meter_mod(meter, 0).unwrap();
    let register = Subfield::whole(Field::Reg0);
    let load = Action::Load { destination: register, value: 7 };
    rule(&bridges[0], 0, &[], vec![load, Action::SetIpTtl(9), output(PATCH), output(1)]);
    let from_patch = (Field::InPort, u128::from(PATCH));
    let actions = vec![Action::SetIpTtl(5), Action::Meter(3), output(2)];
    rule(&bridges[1], 0, &[from_patch, (Field::Reg0, 0), (Field::IpDst, 8)], actions);
    let found = translate(&bridges, &udp(4, 7, 8));
    let Step::Clone(inner) = &found.steps[0] else { panic!("{:?}", found.steps) };
    let [metered, Step::Rewrite(behind), sent] = &inner[..] else { panic!("{inner:?}") };
    assert_eq!(behind.value.read(Field::NwTtl), 5);
    assert_eq!(*metered, Step::Meter(MeterId { bridge: 1, meter: 3 }));
    assert_eq!(*sent, Step::Output(PortIndex(2)));
    // The first bridge continues with the packet as it was before the second bridge's changes.
    let Step::Rewrite(rewrite) = &found.steps[1] else { panic!("{:?}", found.steps) };
    assert_eq!(rewrite.value.read(Field::NwTtl), 9);
    assert_eq!(found.steps[2], Step::Output(PortIndex(1)));
    assert_ne!(found.mask.read(Field::IpDst), 0, "the rule behind the port matches the address");
    // Two rules and both patch ports count the packet.
    assert_eq!(found.counters.len(), 4);
}

#[test]
fn tracked_packets_continue_in_the_bridge_that_tracked_them() {
    let bridges = pair();
    rule(&bridges[0], 0, &[], vec![output(PATCH)]);
    rule(&bridges[1], 0, &[], vec![Action::Ct(Box::new(Ct { table: Some(1), ..Ct::default() }))]);
    rule(&bridges[1], 1, &[(Field::InPort, PATCH.into())], vec![output(2)]);
    let mut key = udp(1, 7, 8);
    let found = translate(&bridges, &key);
    let Some(Step::Recirculate(id)) = found.steps.last() else { panic!("{:?}", found.steps) };
    key.write(Field::RecircId, (*id).into());
    assert_eq!(outputs(&translate(&bridges, &key)), [2]);
}

#[test]
fn a_loop_of_patch_ports_ends_at_the_depth_limit_and_keeps_other_outputs() {
    let bridges = pair();
    rule(&bridges[0], 0, &[], vec![output(PATCH), output(1)]);
    // The rule needs `IN_PORT`, because a plain output never sends to the port from which the
    // packet came.
    let back = Action::Output { port: PortNumber::IN_PORT, max_len: 0 };
    rule(&bridges[1], 0, &[], vec![output(2), back]);
    let mut key = udp(5, 7, 8);
    assert_eq!(outputs(&translate(&bridges, &key)), [2, 1, 1]);
    key.write(Field::InPort, PATCH.into());
    // The first bridge's rule also sends packets back.
    let back = Action::Output { port: PortNumber::IN_PORT, max_len: 0 };
    rule(&bridges[0], 0, &[(Field::InPort, PATCH.into())], vec![output(1), back]);
    let found = outputs(&translate(&bridges, &udp(5, 7, 8)));
    assert!((32..=70).contains(&found.len()), "{found:?}");
    assert_eq!(found.last(), Some(&1));
}

#[test]
fn a_length_check_in_a_patched_bridge_keeps_the_action_set() {
    let bridges = pair();
    rule(&bridges[0], 0, &[], vec![output(PATCH), output(1)]);
    let destination = Subfield { field: Field::Reg0, start: 0, width: 1 };
    let check = Action::CheckPacketLarger { destination, length: 100 };
    rule(&bridges[1], 0, &[], vec![check, Action::WriteActions(vec![output(2)])]);
    let found = translate(&bridges, &udp(5, 7, 8));
    let [Step::CheckLength(check), Step::Output(PortIndex(1))] = &found.steps[..] else {
        panic!("{:?}", found.steps)
    };
    for branch in check.branches() {
        assert_eq!(branch.steps[..], [Step::Output(PortIndex(2))]);
    }
}

#[test]
fn a_change_of_a_patched_bridge_outdates_translations_of_the_first_bridge() {
    let [first, mut second] = pair();
    second.set_followers(vec![first.generation_source()]);
    let before = first.generation();
    rule(&second, 0, &[], vec![output(2)]);
    assert_ne!(first.generation(), before);
    assert_eq!(first.generation_source().load(Ordering::Acquire), first.generation());
}
