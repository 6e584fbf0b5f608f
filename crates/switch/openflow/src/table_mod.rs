use flow::request::{Refusal, TableConfig, TableEntry, TableMiss, TableMod, TableStatus};

use super::Version;
use super::flow_mod::ALL_TABLES;
use super::message::{Header, begin_message, end_message};
use super::octets::{Put, Reader};

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
    let mut vacancy = (0, 0);
    while !body.is_empty() {
        let (kind, length) = (body.u16()?, body.u16()?);
        if !matches!(kind, EVICTION_PROPERTY | VACANCY_PROPERTY) {
            return Err(Refusal::BadType);
        }
        if length != PROPERTY {
            return Err(Refusal::BadPropertyLength);
        }
        let [down, up, now, _] = body.array()?;
        if kind == VACANCY_PROPERTY {
            // The controller must not set the present vacancy.
            if down > up || up > 100 || now != 0 {
                return Err(Refusal::BadPropertyValue);
            }
            vacancy = (down, up);
        }
    }
    change.vacancy = Some((config & VACANCY != 0).then_some(vacancy));
    Ok(change)
}

/// Writes a table's settings.
pub(super) fn encode_table_description(table: &TableEntry, out: &mut Vec<u8>) {
    encode_description(table.table, table.config, table.vacancy, out);
}

/// Writes a table_status: a table's vacancy has crossed a limit. Versions before OpenFlow 1.4 have
/// no such message.
pub(super) fn encode_table_status(status: &TableStatus, version: Version, out: &mut Vec<u8>) {
    let start = begin_message(Header { version, kind: TABLE_STATUS, xid: 0 }, out);
    out.put_u8(status.change as u8);
    out.put_zeros(7);
    encode_description(status.table, status.config, status.vacancy, out);
    end_message(start, out);
}

fn encode_description(table: u8, config: TableConfig, vacancy: u8, out: &mut Vec<u8>) {
    let start = out.len();
    let is_evicting = if config.is_evicting { EVICTION } else { 0 };
    let is_reporting = if config.vacancy.is_some() { VACANCY } else { 0 };
    out.put_u16(0);
    out.put_u8(table);
    out.put_u8(0);
    out.put_u32(is_evicting | is_reporting);
    out.put_u16(EVICTION_PROPERTY);
    out.put_u16(PROPERTY);
    // The eviction flags: by importance, by lifetime, or otherwise.
    out.put_u32(7);
    if let Some((down, up)) = config.vacancy {
        out.put_u16(VACANCY_PROPERTY);
        out.put_u16(PROPERTY);
        out.put_u8(down);
        out.put_u8(up);
        out.put_u8(vacancy);
        out.put_u8(0);
    }
    out.set_u16(start, (out.len() - start) as u16);
}

const EVICTION: u32 = 1 << 2;
const VACANCY: u32 = 1 << 3;
const EVICTION_PROPERTY: u16 = 2;
const VACANCY_PROPERTY: u16 = 3;
/// The length of a property in bytes.
const PROPERTY: u16 = 8;
const TABLE_STATUS: u8 = 31;

#[cfg(test)]
mod tests {
    use super::*;
    use flow::request::VacancyChange;

    fn decode(config: u8, properties: &[u8]) -> Result<TableMod, Refusal> {
        let bytes = [&[1, 0, 0, 0, 0, 0, 0, config][..], properties].concat();
        decode_table_mod(Reader::new(&bytes, Refusal::BadLength), Version::V14)
    }

    #[test]
    fn a_vacancy_property_sets_both_thresholds_of_a_table() {
        let vacancy = [0, 3, 0, 8, 20, 80, 0, 0];
        let read = |config, properties: &[u8]| decode(config, properties).map(|read| read.vacancy);
        assert_eq!(read(8, &vacancy), Ok(Some(Some((20, 80)))));
        assert_eq!(read(0, &vacancy), Ok(Some(None)));
        assert_eq!(read(8, &[]), Ok(Some(Some((0, 0)))));
        for (place, value) in [(4, 81), (5, 101), (6, 1)] {
            let mut wrong = vacancy;
            wrong[place] = value;
            assert_eq!(read(8, &wrong), Err(Refusal::BadPropertyValue), "byte {place}");
        }
        assert_eq!(read(8, &[0, 3, 0, 12, 20, 80, 0, 0]), Err(Refusal::BadPropertyLength));
        assert_eq!(read(8, &[0, 1, 0, 8, 0, 0, 0, 0]), Err(Refusal::BadType));
    }

    #[test]
    fn a_table_status_has_its_reason_and_the_table_settings() {
        let config = TableConfig { vacancy: Some((20, 80)), ..TableConfig::default() };
        let change = VacancyChange::Down;
        let status = TableStatus { change, table: 1, config, vacancy: 10 };
        let mut out = Vec::new();
        encode_table_status(&status, Version::V14, &mut out);
        assert_eq!(out[..16], [5, 31, 0, 40, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[16..24], [0, 24, 1, 0, 0, 0, 0, 8]);
        assert_eq!(out[24..], [0, 2, 0, 8, 0, 0, 0, 7, 0, 3, 0, 8, 20, 80, 10, 0]);
    }
}
