//! Nicira's requests to remove tracked connections.

use std::net::{IpAddr, Ipv6Addr};

use flow::connection::TupleMatch;
use flow::request::{ConnectionFlush, Refusal};

use super::octets::Reader;

/// Reads a request for a zone.
pub(super) fn decode_zone_flush(mut body: Reader<'_>) -> Result<ConnectionFlush, Refusal> {
    if body.take(6)?.iter().any(|byte| *byte != 0) {
        return Err(Refusal::NotPermitted);
    }
    Ok(ConnectionFlush { zone: Some(body.u16()?), ..ConnectionFlush::default() })
}

/// Reads a request for the connections whose tuples match.
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
    // A request for ICMP connections always carries identifiers, types and codes. The switch
    // ignores these values in a tuple without addresses.
    if matches!(protocol, ICMP | ICMPV6) {
        for tuple in [&mut flush.original, &mut flush.reply].into_iter().flatten() {
            if tuple.source.is_none() && tuple.destination.is_none() {
                *tuple = TupleMatch::default();
            }
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

/// Reads the type and the value of a property. The next property begins at a multiple of eight
/// bytes.
fn property<'a>(body: &mut Reader<'a>) -> Result<(u16, Reader<'a>), Refusal> {
    let (kind, length) = (body.u16()?, usize::from(body.u16()?));
    let value = body.take(length.checked_sub(4).ok_or(Refusal::BadLength)?)?;
    let padding = length.next_multiple_of(8) - length;
    body.skip(padding.min(body.len()))?;
    Ok((kind, Reader::new(value, Refusal::BadLength)))
}

/// Reads an IPv6 address or a mapped IPv4 address; all zeros mean any address.
fn address(value: &mut Reader<'_>) -> Result<Option<IpAddr>, Refusal> {
    let address = Ipv6Addr::from(value.array::<16>()?);
    Ok((!address.is_unspecified()).then(|| match address.to_ipv4_mapped() {
        Some(address) => address.into(),
        None => address.into(),
    }))
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_icmp_tuple_matches_all_connections() {
        let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0];
        // The original tuple has a source and an identifier, and the reply tuple has no addresses.
        let source = [0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 1, 2];
        let identified = |id: u8, kind: u8| {
            let mut fields = vec![0, 4, 0, 6, 0, id, 0, 0, 0, 5, 0, 5, kind, 0, 0, 0];
            fields.extend([0, 6, 0, 5, 0, 0, 0, 0]);
            fields
        };
        let original = [&source[..], &[0; 4], &identified(9, 8)].concat();
        for (kind, tuple) in [(0, original), (1, identified(0, 0))] {
            body.extend([0, kind, 0, 8 + tuple.len() as u8, 0, 0, 0, 0]);
            body.extend(tuple);
        }
        let flush = decode_flush(Reader::new(&body, Refusal::BadLength)).expect("a flush");
        let original = flush.original.expect("an original tuple");
        assert_eq!(original.source, Some([10, 1, 1, 2].into()));
        assert_eq!((original.icmp_id, original.icmp_type), (Some(9), Some(8)));
        assert_eq!((original.protocol, flush.reply), (Some(1), Some(TupleMatch::default())));
    }
}
