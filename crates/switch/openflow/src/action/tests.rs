use flow::action::{
    Action, Bundle, Controller, Ct, CtZone, HashFields, Learn, LearnDestination, LearnSource,
    LearnSpec, Multipath, MultipathAlgorithm, Nat, NatAddresses, NatDirection, Sample,
    SampleDirection, Subfield,
};
use flow::port_number::PortNumber;
use flow::{Field, Match};
use proptest::prelude::*;

use super::super::Version;
use super::{decode_actions, decode_instructions, encode_actions, encode_instructions};

fn port() -> impl Strategy<Value = PortNumber> {
    prop_oneof![
        (1..0xff00_u32).prop_map(PortNumber),
        Just(PortNumber::NORMAL),
        Just(PortNumber::LOCAL),
        Just(PortNumber::IN_PORT),
    ]
}

fn subfield() -> impl Strategy<Value = Subfield> {
    let fields: Vec<Field> = Field::ALL
        .iter()
        .copied()
        .filter(|field| field.is_writable() && field.place().width <= 64)
        .filter(|field| field.nxm().or(field.oxm()).is_some())
        .collect();
    (prop::sample::select(fields), any::<u8>(), any::<u8>()).prop_map(|(field, start, width)| {
        let start = start % field.place().width;
        Subfield { field, start, width: 1 + width % (field.place().width - start) }
    })
}

fn load() -> impl Strategy<Value = Action> {
    (subfield(), any::<u128>()).prop_map(|(destination, value)| Action::Load {
        destination,
        value: value & (u128::MAX >> (128 - u32::from(destination.width))),
    })
}

fn nat() -> impl Strategy<Value = Nat> {
    let direction = prop_oneof![Just(NatDirection::Source), Just(NatDirection::Destination)];
    let v4 = (any::<u32>(), any::<u32>())
        .prop_map(|(a, b)| NatAddresses::V4(a.min(b).into()..=a.max(b).into()));
    let v6 = (any::<u128>(), any::<u128>())
        .prop_map(|(a, b)| NatAddresses::V6(a.min(b).into()..=a.max(b).into()));
    let ports = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| a.min(b)..=a.max(b));
    let addresses = prop::option::of(prop_oneof![v4, v6]);
    let whole = (direction, addresses, prop::option::of(ports), any::<bool>(), 0..3_u8);
    let whole = whole.prop_map(|(direction, addresses, ports, persistent, kind)| Nat {
        direction: Some(direction),
        addresses,
        ports,
        persistent,
        hash: kind == 1,
        random: kind == 2,
    });
    prop_oneof![Just(Nat::default()), whole]
}

fn track() -> impl Strategy<Value = Action> {
    let zone = prop_oneof![
        any::<u16>().prop_map(CtZone::Number),
        Just(CtZone::From(Subfield { field: Field::Reg0, start: 0, width: 16 })),
    ];
    let table = prop::option::of(0..0xff_u8);
    let mark = any::<u32>().prop_map(|mark| Action::Load {
        destination: Subfield::whole(Field::CtMark),
        value: mark.into(),
    });
    (any::<bool>(), zone, table, prop::option::of(nat()), prop::option::of(mark)).prop_map(
        |(force, zone, table, nat, mark)| {
            let exec = Vec::from_iter(mark);
            Action::Ct(Box::new(Ct { commit: true, force, zone, table, nat, exec, alg: 21 }))
        },
    )
}

fn learn() -> impl Strategy<Value = Action> {
    let spec = (subfield(), any::<u128>(), 0..3_u8).prop_map(|(part, value, kind)| LearnSpec {
        width: part.width,
        source: match kind {
            0 => LearnSource::Value(value & (u128::MAX >> (128 - u32::from(part.width)))),
            _ => LearnSource::Field(part),
        },
        destination: match kind {
            0 => LearnDestination::Match(part),
            1 => LearnDestination::Load(part),
            _ => LearnDestination::Output,
        },
    });
    let result = prop::option::of(Just(Subfield { field: Field::Reg1, start: 3, width: 1 }));
    let specs = prop::collection::vec(spec, 0..5);
    (any::<[u16; 5]>(), any::<u64>(), any::<[bool; 2]>(), 0..0xff_u8, any::<u32>(), result, specs)
        .prop_map(|(numbers, cookie, flags, table, limit, result, specs)| {
            Action::Learn(Box::new(Learn {
                idle_timeout: numbers[0],
                hard_timeout: numbers[1],
                fin_idle_timeout: numbers[2],
                fin_hard_timeout: numbers[3],
                priority: numbers[4],
                cookie,
                send_flow_removed: flags[0],
                delete_learned: flags[1],
                table,
                limit,
                result,
                specs,
            }))
        })
}

