//! Subfields: parts of fields such as `NXM_NX_REG0[0..15]`, `reg0[3]`, `NXM_OF_ETH_SRC[]`.

use std::fmt::Write;

use flow::Field;
use flow::action::Subfield;

use super::error::{TextError, refuse};
use super::number::scan;
use super::token::until;
use super::value::{bits, field_named, field_of_header, foreign, is_foreign};

/// Reads a text that consists of a subfield only.
pub(crate) fn parse_subfield(text: &str) -> Result<Subfield, TextError> {
    match scan_subfield(text)? {
        (part, "") => Ok(part),
        _ => Err(refuse!("unexpected input following field syntax")),
    }
}

/// Reads a subfield at the start of `text`. Also returns the remaining text.
pub(crate) fn scan_subfield(text: &str) -> Result<(Subfield, &str), TextError> {
    let end = until(text, b"[-");
    let name = &text[..end];
    let header = name.strip_suffix("_W").filter(|short| !short.is_empty()).unwrap_or(name);
    let field = field_of_header(header).or_else(|| field_named(name)).ok_or_else(|| {
        if is_foreign(name) { foreign(name) } else { refuse!("{text}: unknown field `{name}'") }
    })?;
    let width = i64::from(bits(field));
    let rest = &text[end..];
    let (start, last, rest) = match rest.strip_prefix('[') {
        None => (0, width - 1, rest),
        Some(range) => {
            let (start, last) = scan_range(range, width).ok_or_else(|| {
                refuse!("{text}: syntax error expecting [] or [<bit>] or [<start>..<end>]")
            })?;
            (start, last, &range[until(range, b"]") + 1..])
        }
    };
    if start > last {
        return Err(refuse!("{text}: starting bit {start} is after ending bit {last}"));
    }
    let limit = |bit: i64, which: &str| {
        refuse!("{text}: {which} bit {bit} is not valid because field is only {width} bits wide")
    };
    if start >= width {
        return Err(limit(start, "starting"));
    }
    if last >= width {
        return Err(limit(last, "ending"));
    }
    if start < 0 {
        return Err(limit(start, "starting"));
    }
    let part = Subfield { field, start: start as u8, width: (last - start + 1) as u8 };
    Ok((part, rest))
}

/// Reads `]`, `3]` or `0..15]`.
fn scan_range(text: &str, width: i64) -> Option<(i64, i64)> {
    if text.starts_with(']') {
        return Some((0, width - 1));
    }
    let (start, rest) = scan(text, 10)?;
    let start = i64::from(start as i32);
    if rest.starts_with(']') {
        return Some((start, start));
    }
    let (last, rest) = scan(rest.strip_prefix("..")?, 10)?;
    rest.starts_with(']').then_some((start, i64::from(last as i32)))
}

pub(crate) fn print_subfield(out: &mut String, part: Subfield) {
    out.push_str(header_name(part.field));
    if part.start == 0 && part.width >= bits(part.field) {
        out.push_str("[]");
    } else if part.width == 1 {
        let _ = write!(out, "[{}]", part.start);
    } else {
        let last = u16::from(part.start) + u16::from(part.width) - 1;
        let _ = write!(out, "[{}..{last}]", part.start);
    }
}

/// Returns the field's name in Nicira's extension, or OpenFlow's name if Nicira's extension lacks
/// the field.
fn header_name(field: Field) -> &'static str {
    field.nxm().or(field.oxm()).map_or(field.name(), |(_, name)| name)
}

/// Whether OpenFlow messages have a match entry for the field.
pub(crate) fn has_header(field: Field) -> bool {
    field.nxm().or(field.oxm()).is_some()
}
