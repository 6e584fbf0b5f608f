use flow::port_number::PortNumber;
use flow::request::TABLES;
use flow::request::{CookieFilter, FlowCommand, FlowFlags, FlowMod, Refusal};

use super::Version;
use super::action::{decode_actions, decode_instructions};
use super::check::check_actions;
use super::octets::Reader;
use super::oxm_match::{read_entries, read_match};
use super::plain_match::read_plain_match;

/// Reads OpenFlow 1.0's flow_mod. `has_table`: the upper byte of the command is a table.
pub(super) fn decode_v10(mut body: Reader<'_>, has_table: bool) -> Result<FlowMod, Refusal> {
    let mut wildcards = body;
    let is_exact = wildcards.u32()? & ALL_WILDCARDS == 0;
    let matching = read_plain_match(&mut body)?;
    let cookie = body.u64()?;
    let mut change = decode_head(&mut body, cookie, has_table)?;
    if is_exact {
        // In OpenFlow 1.0, rules without wildcards have the highest priority.
        change.priority = u16::MAX;
    }
    change.matching = matching;
    let actions = decode_actions(body.rest(), Version::V10)?;
    finish(change, actions, Version::V10)
}

/// Reads Nicira's flow_mod, whose match is a list of entries.
pub(super) fn decode_nicira(
    mut body: Reader<'_>,
    version: Version,
    has_table: bool,
) -> Result<FlowMod, Refusal> {
    let cookie = body.u64()?;
    let mut change = decode_head(&mut body, cookie, has_table)?;
    let length = usize::from(body.u16()?);
    body.skip(6)?;
    let entries = body.take(length.next_multiple_of(8))?;
    let (matching, filter) = read_entries(&entries[..length], Version::V10)?;
    if change.command == FlowCommand::Add && filter.mask != 0 {
        return Err(Refusal::BadMatchLength);
    }
    change.matching = matching;
    change.cookie_filter = filter;
    let actions = decode_actions(body.rest(), version)?;
    finish(change, actions, version)
}

/// Reads the flow_mod of OpenFlow 1.1 and later.
pub(super) fn decode_later(mut body: Reader<'_>, version: Version) -> Result<FlowMod, Refusal> {
    let (cookie, mask) = (body.u64()?, body.u64()?);
    let table = body.u8()?;
    let command = decode_command(body.u8()?)?;
    let mut change = FlowMod::new(command);
    change.table = (table != ALL_TABLES).then_some(table);
    let is_deletion = matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict);
    if table == ALL_TABLES && !is_deletion {
        return Err(Refusal::BadTable);
    }
    change.idle_timeout = body.u16()?;
    change.hard_timeout = body.u16()?;
    change.priority = body.u16()?;
    change.buffer = buffer(body.u32()?);
    change.out_port = PortNumber(body.u32()?);
    change.out_group = body.u32()?;
    change.flags = decode_flags(body.u16()?, version)?;
    let importance = body.u16()?;
    if version >= Version::V14 && command == FlowCommand::Add {
        change.importance = importance;
    }
    if command == FlowCommand::Add {
        change.cookie = Some(cookie);
        // OpenFlow 1.1 always resets the counts, as OpenFlow 1.0 does; later versions have a flag.
        change.flags.reset_counts |= version == Version::V11;
    } else if version == Version::V11 && mask == 0 && !is_deletion {
        // In OpenFlow 1.1, a modification without a matching rule adds the rule.
        change.cookie = Some(cookie);
        change.keeps_cookie = true;
    } else {
        change.cookie_filter = CookieFilter { value: cookie & mask, mask };
    }
    change.matching = read_match(&mut body, version)?;
    let actions = decode_instructions(body.rest(), version)?;
    finish(change, actions, version)
}

/// Returns the flags of an existing rule, as dumps show them.
pub(super) fn state_flags(flags: FlowFlags) -> u16 {
    u16::from(flags.send_flow_removed)
        | u16::from(flags.check_overlap) << 1
        | u16::from(flags.reset_counts) << 2
        | u16::from(flags.no_packet_counts) << 3
        | u16::from(flags.no_byte_counts) << 4
}

/// Reads the part between the cookie and the match or the actions, which is the same in OpenFlow
/// 1.0 and Nicira's extension.
fn decode_head(body: &mut Reader<'_>, cookie: u64, has_table: bool) -> Result<FlowMod, Refusal> {
    let command = body.u16()?;
    let (table, command) = match has_table {
        true => ((command >> 8) as u8, command & 0xff),
        false => (ALL_TABLES, command),
    };
    let command = u8::try_from(command).map_err(|_| Refusal::BadCommand)?;
    let mut change = FlowMod::new(decode_command(command)?);
    change.table = (table != ALL_TABLES).then_some(table);
    change.idle_timeout = body.u16()?;
    change.hard_timeout = body.u16()?;
    change.priority = body.u16()?;
    change.buffer = buffer(body.u32()?);
    change.out_port = PortNumber::from_16_bits(body.u16()?);
    change.flags = decode_flags(body.u16()?, Version::V10)?;
    // OpenFlow 1.0 always resets the counts of an added rule; later versions have a flag.
    change.flags.reset_counts = change.command == FlowCommand::Add;
    let is_add = change.command == FlowCommand::Add;
    change.cookie = (is_add || cookie != u64::MAX).then_some(cookie);
    Ok(change)
}

fn finish(
    mut change: FlowMod,
    actions: Vec<flow::action::Action>,
    version: Version,
) -> Result<FlowMod, Refusal> {
    if matches!(change.command, FlowCommand::Delete | FlowCommand::DeleteStrict) {
        // A deletion has no actions, and its cookie is only a filter.
        change.cookie = None;
        return Ok(change);
    }
    if change.table.is_some_and(|table| table >= TABLES) {
        // Open vSwitch also refuses the last table, which it reserves for itself.
        return Err(Refusal::ReservedTable);
    }
    change.out_port = PortNumber::NONE;
    change.out_group = FlowMod::ANY_GROUP;
    check_actions(&actions, &change.matching, change.table, version)?;
    change.actions = actions;
    Ok(change)
}

fn decode_command(command: u8) -> Result<FlowCommand, Refusal> {
    Ok(match command {
        0 => FlowCommand::Add,
        1 => FlowCommand::Modify,
        2 => FlowCommand::ModifyStrict,
        3 => FlowCommand::Delete,
        4 => FlowCommand::DeleteStrict,
        _ => return Err(Refusal::BadCommand),
    })
}

fn decode_flags(flags: u16, version: Version) -> Result<FlowFlags, Refusal> {
    let known = match version {
        Version::V10 | Version::V11 => 0x03,
        Version::V12 => 0x07,
        _ => 0x1f,
    };
    if flags & !known != 0 {
        return Err(Refusal::BadFlags);
    }
    Ok(FlowFlags {
        send_flow_removed: flags & 1 != 0,
        check_overlap: flags & 2 != 0,
        reset_counts: flags & 4 != 0,
        no_packet_counts: flags & 8 != 0,
        no_byte_counts: flags & 16 != 0,
    })
}

fn buffer(number: u32) -> Option<u32> {
    (number != u32::MAX).then_some(number)
}

const ALL_WILDCARDS: u32 = (1 << 22) - 1;
pub(super) const ALL_TABLES: u8 = 0xff;