fn nicira() -> impl Strategy<Value = Action> {
    let multipath = (any::<[u16; 2]>(), any::<u32>()).prop_map(|([basis, max_link], argument)| {
        Action::Multipath(Box::new(Multipath {
            fields: HashFields::SymmetricL3L4,
            basis,
            algorithm: MultipathAlgorithm::IterativeHash,
            max_link,
            argument,
            destination: Subfield::whole(Field::Reg3),
        }))
    });
    let members = prop::collection::vec(port(), 0..5);
    let bundle = (any::<bool>(), any::<u16>(), prop::option::of(subfield()), members).prop_map(
        |(highest_random_weight, basis, destination, members)| {
            Action::Bundle(Box::new(Bundle {
                highest_random_weight,
                fields: HashFields::NwSrc,
                basis,
                destination,
                members,
            }))
        },
    );
    let sample = (1..=u16::MAX, any::<[u32; 3]>(), prop::option::of(port())).prop_map(
        |(probability, numbers, sampling_port)| {
            Action::Sample(Box::new(Sample {
                probability,
                collector_set: numbers[0],
                observation_domain: numbers[1],
                observation_point: numbers[2],
                sampling_port,
                direction: SampleDirection::Egress,
            }))
        },
    );
    let controller = (any::<[u16; 2]>(), any::<u8>(), any::<bool>(), any::<Option<u32>>());
    let userdata = prop::collection::vec(any::<u8>(), 0..20);
    let controller =
        (controller, userdata).prop_map(|(([max_len, id], reason, pause, meter), userdata)| {
            let controller = Controller { max_len, id, reason, userdata, pause, meter };
            Action::Controller(Box::new(controller))
        });
    let resubmit = (prop::option::of(1..0xff00_u32), 0..0xff_u8, any::<bool>()).prop_map(
        |(port, table, with_ct)| Action::Resubmit {
            port: port.map(PortNumber),
            table: Some(table),
            with_ct,
        },
    );
    prop_oneof![
        load(),
        track(),
        learn(),
        multipath,
        bundle,
        sample,
        controller,
        resubmit,
        subfield().prop_map(Action::StackPush),
        subfield().prop_map(Action::StackPop),
        subfield().prop_map(|source| Action::OutputRegister { source, max_len: 9 }),
        (port(), 14..u32::MAX)
            .prop_map(|(port, max_len)| Action::OutputTruncated { port, max_len }),
        (any::<u32>(), 0..2_u8).prop_map(|(id, clause)| Action::Conjunction {
            id,
            clause,
            clauses: 2
        }),
        any::<[u16; 2]>().prop_map(|[idle, hard]| Action::FinTimeout { idle, hard }),
        Just(Action::Exit),
        Just(Action::CtClear),
        Just(Action::DebugRecirculate),
        Just(Action::DebugSlow),
        Just(Action::PopQueue),
        any::<[u8; 14]>().prop_map(|note| Action::Note(note.to_vec())),
    ]
}

fn any_action() -> impl Strategy<Value = Action> {
    let plain = prop_oneof![
        (port(), any::<u16>()).prop_map(|(port, max_len)| Action::Output { port, max_len }),
        any::<u16>().prop_map(|max_len| Action::Output { port: PortNumber::CONTROLLER, max_len }),
        any::<u32>().prop_map(Action::SetQueue),
        (0..0xff00_u32).prop_map(Action::Group),
        any::<u8>().prop_map(Action::SetMplsTtl),
        Just(Action::DecMplsTtl),
        Just(Action::DecTtl(vec![0])),
        Just(Action::DecTtl(vec![1, 2, 3])),
        Just(Action::PushMpls(0x8847)),
        any::<u16>().prop_map(Action::PopMpls),
    ];
    let flat = prop_oneof![plain, nicira()];
    prop_oneof![4 => flat.clone(), 1 => prop::collection::vec(flat, 0..3).prop_map(Action::Clone)]
}

