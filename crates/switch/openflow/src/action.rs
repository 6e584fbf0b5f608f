//! Encodes actions: the standard actions of each version, and Nicira's.

mod decode;
mod encode;
mod instruction;
mod learn;
mod nat;
mod nicira_decode;
mod nicira_encode;
#[cfg(test)]
mod tests;
mod track;

pub(super) use decode::decode_actions;
pub(super) use encode::encode_actions;
pub(super) use instruction::{decode_instructions, encode_instructions};

use flow::action::Subfield;
use flow::request::Refusal;

use super::Version;
use super::match_entry::{Header, read_header};
use super::octets::Put;

const VENDOR: u16 = 0xffff;
const NICIRA: u32 = 0x0000_2320;
const ONF: u32 = 0x4f4e_4600;

/// Encodes a subfield's `start` and `width` in Nicira's 16 bits.
fn span(part: Subfield) -> u16 {
    u16::from(part.start) << 6 | (u16::from(part.width).wrapping_sub(1) & 0x3f)
}

/// Decodes the subfield of the field in `header` from Nicira's 16 bits.
fn part_of_span(header: Header, span: u16) -> Result<Subfield, Refusal> {
    part(header, span >> 6, (span & 0x3f) + 1)
}

fn part(header: Header, start: u16, width: u16) -> Result<Subfield, Refusal> {
    let field = header.field().ok_or(Refusal::BadSetField)?;
    let end = u32::from(start) + u32::from(width);
    if width == 0 || end > u32::from(field.place().width) {
        return Err(Refusal::BadActionArgument);
    }
    Ok(Subfield { field, start: start as u8, width: width as u8 })
}

fn writable(part: Subfield) -> Result<Subfield, Refusal> {
    if part.field.is_writable() { Ok(part) } else { Err(Refusal::BadActionArgument) }
}

/// Writes a field's header. Nicira's actions use OpenFlow 1.0's headers in all versions.
fn put_header(part: Subfield, out: &mut Vec<u8>) {
    out.put_u32(Header::of(part.field, Version::V10).0);
}

/// Begins a Nicira action; [`finish`] later sets the action's length.
fn begin_nicira(subtype: u16, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.put_u16(VENDOR);
    out.put_u16(0);
    out.put_u32(NICIRA);
    out.put_u16(subtype);
    start
}

/// Pads an action to 8 bytes and sets its length.
fn finish(start: usize, out: &mut Vec<u8>) {
    out.pad_to_8(start);
    out.set_u16(start + 2, (out.len() - start) as u16);
}
