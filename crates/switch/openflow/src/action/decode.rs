use flow::Field;
use flow::action::{Action, ActionSetPlace, Numbers, Row, Subfield};
use flow::port_number::PortNumber;
use flow::request::Refusal;

use super::super::Version;
use super::super::match_entry::read_entry;
use super::super::octets::Reader;
use super::nicira_decode::decode_nicira;
use super::{NICIRA, ONF, VENDOR, part, read_header, writable};

/// The nesting depth of a list of actions, and whether it is within `ct`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Nesting {
    depth: u8,
    pub(super) is_in_track: bool,
}

impl Nesting {
    pub(super) fn inner(self, is_in_track: bool) -> Self {
        Self { depth: self.depth + 1, is_in_track }
    }
}

/// Reads a list of actions.
pub(crate) fn decode_actions(bytes: &[u8], version: Version) -> Result<Vec<Action>, Refusal> {
    decode_nested(bytes, version, Nesting::default())
}

pub(super) fn decode_nested(
    bytes: &[u8],
    version: Version,
    nesting: Nesting,
) -> Result<Vec<Action>, Refusal> {
    if nesting.depth > MAX_DEPTH {
        return Err(Refusal::BadActionArgument);
    }
    let mut reader = Reader::new(bytes, Refusal::BadActionLength);
    let mut actions = Vec::with_capacity(bytes.len() / 16 + 1);
    while !reader.is_empty() {
        let mut header = reader;
        let kind = header.u16()?;
        let length = usize::from(header.u16()?);
        if length < 8 || length % 8 != 0 {
            return Err(Refusal::BadActionLength);
        }
        let action = reader.take(length)?;
        actions.push(decode_action(kind, action, version, nesting)?);
    }
    Ok(actions)
}

fn decode_action(
    kind: u16,
    action: &[u8],
    version: Version,
    nesting: Nesting,
) -> Result<Action, Refusal> {
    let mut body = Reader::new(action, Refusal::BadActionLength);
    body.skip(4)?;
    if kind == VENDOR {
        return match body.u32()? {
            NICIRA => decode_nicira(action, version, nesting),
            ONF if body.u16()? == ONF_COPY_FIELD => {
                body.skip(2)?;
                copy_field(&mut body)
            }
            _ => Err(Refusal::BadActionType),
        };
    }
    if version == Version::V10 {
        return decode_v10(kind, action.len(), &mut body);
    }
    if let Some(row) = Row::of_openflow11(kind) {
        return decode_plain(row, action.len(), 4, &mut body);
    }
    let is_expected = match kind {
        0 => action.len() == 16,
        25 | 28 => true,
        _ => action.len() == 8,
    };
    if !is_expected {
        return Err(Refusal::BadActionLength);
    }
    Ok(match kind {
        0 => output(PortNumber(body.u32()?), body.u16()?)?,
        1 => Action::SetField {
            field: Field::VlanVid,
            value: u128::from(vlan_vid(body.u16()?)?) | 0x1000,
            mask: 0x1fff,
        },
        2 => {
            Action::SetField { field: Field::VlanPcp, value: vlan_pcp(body.u8()?)?.into(), mask: 7 }
        }
        24 => Action::DecTtl(vec![0]),
        25 if version >= Version::V12 => set_field(&mut body, version)?,
        28 if version == Version::V15 => copy_field(&mut body)?,
        29 if version == Version::V15 => Action::Meter(body.u32()?),
        _ => return Err(Refusal::BadActionType),
    })
}

fn decode_v10(kind: u16, length: usize, body: &mut Reader<'_>) -> Result<Action, Refusal> {
    if let Some(row) = Row::of_openflow10(kind) {
        return decode_plain(row, length, 4, body);
    }
    let expected = match kind {
        OUTPUT => 8,
        ENQUEUE => 16,
        _ => return Err(Refusal::BadActionType),
    };
    if length != expected {
        return Err(Refusal::BadActionLength);
    }
    let port = PortNumber::from_16_bits(body.u16()?);
    if kind == OUTPUT {
        return output(port, body.u16()?);
    }
    body.skip(6)?;
    if port.is_reserved() && !matches!(port, PortNumber::IN_PORT | PortNumber::LOCAL) {
        return Err(Refusal::BadOutPort);
    }
    Ok(Action::Enqueue { port, queue: body.u32()? })
}

