use flow::Field;
use flow::action::{
    Action, Bundle, Controller, HashFields, Multipath, MultipathAlgorithm, Sample, SampleDirection,
    Subfield,
};
use flow::port_number::PortNumber;

use super::super::octets::Put;
use super::encode::Encoder;
use super::learn::encode_learn;
use super::nicira_decode::IN_PORT_MEMBERS;
use super::track::encode_track;
use super::{begin_nicira, finish, put_header, span};

/// Writes an action in Nicira's encoding.
pub(super) fn encode_nicira(action: &Action, encoder: &mut Encoder, out: &mut Vec<u8>) {
    match action {
        Action::OutputRegister { source, max_len } => nicira(15, out, |out| {
            out.put_u16(span(*source));
            put_header(*source, out);
            out.put_u16(*max_len);
        }),
        Action::OutputTruncated { port, max_len } => nicira(39, out, |out| {
            put_port(*port, out);
            out.put_u32(*max_len);
        }),
        Action::Controller(controller) => encode_controller(controller, out),
        Action::Load { destination, value } => load(*destination, *value, out),
        Action::Move { source, destination } => nicira(6, out, |out| {
            out.put_u16(source.width.into());
            out.put_u16(source.start.into());
            out.put_u16(destination.start.into());
            put_header(*source, out);
            put_header(*destination, out);
        }),
        Action::StackPush(part) => stack(27, *part, out),
        Action::StackPop(part) => stack(28, *part, out),
        Action::DecTtl(ids) => nicira(21, out, |out| {
            out.put_u16(ids.len() as u16);
            out.put_zeros(4);
            for id in ids {
                out.put_u16(*id);
            }
        }),
        Action::SetTunnel(id) => match u32::try_from(*id) {
            Ok(id) => nicira(2, out, |out| {
                out.put_zeros(2);
                out.put_u32(id);
            }),
            Err(_) => nicira(9, out, |out| {
                out.put_zeros(6);
                out.put_u64(*id);
            }),
        },
        Action::Resubmit { port: Some(port), table: None, with_ct: false } => {
            nicira(1, out, |out| put_port(*port, out));
        }
        Action::Resubmit { port, table, with_ct } => {
            resubmit(*port, table.unwrap_or(0xff), *with_ct, out);
        }
        Action::GotoTable(table) => resubmit(None, *table, false, out),
        Action::Learn(learn) => encode_learn(learn, out),
        Action::Conjunction { id, clause, clauses } => nicira(34, out, |out| {
            out.put_u8(*clause);
            out.put_u8(*clauses);
            out.put_u32(*id);
        }),
        Action::Multipath(multipath) => encode_multipath(multipath, out),
        Action::Bundle(bundle) => encode_bundle(bundle, out),
        Action::Note(note) => nicira(8, out, |out| out.extend_from_slice(note)),
        Action::Sample(sample) => encode_sample(sample, out),
        Action::Ct(track) => encode_track(track, encoder, out),
        Action::CheckPacketLarger { destination, length } => nicira(49, out, |out| {
            out.put_u16(*length);
            out.put_u16(destination.start.into());
            put_header(*destination, out);
            out.put_zeros(6);
        }),
        Action::Clone(actions) => nicira(42, out, |out| {
            out.put_zeros(6);
            encoder.clone().encode_all(actions, out);
        }),
        Action::WriteMetadata { value, mask } => nicira(22, out, |out| {
            out.put_zeros(6);
            out.put_u64(*value);
            out.put_u64(*mask);
        }),
        // `Encoder::encode` has written the action, or the version cannot express it.
        _ => {}
    }
}

/// Writes a masked value as several loads: a load for each run of ones in the mask, the lowest run
/// first.
pub(super) fn encode_register_load(field: Field, value: u128, mask: u128, out: &mut Vec<u8>) {
    let mut mask = mask & field.place().all_ones();
    while mask != 0 {
        let start = mask.trailing_zeros();
        let width = (mask >> start).trailing_ones().min(64);
        let ones = u128::MAX >> (128 - width);
        let part = Subfield { field, start: start as u8, width: width as u8 };
        load(part, value >> start & ones, out);
        mask &= !(ones << start);
    }
}

pub(super) fn number_of_fields(fields: HashFields) -> u16 {
    match fields {
        HashFields::EthSrc => 0,
        HashFields::Symmetric | HashFields::SymmetricL4 => 1,
        HashFields::SymmetricL3L4 => 2,
        HashFields::SymmetricL3L4Udp => 3,
        HashFields::NwSrc => 4,
        HashFields::NwDst => 5,
        HashFields::SymmetricL3 => 6,
    }
}

