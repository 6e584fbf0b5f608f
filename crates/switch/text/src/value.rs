//! The value of a field in a rule.
//!
//! In this module, a value has the width of a match entry in a message: for example, `nw_tos` has a
//! whole byte. A [`flow::Key`] may hold fewer bits; [`stored`] and [`written`] convert between the
//! widths.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use flow::port_number::PortNumber;
use flow::{Field, Format, Masking};

use super::error::{TextError, refuse};
use super::flags::{CT_STATE, TCP_FLAGS};
use super::number::{NumberError, integer};
use super::port::{PortNames, parse_port, print_port};
use super::{address, token};

static NAMES: LazyLock<HashMap<&'static str, Field>> = LazyLock::new(|| {
    let mut names = HashMap::new();
    for field in Field::ALL {
        names.insert(field.name(), *field);
        names.extend(field.aliases().iter().map(|alias| (*alias, *field)));
    }
    names
});

static HEADERS: LazyLock<HashMap<&'static str, Field>> = LazyLock::new(|| {
    let mut names = HashMap::new();
    for field in Field::ALL {
        let headers = [field.nxm(), field.oxm()];
        names.extend(headers.into_iter().flatten().map(|(_, name)| (name, *field)));
    }
    names
});

/// The syntax of a fragment match: name, value, mask. Bit 0 means fragment, bit 1 means later
/// fragment.
const FRAGMENTS: [(&str, u128, u128); 7] = [
    ("no", 0, 3),
    ("first", 1, 3),
    ("later", 3, 3),
    ("no", 0, 1),
    ("yes", 1, 1),
    ("not_later", 0, 2),
    ("later", 2, 2),
];

/// Returns the field with this name in rules: `nw_src`.
pub(crate) fn field_named(name: &str) -> Option<Field> {
    NAMES.get(name).copied()
}

/// Returns the field with this name in messages: `NXM_OF_IP_SRC`.
pub(crate) fn field_of_header(name: &str) -> Option<Field> {
    HEADERS.get(name).copied()
}

