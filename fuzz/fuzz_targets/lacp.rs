//! Passes LACP frames of any content to the members of a bond, in any order and at any time. A
//! second bond receives the LACPDUs that the first bond sends.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use switch::run::lacp::{LENGTH, Lacp, LacpSettings, MemberSettings};

#[derive(Debug, Arbitrary)]
struct Input {
    is_active: bool,
    is_fast: bool,
    falls_back: bool,
    events: Vec<Event>,
}

#[derive(Debug, Arbitrary)]
enum Event {
    /// A frame with these bytes behind its Ethernet header.
    Frame {
        is_second: bool,
        payload: Vec<u8>,
    },
    /// An LACPDU with this information about both ends.
    Lacpdu {
        is_second: bool,
        actor: [u8; 15],
        partner: [u8; 15],
    },
    Carrier {
        is_second: bool,
        has_carrier: bool,
    },
    Wait {
        milliseconds: u16,
    },
}

const NAMES: [&str; 2] = ["p1", "p2"];

fn members(has_carrier: [bool; 2]) -> Vec<MemberSettings> {
    let member = |index: usize| MemberSettings {
        name: NAMES[index].to_owned(),
        port: index as u16 + 1,
        priority: u16::MAX,
        key: 0,
        has_carrier: has_carrier[index],
    };
    vec![member(0), member(1)]
}

fuzz_target!(|input: Input| {
    let settings = |system: u8| LacpSettings {
        is_active: input.is_active,
        is_fast: input.is_fast,
        system: [2, 0, 0, 0, 0, system],
        system_priority: 1,
        falls_back: input.falls_back,
    };
    let (mut bond, mut other) = (Lacp::default(), Lacp::default());
    other.configure(settings(2), members([true; 2]), 0);
    let (mut has_carrier, mut now_ms, mut sent) = ([true; 2], 0, 0);
    for event in &input.events {
        match event {
            Event::Frame { is_second, payload } => {
                bond.receive(NAMES[usize::from(*is_second)], payload, now_ms);
            }
            Event::Lacpdu { is_second, actor, partner } => {
                let mut pdu = [0; LENGTH];
                pdu[..4].copy_from_slice(&[1, 1, 1, 20]);
                pdu[4..19].copy_from_slice(actor);
                pdu[22..24].copy_from_slice(&[2, 20]);
                pdu[24..39].copy_from_slice(partner);
                bond.receive(NAMES[usize::from(*is_second)], &pdu, now_ms);
            }
            Event::Carrier { is_second, has_carrier: now } => {
                has_carrier[usize::from(*is_second)] = *now;
            }
            Event::Wait { milliseconds } => now_ms += u64::from(*milliseconds),
        }
        bond.configure(settings(1), members(has_carrier), now_ms);
        for (name, pdu) in bond.run(now_ms) {
            other.receive(&name, &pdu, now_ms);
            sent += 1;
        }
        other.run(now_ms);
        bond.take_events();
        for name in NAMES {
            // Without a partner, only the fallback lets a member carry traffic.
            assert!(!bond.may_enable(name) || bond.is_current(name) || input.falls_back);
        }
    }
    // Each member sends at most three LACPDUs in a second.
    assert!(sent <= 6 * (now_ms / 1_000 + 1), "{sent} in {now_ms} ms");
    let counts = other.show_statistics("bond0");
    assert_eq!(counts.matches("RX Bad PDUs: 0\n").count(), 2, "{counts}");
    let shown = bond.show("bond0");
    assert!(input.events.is_empty() || NAMES.iter().all(|name| shown.contains(name)), "{shown}");
});
