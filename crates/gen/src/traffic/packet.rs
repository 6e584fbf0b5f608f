use units::Span;
use wire::checksum::Sum;
use wire::headers::{IPV4, IPV6, MAC_HEADER, TAG};
use wire::{Layout, Network, Transport};

use super::addressing::{Tuple, mix};
use super::stamp::{Stamp, StampPlace};
use crate::capture::Capture;
use crate::profile::{EditContent, Ipv6Prefixes, PayloadEdit, Template};

/// One packet of a template, with zeroes in place of all that differs between flows.
#[derive(Debug, Clone)]
pub(super) struct PacketTemplate {
    bytes: Box<[u8]>,
    pub(super) from_client: bool,
    /// The time after the packet before it.
    pub(super) gap: Span,
    network_at: usize,
    /// The prefixes of clients and servers; `None` for IPv4.
    ipv6: Option<Ipv6Prefixes>,
    /// The sum of the IPv4 header, addresses excluded.
    header_sum: Sum,
    transport: Option<TransportFields>,
    edits: Box<[Edit]>,
    pub(super) stamp: Option<StampPlace>,
}

#[derive(Debug, Clone, Copy)]
struct TransportFields {
    /// The position of the client's port; `None` if it stays as captured.
    client_port_at: Option<usize>,
    /// The checksum's position, and the sum of everything else; `None` if the packet has none.
    checksum: Option<(usize, Sum)>,
    is_udp: bool,
}

#[derive(Debug, Clone, Copy)]
struct Edit {
    at: usize,
    /// At an odd offset of the transport header.
    is_odd: bool,
    content: EditContent,
    mask: u32,
}

/// The settings of a run that shape packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) tagged: bool,
    pub(super) ipv6: Option<Ipv6Prefixes>,
    pub(super) stamped: bool,
}

/// Makes the packets of a template, or says why the capture does not serve.
pub(super) fn compile(
    capture: &Capture,
    template: &Template,
    shortest_gap: Option<(Span, Span)>,
    shape: Shape,
) -> Result<(Vec<PacketTemplate>, Vec<String>), String> {
    let mut packets: Vec<PacketTemplate> = Vec::new();
    let mut client: Option<Vec<u8>> = None;
    let mut client_port = None;
    let (mut before, mut was_client) = (Span::ZERO, true);
    let mut skipped = 0usize;
    let mut other_flows = 0usize;
    for packet in &capture.packets {
        let Some(plain) = untagged(&packet.bytes) else {
            skipped += 1;
            continue;
        };
        let plain = match shape.ipv6 {
            Some(_) => as_ipv6(&plain).unwrap_or(plain),
            None => plain,
        };
        let Some(layout) = Layout::parse(&plain) else {
            skipped += 1;
            continue;
        };
        let addresses = match layout.network {
            Network::Ipv4 => 12..16,
            Network::Ipv6 => 8..24,
            Network::Other(_) => {
                skipped += 1;
                continue;
            }
        };
        let at = layout.network_offset;
        let source = plain[at + addresses.start..at + addresses.end].to_vec();
        let from_client = *client.get_or_insert_with(|| source.clone()) == source;
        let has_ports = matches!(layout.transport, Transport::Udp | Transport::Tcp { .. });
        let port_at = layout.transport_offset + if from_client { 0 } else { 2 };
        let port = has_ports.then(|| wire::headers::word(&plain, port_at)).flatten();
        let first_port = *client_port.get_or_insert(port);
        let own_port = port == first_port;
        other_flows += usize::from(!own_port);

        let gap = match (packets.is_empty(), template.capture_times) {
            (true, _) => Span::ZERO,
            (false, true) => {
                let gap = packet.at.saturating_sub(before);
                match shortest_gap {
                    Some((shortest, other)) if gap < shortest => other,
                    Some((_, other)) => Span::from_nanos(gap.nanos().max(other.nanos())),
                    None => gap,
                }
            }
            (false, false) if was_client == from_client => template.gap,
            (false, false) => template.turn_gap,
        };
        (before, was_client) = (packet.at, from_client);
        let keep_port = template.keep_source_port || !own_port || !has_ports;
        let number = packets.len();
        let edits: Vec<PayloadEdit> =
            template.edits.iter().filter(|edit| edit.packet == number).copied().collect();
        packets.push(packet_template(plain, from_client, gap, keep_port, &edits, shape)?);
    }
    if packets.is_empty() {
        return Err("the capture has no IP packet".to_owned());
    }
    let mut notes = Vec::new();
    if skipped > 0 {
        notes.push(format!("{}: {skipped} packets that are not IP are left out", template.name));
    }
    if other_flows > 0 {
        notes.push(format!(
            "{}: {other_flows} packets of further connections keep the client's port of the capture",
            template.name
        ));
    }
    Ok((packets, notes))
}

