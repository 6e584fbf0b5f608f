//! `ct(…)` and `nat(…)`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use flow::action::{Action, Ct, CtZone, Nat, NatAddresses, NatDirection};

use super::order::Context;
use super::parse::{Parser, table};
use crate::address::{scan_ipv4, scan_ipv6};
use crate::error::{TextError, refuse};
use crate::number::{number_16, scan};
use crate::subfield::parse_subfield;
use crate::token::KeyValues;

pub(crate) fn ct(text: &str, parser: &mut Parser<'_>) -> Result<Action, TextError> {
    let mut ct = Ct::default();
    for (key, value) in KeyValues::new(text) {
        match key {
            "commit" => ct.commit = true,
            "force" => ct.force = true,
            "table" => match table(value) {
                Some(255) => return Err(refuse!("invalid table 0xff")),
                Some(number) => ct.table = Some(number),
                None => return Err(refuse!("unknown table {value}")),
            },
            "zone" => {
                ct.zone = match number_16(value, "zone") {
                    Ok(number) => CtZone::Number(number),
                    Err(_) => CtZone::From(parse_subfield(value)?),
                };
            }
            "alg" => {
                ct.alg = match value {
                    "ftp" => 21,
                    "tftp" => 69,
                    _ => return Err(refuse!("invalid conntrack helper \"{value}\"")),
                };
            }
            "nat" => ct.nat = Some(nat(value)?),
            "exec" => ct.exec.extend(parser.list(value, Context::Ct)?),
            _ => return Err(refuse!("invalid argument to \"ct\" action: `{key}'")),
        }
    }
    if ct.force && !ct.commit {
        return Err(refuse!("\"force\" flag requires \"commit\" flag."));
    }
    Ok(Action::Ct(Box::new(ct)))
}

pub(crate) fn nat(text: &str) -> Result<Nat, TextError> {
    let mut nat = Nat::default();
    let (mut source, mut destination) = (false, false);
    for (key, value) in KeyValues::new(text) {
        match key {
            "src" | "dst" => {
                *(if key == "src" { &mut source } else { &mut destination }) = true;
                (nat.addresses, nat.ports) = range(value)?;
            }
            "persistent" => nat.persistent = true,
            "hash" => nat.hash = true,
            "random" => nat.random = true,
            _ => return Err(refuse!("invalid key \"{key}\" in \"nat\" argument")),
        }
    }
    nat.direction = match (source, destination) {
        (true, true) => {
            return Err(refuse!("May only specify one of \"src\" or \"dst\"."));
        }
        (true, false) => Some(NatDirection::Source),
        (false, true) => Some(NatDirection::Destination),
        (false, false) => None,
    };
    if nat.direction.is_none() && (nat.persistent || nat.hash || nat.random) {
        return Err(refuse!("Flags allowed only with \"src\" or \"dst\"."));
    }
    if nat.hash && nat.random {
        return Err(refuse!("Both \"hash\" and \"random\" are not allowed."));
    }
    Ok(nat)
}

type Range = (Option<NatAddresses>, Option<RangeInclusive<u16>>);

/// Parses `10.0.0.1-10.0.0.9:1000-2000` or `[fd00::1]:80`.
fn range(text: &str) -> Result<Range, TextError> {
    let invalid = || refuse!("invalid nat range \"{text}\"");
    let mut rest = text;
    let mut addresses = None;
    if let Some((first, after)) = scan_ipv4(rest) {
        let mut last = first;
        rest = after;
        if let Some(after) = rest.strip_prefix('-') {
            (last, rest) = scan_ipv4(after).ok_or_else(invalid)?;
        }
        if last < first {
            return Err(invalid());
        }
        addresses = Some(NatAddresses::V4(Ipv4Addr::from(first)..=Ipv4Addr::from(last)));
    } else if let Some((first, after)) = bracketed(rest) {
        let mut last = first;
        rest = after;
        if let Some(after) = rest.strip_prefix('-') {
            (last, rest) = bracketed(after).ok_or_else(invalid)?;
        }
        if last < first {
            return Err(invalid());
        }
        addresses = Some(NatAddresses::V6(Ipv6Addr::from(first)..=Ipv6Addr::from(last)));
    }
    let mut ports = None;
    if addresses.is_some() && rest.starts_with(':') {
        let (first, after) = scan(&rest[1..], 10).ok_or_else(invalid)?;
        let first = first as u16;
        let mut last = first;
        rest = after;
        if let Some(after) = rest.strip_prefix('-') {
            let (number, after) = scan(after, 10).ok_or_else(invalid)?;
            last = number as u16;
            rest = after;
        }
        if last < first {
            return Err(invalid());
        }
        ports = (first != 0).then_some(first..=last);
    }
    if !rest.is_empty() {
        let at = text.len() - rest.len();
        return Err(refuse!("garbage ({rest}) after nat range \"{text}\" (pos: {at})"));
    }
    Ok((addresses, ports))
}

fn bracketed(text: &str) -> Option<(u128, &str)> {
    match text.strip_prefix('[') {
        None => scan_ipv6(text),
        Some(inner) => {
            let (address, rest) = scan_ipv6(inner)?;
            Some((address, rest.strip_prefix(']')?))
        }
    }
}
