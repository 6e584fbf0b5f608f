use flow::request::TABLES;
use flow::request::{Refusal, TableEntry};
use flow::{Field, Masking};

use super::Version;
use super::match_entry::Header;
use super::octets::{Put, Reader};

/// Writes the features of a table: its name, its limit, and the capabilities of the switch.
pub(super) fn encode_table_features(table: &TableEntry, version: Version, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u16(0);
    out.put_u8(table.table);
    out.put_zeros(5);
    out.put_text(&table.name, NAME);
    out.put_u64(u64::MAX);
    out.put_u64(u64::MAX);
    out.put_u32(0);
    out.put_u32(table.max_entries);
    // No packet continues after the last table.
    let is_last = table.table + 1 >= TABLES;
    property(INSTRUCTIONS, out, |out| {
        let first = if is_last { GOTO_TABLE + 1 } else { GOTO_TABLE };
        let last = if version == Version::V15 { 5 } else { 6 };
        for instruction in first..=last {
            out.put_u16(instruction);
            out.put_u16(4);
        }
    });
    property(NEXT_TABLES, out, |out| out.extend(table.table.saturating_add(1)..TABLES));
    for kind in [WRITE_ACTIONS, APPLY_ACTIONS] {
        property(kind, out, |out| {
            for action in [0, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25] {
                out.put_u16(action);
                out.put_u16(4);
            }
        });
    }
    property(MATCH, out, |out| {
        for field in fields(|_| true) {
            // The header's mask bit marks a field that allows any mask.
            let header = match field.masking() {
                Masking::Arbitrary => Header::masked(field, version),
                Masking::Exact => Header::of(field, version),
            };
            out.put_u32(header.0);
        }
    });
    // A match may leave out any field.
    property(WILDCARDS, out, |out| put_fields(version, |_| true, out));
    for kind in [WRITE_SETFIELD, APPLY_SETFIELD] {
        property(kind, out, |out| put_fields(version, Field::is_writable, out));
    }
    out.set_u16(start, (out.len() - start) as u16);
}

/// Reads the names of tables in a request. A table's other features cannot be changed.
pub(super) fn decode_table_names(mut body: Reader<'_>) -> Result<Vec<(u8, String)>, Refusal> {
    let mut names = Vec::new();
    while !body.is_empty() {
        let mut header = body;
        let length = usize::from(header.u16()?);
        let mut entry = Reader::new(body.take(length)?, Refusal::BadLength);
        entry.skip(2)?;
        let table = entry.u8()?;
        entry.skip(5)?;
        let name = entry.take(NAME)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        // Tools print the names of tables, so the switch keeps only visible characters.
        let name = String::from_utf8_lossy(&name[..end]);
        names.push((table, name.chars().filter(|c| c.is_ascii_graphic()).collect()));
    }
    Ok(names)
}

fn property(kind: u16, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    body(out);
    out.set_u16(start + 2, (out.len() - start) as u16);
    out.pad_to_8(start);
}

fn put_fields(version: Version, is_listed: fn(Field) -> bool, out: &mut Vec<u8>) {
    fields(is_listed).for_each(|field| out.put_u32(Header::of(field, version).0));
}

fn fields(is_listed: fn(Field) -> bool) -> impl Iterator<Item = Field> {
    Field::ALL.iter().copied().filter(move |field| {
        let has_name = field.nxm().is_some() || field.oxm().is_some();
        // Leave out fields that are only another name for the same bits, so that no bits are listed
        // twice.
        let is_double = matches!(field, Field::InPort | Field::VlanTci | Field::NwTos) || !has_name;
        !is_double && is_listed(*field)
    })
}

const GOTO_TABLE: u16 = 1;
/// The length of a table's name in a message, in bytes.
const NAME: usize = 32;

const INSTRUCTIONS: u16 = 0;
const NEXT_TABLES: u16 = 2;
const WRITE_ACTIONS: u16 = 4;
const APPLY_ACTIONS: u16 = 6;
const MATCH: u16 = 8;
const WILDCARDS: u16 = 10;
const WRITE_SETFIELD: u16 = 12;
const APPLY_SETFIELD: u16 = 14;
