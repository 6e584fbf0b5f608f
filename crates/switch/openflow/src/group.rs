use flow::port_number::PortNumber;
use flow::request::{
    Bucket, FlowMod, GroupCommand, GroupEntry, GroupMod, GroupStatistics, GroupType, Refusal,
    Selection,
};
use flow::{Field, Match};

use super::Version;
use super::action::{decode_actions, encode_actions};
use super::flow_statistics::put_duration;
use super::match_entry::{Header, write_entry};
use super::octets::{Put, Reader};

/// Reads a group_mod. OpenFlow 1.3 and 1.4 share one format; OpenFlow 1.5 and Nicira's extension of
/// 1.0 share another format.
pub(super) fn decode_group_mod(
    mut body: Reader<'_>,
    version: Version,
) -> Result<GroupMod, Refusal> {
    let has_long_form = has_long_form(version);
    let command = match body.u16()? {
        0 => GroupCommand::Add,
        1 => GroupCommand::Modify,
        2 => GroupCommand::Delete,
        3 if has_long_form => GroupCommand::InsertBucket,
        5 if has_long_form => GroupCommand::RemoveBucket,
        0x8000 => GroupCommand::AddOrModify,
        _ => return Err(Refusal::BadCommand),
    };
    let kind = match body.u8()? {
        0 => GroupType::All,
        1 => GroupType::Select,
        2 => GroupType::Indirect,
        3 => GroupType::FastFailover,
        _ => return Err(Refusal::BadGroup),
    };
    body.skip(1)?;
    let group = body.u32()?;
    let is_delete = command == GroupCommand::Delete;
    if group > MAX_GROUP && !(is_delete && group == GroupMod::ALL) {
        return Err(Refusal::BadGroup);
    }
    let mut change = GroupMod {
        command,
        group,
        kind,
        buckets: Vec::new(),
        bucket: GroupMod::EVERY,
        selection: None,
    };
    if has_long_form {
        let length = usize::from(body.u16()?);
        body.skip(2)?;
        change.bucket = body.u32()?;
        let mut buckets = Reader::new(body.take(length)?, Refusal::BadLength);
        while !buckets.is_empty() {
            change.buckets.push(decode_long_bucket(&mut buckets, version)?);
        }
        change.selection = decode_selection(&mut body)?;
    } else {
        while !body.is_empty() {
            let id = change.buckets.len() as u32;
            change.buckets.push(decode_bucket(&mut body, id, version)?);
        }
    }
    let count = change.buckets.len();
    let adds =
        matches!(command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify);
    if adds && kind == GroupType::Indirect && count != 1 {
        return Err(Refusal::BadGroup);
    }
    Ok(change)
}

/// Writes the body of a group_mod.
pub(super) fn encode_group_mod(change: &GroupMod, version: Version, out: &mut Vec<u8>) {
    out.put_u16(match change.command {
        GroupCommand::Add => 0,
        GroupCommand::Modify => 1,
        GroupCommand::Delete => 2,
        GroupCommand::InsertBucket => 3,
        GroupCommand::RemoveBucket => 5,
        GroupCommand::AddOrModify => 0x8000,
    });
    let head = (change.kind, change.group, change.bucket);
    encode_buckets(head, &change.buckets, change.selection.as_ref(), version, out);
}

/// Writes the description of a group.
pub(super) fn encode_group(group: &GroupEntry, version: Version, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    let head = (group.kind, group.group, 0);
    encode_buckets(head, &group.buckets, group.selection.as_ref(), version, out);
    out.set_u16(start, (out.len() - start) as u16);
}

/// Writes the common part of a group's description and change: the type, the number and the
/// buckets. The long format also has the number of a bucket.
fn encode_buckets(
    (kind, group, bucket): (GroupType, u32, u32),
    buckets: &[Bucket],
    selection: Option<&Selection>,
    version: Version,
    out: &mut Vec<u8>,
) {
    out.put_u8(match kind {
        GroupType::All => 0,
        GroupType::Select => 1,
        GroupType::Indirect => 2,
        GroupType::FastFailover => 3,
    });
    out.put_u8(0);
    out.put_u32(group);
    if !has_long_form(version) {
        buckets.iter().for_each(|bucket| encode_bucket(bucket, version, out));
        return;
    }
    let length = out.len();
    out.put_zeros(4);
    out.put_u32(bucket);
    let start = out.len();
    buckets.iter().for_each(|bucket| encode_long_bucket(bucket, kind, version, out));
    out.set_u16(length, (out.len() - start) as u16);
    if let Some((method, parameter, fields)) = selection {
        encode_selection(method, *parameter, fields, version, out);
    }
}

pub(super) fn encode_group_statistics(
    group: &GroupStatistics,
    version: Version,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.put_u16(0);
    out.put_zeros(2);
    out.put_u32(group.group);
    out.put_u32(group.references);
    out.put_zeros(4);
    out.put_u64(group.packets);
    out.put_u64(group.bytes);
    if version == Version::V10 || version >= Version::V13 {
        put_duration(group.duration, out);
    }
    for bucket in &group.buckets {
        out.put_u64(bucket.packets);
        out.put_u64(bucket.bytes);
    }
    out.set_u16(start, (out.len() - start) as u16);
}

pub(super) fn encode_group_features(version: Version, out: &mut Vec<u8>) {
    out.put_u32(0xf);
    // The capabilities of groups: weights, liveness and chaining.
    out.put_u32(7);
    for _ in 0..4 {
        out.put_u32(MAX_GROUP);
    }
    // The value has a bit for each action that the version has.
    let actions = match version {
        Version::V10 => 0xfff,
        Version::V15 => 0x33ff_8001,
        _ => 0x03ff_8001_u32,
    };
    for _ in 0..4 {
        out.put_u32(actions);
    }
}

