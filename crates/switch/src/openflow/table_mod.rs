use super::Version;
use super::flow_mod::ALL_TABLES;
use super::octets::{Put, Reader};
use crate::request::{Refusal, TableEntry, TableMiss, TableMod};

/// Reads a table_mod.
pub(super) fn decode_table_mod(
    mut body: Reader<'_>,
    version: Version,
) -> Result<TableMod, Refusal> {
    let table = body.u8()?;
    body.skip(3)?;
    let config = body.u32()?;
    let mut change = TableMod {
        table: (table != ALL_TABLES).then_some(table),
        miss: None,
        is_evicting: None,
        vacancy: None,
    };
    if version <= Version::V12 {
        change.miss = Some(match config & 3 {
            1 => TableMiss::Continue,
            2 => TableMiss::Drop,
            _ => TableMiss::Controller,
        });
    }
    if version < Version::V14 {
        return Ok(change);
    }
    change.is_evicting = Some(config & EVICTION != 0);
    let mut vacancy = None;
    while !body.is_empty() {
        let (kind, length) = (body.u16()?, usize::from(body.u16()?));
        let value = body.take(length.saturating_sub(4))?;
        if kind == VACANCY_PROPERTY {
            let mut value = Reader::new(value, Refusal::BadLength);
            vacancy = Some((value.u8()?, value.u8()?));
        }
    }
    change.vacancy = Some(vacancy.filter(|_| config & VACANCY != 0));
    Ok(change)
}

/// Writes a table's settings.
pub(super) fn encode_table_description(table: &TableEntry, out: &mut Vec<u8>) {
    let start = out.len();
    let eviction = if table.config.is_evicting { EVICTION } else { 0 };
    let vacancy = if table.config.vacancy.is_some() { VACANCY } else { 0 };
    out.put_u16(0);
    out.put_u8(table.table);
    out.put_u8(0);
    out.put_u32(eviction | vacancy);
    out.put_u16(EVICTION_PROPERTY);
    out.put_u16(8);
    // Rules may go by importance, lifetime, or otherwise.
    out.put_u32(7);
    if let Some((down, up)) = table.config.vacancy {
        let free = u64::from(table.max_entries.saturating_sub(table.active)) * 100;
        out.put_u16(VACANCY_PROPERTY);
        out.put_u16(8);
        out.put_u8(down);
        out.put_u8(up);
        out.put_u8((free / u64::from(table.max_entries.max(1))) as u8);
        out.put_u8(0);
    }
    out.set_u16(start, (out.len() - start) as u16);
}

const EVICTION: u32 = 1 << 2;
const VACANCY: u32 = 1 << 3;
const EVICTION_PROPERTY: u16 = 2;
const VACANCY_PROPERTY: u16 = 3;
