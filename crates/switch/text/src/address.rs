//! Ethernet and IP addresses, with masks.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::error::{TextError, refuse};
use super::number::scan;

const ETHERNET_ONES: u128 = 0xffff_ffff_ffff;

/// Parses six hexadecimal numbers at the start of `text`. Also returns the remaining text.
pub(crate) fn scan_ethernet(text: &str) -> Option<(u64, &str)> {
    let mut address = 0;
    let mut rest = text;
    for index in 0..6 {
        if index > 0 {
            rest = rest.strip_prefix(':')?;
        }
        let (byte, after) = scan(rest, 16)?;
        address = address << 8 | byte & 0xff;
        rest = after;
    }
    Some((address, rest))
}

pub(crate) fn parse_ethernet(text: &str) -> Result<(u128, u128), TextError> {
    let parse = || {
        let (address, rest) = scan_ethernet(text)?;
        if rest.is_empty() {
            return Some((address.into(), ETHERNET_ONES));
        }
        let (mask, rest) = scan_ethernet(rest.strip_prefix('/')?)?;
        rest.is_empty().then_some((address.into(), mask.into()))
    };
    parse().ok_or_else(|| refuse!("{text}: invalid Ethernet address"))
}

/// Parses four decimal numbers at the start of `text`. Also returns the remaining text. Numbers
/// above 255 wrap.
pub(crate) fn scan_ipv4(text: &str) -> Option<(u32, &str)> {
    let mut address = 0;
    let mut rest = text;
    for index in 0..4 {
        if index > 0 {
            rest = rest.strip_prefix('.')?;
        }
        let (byte, after) = scan(rest, 10)?;
        address = address << 8 | (byte as u32 & 0xff);
        rest = after;
    }
    Some((address, rest))
}

pub(crate) fn parse_ipv4(text: &str) -> Result<(u128, u128), TextError> {
    let invalid = || refuse!("{text}: invalid IP address");
    let (address, rest) = scan_ipv4(text).ok_or_else(invalid)?;
    let (mask, rest) = match rest.strip_prefix('/') {
        None => (u32::MAX, rest),
        Some(mask) => match scan_ipv4(mask) {
            Some(found) => found,
            None => {
                let (prefix, rest) = scan(mask, 10).ok_or_else(invalid)?;
                let prefix = prefix as u32;
                if prefix > 32 {
                    return Err(refuse!(
                        "{text}: IPv4 network prefix bits not between 0 and 32, inclusive"
                    ));
                }
                (u32::MAX.checked_shl(32 - prefix).unwrap_or(0), rest)
            }
        },
    };
    if rest.is_empty() { Ok((address.into(), mask.into())) } else { Err(invalid()) }
}

/// Parses an IPv6 address at the start of `text`. Also returns the remaining text.
pub(crate) fn scan_ipv6(text: &str) -> Option<(u128, &str)> {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let length = text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len()).min(46);
    let address: Ipv6Addr = text[..length].parse().ok()?;
    Some((address.into(), &text[length..]))
}

pub(crate) fn parse_ipv6(text: &str) -> Result<(u128, u128), TextError> {
    let invalid = || refuse!("{text}: invalid IPv6 address");
    let (address, rest) = scan_ipv6(text.trim_start()).ok_or_else(invalid)?;
    let (mask, rest) = match rest.strip_prefix('/') {
        None => (u128::MAX, rest),
        Some(mask) => match scan(mask, 10) {
            Some((prefix, after)) if !after.starts_with(':') => {
                let prefix = prefix as u32;
                if prefix > 128 {
                    return Err(refuse!(
                        "{text}: IPv6 network prefix bits not between 0 and 128, inclusive"
                    ));
                }
                (u128::MAX.checked_shl(128 - prefix).unwrap_or(0), after)
            }
            _ if !mask.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') => {
                return Err(invalid());
            }
            _ => scan_ipv6(mask).ok_or_else(|| refuse!("{text}: Invalid IPv6 mask"))?,
        },
    };
    if rest.is_empty() { Ok((address, mask)) } else { Err(invalid()) }
}

pub(crate) fn print_ethernet(out: &mut String, address: u128) {
    for index in (0..6).rev() {
        let _ = write!(out, "{:02x}", address >> (index * 8) & 0xff);
        if index > 0 {
            out.push(':');
        }
    }
}

pub(crate) fn print_ethernet_masked(out: &mut String, address: u128, mask: u128) {
    print_ethernet(out, address);
    if mask != ETHERNET_ONES {
        out.push('/');
        print_ethernet(out, mask);
    }
}

pub(crate) fn print_ipv4_masked(out: &mut String, address: u128, mask: u128) {
    let _ = write!(out, "{}", Ipv4Addr::from(address as u32));
    let mask = mask as u32;
    if mask == u32::MAX {
        return;
    }
    if mask.leading_ones() + mask.trailing_zeros() >= 32 {
        let _ = write!(out, "/{}", mask.leading_ones());
    } else {
        let _ = write!(out, "/{}", Ipv4Addr::from(mask));
    }
}

pub(crate) fn print_ipv6_masked(out: &mut String, address: u128, mask: u128) {
    print_ipv6(out, address);
    if mask == u128::MAX {
        return;
    }
    if mask.leading_ones() + mask.trailing_zeros() >= 128 {
        let _ = write!(out, "/{}", mask.leading_ones());
    } else {
        out.push('/');
        print_ipv6(out, mask);
    }
}

/// Prints an address as C's `inet_ntop` does, which writes `::1.2.3.4` for addresses below 2^32.
pub(crate) fn print_ipv6(out: &mut String, address: u128) {
    if address >> 32 == 0 && address > 0xffff {
        let _ = write!(out, "::{}", Ipv4Addr::from(address as u32));
    } else {
        let _ = write!(out, "{}", Ipv6Addr::from(address));
    }
}
