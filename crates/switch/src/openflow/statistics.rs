use super::Version;
use super::flow_statistics::{
    decode_filter, decode_nicira_filter, decode_v10_filter, encode_table,
};
use super::group::encode_group_features;
use super::message::{Message, NICIRA, ONF};
use super::meter::encode_meter_features;
use super::monitor::Monitors;
use super::multipart::{Multipart, Part};
use super::octets::{Put, Reader};
use super::parts::Parts;
use super::port::{decode_port_request, encode_port, encode_port_statistics};
use super::queue::{decode_queue_request, encode_queue_description, encode_queue_statistics};
use super::reply::{Entries, Form, Reply};
use super::table_features::{decode_table_names, encode_table_features};
use super::table_mod::encode_table_description;
use crate::port_number::PortNumber;
use crate::request::{Aggregate, Bridge, GroupMod, Refusal};

/// Answers a request for statistics or a description. A reply about rules, groups or meters is only
/// begun: it is returned.
pub(super) fn answer(
    message: &Message<'_>,
    monitors: &mut Monitors,
    parts: &mut Parts,
    bridge: &mut dyn Bridge,
    out: &mut Vec<u8>,
) -> Result<Option<Reply>, Refusal> {
    let Message { header, .. } = *message;
    let version = header.version;
    let mut body = message.body();
    let number = body.u16()?;
    let flags = body.u16()?;
    if version != Version::V10 {
        body.skip(4)?;
    }
    let has_more = flags & 1 != 0;
    let whole;
    if number == TABLE_FEATURES && version >= Version::V13 {
        // Those of all tables do not fit a message.
        match parts.add(header.xid, body.rest(), !has_more)? {
            Some(bytes) => whole = bytes,
            None => return Ok(None),
        }
        body = Reader::new(&whole, Refusal::BadLength);
    } else if has_more {
        return Err(Refusal::BadLength);
    }
    let part = match number {
        0xffff => Part::Experimenter(body.u32()?, body.u32()?),
        number => Part::Standard(number),
    };
    if number == 0xffff && version == Version::V10 {
        body.skip(4)?;
    }
    let is_monitor = match part {
        Part::Standard(16) => version >= Version::V14,
        Part::Experimenter(NICIRA, 2) => version <= Version::V12,
        Part::Experimenter(ONF, 1870) => version == Version::V13,
        _ => false,
    };
    if is_monitor {
        return monitors.request(body, version, header.xid, bridge).map(Some);
    }
    let sum = Form::Sum(Aggregate::default());
    let rules = match part {
        Part::Standard(kind @ (FLOWS | AGGREGATE)) => {
            let filter = match version {
                Version::V10 => decode_v10_filter(body)?,
                _ => decode_filter(body, version)?,
            };
            Some((filter, if kind == FLOWS { Form::Standard } else { sum }))
        }
        Part::Experimenter(NICIRA, kind @ (0 | 1)) if version == Version::V10 => {
            Some((decode_nicira_filter(body)?, if kind == 0 { Form::Nicira } else { sum }))
        }
        _ => None,
    };
    if let Some((filter, form)) = rules {
        let flows = bridge.flows(&filter)?;
        return Ok(Some(Reply::new(version, header.xid, part, flows, form)));
    }
    if let Some(entries) = entries(part, version) {
        let numbers = match entries {
            // OpenFlow 1.5 was the first to describe single groups, as Nicira's extension does.
            Entries::Groups if (Version::V11..=Version::V14).contains(&version) => {
                bridge.group_numbers(GroupMod::ALL)
            }
            Entries::Groups | Entries::GroupStatistics => bridge.group_numbers(body.u32()?),
            Entries::Meters | Entries::MeterStatistics => bridge.meter_numbers(body.u32()?)?,
        };
        return Ok(Some(Reply::of_numbers(version, header.xid, part, entries, numbers)));
    }
    let reply = |out| Multipart::new(version, header.xid, part, out);
    match part {
        Part::Standard(number) => answer_standard(number, version, body, bridge, reply, out),
        Part::Experimenter(NICIRA, 9) if version == Version::V10 => {
            let mut reply = Multipart::new(version, header.xid, part, out);
            reply.entry(|out| encode_group_features(version, out));
            reply.finish();
            Ok(())
        }
        Part::Experimenter(NICIRA, _) => Err(Refusal::BadStatistics),
        Part::Experimenter(..) => Err(Refusal::BadExperimenter),
    }?;
    Ok(None)
}

