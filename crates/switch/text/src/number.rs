//! Numbers in the forms that C's `strtoull` and `scanf` accept.

use super::error::{TextError, refuse};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberError {
    Syntax,
    TooLarge,
}

/// Parses a number of at most `bytes` bytes at the start of `text`. Also returns the remaining
/// text. Hexadecimal numbers may have spaces between their digits.
pub(crate) fn integer(text: &str, bytes: u8) -> Result<(u128, &str), NumberError> {
    let limit = u32::from(bytes) * 8;
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let mut value: u128 = 0;
        let mut rest = digits;
        loop {
            rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            let Some(digit) = rest.chars().next().and_then(|digit| digit.to_digit(16)) else {
                return Ok((value, rest));
            };
            if value >> (limit - 4) != 0 {
                return Err(NumberError::TooLarge);
            }
            value = value << 4 | u128::from(digit);
            rest = &rest[1..];
        }
    }
    let (value, rest) = unsigned(text, 0)?;
    let value = u128::from(value);
    if limit < 128 && value >> limit != 0 {
        return Err(NumberError::TooLarge);
    }
    Ok((value, rest))
}

/// Reads a number as `strtoull` does: a sign is allowed, and a negative number wraps.
pub(crate) fn unsigned(text: &str, base: u32) -> Result<(u64, &str), NumberError> {
    let (negative, text) = sign(text);
    let (value, rest) = digits(text, base)?;
    let value = u64::try_from(value).map_err(|_| NumberError::TooLarge)?;
    Ok((if negative { value.wrapping_neg() } else { value }, rest))
}

/// Skips spaces and a sign. Returns whether the sign is negative, and the rest of the text.
fn sign(text: &str) -> (bool, &str) {
    let text = text.trim_start_matches(is_space);
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

/// Reads the digits at the start of `text` in base 8, 10 or 16. Base 0 takes the base from a
/// prefix.
fn digits(text: &str, base: u32) -> Result<(u128, &str), NumberError> {
    let bytes = text.as_bytes();
    let has_prefix = bytes.len() > 2
        && bytes[0] == b'0'
        && bytes[1] | 0x20 == b'x'
        && bytes[2].is_ascii_hexdigit();
    let (base, text) = match base {
        0 | 16 if has_prefix => (16, &text[2..]),
        0 if bytes.first() == Some(&b'0') => (8, text),
        0 => (10, text),
        _ => (base, text),
    };
    let mut value: u128 = 0;
    let mut length = 0;
    for byte in text.bytes() {
        let Some(digit) = char::from(byte).to_digit(base) else { break };
        value = value.saturating_mul(base.into()).saturating_add(digit.into());
        length += 1;
    }
    if length == 0 { Err(NumberError::Syntax) } else { Ok((value, &text[length..])) }
}

/// Reads a number as `scanf` does with `%i`, `%d`, `%x` or `%u`: the value wraps to 64 bits.
pub(crate) fn scan(text: &str, base: u32) -> Option<(u64, &str)> {
    let (negative, text) = sign(text);
    let (value, rest) = digits(text, base).ok()?;
    let value = value as u64;
    Some((if negative { value.wrapping_neg() } else { value }, rest))
}

/// Reads a number as `atoi` does: a text without digits is zero.
pub(crate) fn leading(text: &str) -> i64 {
    scan(text, 10).map_or(0, |(value, _)| value as i64)
}

/// Parses the whole text as a number between `low` and `high`.
fn whole(text: &str, low: i64, high: i64) -> Option<i64> {
    let (value, rest) = unsigned(text, 0).ok()?;
    let negative = text.trim_start_matches(is_space).starts_with('-');
    let value = value as i64;
    let in_range = (low..=high).contains(&value) && (value >= 0 || negative);
    (rest.is_empty() && in_range).then_some(value)
}

pub(crate) fn number_8(text: &str, name: &str) -> Result<u8, TextError> {
    whole(text, 0, 0xff).map(|value| value as u8).ok_or_else(|| invalid(name, text))
}

pub(crate) fn number_16(text: &str, name: &str) -> Result<u16, TextError> {
    whole(text, 0, 0xffff).map(|value| value as u16).ok_or_else(|| invalid(name, text))
}

pub(crate) fn number_32(text: &str) -> Result<u32, TextError> {
    let value = number_64(text)?;
    u32::try_from(value).map_err(|_| refuse!("invalid numeric format {text}"))
}

pub(crate) fn number_64(text: &str) -> Result<u64, TextError> {
    if text.is_empty() {
        return Err(refuse!("missing required numeric argument"));
    }
    match unsigned(text, 0) {
        Ok((value, "")) => Ok(value),
        _ => Err(refuse!("invalid numeric format {text}")),
    }
}

fn invalid(name: &str, text: &str) -> TextError {
    refuse!("invalid {name} \"{text}\"")
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_parse_in_decimal_octal_and_hexadecimal_as_in_c() {
        assert_eq!(integer("0x1 2z", 2), Ok((0x12, "z")));
        assert_eq!(integer("0x10000", 2), Err(NumberError::TooLarge));
        assert_eq!(integer("-1", 8), Ok((u128::from(u64::MAX), "")));
        assert_eq!(integer("-1", 4), Err(NumberError::TooLarge));
        assert_eq!(integer("017/", 1), Ok((15, "/")));
        assert_eq!(integer("x", 1), Err(NumberError::Syntax));
        assert!(number_16("65536", "n").is_err());
        assert!(number_16("-1", "n").is_err());
        assert_eq!(leading("12x"), 12);
    }
}
