use std::time::Duration;

use flow::port_number::PortNumber;
use flow::request::TABLES;
use flow::request::{Aggregate, CookieFilter, FlowEntry, FlowFilter, FlowMod, Refusal, TableEntry};
use flow::{Field, OXM_BASIC};

use super::Version;
use super::action::{encode_actions, encode_instructions};
use super::flow_mod::{ALL_TABLES, state_flags};
use super::octets::{Put, Reader};
use super::oxm_match::{read_entries, read_match, write_entries, write_match};
use super::plain_match::{read_plain_match, write_plain_match};

/// Reads the filter of OpenFlow 1.0's requests for flows and aggregates.
pub(super) fn decode_v10_filter(mut body: Reader<'_>) -> Result<FlowFilter, Refusal> {
    let matching = read_plain_match(&mut body)?;
    let table = body.u8()?;
    body.skip(1)?;
    Ok(FlowFilter {
        table: (table != ALL_TABLES).then_some(table),
        matching,
        cookie: CookieFilter::default(),
        out_port: PortNumber::from_16_bits(body.u16()?),
        out_group: FlowMod::ANY_GROUP,
    })
}

/// Reads the filter of Nicira's requests.
pub(super) fn decode_nicira_filter(mut body: Reader<'_>) -> Result<FlowFilter, Refusal> {
    let out_port = PortNumber::from_16_bits(body.u16()?);
    let length = usize::from(body.u16()?);
    let table = body.u8()?;
    body.skip(3)?;
    let (matching, cookie) = read_entries(body.take(length)?, Version::V10)?;
    Ok(FlowFilter {
        table: (table != ALL_TABLES).then_some(table),
        matching,
        cookie,
        out_port,
        out_group: FlowMod::ANY_GROUP,
    })
}

/// Reads the filter of OpenFlow 1.1 and later.
pub(super) fn decode_filter(mut body: Reader<'_>, version: Version) -> Result<FlowFilter, Refusal> {
    let table = body.u8()?;
    body.skip(3)?;
    let out_port = PortNumber(body.u32()?);
    let out_group = body.u32()?;
    body.skip(4)?;
    let (value, mask) = (body.u64()?, body.u64()?);
    Ok(FlowFilter {
        table: (table != ALL_TABLES).then_some(table),
        matching: read_match(&mut body, version)?,
        cookie: CookieFilter { value: value & mask, mask },
        out_port,
        out_group,
    })
}

/// Writes a rule for OpenFlow 1.0's reply.
pub(super) fn encode_v10_flow(flow: &FlowEntry, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    out.put_u8(flow.table);
    out.put_u8(0);
    write_plain_match(&flow.matching, out);
    put_duration(flow.duration, out);
    out.put_u16(flow.priority);
    out.put_u16(flow.idle_timeout);
    out.put_u16(flow.hard_timeout);
    out.put_zeros(6);
    out.put_u64(flow.cookie);
    out.put_u64(flow.packets);
    out.put_u64(flow.bytes);
    encode_actions(&flow.actions, Version::V10, &flow.matching, out);
    end_entry(start, out);
}

/// Writes a rule for Nicira's reply.
pub(super) fn encode_nicira_flow(flow: &FlowEntry, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    out.put_u8(flow.table);
    out.put_u8(0);
    put_duration(flow.duration, out);
    out.put_u16(flow.priority);
    out.put_u16(flow.idle_timeout);
    out.put_u16(flow.hard_timeout);
    let length = out.len();
    out.put_u16(0);
    out.put_u16(age(flow.idle_age));
    out.put_u16(age(flow.hard_age));
    out.put_u64(flow.cookie);
    out.put_u64(flow.packets);
    out.put_u64(flow.bytes);
    let entries = out.len();
    write_entries(&flow.matching, Version::V10, out);
    out.set_u16(length, (out.len() - entries) as u16);
    out.pad_to_8(entries);
    encode_actions(&flow.actions, Version::V10, &flow.matching, out);
    end_entry(start, out);
}

/// Writes a rule for the replies of OpenFlow 1.1 and later.
pub(super) fn encode_flow(flow: &FlowEntry, version: Version, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    if version == Version::V15 {
        out.put_zeros(2);
        out.put_u8(flow.table);
        out.put_u8(0);
    } else {
        out.put_u8(flow.table);
        out.put_u8(0);
        put_duration(flow.duration, out);
    }
    out.put_u16(flow.priority);
    out.put_u16(flow.idle_timeout);
    out.put_u16(flow.hard_timeout);
    out.put_u16(if version >= Version::V13 { state_flags(flow.flags) } else { 0 });
    out.put_u16(if version >= Version::V14 { flow.importance } else { 0 });
    if version == Version::V15 {
        out.put_u64(flow.cookie);
        write_match(&flow.matching, version, out);
        encode_flow_counters(flow, out);
    } else {
        out.put_zeros(2);
        out.put_u64(flow.cookie);
        out.put_u64(flow.packets);
        out.put_u64(flow.bytes);
        write_match(&flow.matching, version, out);
    }
    encode_instructions(&flow.actions, version, &flow.matching, out);
    end_entry(start, out);
}

pub(super) fn encode_aggregate(aggregate: Aggregate, version: Version, out: &mut Vec<u8>) {
    if version == Version::V15 {
        let start = begin_counters(out);
        put_counter(FLOW_COUNT, aggregate.flows.into(), 4, out);
        put_counter(PACKET_COUNT, aggregate.packets.into(), 8, out);
        put_counter(BYTE_COUNT, aggregate.bytes.into(), 8, out);
        end_counters(start, out);
        return;
    }
    out.put_u64(aggregate.packets);
    out.put_u64(aggregate.bytes);
    out.put_u32(aggregate.flows);
    out.put_zeros(4);
}