fn packet_template(
    mut bytes: Vec<u8>,
    from_client: bool,
    gap: Span,
    keep_port: bool,
    edits: &[PayloadEdit],
    shape: Shape,
) -> Result<PacketTemplate, String> {
    if shape.tagged {
        bytes.splice(MAC_HEADER - 2..MAC_HEADER - 2, [0x81, 0x00, 0, 0]);
    }
    let layout = Layout::parse(&bytes).ok_or("a frame is too short")?;
    let at = layout.network_offset;
    bytes[..12].fill(0);
    let ipv6 = match layout.network {
        Network::Ipv4 => {
            bytes[at + 10..at + 20].fill(0);
            None
        }
        _ => {
            bytes[at + 8..at + 40].fill(0);
            Some(shape.ipv6.unwrap_or(Ipv6Prefixes { clients: [0; 6], servers: [0; 6] }))
        }
    };
    let header_len = match ipv6 {
        None => layout.network_offset + usize::from(bytes[at] & 0x0f) * 4,
        Some(_) => at + 40,
    };
    let header_sum = Sum::of(&bytes[at..header_len.min(bytes.len())]);
    let start = layout.transport_offset;
    let payload_at = layout.payload_offset().unwrap_or(layout.end).min(layout.end);
    let (protocol, checksum_at, is_udp) = match layout.transport {
        Transport::Udp => (wire::headers::UDP, Some(start + 6), true),
        Transport::Tcp { .. } => (wire::headers::TCP, Some(start + 16), false),
        _ => (0, None, false),
    };
    let client_port_at =
        (!keep_port && checksum_at.is_some()).then(|| start + if from_client { 0 } else { 2 });
    let stamp = if shape.stamped {
        let room = layout.end.saturating_sub(payload_at);
        if !is_udp || room < Stamp::LEN {
            return Err(format!(
                "a packet has no room for a stamp: {} bytes of UDP payload are needed, so that loss \
                 can be told from other traffic",
                Stamp::LEN
            ));
        }
        bytes[payload_at..payload_at + Stamp::LEN].fill(0);
        Some(StampPlace { at: payload_at, checksum_at: start + 6 })
    } else {
        None
    };
    if let Some(port_at) = client_port_at {
        bytes[port_at..port_at + 2].fill(0);
    }
    let none = is_udp && ipv6.is_none() && bytes[start + 6..start + 8] == [0, 0];
    let checksum = checksum_at.filter(|_| !none).map(|checksum_at| {
        bytes[checksum_at..checksum_at + 2].fill(0);
        let mut sum = Sum::of(&bytes[start..layout.end])
            .plus_word(u16::from(protocol))
            .plus_long((layout.end - start) as u32);
        if let Some(prefixes) = ipv6 {
            for word in prefixes.clients.iter().chain(&prefixes.servers) {
                sum = sum.plus_word(*word);
            }
        }
        (checksum_at, sum)
    });
    let mut places = Vec::new();
    for edit in edits {
        for word in 0..edit.words {
            let at = payload_at + edit.offset + 4 * word;
            if at + 4 > layout.end {
                return Err("`dyn_pyload` writes beyond a packet's payload".to_owned());
            }
            let is_odd = (at - start) % 2 == 1;
            places.push(Edit { at, is_odd, content: edit.content, mask: edit.mask });
        }
    }
    Ok(PacketTemplate {
        bytes: bytes.into_boxed_slice(),
        from_client,
        gap,
        network_at: at,
        ipv6,
        header_sum,
        transport: checksum_at.map(|_| TransportFields { client_port_at, checksum, is_udp }),
        edits: places.into_boxed_slice(),
        stamp,
    })
}

