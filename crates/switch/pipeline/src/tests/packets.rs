//! Packets, rules and bridges for the tests.

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::{FlowCommand, FlowMod, PortDescription};
use flow::step::{PortIndex, Step, Translate, Translation};
use flow::{Field, Key, Match};

use crate::{BridgePort, Tables, Translator};

/// Builds a bridge with ports 1 to `ports`. The index of a port is its number.
pub(super) fn bridge(ports: u16) -> Tables {
    let mut tables = Tables::new();
    for number in 1..=ports {
        tables.insert_port(BridgePort {
            index: PortIndex(number),
            description: PortDescription {
                number: PortNumber(number.into()),
                hardware_address: [2, 0, 0, 0, 0, number as u8],
                name: format!("p{number}"),
                config: 0,
                state: 0,
                current_speed_kbit: 0,
                max_speed_kbit: 0,
            },
        });
    }
    tables
}

pub(super) fn key(fields: &[(Field, u128)]) -> Key {
    let mut key = Key::ZERO;
    for (field, value) in fields {
        key.write(*field, *value);
    }
    key
}

/// Builds the key of a UDP packet.
pub(super) fn udp(in_port: u32, source: u32, destination: u32) -> Key {
    key(&[
        (Field::InPort, in_port.into()),
        (Field::EthSrc, 0x0200_0000_000a),
        (Field::EthDst, 0x0200_0000_000b),
        (Field::EthType, 0x0800),
        (Field::IpSrc, source.into()),
        (Field::IpDst, destination.into()),
        (Field::NwProto, 17),
        (Field::NwTtl, 64),
        (Field::UdpSrc, 1025),
        (Field::UdpDst, 53),
    ])
}

pub(super) fn matching(fields: &[(Field, u128)]) -> Match {
    let mut matching = Match::any();
    for (field, value) in fields {
        matching.set(*field, *value);
    }
    matching
}

pub(super) fn add(table: u8, priority: u16, matching: Match, actions: Vec<Action>) -> FlowMod {
    let mut change = FlowMod::new(FlowCommand::Add);
    (change.table, change.priority) = (Some(table), priority);
    (change.matching, change.actions) = (matching, actions);
    change
}

pub(super) fn output(port: u32) -> Action {
    Action::Output { port: PortNumber(port), max_len: 0 }
}

pub(super) fn translate(tables: &Tables, key: &Key) -> Translation {
    Translator::new(tables).translate(key, &[0; 60], 0)
}

pub(super) fn outputs(translation: &Translation) -> Vec<u16> {
    let port = |step: &Step| match step {
        Step::Output(port) => Some(port.0),
        _ => None,
    };
    translation.steps.iter().filter_map(port).collect()
}
