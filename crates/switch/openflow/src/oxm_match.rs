use flow::request::{CookieFilter, Refusal};
use flow::{Field, Masking, Match};

use super::Version;
use super::masked_match::{LENGTH, STANDARD, read_masked_match, write_masked_match};
use super::match_entry::{Header, has_prerequisite, read_entry, write_entry};
use super::octets::{Put, Reader};

/// Reads the entries of a match, and in OpenFlow 1.0's requests also a cookie.
pub(super) fn read_entries(
    bytes: &[u8],
    version: Version,
) -> Result<(Match, CookieFilter), Refusal> {
    let mut reader = Reader::new(bytes, Refusal::BadMatchLength);
    let mut matching = Match::any();
    let mut cookie = CookieFilter::default();
    while !reader.is_empty() {
        if let Some(length) = cookie_length(reader.rest(), version) {
            reader.skip(4)?;
            cookie.value = reader.u64()?;
            cookie.mask = if length == 16 { reader.u64()? } else { u64::MAX };
            continue;
        }
        if reader.rest().starts_with(&PACKET_TYPE) {
            reader.skip(PACKET_TYPE.len())?;
            // The only packet type of a bridge is Ethernet, so the match without this entry matches
            // the same packets.
            if reader.u32()? != ETHERNET {
                return Err(Refusal::BadMatchValue);
            }
            continue;
        }
        let entry = read_entry(&mut reader)?;
        let field = entry.field;
        let ones = field.place().all_ones();
        if entry.has_mask
            && field.masking() == Masking::Exact
            && !matches!(entry.mask, 0)
            && entry.mask != ones
        {
            return Err(Refusal::BadMatchMask);
        }
        if !has_prerequisite(&matching, field) {
            return Err(Refusal::BadPrerequisite);
        }
        if matching.is_set(field) {
            return Err(Refusal::DuplicateField);
        }
        matching.set_masked(field, entry.value, entry.mask);
    }
    Ok((matching, cookie))
}

/// Reads the match of OpenFlow 1.2 and later: type, length, entries, padding. OpenFlow 1.1's match
/// has another format.
pub(super) fn read_match(reader: &mut Reader<'_>, version: Version) -> Result<Match, Refusal> {
    let kind = reader.u16()?;
    let length = usize::from(reader.u16()?);
    if version == Version::V11 && kind == STANDARD {
        if length != usize::from(LENGTH) {
            return Err(Refusal::BadMatchLength);
        }
        return read_masked_match(reader);
    }
    if kind != OXM {
        return Err(Refusal::BadMatchField);
    }
    let entries = length.checked_sub(4).ok_or(Refusal::BadMatchLength)?;
    if entries > reader.len() {
        return Err(Refusal::BadMatchLength);
    }
    let (matching, _) = read_entries(reader.take(entries)?, version)?;
    reader.skip(length.next_multiple_of(8) - length)?;
    Ok(matching)
}

/// Writes the entries of a match. The name of an entry depends on the other fields of the match.
pub(super) fn write_entries(matching: &Match, version: Version, out: &mut Vec<u8>) {
    let used = matching.mask.used_words();
    for field in Field::ALL {
        if is_tuple_of_tracking(*field) {
            continue;
        }
        write_field(matching, *field, used, version, out);
    }
    // Readers check prerequisites in order, so the fields with prerequisites must follow eth_type.
    for field in Field::ALL.iter().filter(|field| is_tuple_of_tracking(**field)) {
        write_field(matching, *field, used, version, out);
    }
}

/// Writes OpenFlow 1.2's match with its padding.
pub(super) fn write_match(matching: &Match, version: Version, out: &mut Vec<u8>) {
    if version == Version::V11 {
        return write_masked_match(matching, out);
    }
    let start = out.len();
    out.put_u16(OXM);
    out.put_u16(0);
    write_entries(matching, version, out);
    out.set_u16(start + 2, (out.len() - start) as u16);
    out.pad_to_8(start);
}

fn write_field(matching: &Match, field: Field, used: u64, version: Version, out: &mut Vec<u8>) {
    let place = field.place();
    let words = if place.width > 64 { 3 } else { 1 };
    if used & (words << place.word) == 0
        || !is_written(field, version)
        || !matching.is_set(field)
        || !has_prerequisite(matching, field)
    {
        return;
    }
    write_entry(field, matching.value.read(field), matching.mask.read(field), version, out);
}

/// Whether a version's messages use this name of a field. Several names may stand for the same
/// bits.
fn is_written(field: Field, version: Version) -> bool {
    let is_nxm = version == Version::V10;
    match field {
        Field::InPort | Field::VlanTci | Field::NwTos => is_nxm,
        Field::InPortOxm | Field::VlanVid | Field::VlanPcp | Field::IpDscp => !is_nxm,
        Field::DlVlan | Field::DlVlanPcp => false,
        Field::Xreg0 | Field::Xreg1 | Field::Xreg2 | Field::Xreg3 => false,
        Field::Xreg4 | Field::Xreg5 | Field::Xreg6 | Field::Xreg7 => false,
        Field::Xxreg0 | Field::Xxreg1 | Field::Xxreg2 | Field::Xxreg3 => false,
        _ => true,
    }
}

fn is_tuple_of_tracking(field: Field) -> bool {
    matches!(
        field,
        Field::CtNwProto
            | Field::CtNwSrc
            | Field::CtNwDst
            | Field::CtIpv6Src
            | Field::CtIpv6Dst
            | Field::CtTpSrc
            | Field::CtTpDst
    )
}

/// Returns the length of the value if the entry is a cookie; otherwise returns `None`.
fn cookie_length(bytes: &[u8], version: Version) -> Option<usize> {
    if version != Version::V10 {
        return None;
    }
    let header = Header(u32::from_be_bytes(*bytes.first_chunk()?));
    matches!(header.0, COOKIE | COOKIE_MASKED).then(|| header.length())
}

const OXM: u16 = 1;
const COOKIE: u32 = 0x0001_3c08;
const COOKIE_MASKED: u32 = 0x0001_3d10;
/// The header of OXM_OF_PACKET_TYPE.
const PACKET_TYPE: [u8; 4] = [0x80, 0x00, 44 << 1, 4];
const ETHERNET: u32 = 0;