#[test]
fn an_output_action_keeps_its_max_len_for_any_port() {
    let versions =
        [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];
    let ports = [PortNumber(1), PortNumber::NORMAL, PortNumber::IN_PORT, PortNumber::CONTROLLER];
    for (version, port) in versions.iter().flat_map(|version| ports.map(|port| (*version, port))) {
        for max_len in [0, 1, 128, 0xffe5, 0xffff] {
            let output = Action::Output { port, max_len };
            let sent = [output.clone(), Action::Clone(vec![output])];
            let mut bytes = Vec::new();
            encode_actions(&sent, version, &Match::any(), &mut bytes);
            assert_eq!(decode_actions(&bytes, version).as_deref(), Ok(&sent[..]), "{version:?}");
        }
    }
}

#[test]
fn set_field_is_encoded_as_each_version_defines() {
    let sets = Action::SetField { field: Field::NwEcn, value: 2, mask: 3 };
    let mut bytes = Vec::new();
    encode_actions(&[sets], Version::V11, &Match::any(), &mut bytes);
    assert_eq!(decode_actions(&bytes, Version::V11), Ok(vec![Action::SetIpEcn(2)]));
}

/// The action is `move:ONFOXM_ET_ACTSET_OUTPUT[]->OXM_OF_PKT_REG0[0..31]`, as ovs-ofctl sends it in
/// OpenFlow 1.3.
#[test]
fn actions_accept_oxm_headers_of_experimenters() {
    let mut bytes = vec![0xff, 0xff, 0, 32, 0, 0, 0x23, 0x20, 0, 6, 0, 32, 0, 0, 0, 0];
    bytes.extend([0xff, 0xff, 0x56, 0x08, 0x4f, 0x4e, 0x46, 0]);
    bytes.extend([0x80, 1, 0, 8]);
    bytes.extend([0; 4]);
    let part = |field| Subfield { field, start: 0, width: 32 };
    let moves = Action::Move { source: part(Field::ActsetOutput), destination: part(Field::Xreg0) };
    assert_eq!(decode_actions(&bytes, Version::V13), Ok(vec![moves]));
    bytes[23] = 1;
    assert!(decode_actions(&bytes, Version::V13).is_err());
}

proptest! {
    #[test]
    fn decoding_reverses_the_encoding_of_actions(actions in prop::collection::vec(any_action(), 0..6)) {
        for version in [Version::V10, Version::V13, Version::V14] {
            let mut bytes = Vec::new();
            encode_actions(&actions, version, &Match::any(), &mut bytes);
            prop_assert_eq!(bytes.len() % 8, 0);
            prop_assert_eq!(decode_actions(&bytes, version), Ok(actions.clone()));
        }
    }

    #[test]
    fn actions_truncated_at_any_byte_are_refused(action in any_action()) {
        for version in Version::ALL {
            let mut bytes = Vec::new();
            encode_actions(std::slice::from_ref(&action), version, &Match::any(), &mut bytes);
            for end in 1..bytes.len() {
                // OpenFlow 1.5 encodes some actions as two actions; a cut between the two leaves a
                // valid first action.
                let cut = decode_actions(&bytes[..end], version);
                prop_assert!(cut.is_err() || end % 8 == 0);
            }
        }
    }

    #[test]
    fn encoded_actions_with_changed_bytes_decode_without_a_panic(
        actions in prop::collection::vec(any_action(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        for version in Version::ALL {
            let mut bytes = Vec::new();
            encode_actions(&actions, version, &Match::any(), &mut bytes);
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            let _ = decode_actions(&bytes, version);
            let _ = decode_instructions(&bytes, version);
        }
    }

    #[test]
    fn decoding_reverses_the_encoding_of_instructions(
        applied in prop::collection::vec(any_action(), 0..3),
        written in prop::collection::vec(any_action(), 0..3),
        (value, mask, table) in (any::<u64>(), any::<u64>(), any::<u8>()),
    ) {
        let mut actions = vec![Action::Meter(7)];
        actions.extend(applied);
        actions.extend([
            Action::ClearActions,
            Action::WriteActions(written),
            Action::WriteMetadata { value, mask },
            Action::GotoTable(table),
        ]);
        let mut bytes = Vec::new();
        encode_instructions(&actions, Version::V13, &Match::any(), &mut bytes);
        prop_assert_eq!(decode_instructions(&bytes, Version::V13), Ok(actions));
    }

    #[test]
    fn decoding_arbitrary_action_bytes_causes_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        super::super::decode_any(&bytes);
    }
}
