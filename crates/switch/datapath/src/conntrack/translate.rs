//! Rewriting of addresses and ports, in a packet and in the packet that an ICMP error quotes.

use super::extract::{Extracted, u16_at};
use super::tuple::{ICMP, ICMPV6, Kind, Ports, SCTP, TCP, Tuple, UDP, is_icmp};
use super::view::{Headers, View};
use crate::checksum::{Change, crc32c, fixed};

/// Gives a packet the addresses and ports of `wanted`. In an ICMP error, the quoted packet gets the
/// addresses and ports of the reverse of `wanted`.
pub(super) fn translate(view: &mut View<'_>, extracted: &Extracted, wanted: &Tuple) {
    let headers = view.headers;
    let Some(inner) = extracted.inner else {
        let is_fragment = extracted.is_fragment;
        let change = rewrite(view.frame, headers, is_fragment, wanted, view.is_unfinished);
        if change.is_none() {
            return;
        }
        view.set_addresses(wanted.kind, wanted.source, wanted.destination);
        if matches!(wanted.protocol, TCP | UDP | SCTP) {
            view.set_ports(wanted.ports);
        }
        return;
    };
    // The outer address on the translated side always changes. If a router on the path sent the
    // error, the receiver does not know the router's address.
    let (from, to) = (&extracted.tuple, wanted);
    let Some((source, destination)) = addresses(view.frame, headers.network, wanted.kind) else {
        return;
    };
    let source = if from.source == to.source { source } else { to.source };
    let destination = if from.destination == to.destination { destination } else { to.destination };
    rewrite(view.frame, inner.headers(headers), true, &wanted.reversed(), false);
    let protocol = if wanted.kind.is_v6() { ICMPV6 } else { ICMP };
    write_addresses(view.frame, headers.network, wanted.kind, source, destination);
    complete_icmp(view.frame, headers, protocol, source, destination);
    view.set_addresses(wanted.kind, source, destination);
}

/// Rewrites one packet. `is_partial`: the transport header may be truncated after eight bytes, and
/// fields after these bytes are not updated. `is_unfinished`: the checksum is only the
/// pseudo-header's sum.
fn rewrite(
    frame: &mut [u8],
    headers: Headers,
    is_partial: bool,
    wanted: &Tuple,
    is_unfinished: bool,
) -> Option<()> {
    let pseudo =
        write_addresses(frame, headers.network, wanted.kind, wanted.source, wanted.destination)?;
    let at = headers.transport;
    let end = headers.end.min(frame.len());
    let packet = &mut frame[..end];
    match wanted.protocol {
        TCP => {
            let ports = write_ports(packet, at, wanted.ports)?;
            // The quoted packet may end before the checksum.
            if let Some(checksum) = u16_at(packet, at + 16) {
                put_u16(packet, at + 16, fixed(checksum, pseudo, ports, is_unfinished))?;
            }
        }
        UDP => {
            let ports = write_ports(packet, at, wanted.ports)?;
            let checksum = u16_at(packet, at + 6)?;
            if checksum != 0 || is_unfinished {
                let checksum = fixed(checksum, pseudo, ports, is_unfinished);
                put_u16(packet, at + 6, if checksum == 0 { 0xffff } else { checksum })?;
            }
        }
        SCTP => {
            let former = packet.get(at..at + 4)?.first_chunk::<4>().copied()?;
            write_ports(packet, at, wanted.ports)?;
            if packet.get(at..at + 4)? != former && !is_partial {
                let checksum = crc32c(packet.get(at..)?);
                packet.get_mut(at + 8..at + 12)?.copy_from_slice(&checksum.to_le_bytes());
            }
        }
        protocol if is_icmp(protocol) => {
            let identifier = u16_at(packet, at + 4)?;
            let own = Change::of(identifier.into(), wanted.ports.source.into());
            let change = if protocol == ICMPV6 { pseudo.and(own) } else { own };
            let checksum = u16_at(packet, at + 2)?;
            put_u16(packet, at + 4, wanted.ports.source)?;
            put_u16(packet, at + 2, change.apply(checksum))?;
        }
        _ => {}
    }
    Some(())
}

fn write_ports(frame: &mut [u8], at: usize, ports: Ports) -> Option<Change> {
    let field = frame.get_mut(at..)?.first_chunk_mut::<4>()?;
    let old = u32::from_be_bytes(*field);
    let new = u32::from(ports.source) << 16 | u32::from(ports.destination);
    *field = new.to_be_bytes();
    Some(Change::of(old.into(), new.into()))
}

fn addresses(frame: &[u8], network: usize, kind: Kind) -> Option<(u128, u128)> {
    if kind.is_v6() {
        let bytes: &[u8; 32] = frame.get(network + 8..)?.first_chunk()?;
        let read = |half: usize| {
            bytes[half * 16..].first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes))
        };
        return Some((read(0), read(1)));
    }
    let bytes: &[u8; 8] = frame.get(network + 12..)?.first_chunk()?;
    let both = u64::from_be_bytes(*bytes);
    Some(((both >> 32).into(), (both & 0xffff_ffff).into()))
}

/// Writes the addresses and updates the checksum of an IPv4 header. Returns the change of the
/// pseudo-header.
fn write_addresses(
    frame: &mut [u8],
    network: usize,
    kind: Kind,
    source: u128,
    destination: u128,
) -> Option<Change> {
    if kind.is_v6() {
        let former = addresses(frame, network, kind)?;
        let bytes = frame.get_mut(network + 8..network + 40)?;
        bytes[..16].copy_from_slice(&source.to_be_bytes());
        bytes[16..].copy_from_slice(&destination.to_be_bytes());
        let wide = |old: u128, new: u128| {
            Change::of((old >> 64) as u64, (new >> 64) as u64)
                .and(Change::of(old as u64, new as u64))
        };
        return Some(wide(former.0, source).and(wide(former.1, destination)));
    }
    let header = frame.get_mut(network..)?.first_chunk_mut::<20>()?;
    let both: &mut [u8; 8] = header[12..].first_chunk_mut()?;
    let old = u64::from_be_bytes(*both);
    let new = (source as u64) << 32 | u64::from(destination as u32);
    *both = new.to_be_bytes();
    let change = Change::of(old, new);
    let checksum = change.apply(u16::from_be_bytes([header[10], header[11]]));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(change)
}

/// Computes the checksum of an ICMP error, whose quoted packet has changed.
fn complete_icmp(frame: &mut [u8], headers: Headers, protocol: u8, source: u128, target: u128) {
    use wire::checksum::Sum;
    let Some(message) = frame.get_mut(headers.transport..headers.end) else {
        return;
    };
    message[2..4].fill(0);
    let mut sum = Sum::of(message);
    if protocol == ICMPV6 {
        sum = sum
            .plus(Sum::of(&source.to_be_bytes()))
            .plus(Sum::of(&target.to_be_bytes()))
            .plus_long(message.len() as u32)
            .plus_word(protocol.into());
    }
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
}

fn put_u16(frame: &mut [u8], at: usize, value: u16) -> Option<()> {
    frame.get_mut(at..at + 2)?.copy_from_slice(&value.to_be_bytes());
    Some(())
}
