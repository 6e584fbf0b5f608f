//! Nicira's requests to forget tracked connections.

use std::net::{IpAddr, Ipv6Addr};

use super::octets::Reader;
use crate::datapath::conntrack::TupleMatch;
use crate::request::{ConnectionFlush, Refusal};

/// Reads a request for a zone.
pub(super) fn decode_zone_flush(mut body: Reader<'_>) -> Result<ConnectionFlush, Refusal> {
    if body.take(6)?.iter().any(|byte| *byte != 0) {
        return Err(Refusal::NotPermitted);
    }
    Ok(ConnectionFlush { zone: Some(body.u16()?), ..ConnectionFlush::default() })
}

/// Reads a request for connections with certain tuples.
pub(super) fn decode_flush(mut body: Reader<'_>) -> Result<ConnectionFlush, Refusal> {
    let mut flush = ConnectionFlush::default();
    let protocol = body.u8()?;
    body.skip(7)?;
    while !body.is_empty() {
        let (kind, mut value) = property(&mut body)?;
        match kind {
            0 | 1 => {
                value.skip(4)?;
                let tuple = decode_tuple(value)?;
                if kind == 0 { flush.original = Some(tuple) } else { flush.reply = Some(tuple) }
            }
            2 => flush.zone = Some(value.u16()?),
            _ => return Err(Refusal::NotPermitted),
        }
    }
    if protocol != 0 {
        flush.original.get_or_insert_default().protocol = Some(protocol);
    }
    Ok(flush)
}

fn decode_tuple(mut body: Reader<'_>) -> Result<TupleMatch, Refusal> {
    let mut tuple = TupleMatch::default();
    while !body.is_empty() {
        let (kind, mut value) = property(&mut body)?;
        match kind {
            0 => tuple.source = address(&mut value)?,
            1 => tuple.destination = address(&mut value)?,
            2 => tuple.source_port = Some(value.u16()?),
            3 => tuple.destination_port = Some(value.u16()?),
            4 => tuple.icmp_id = Some(value.u16()?),
            5 => tuple.icmp_type = Some(value.u8()?),
            6 => tuple.icmp_code = Some(value.u8()?),
            _ => return Err(Refusal::NotPermitted),
        }
    }
    Ok(tuple)
}

/// The kind and the value of a property; the next one begins at a multiple of eight bytes.
fn property<'a>(body: &mut Reader<'a>) -> Result<(u16, Reader<'a>), Refusal> {
    let (kind, length) = (body.u16()?, usize::from(body.u16()?));
    let value = body.take(length.checked_sub(4).ok_or(Refusal::BadLength)?)?;
    let padding = length.next_multiple_of(8) - length;
    body.skip(padding.min(body.len()))?;
    Ok((kind, Reader::new(value, Refusal::BadLength)))
}

/// An address of IPv6, or a mapped one of IPv4; all zeros are any.
fn address(value: &mut Reader<'_>) -> Result<Option<IpAddr>, Refusal> {
    let address = Ipv6Addr::from(value.array::<16>()?);
    Ok((!address.is_unspecified()).then(|| match address.to_ipv4_mapped() {
        Some(address) => address.into(),
        None => address.into(),
    }))
}
