use super::Version;
use super::match_entry::Header;
use super::octets::Put;
use crate::flow::{Field, Masking};
use crate::request::TableEntry;

/// Writes what a table can do: all that the switch can.
pub(super) fn encode_table_features(table: &TableEntry, version: Version, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    out.put_u8(table.table);
    out.put_zeros(5);
    out.put_text(&table.name, 32);
    out.put_u64(u64::MAX);
    out.put_u64(u64::MAX);
    out.put_u32(0);
    out.put_u32(table.max_entries);
    property(INSTRUCTIONS, out, |out| {
        let last = if version == Version::V15 { 5 } else { 6 };
        for instruction in 1..=last {
            out.put_u16(instruction);
            out.put_u16(4);
        }
    });
    property(NEXT_TABLES, out, |out| out.extend(table.table.saturating_add(1)..LAST_TABLE));
    for kind in [WRITE_ACTIONS, APPLY_ACTIONS] {
        property(kind, out, |out| {
            for action in [0, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25] {
                out.put_u16(action);
                out.put_u16(4);
            }
        });
    }
    property(MATCH, out, |out| fields(version, |_| true, out));
    property(WILDCARDS, out, |out| {
        fields(version, |field| field.masking() == Masking::Arbitrary, out);
    });
    for kind in [WRITE_SETFIELD, APPLY_SETFIELD] {
        property(kind, out, |out| fields(version, Field::is_writable, out));
    }
    out.set_u16(start, (out.len() - start) as u16);
}

fn property(kind: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    body(out);
    out.set_u16(start + 2, (out.len() - start) as u16);
    out.pad_to_8(start);
}

fn fields(version: Version, is_listed: impl Fn(Field) -> bool, out: &mut Vec<u8>) {
    for field in Field::ALL {
        let has_name = field.nxm().is_some() || field.oxm().is_some();
        // Names of Nicira's alone for the same bits would be listed twice.
        let is_double = matches!(field, Field::InPort | Field::VlanTci | Field::NwTos) || !has_name;
        if !is_double && is_listed(*field) {
            out.put_u32(Header::of(*field, version).0);
        }
    }
}

const LAST_TABLE: u8 = 254;

const INSTRUCTIONS: u16 = 0;
const NEXT_TABLES: u16 = 2;
const WRITE_ACTIONS: u16 = 4;
const APPLY_ACTIONS: u16 = 6;
const MATCH: u16 = 8;
const WILDCARDS: u16 = 10;
const WRITE_SETFIELD: u16 = 12;
const APPLY_SETFIELD: u16 = 14;