pub(super) fn nicira(subtype: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = begin_nicira(subtype, out);
    body(out);
    finish(start, out);
}

fn put_port(port: PortNumber, out: &mut Vec<u8>) {
    out.put_u16(port.to_16_bits().unwrap_or(0xffff));
}

fn load(part: Subfield, value: u128, out: &mut Vec<u8>) {
    if part.width > 64 {
        let ones = u128::MAX >> (128 - u32::from(part.width.min(128)));
        let shifted = (value & ones) << part.start;
        return encode_register_load(part.field, shifted, ones << part.start, out);
    }
    nicira(7, out, |out| {
        out.put_u16(span(part));
        put_header(part, out);
        out.put_u64(value as u64);
    });
}

fn stack(subtype: u16, part: Subfield, out: &mut Vec<u8>) {
    nicira(subtype, out, |out| {
        out.put_u16(part.start.into());
        put_header(part, out);
        out.put_u16(part.width.into());
        out.put_zeros(6);
    });
}

fn resubmit(port: Option<PortNumber>, table: u8, with_ct: bool, out: &mut Vec<u8>) {
    nicira(if with_ct { 44 } else { 14 }, out, |out| {
        put_port(port.unwrap_or(PortNumber::IN_PORT), out);
        out.put_u8(table);
        out.put_zeros(3);
    });
}

fn encode_controller(controller: &Controller, out: &mut Vec<u8>) {
    let is_short = controller.userdata.is_empty() && !controller.pause;
    if is_short && controller.meter.is_none() {
        return nicira(20, out, |out| {
            out.put_u16(controller.max_len);
            out.put_u16(controller.id);
            out.put_u8(controller.reason);
            out.put_u8(0);
        });
    }
    nicira(37, out, |out| {
        out.put_zeros(6);
        if controller.max_len != u16::MAX {
            property(0, &controller.max_len.to_be_bytes(), out);
        }
        if controller.id != 0 {
            property(1, &controller.id.to_be_bytes(), out);
        }
        if controller.reason != 1 {
            property(2, &[controller.reason], out);
        }
        if !controller.userdata.is_empty() {
            property(3, &controller.userdata, out);
        }
        if controller.pause {
            property(4, &[], out);
        }
        if let Some(meter) = controller.meter {
            property(5, &meter.to_be_bytes(), out);
        }
    });
}

fn property(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(value.len() as u16 + 4);
    out.extend_from_slice(value);
    out.pad_to_8(start);
}

fn encode_multipath(multipath: &Multipath, out: &mut Vec<u8>) {
    nicira(10, out, |out| {
        out.put_u16(number_of_fields(multipath.fields));
        out.put_u16(multipath.basis);
        out.put_zeros(2);
        out.put_u16(match multipath.algorithm {
            MultipathAlgorithm::ModuloN => 0,
            MultipathAlgorithm::HashThreshold => 1,
            MultipathAlgorithm::HighestRandomWeight => 2,
            MultipathAlgorithm::IterativeHash => 3,
        });
        out.put_u16(multipath.max_link);
        out.put_u32(multipath.argument);
        out.put_zeros(2);
        out.put_u16(span(multipath.destination));
        put_header(multipath.destination, out);
    });
}

fn encode_bundle(bundle: &Bundle, out: &mut Vec<u8>) {
    nicira(if bundle.destination.is_some() { 13 } else { 12 }, out, |out| {
        out.put_u16(bundle.highest_random_weight.into());
        out.put_u16(number_of_fields(bundle.fields));
        out.put_u16(bundle.basis);
        out.put_u32(IN_PORT_MEMBERS);
        out.put_u16(bundle.members.len() as u16);
        match bundle.destination {
            Some(part) => {
                out.put_u16(span(part));
                put_header(part, out);
            }
            None => out.put_zeros(6),
        }
        out.put_zeros(4);
        for member in &bundle.members {
            put_port(*member, out);
        }
    });
}

fn encode_sample(sample: &Sample, out: &mut Vec<u8>) {
    let has_direction = sample.direction != SampleDirection::Default;
    let subtype = match sample.sampling_port {
        _ if has_direction => 41,
        Some(_) => 38,
        None => 29,
    };
    nicira(subtype, out, |out| {
        out.put_u16(sample.probability);
        out.put_u32(sample.collector_set);
        out.put_u32(sample.observation_domain);
        out.put_u32(sample.observation_point);
        if subtype != 29 {
            put_port(sample.sampling_port.unwrap_or(PortNumber::NONE), out);
            out.put_u8(match sample.direction {
                SampleDirection::Default => 0,
                SampleDirection::Ingress => 1,
                SampleDirection::Egress => 2,
            });
            out.put_zeros(5);
        }
    });
}