/// Whether Open vSwitch has a field of this name that this switch lacks.
pub(crate) fn is_foreign(name: &str) -> bool {
    let prefixes = ["tun_", "nsh_", "NXM_NX_TUN_", "NXOXM_NSH_", "ERICOXM_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || matches!(name, "packet_type" | "skb_priority" | "nd_reserved" | "nd_options_type")
}

pub(crate) fn foreign(name: &str) -> TextError {
    let end = token::until(name, b"[");
    refuse!("{}: Weir does not support this field", &name[..end])
}

/// Returns the length of a field's value in a message, in bytes.
pub(crate) fn bytes(field: Field) -> u8 {
    let entry = field.nxm().or(field.oxm());
    entry.map_or(field.place().width.div_ceil(8), |(entry, _)| entry.bytes)
}

/// Returns the mask of all bits of a field's value in a message.
pub(crate) fn ones(field: Field) -> u128 {
    u128::MAX >> (128 - u32::from(bytes(field)) * 8)
}

/// Returns the width of a field for subfields such as `NXM_OF_IP_TOS[0..3]`.
pub(crate) fn bits(field: Field) -> u8 {
    match field {
        Field::InPort => 16,
        Field::NwTos => 8,
        Field::VlanVid => 12,
        Field::CtState => 32,
        _ => field.place().width,
    }
}

/// Converts a value and its mask from the width in messages to the width in a key.
pub(crate) fn stored(field: Field, value: u128, mask: u128) -> (u128, u128) {
    let ones = field.place().all_ones();
    match field {
        Field::NwTos => (value >> 2 & ones, mask >> 2 & ones),
        Field::InPort if mask != 0 => (PortNumber::from_16_bits(value as u16).0.into(), ones),
        _ => (value & ones, mask & ones),
    }
}

/// Converts a value and its mask from the width in a key to the width in messages.
pub(crate) fn written(field: Field, value: u128, mask: u128) -> (u128, u128) {
    let is_whole = mask == field.place().all_ones();
    match field {
        Field::NwTos => (value << 2, if is_whole { 0xff } else { mask << 2 }),
        Field::InPort => (value & 0xffff, if is_whole { 0xffff } else { mask & 0xffff }),
        _ => (value, if is_whole { ones(field) } else { mask }),
    }
}

/// Reads a value with its mask, both in the width of messages.
pub(crate) fn parse_masked(
    field: Field,
    text: &str,
    names: &PortNames,
) -> Result<(u128, u128), TextError> {
    if text == "*" {
        return Ok((0, 0));
    }
    let all = ones(field);
    let (value, mask) = match field.format() {
        Format::Decimal | Format::Hexadecimal => parse_integer(field, text)?,
        Format::Ethernet => address::parse_ethernet(text)?,
        Format::Ipv4 => address::parse_ipv4(text)?,
        Format::Ipv6 => address::parse_ipv6(text)?,
        Format::Port => (parse_port_value(field, text, names)?, all),
        Format::Fragment => parse_fragment(text)?,
        Format::TcpFlags => TCP_FLAGS.parse(text)?,
        Format::CtState => CT_STATE.parse(text)?,
    };
    let mask = mask & all;
    if field.masking() == Masking::Exact && mask != 0 && mask != all {
        return Err(refuse!("{text}: invalid mask for field {}", field.name()));
    }
    Ok((value, mask))
}

/// Reads a value without a mask, in the width of messages.
pub(crate) fn parse_exact(field: Field, text: &str, names: &PortNames) -> Result<u128, TextError> {
    let (value, mask) = parse_masked(field, text, names)?;
    if mask != ones(field) {
        return Err(refuse!("{text}: wildcards not allowed here"));
    }
    Ok(value)
}

/// Whether a message may carry this value: all bits outside the field must be zero.
pub(crate) fn is_valid(field: Field, value: u128) -> bool {
    let allowed = match field {
        Field::NwTos => 0xfc,
        Field::ArpOp => 0xff,
        Field::InPort | Field::InPortOxm => return true,
        _ => field.place().all_ones(),
    };
    value & ones(field) & !allowed == 0
}

pub(crate) fn print_value(
    out: &mut String,
    field: Field,
    value: u128,
    mask: u128,
    names: &PortNames,
) {
    let all = ones(field);
    if mask & all == 0 {
        out.push_str("ANY");
        return;
    }
    let is_exact = mask & all == all;
    match field.format() {
        Format::Port if is_exact && field == Field::InPort => {
            print_port(out, PortNumber::from_16_bits(value as u16), names);
        }
        Format::Port if is_exact => print_port(out, PortNumber(value as u32), names),
        Format::Decimal | Format::Hexadecimal | Format::Port => {
            if field.format() == Format::Hexadecimal {
                print_hexadecimal(out, value);
            } else {
                let _ = write!(out, "{value}");
            }
            if !is_exact {
                out.push('/');
                print_hexadecimal(out, mask & all);
            }
        }
        Format::Ethernet => address::print_ethernet_masked(out, value, mask & all),
        Format::Ipv4 => address::print_ipv4_masked(out, value, mask & all),
        Format::Ipv6 => address::print_ipv6_masked(out, value, mask & all),
        Format::Fragment => {
            let found = FRAGMENTS.iter().find(|(_, v, m)| *m == mask & 3 && *v == value & mask & 3);
            out.push_str(found.map_or("<error>", |(name, ..)| name));
        }
        Format::TcpFlags => TCP_FLAGS.print(out, value, mask & 0xfff),
        Format::CtState => CT_STATE.print(out, value, mask & 0xff),
    }
}

/// Prints `0` or `0x1f`.
pub(crate) fn print_hexadecimal(out: &mut String, value: u128) {
    if value == 0 {
        out.push('0');
    } else {
        let _ = write!(out, "{value:#x}");
    }
}

fn parse_integer(field: Field, text: &str) -> Result<(u128, u128), TextError> {
    let bytes = bytes(field);
    let fail = |error: NumberError, part: &str| match error {
        NumberError::TooLarge => {
            refuse!("{text}: {part} too large for {bytes}-byte field {}", field.name())
        }
        NumberError::Syntax => refuse!("{text}: bad syntax for {} {part}", field.name()),
    };
    let (value, rest) = integer(text, bytes).map_err(|error| fail(error, "value"))?;
    if rest.is_empty() {
        return Ok((value, u128::MAX));
    }
    let mask = rest.strip_prefix('/').ok_or_else(|| fail(NumberError::Syntax, "value"))?;
    match integer(mask, bytes).map_err(|error| fail(error, "mask"))? {
        (mask, "") => Ok((value, mask)),
        _ => Err(fail(NumberError::Syntax, "mask")),
    }
}

fn parse_port_value(field: Field, text: &str, names: &PortNames) -> Result<u128, TextError> {
    match parse_port(text, names) {
        Some(port) if field == Field::InPort => Ok(u128::from(port.0 & 0xffff)),
        Some(port) => Ok(port.0.into()),
        None if field == Field::InPort => {
            Err(refuse!("{text}: invalid or unknown port for {}", field.name()))
        }
        None => Err(refuse!("{text}: port value out of range for {}", field.name())),
    }
}

fn parse_fragment(text: &str) -> Result<(u128, u128), TextError> {
    let found = FRAGMENTS.iter().find(|(name, ..)| text.eq_ignore_ascii_case(name));
    // The mask in this table also has the six upper bits of the byte, so that a mask of `0xff` is
    // an exact match.
    found.map(|(_, value, mask)| (*value, mask | !3)).ok_or_else(|| {
        refuse!(
            "{text}: unknown fragment type (valid types are \"no\", \"yes\", \"first\", \
             \"later\", \"not_later\""
        )
    })
}