/// Reads an action as its row describes. `start`: the bytes before the action's arguments.
pub(super) fn decode_plain(
    row: &Row,
    length: usize,
    start: usize,
    body: &mut Reader<'_>,
) -> Result<Action, Refusal> {
    if length != row.message_bytes(start) {
        return Err(Refusal::BadActionLength);
    }
    let mut numbers = Numbers::default();
    let mut at = start;
    for (number, form) in numbers.iter_mut().zip(row.forms) {
        let padded = at.next_multiple_of(form.alignment());
        body.skip(padded - at)?;
        at = padded + form.bytes();
        *number = body.number(form.bytes())? as u64;
    }
    if !row.limit.allows(numbers[0]) {
        let is_group = row.place == ActionSetPlace::Group;
        return Err(if is_group { Refusal::BadOutGroup } else { Refusal::BadActionArgument });
    }
    row.action(numbers).ok_or(Refusal::BadActionArgument)
}

/// Reads an output. Only a controller uses the length, but replies carry it for any port.
pub(super) fn output(port: PortNumber, max_len: u16) -> Result<Action, Refusal> {
    check_port(port)?;
    Ok(Action::Output { port, max_len })
}

pub(super) fn check_port(port: PortNumber) -> Result<(), Refusal> {
    match port {
        PortNumber::NONE | PortNumber::UNSET => Err(Refusal::BadOutPort),
        PortNumber(number) if (0xff00..0xffff_ff00).contains(&number) => Err(Refusal::BadOutPort),
        _ => Ok(()),
    }
}

/// Reads a set_field: a match entry with padding.
pub(super) fn set_field(body: &mut Reader<'_>, version: Version) -> Result<Action, Refusal> {
    let entry = read_entry(body).map_err(as_set_refusal)?;
    let whole = entry.field.place().all_ones();
    if !entry.field.is_writable() {
        return Err(Refusal::BadActionArgument);
    }
    if version < Version::V15 && version != Version::V10 && entry.mask != whole {
        return Err(Refusal::BadSetField);
    }
    check_zeros(body)?;
    Ok(Action::SetField { field: entry.field, value: entry.value, mask: entry.mask })
}

/// Converts the refusal of a match entry to the refusal of a set_field.
pub(super) fn as_set_refusal(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::BadMatchField => Refusal::BadSetField,
        Refusal::BadMatchValue | Refusal::BadMatchMask => Refusal::BadActionArgument,
        _ => Refusal::BadActionLength,
    }
}

pub(super) fn check_zeros(body: &Reader<'_>) -> Result<(), Refusal> {
    if body.rest().iter().all(|byte| *byte == 0) { Ok(()) } else { Err(Refusal::BadActionArgument) }
}

pub(super) fn moved(source: Subfield, destination: Subfield) -> Result<Action, Refusal> {
    writable(destination)?;
    if source.field == destination.field {
        let distance = source.start.abs_diff(destination.start);
        if distance < source.width {
            return Err(Refusal::BadActionArgument);
        }
    }
    Ok(Action::Move { source, destination })
}

fn copy_field(body: &mut Reader<'_>) -> Result<Action, Refusal> {
    let width = body.u16()?;
    let (source, destination) = (body.u16()?, body.u16()?);
    body.skip(2)?;
    let source = part(read_header(body)?, source, width)?;
    let destination = part(read_header(body)?, destination, width)?;
    moved(source, destination)
}

fn vlan_vid(vid: u16) -> Result<u16, Refusal> {
    if vid < 0x1000 { Ok(vid) } else { Err(Refusal::BadActionArgument) }
}

fn vlan_pcp(pcp: u8) -> Result<u8, Refusal> {
    if pcp < 8 { Ok(pcp) } else { Err(Refusal::BadActionArgument) }
}

const MAX_DEPTH: u8 = 8;
const ONF_COPY_FIELD: u16 = 3200;
/// Actions of OpenFlow 1.0.
const OUTPUT: u16 = 0;
const ENQUEUE: u16 = 11;