/// The entries of the reply to a request about groups or meters.
fn entries(part: Part, version: Version) -> Option<Entries> {
    let is_v10 = version == Version::V10;
    Some(match part {
        Part::Standard(GROUPS) if !is_v10 => Entries::GroupStatistics,
        Part::Standard(GROUP_DESCRIPTIONS) if !is_v10 => Entries::Groups,
        Part::Standard(METERS) if version >= Version::V13 => Entries::MeterStatistics,
        Part::Standard(METER_DESCRIPTIONS) if version >= Version::V13 => Entries::Meters,
        Part::Experimenter(NICIRA, 7) if is_v10 => Entries::GroupStatistics,
        Part::Experimenter(NICIRA, 8) if is_v10 => Entries::Groups,
        _ => return None,
    })
}

/// Whether a request also changes the bridge: it gives tables names.
pub(super) fn is_change(message: &Message<'_>) -> bool {
    let mut body = message.body();
    message.header.version >= Version::V13
        && body.u16() == Ok(TABLE_FEATURES)
        && body.skip(6).is_ok()
        && !body.is_empty()
}

fn answer_standard<'a>(
    number: u16,
    version: Version,
    mut body: Reader<'_>,
    bridge: &mut dyn Bridge,
    reply: impl FnOnce(&'a mut Vec<u8>) -> Multipart<'a>,
    out: &'a mut Vec<u8>,
) -> Result<(), Refusal> {
    match number {
        DESCRIPTION => {
            let mut reply = reply(out);
            let description = bridge.description();
            reply.entry(|out| encode_description(&description, out));
            reply.finish();
        }
        TABLES => {
            let mut reply = reply(out);
            for table in &bridge.tables() {
                reply.entry(|out| encode_table(table, version, out));
            }
            reply.finish();
        }
        PORTS => {
            let port = decode_port_request(body, version)?;
            let ports = bridge.port_statistics(port)?;
            let mut reply = reply(out);
            for port in &ports {
                reply.entry(|out| encode_port_statistics(port, version, out));
            }
            reply.finish();
        }
        QUEUES => {
            let ports = decode_queue_request(body, version, bridge)?;
            let mut reply = reply(out);
            for port in &ports {
                reply.entry(|out| encode_queue_statistics(port, version, out));
            }
            reply.finish();
        }
        GROUP_FEATURES if version >= Version::V12 => {
            let mut reply = reply(out);
            reply.entry(|out| encode_group_features(version, out));
            reply.finish();
        }
        METER_FEATURES if version >= Version::V13 => {
            let mut reply = reply(out);
            reply.entry(encode_meter_features);
            reply.finish();
        }
        TABLE_FEATURES if version >= Version::V13 => {
            for (table, name) in decode_table_names(body)? {
                bridge.name_table(table, &name)?;
            }
            let mut reply = reply(out);
            for table in &bridge.tables() {
                reply.entry(|out| encode_table_features(table, version, out));
            }
            reply.finish();
        }
        PORT_DESCRIPTIONS => {
            let wanted = match version {
                Version::V15 => PortNumber(body.u32()?),
                _ => PortNumber::NONE,
            };
            let ports = bridge.ports();
            let mut reply = reply(out);
            for port in &ports {
                if wanted == PortNumber::NONE || port.number == wanted {
                    reply.entry(|out| encode_port(port, version, out));
                }
            }
            reply.finish();
        }
        TABLE_DESCRIPTIONS if version >= Version::V14 => {
            let mut reply = reply(out);
            for table in &bridge.tables() {
                reply.entry(|out| encode_table_description(table, out));
            }
            reply.finish();
        }
        QUEUE_DESCRIPTIONS if version >= Version::V14 => {
            let ports = decode_queue_request(body, version, bridge)?;
            let mut reply = reply(out);
            for port in &ports {
                reply.entry(|out| encode_queue_description(port, out));
            }
            reply.finish();
        }
        _ => return Err(Refusal::BadStatistics),
    }
    Ok(())
}

fn encode_description(description: &str, out: &mut Vec<u8>) {
    out.put_text("Weir", 256);
    out.put_text("Weir switch", 256);
    out.put_text(env!("CARGO_PKG_VERSION"), 256);
    out.put_text("None", 32);
    out.put_text(description, 256);
}

const DESCRIPTION: u16 = 0;
const FLOWS: u16 = 1;
const AGGREGATE: u16 = 2;
const TABLES: u16 = 3;
const PORTS: u16 = 4;
const QUEUES: u16 = 5;
const GROUPS: u16 = 6;
const GROUP_DESCRIPTIONS: u16 = 7;
const GROUP_FEATURES: u16 = 8;
const METERS: u16 = 9;
const METER_DESCRIPTIONS: u16 = 10;
const METER_FEATURES: u16 = 11;
const TABLE_FEATURES: u16 = 12;
const PORT_DESCRIPTIONS: u16 = 13;
const TABLE_DESCRIPTIONS: u16 = 14;
const QUEUE_DESCRIPTIONS: u16 = 15;