fn has_long_form(version: Version) -> bool {
    matches!(version, Version::V10 | Version::V15)
}

fn decode_bucket(body: &mut Reader<'_>, id: u32, version: Version) -> Result<Bucket, Refusal> {
    let mut header = *body;
    let length = usize::from(header.u16()?);
    let mut bucket = Reader::new(body.take(length)?, Refusal::BadGroup);
    bucket.skip(2)?;
    let weight = bucket.u16()?;
    let watch_port = PortNumber(bucket.u32()?);
    let watch_group = bucket.u32()?;
    bucket.skip(4)?;
    let actions = decode_actions(bucket.rest(), version)?;
    Ok(Bucket { id, weight, watch_port, watch_group, actions })
}

fn decode_long_bucket(body: &mut Reader<'_>, version: Version) -> Result<Bucket, Refusal> {
    let mut header = *body;
    let length = usize::from(header.u16()?);
    let mut reader = Reader::new(body.take(length)?, Refusal::BadGroup);
    reader.skip(2)?;
    let actions = usize::from(reader.u16()?);
    let mut bucket = Bucket {
        id: reader.u32()?,
        weight: 1,
        watch_port: PortNumber::NONE,
        watch_group: FlowMod::ANY_GROUP,
        actions: decode_actions(reader.take(actions)?, version)?,
    };
    while !reader.is_empty() {
        let (kind, mut property) = read_property(&mut reader)?;
        match kind {
            0 => bucket.weight = property.u16()?,
            1 => bucket.watch_port = PortNumber(property.u32()?),
            2 => bucket.watch_group = property.u32()?,
            _ => return Err(Refusal::BadGroup),
        }
    }
    Ok(bucket)
}

fn read_property<'a>(reader: &mut Reader<'a>) -> Result<(u16, Reader<'a>), Refusal> {
    let mut header = *reader;
    let kind = header.u16()?;
    let length = usize::from(header.u16()?);
    let mut property = Reader::new(reader.take(length)?, Refusal::BadGroup);
    property.skip(4)?;
    let padding = length.next_multiple_of(8) - length;
    reader.skip(padding.min(reader.len()))?;
    Ok((kind, property))
}

/// Reads the property that names a group's selection method.
fn decode_selection(body: &mut Reader<'_>) -> Result<Option<Selection>, Refusal> {
    let mut selection = None;
    while !body.is_empty() {
        let (kind, mut property) = read_property(body)?;
        let is_known = kind == 0xffff
            && matches!(property.u32()?, NETRONOME | FORMER_NETRONOME)
            && property.u32()? == SELECTION;
        if !is_known {
            return Err(Refusal::BadGroup);
        }
        property.skip(4)?;
        let method = property.take(16)?;
        let end = method.iter().position(|byte| *byte == 0).ok_or(Refusal::BadGroup)?;
        let method = String::from_utf8_lossy(&method[..end]).into_owned();
        let parameter = property.u64()?;
        let mut fields = Vec::new();
        while !property.is_empty() {
            let header = Header(property.u32()?);
            let field = header.field().ok_or(Refusal::BadGroup)?;
            let bytes = header.length() >> u8::from(header.has_mask());
            let shift = if field == Field::NwTos { 2 } else { 0 };
            fields.push((field, property.number(bytes)? >> shift));
            property.skip(header.length() - bytes)?;
        }
        selection = Some((method, parameter, fields));
    }
    Ok(selection)
}

fn encode_bucket(bucket: &Bucket, version: Version, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    out.put_u16(bucket.weight);
    out.put_u32(bucket.watch_port.0);
    out.put_u32(bucket.watch_group);
    out.put_zeros(4);
    encode_actions(&bucket.actions, version, &Match::any(), out);
    out.set_u16(start, (out.len() - start) as u16);
}

fn encode_long_bucket(bucket: &Bucket, kind: GroupType, version: Version, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_zeros(4);
    out.put_u32(bucket.id);
    let actions = out.len();
    encode_actions(&bucket.actions, version, &Match::any(), out);
    out.set_u16(start + 2, (out.len() - actions) as u16);
    if kind == GroupType::Select {
        out.put_u16(0);
        out.put_u16(8);
        out.put_u16(bucket.weight);
        out.put_zeros(2);
    }
    if bucket.watch_port != PortNumber::NONE {
        out.put_u16(1);
        out.put_u16(8);
        out.put_u32(bucket.watch_port.0);
    }
    if bucket.watch_group != FlowMod::ANY_GROUP {
        out.put_u16(2);
        out.put_u16(8);
        out.put_u32(bucket.watch_group);
    }
    out.set_u16(start, (out.len() - start) as u16);
}

fn encode_selection(
    method: &str,
    parameter: u64,
    fields: &[(Field, u128)],
    version: Version,
    out: &mut Vec<u8>,
) {
    if method.is_empty() {
        return;
    }
    let start = out.len();
    out.put_u16(0xffff);
    out.put_u16(0);
    out.put_u32(NETRONOME);
    out.put_u32(SELECTION);
    out.put_zeros(4);
    out.put_text(method, 16);
    out.put_u64(parameter);
    for (field, mask) in fields {
        write_entry(*field, *mask, u128::MAX, version, out);
    }
    out.set_u16(start + 2, (out.len() - start) as u16);
    out.pad_to_8(start);
}

const MAX_GROUP: u32 = 0xffff_ff00;
const NETRONOME: u32 = 0x0000_154d;
/// The number that Open vSwitch 2.4 used for the experimenter by mistake. Open vSwitch still
/// accepts this number.
const FORMER_NETRONOME: u32 = 0x0000_1540;
const SELECTION: u32 = 1;