pub(super) fn encode_table(table: &TableEntry, version: Version, out: &mut Vec<u8>) {
    out.put_u8(table.table);
    match version {
        Version::V10 => {
            out.put_zeros(3);
            out.put_text(&table.name, 32);
            out.put_u32(ALL_WILDCARDS);
            out.put_u32(table.max_entries);
        }
        Version::V11 | Version::V12 => {
            out.put_zeros(7);
            out.put_text(&table.name, 32);
            encode_table_abilities(table, version, out);
            out.put_u32(table.config.miss.number());
            out.put_u32(table.max_entries);
        }
        _ => out.put_zeros(3),
    }
    out.put_u32(table.active);
    out.put_u64(table.lookups);
    out.put_u64(table.matched);
}

/// Writes the capabilities of a table in OpenFlow 1.1 and 1.2. Later versions have table features.
fn encode_table_abilities(table: &TableEntry, version: Version, out: &mut Vec<u8>) {
    let is_last = table.table + 1 == TABLES;
    let instructions = if is_last { ALL_INSTRUCTIONS & !GOTO_TABLE } else { ALL_INSTRUCTIONS };
    if version == Version::V11 {
        // The fields that may have wildcards, then the fields that a match may have.
        out.put_u32(V11_FIELDS);
        out.put_u32(V11_FIELDS);
        out.put_u32(instructions);
        out.put_u32(V11_ACTIONS);
        out.put_u32(V11_ACTIONS);
        return;
    }
    let fields = |test: fn(Field) -> bool| {
        let chosen = Field::ALL.iter().filter(|field| test(**field));
        let numbers = chosen.filter_map(|field| field.oxm()).map(|(wire, _)| wire);
        let basic = numbers.filter(|wire| wire.class == OXM_BASIC && wire.number <= LAST_V12_FIELD);
        basic.fold(0_u64, |bits, wire| bits | 1 << wire.number)
    };
    // A match may contain any field, and may leave out any field.
    out.put_u64(fields(|_| true));
    out.put_u64(fields(|_| true));
    out.put_u32(V12_ACTIONS);
    out.put_u32(V12_ACTIONS);
    out.put_u64(fields(Field::is_writable));
    out.put_u64(fields(Field::is_writable));
    out.put_u64(u64::MAX);
    out.put_u64(u64::MAX);
    out.put_u32(instructions);
}

pub(super) fn put_duration(duration: Duration, out: &mut Vec<u8>) {
    out.put_u32(duration.as_secs().try_into().unwrap_or(u32::MAX));
    out.put_u32(duration.subsec_nanos());
}

/// Writes OpenFlow 1.5's counters of a rule.
pub(super) fn encode_flow_counters(flow: &FlowEntry, out: &mut Vec<u8>) {
    let start = begin_counters(out);
    put_counter(DURATION, seconds(flow.duration), 8, out);
    put_counter(IDLE_TIME, seconds(flow.idle_age), 8, out);
    put_counter(PACKET_COUNT, flow.packets.into(), 8, out);
    put_counter(BYTE_COUNT, flow.bytes.into(), 8, out);
    end_counters(start, out);
}

fn begin_counters(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.put_u32(0);
    start
}

fn end_counters(start: usize, out: &mut Vec<u8>) {
    out.set_u16(start + 2, (out.len() - start) as u16);
    out.pad_to_8(start);
}

fn put_counter(number: u32, value: u128, bytes: u8, out: &mut Vec<u8>) {
    out.put_u32(COUNTERS << 16 | number << 9 | u32::from(bytes));
    out.put_number(value, bytes.into());
}

/// Converts a duration to its encoding in messages: 32 bits of seconds, then 32 bits of
/// nanoseconds.
fn seconds(duration: Duration) -> u128 {
    u128::from(duration.as_secs().min(u32::MAX.into())) << 32 | u128::from(duration.subsec_nanos())
}

/// Converts an age to Nicira's encoding: seconds plus one, so that 0 means unknown.
fn age(age: Duration) -> u16 {
    u16::try_from(age.as_secs().saturating_add(1)).unwrap_or(u16::MAX)
}

fn end_entry(start: usize, out: &mut Vec<u8>) {
    // An entry that is too long gets a wrong length here; Multipart leaves the entry out.
    out.set_u16(start, (out.len() - start) as u16);
}

const ALL_WILDCARDS: u32 = (1 << 22) - 1;

/// All wildcards of OpenFlow 1.1's match, and the bits of fields that have masks.
const V11_FIELDS: u32 = 0x3fff;
/// A bit for each action: output and group, set_… and the MPLS actions, queues and TTLs.
const V11_ACTIONS: u32 = 0x03ff_e7ff;
/// A bit for each action: output, MPLS, VLAN, queue, group, TTL, and set_field. The switch lacks
/// the actions that copy a TTL.
const V12_ACTIONS: u32 = 0x03ff_8001;
/// The bits of goto_table, write_metadata, write_actions, apply_actions and clear_actions.
const ALL_INSTRUCTIONS: u32 = 0x3e;
const GOTO_TABLE: u32 = 1 << 1;
/// The number of mpls_tc. Fields with higher numbers belong to OpenFlow 1.3 and later.
const LAST_V12_FIELD: u8 = 35;

const COUNTERS: u32 = 0x8002;
const DURATION: u32 = 0;
const IDLE_TIME: u32 = 1;
const FLOW_COUNT: u32 = 3;
const PACKET_COUNT: u32 = 4;
const BYTE_COUNT: u32 = 5;
