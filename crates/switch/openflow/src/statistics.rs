use flow::port_number::PortNumber;
use flow::request::{Aggregate, Bridge, GroupMod, Refusal};

use super::Version;
use super::flow_statistics::{decode_filter, decode_nicira_filter, decode_v10_filter};
use super::group::encode_group_features;
use super::message::{Message, NICIRA, ONF};
use super::meter::encode_meter_features;
use super::monitor::Monitors;
use super::multipart::{Multipart, Part};
use super::octets::{Put, Reader};
use super::parts::Parts;
use super::port::{decode_port_request, port_numbers};
use super::queue::decode_queue_request;
use super::reply::{Entries, Form, Reply};
use super::table_features::decode_table_names;

/// Answers a request for statistics or a description. For a reply that may be long, returns the
/// begun reply.
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
        // A request with the features of all tables needs several messages.
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
        let numbers = numbers(entries, version, body, bridge)?;
        return Ok(Some(Reply::of_numbers(version, header.xid, part, entries, numbers)));
    }
    let mut entry = Vec::new();
    match part {
        Part::Standard(DESCRIPTION) => encode_description(&bridge.description(), &mut entry),
        Part::Standard(GROUP_FEATURES) if version >= Version::V12 => {
            encode_group_features(version, &mut entry);
        }
        Part::Experimenter(NICIRA, 9) if version == Version::V10 => {
            encode_group_features(version, &mut entry);
        }
        Part::Standard(METER_FEATURES) if version >= Version::V13 => {
            encode_meter_features(&mut entry);
        }
        Part::Standard(_) | Part::Experimenter(NICIRA, _) => return Err(Refusal::BadStatistics),
        Part::Experimenter(..) => return Err(Refusal::BadExperimenter),
    }
    let mut reply = Multipart::new(version, header.xid, part, out);
    reply.entry(|out| out.extend_from_slice(&entry));
    reply.finish();
    Ok(None)
}

/// Returns the type of entries in the reply to a request about numbered objects.
fn entries(part: Part, version: Version) -> Option<Entries> {
    let is_v10 = version == Version::V10;
    Some(match part {
        Part::Standard(TABLES) => Entries::TableStatistics,
        Part::Standard(PORTS) => Entries::PortStatistics,
        Part::Standard(QUEUES) => Entries::QueueStatistics,
        Part::Standard(GROUPS) if !is_v10 => Entries::GroupStatistics,
        Part::Standard(GROUP_DESCRIPTIONS) if !is_v10 => Entries::Groups,
        Part::Standard(METERS) if version >= Version::V13 => Entries::MeterStatistics,
        Part::Standard(METER_DESCRIPTIONS) if version >= Version::V13 => Entries::Meters,
        Part::Standard(TABLE_FEATURES) if version >= Version::V13 => Entries::TableFeatures,
        Part::Standard(PORT_DESCRIPTIONS) => Entries::Ports,
        Part::Standard(TABLE_DESCRIPTIONS) if version >= Version::V14 => Entries::Tables,
        Part::Standard(QUEUE_DESCRIPTIONS) if version >= Version::V14 => Entries::Queues,
        Part::Experimenter(NICIRA, 7) if is_v10 => Entries::GroupStatistics,
        Part::Experimenter(NICIRA, 8) if is_v10 => Entries::Groups,
        _ => return None,
    })
}

/// Reads from a request the numbers of the objects that the request selects. A request for table
/// features may also rename tables.
fn numbers(
    entries: Entries,
    version: Version,
    mut body: Reader<'_>,
    bridge: &mut dyn Bridge,
) -> Result<Vec<u32>, Refusal> {
    Ok(match entries {
        // Since OpenFlow 1.5, and in Nicira's extension, a request may select one group.
        Entries::Groups if (Version::V11..=Version::V14).contains(&version) => {
            bridge.group_numbers(GroupMod::ALL)
        }
        Entries::Groups | Entries::GroupStatistics => bridge.group_numbers(body.u32()?),
        Entries::Meters | Entries::MeterStatistics => bridge.meter_numbers(body.u32()?)?,
        Entries::Ports => {
            // Since OpenFlow 1.5, a request may select one port.
            let wanted = match version {
                Version::V15 => PortNumber(body.u32()?),
                _ => PortNumber::NONE,
            };
            match wanted {
                PortNumber::NONE => port_numbers(wanted, bridge).unwrap_or_default(),
                wanted => vec![wanted.0],
            }
        }
        Entries::PortStatistics => {
            let wanted = decode_port_request(body, version)?;
            port_numbers(wanted, bridge).ok_or(Refusal::BadPort)?
        }
        Entries::Queues | Entries::QueueStatistics => decode_queue_request(body, version, bridge)?,
        Entries::Tables | Entries::TableFeatures | Entries::TableStatistics => {
            if entries == Entries::TableFeatures {
                for (table, name) in decode_table_names(body)? {
                    bridge.name_table(table, &name)?;
                }
            }
            bridge.table_numbers().into_iter().map(u32::from).collect()
        }
    })
}

/// Whether a request also changes the bridge: a table-features request that renames tables changes
/// the bridge.
pub(super) fn is_change(message: &Message<'_>) -> bool {
    let mut body = message.body();
    message.header.version >= Version::V13
        && body.u16() == Ok(TABLE_FEATURES)
        && body.skip(6).is_ok()
        && !body.is_empty()
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
