//! Rewriting of addresses and ports, in a packet and in the packet that an ICMP error quotes.

use super::extract::{Extracted, u16_at};
use super::tuple::{ICMP, ICMPV6, Kind, Ports, SCTP, TCP, Tuple, UDP, is_icmp};
use super::view::{Headers, View};
use crate::datapath::checksum::crc32c;

/// Gives a packet the addresses and ports of `wanted`: of its own direction, also for an ICMP
/// error, whose quoted packet gets the reverse.
pub(super) fn translate(view: &mut View<'_>, extracted: &Extracted, wanted: &Tuple) {
    let headers = view.headers;
    let Some(inner) = extracted.inner else {
        let change = rewrite(view.frame, headers, extracted.is_fragment, wanted);
        if change.is_none() {
            return;
        }
        view.set_addresses(wanted.kind, wanted.source, wanted.destination);
        if matches!(wanted.protocol, TCP | UDP | SCTP) {
            view.set_ports(wanted.ports);
        }
        return;
    };
    // The outer address on the translated side changes too, also if a router on the way sent the
    // error and not the connection's end: its address would be foreign to the receiver.
    let (from, to) = (&extracted.tuple, wanted);
    let Some((source, destination)) = addresses(view.frame, headers.network, wanted.kind) else {
        return;
    };
    let source = if from.source == to.source { source } else { to.source };
    let destination = if from.destination == to.destination { destination } else { to.destination };
    rewrite(view.frame, inner, true, &wanted.reversed());
    let protocol = if wanted.kind.is_v6() { ICMPV6 } else { ICMP };
    write_addresses(view.frame, headers.network, wanted.kind, source, destination);
    complete_icmp(view.frame, headers, protocol, source, destination);
    view.set_addresses(wanted.kind, source, destination);
}

/// The change of a one's complement sum (RFC 1624).
#[derive(Debug, Clone, Copy, Default)]
struct Change(u64);

impl Change {
    fn word(&mut self, old: u16, new: u16) {
        self.0 += u64::from(!old) + u64::from(new);
    }

    fn wide(&mut self, old: u128, new: u128) {
        for shift in (0..128).step_by(16) {
            let (old, new) = ((old >> shift) as u16, (new >> shift) as u16);
            if old != new {
                self.word(old, new);
            }
        }
    }

    fn applied(self, checksum: u16) -> u16 {
        let mut sum = u64::from(!checksum) + self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn apply(self, frame: &mut [u8], at: usize) -> Option<()> {
        let checksum = self.applied(u16_at(frame, at)?);
        put_u16(frame, at, checksum)
    }
}

/// Rewrites one packet. `is_partial`: the transport header may be cut off after eight bytes, and
/// what is cut off cannot be updated.
fn rewrite(frame: &mut [u8], headers: Headers, is_partial: bool, wanted: &Tuple) -> Option<()> {
    let (source, destination) = addresses(frame, headers.network, wanted.kind)?;
    let mut pseudo = Change::default();
    pseudo.wide(source, wanted.source);
    pseudo.wide(destination, wanted.destination);
    write_addresses(frame, headers.network, wanted.kind, wanted.source, wanted.destination);
    let at = headers.transport;
    let end = headers.end.min(frame.len());
    let packet = &mut frame[..end];
    match wanted.protocol {
        TCP | UDP => {
            let mut change = pseudo;
            write_ports(packet, at, wanted.ports, &mut change)?;
            let field = at + if wanted.protocol == TCP { 16 } else { 6 };
            if wanted.protocol == TCP {
                if packet.len() >= field + 2 {
                    change.apply(packet, field)?;
                }
                return Some(());
            }
            let checksum = u16_at(packet, field)?;
            if checksum != 0 {
                let checksum = change.applied(checksum);
                put_u16(packet, field, if checksum == 0 { 0xffff } else { checksum })?;
            }
        }
        SCTP => {
            let mut change = Change::default();
            write_ports(packet, at, wanted.ports, &mut change)?;
            if change.0 != 0 && !is_partial {
                let checksum = crc32c(packet.get(at..)?);
                packet.get_mut(at + 8..at + 12)?.copy_from_slice(&checksum.to_le_bytes());
            }
        }
        protocol if is_icmp(protocol) => {
            let mut change = if protocol == ICMPV6 { pseudo } else { Change::default() };
            let identifier = u16_at(packet, at + 4)?;
            change.word(identifier, wanted.ports.source);
            put_u16(packet, at + 4, wanted.ports.source)?;
            change.apply(packet, at + 2)?;
        }
        _ => {}
    }
    Some(())
}

fn write_ports(frame: &mut [u8], at: usize, ports: Ports, change: &mut Change) -> Option<()> {
    for (at, port) in [(at, ports.source), (at + 2, ports.destination)] {
        let old = u16_at(frame, at)?;
        if old != port {
            change.word(old, port);
            put_u16(frame, at, port)?;
        }
    }
    Some(())
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

/// The frame has the header: `addresses` has read it.
fn write_addresses(frame: &mut [u8], network: usize, kind: Kind, source: u128, target: u128) {
    if kind.is_v6() {
        if let Some(bytes) = frame.get_mut(network + 8..network + 40) {
            bytes[..16].copy_from_slice(&source.to_be_bytes());
            bytes[16..].copy_from_slice(&target.to_be_bytes());
        }
        return;
    }
    let Some(header) = frame.get_mut(network..network + 20) else {
        return;
    };
    let mut change = Change::default();
    for (at, address) in [(12, source), (14, source), (16, target), (18, target)] {
        let shift = if at % 4 == 0 { 16 } else { 0 };
        let old = u16::from_be_bytes([header[at], header[at + 1]]);
        let new = (address >> shift) as u16;
        if old != new {
            change.word(old, new);
            header[at..at + 2].copy_from_slice(&new.to_be_bytes());
        }
    }
    if change.0 != 0 {
        let checksum = change.applied(u16::from_be_bytes([header[10], header[11]]));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Computes the checksum of an ICMP error again: its quoted packet has changed.
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

#[cfg(test)]
mod tests {
    use wire::checksum::Sum;

    use super::*;

    #[test]
    fn an_updated_sum_equals_a_computed_one() {
        let mut state = 1u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut bytes = state.to_be_bytes();
            let before = Sum::of(&bytes).checksum();
            let (old, new) = (u16::from_be_bytes([bytes[0], bytes[1]]), (state >> 7) as u16);
            bytes[..2].copy_from_slice(&new.to_be_bytes());
            let mut change = Change::default();
            change.word(old, new);
            assert_eq!(change.applied(before), Sum::of(&bytes).checksum());
        }
    }
}
