use std::net::{Ipv4Addr, Ipv6Addr};

use flow::action::{Nat, NatAddresses, NatDirection};
use flow::request::Refusal;

use super::super::octets::{Put, Reader};
use super::{begin_nicira, finish};

/// Reads `nat` after its subtype.
pub(super) fn decode_nat(body: &mut Reader<'_>) -> Result<Nat, Refusal> {
    body.skip(2)?;
    let flags = body.u16()?;
    let present = body.u16()?;
    let direction = match flags & (SOURCE | DESTINATION) {
        0 => None,
        SOURCE => Some(NatDirection::Source),
        DESTINATION => Some(NatDirection::Destination),
        _ => return Err(Refusal::BadActionArgument),
    };
    let is_bad = direction.is_none() && (flags != 0 || present != 0)
        || flags & HASH != 0 && flags & RANDOM != 0
        || present & (V4_MIN | V4_MAX) != 0 && present & (V6_MIN | V6_MAX) != 0;
    if is_bad {
        return Err(Refusal::BadActionArgument);
    }
    let mut nat = Nat {
        direction,
        persistent: flags & PERSISTENT != 0,
        hash: flags & HASH != 0,
        random: flags & RANDOM != 0,
        ..Nat::default()
    };
    if present & V4_MIN != 0 {
        let first = Ipv4Addr::from(body.u32()?);
        let last = if present & V4_MAX != 0 { body.u32()?.into() } else { first };
        nat.addresses = Some(NatAddresses::V4(range(first, last)?));
    } else if present & V6_MIN != 0 {
        let first = Ipv6Addr::from(body.array::<16>()?);
        let last = if present & V6_MAX != 0 { body.array::<16>()?.into() } else { first };
        nat.addresses = Some(NatAddresses::V6(range(first, last)?));
    }
    if present & PORT_MIN != 0 {
        let first = body.u16()?;
        let last = if present & PORT_MAX != 0 { body.u16()? } else { first };
        nat.ports = Some(range(first, last)?);
    }
    Ok(nat)
}

pub(super) fn encode_nat(nat: &Nat, out: &mut Vec<u8>) {
    let start = begin_nicira(36, out);
    out.put_zeros(2);
    let mut flags = match nat.direction {
        None => 0,
        Some(NatDirection::Source) => SOURCE,
        Some(NatDirection::Destination) => DESTINATION,
    };
    for (is_set, flag) in [(nat.persistent, PERSISTENT), (nat.hash, HASH), (nat.random, RANDOM)] {
        flags |= if is_set { flag } else { 0 };
    }
    out.put_u16(flags);
    let at = out.len();
    out.put_u16(0);
    let mut present = 0;
    match &nat.addresses {
        None => {}
        Some(NatAddresses::V4(range)) => {
            present |= V4_MIN;
            out.extend_from_slice(&range.start().octets());
            if range.end() != range.start() {
                present |= V4_MAX;
                out.extend_from_slice(&range.end().octets());
            }
        }
        Some(NatAddresses::V6(range)) => {
            present |= V6_MIN;
            out.extend_from_slice(&range.start().octets());
            if range.end() != range.start() {
                present |= V6_MAX;
                out.extend_from_slice(&range.end().octets());
            }
        }
    }
    if let Some(range) = &nat.ports {
        present |= PORT_MIN;
        out.put_u16(*range.start());
        if range.end() != range.start() {
            present |= PORT_MAX;
            out.put_u16(*range.end());
        }
    }
    out.set_u16(at, present);
    finish(start, out);
}

fn range<T: PartialOrd>(first: T, last: T) -> Result<std::ops::RangeInclusive<T>, Refusal> {
    if first <= last { Ok(first..=last) } else { Err(Refusal::BadActionArgument) }
}

const SOURCE: u16 = 1;
const DESTINATION: u16 = 2;
const PERSISTENT: u16 = 4;
const HASH: u16 = 8;
const RANDOM: u16 = 16;

const V4_MIN: u16 = 1;
const V4_MAX: u16 = 2;
const V6_MIN: u16 = 4;
const V6_MAX: u16 = 8;
const PORT_MIN: u16 = 16;
const PORT_MAX: u16 = 32;