impl PacketTemplate {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the packet of a flow, without MAC addresses and tag. `None` if the buffer is too
    /// short.
    #[inline]
    pub(super) fn write(&self, tuple: &Tuple, flow: u64, buffer: &mut [u8]) -> Option<usize> {
        let frame = buffer.get_mut(..self.bytes.len())?;
        frame.copy_from_slice(&self.bytes);
        let (source, destination) = match self.from_client {
            true => (tuple.client, tuple.server),
            false => (tuple.server, tuple.client),
        };
        let at = self.network_at;
        let addresses = Sum::default().plus_long(source).plus_long(destination);
        match &self.ipv6 {
            None => {
                let header = frame[at..].first_chunk_mut::<20>()?;
                let checksum = self.header_sum.plus(addresses).checksum();
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                header[12..16].copy_from_slice(&source.to_be_bytes());
                header[16..].copy_from_slice(&destination.to_be_bytes());
            }
            Some(prefixes) => {
                let header = frame[at..].first_chunk_mut::<40>()?;
                let (from, to) = match self.from_client {
                    true => (&prefixes.clients, &prefixes.servers),
                    false => (&prefixes.servers, &prefixes.clients),
                };
                for (place, word) in header[8..20].chunks_exact_mut(2).zip(from) {
                    place.copy_from_slice(&word.to_be_bytes());
                }
                header[20..24].copy_from_slice(&source.to_be_bytes());
                for (place, word) in header[24..36].chunks_exact_mut(2).zip(to) {
                    place.copy_from_slice(&word.to_be_bytes());
                }
                header[36..].copy_from_slice(&destination.to_be_bytes());
            }
        }
        let Some(transport) = &self.transport else { return Some(self.bytes.len()) };
        let mut sum = addresses;
        if let Some(port_at) = transport.client_port_at {
            let place = frame[port_at..].first_chunk_mut::<2>()?;
            *place = tuple.client_port.to_be_bytes();
            sum = sum.plus_word(tuple.client_port);
        }
        for edit in &self.edits {
            sum = sum.plus(edit.apply(tuple, flow, frame));
        }
        if let Some((checksum_at, rest)) = transport.checksum {
            let sum = rest.plus(sum);
            let checksum = match transport.is_udp {
                true => sum.checksum_nonzero(),
                false => sum.checksum(),
            };
            *frame[checksum_at..].first_chunk_mut::<2>()? = checksum.to_be_bytes();
        }
        Some(self.bytes.len())
    }
}

impl Edit {
    /// Changes a word and returns the difference of the sum: the new word plus the complement of
    /// the old one.
    fn apply(&self, tuple: &Tuple, flow: u64, frame: &mut [u8]) -> Sum {
        let Some(place) = frame[self.at..].first_chunk_mut::<4>() else { return Sum::default() };
        let value = match self.content {
            EditContent::Random => mix(flow ^ ((self.at as u64) << 40)) as u32,
            EditContent::ClientAddress => tuple.client,
        };
        let old = u32::from_be_bytes(*place);
        let new = (old & !self.mask) | (value & self.mask);
        *place = new.to_be_bytes();
        // At an odd offset a sum has its bytes swapped (RFC 1071 section 2 B).
        let change = Sum::default().plus_long(new).plus_long(!old);
        match self.is_odd {
            true => Sum::default().plus_word(change.folded().swap_bytes()),
            false => change,
        }
    }
}

/// The frame without VLAN tags; `None` if it is too short.
fn untagged(frame: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = frame.to_vec();
    while wire::headers::is_tag(wire::headers::word(&bytes, MAC_HEADER - 2)?) {
        if bytes.len() < MAC_HEADER + TAG {
            return None;
        }
        bytes.drain(MAC_HEADER - 2..MAC_HEADER - 2 + TAG);
    }
    Some(bytes)
}

/// An IPv4 packet with an IPv6 header instead; `None` if it cannot be one.
fn as_ipv6(frame: &[u8]) -> Option<Vec<u8>> {
    let layout = Layout::parse(frame)?;
    if layout.network != Network::Ipv4
        || !matches!(layout.transport, Transport::Udp | Transport::Tcp { .. })
        || wire::headers::word(frame, MAC_HEADER - 2)? != IPV4
    {
        return None;
    }
    let at = layout.network_offset;
    let transport = &frame[layout.transport_offset..layout.end];
    let mut bytes = frame[..MAC_HEADER - 2].to_vec();
    bytes.extend(IPV6.to_be_bytes());
    bytes.extend([0x60, 0, 0, 0]);
    bytes.extend((transport.len() as u16).to_be_bytes());
    bytes.extend([frame[at + 9], frame[at + 8]]);
    bytes.extend([0; 32]);
    bytes.extend(transport);
    Some(bytes)
}
