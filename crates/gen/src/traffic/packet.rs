use units::Span;
use wire::checksum::Sum;
use wire::headers::{IPV4, IPV6, MAC_HEADER, TAG};
use wire::{Layout, Network, Transport};

use super::addressing::{Tuple, mix};
use super::connections::Connections;
use super::stamp::{Stamp, StampPlace};
use crate::capture::Capture;
use crate::profile::{EditContent, Ipv6Prefixes, PayloadEdit, Plugin, Template};

/// A packet of a template, with zeroes in the fields that differ between flows.
#[derive(Debug, Clone)]
pub(super) struct PacketTemplate {
    /// The packet's bytes, filled up with zeroes to whole blocks.
    blocks: Box<[[u8; BLOCK]]>,
    len: usize,
    pub(super) from_client: bool,
    /// The time after the previous packet.
    pub(super) gap: Span,
    network_at: usize,
    /// The prefixes of the IPv6 addresses of clients and servers; `None` for IPv4.
    ipv6: Option<Ipv6Prefixes>,
    /// The source address and the destination address, if the packet keeps the captured address.
    /// Unspecified and multicast addresses are kept.
    kept: [Option<u32>; 2],
    /// The sum of the IPv4 header without the addresses.
    header_sum: Sum,
    transport: Option<TransportFields>,
    edits: Box<[Edit]>,
    pub(super) stamp: Option<StampPlace>,
}

#[derive(Debug, Clone, Copy)]
struct TransportFields {
    ports: PortPlaces,
    /// The checksum's offset, and the sum of the bytes that stay the same; `None` if the packet has
    /// no checksum.
    checksum: Option<(usize, Sum)>,
    is_udp: bool,
}

/// The ports in a packet that differ between flows.
#[derive(Debug, Clone, Copy)]
enum Ports {
    Kept,
    Client,
    /// The client and the server both use the flow's further port with this index.
    Both(u16),
}

/// Like [`Ports`], with the ports' offsets in the packet.
#[derive(Debug, Clone, Copy)]
enum PortPlaces {
    None,
    One(usize),
    Two(usize, u16),
}

#[derive(Debug, Clone, Copy)]
struct Edit {
    at: usize,
    /// Whether the edit is at an odd offset from the transport header.
    is_odd: bool,
    content: EditContent,
    mask: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) tagged: bool,
    pub(super) ipv6: Option<Ipv6Prefixes>,
    pub(super) stamped: bool,
}

/// Returns the number of client ports that a flow of a template takes. The plug-ins for RTSP and
/// SIP give ports to two further connections.
pub(super) fn ports_of(template: &Template) -> usize {
    match template.plugin {
        Some(Plugin::Rtsp | Plugin::Sip) => 1 + MEDIA_CONNECTIONS,
        _ => 1,
    }
}

/// Makes the packets of a template. Returns an error with the reason if the capture cannot be used.
pub(super) fn compile(
    capture: &Capture,
    template: &Template,
    shortest_gap: Option<(Span, Span)>,
    shape: Shape,
) -> Result<(Vec<PacketTemplate>, Vec<String>), String> {
    let mut packets: Vec<PacketTemplate> = Vec::new();
    let mut connections = Connections::of(template);
    let keeps_ports = template.keep_source_port || template.plugin == Some(Plugin::Dhcp);
    let mut first_port = None;
    let (mut before, mut was_client) = (Span::ZERO, true);
    let mut skipped: Option<(usize, String)> = None;
    let mut kept = 0usize;
    for packet in &capture.packets {
        let (plain, layout) = match ip_packet(&packet.bytes) {
            Ok(packet) => packet,
            Err(kind) => {
                skipped.get_or_insert((0, kind)).0 += 1;
                continue;
            }
        };
        let seen = connections.see(&plain, &layout)?;
        let from_client = seen.from_client;
        let has_ports = matches!(layout.transport, Transport::Udp | Transport::Tcp { .. });
        let first_port = *first_port.get_or_insert(seen.client_port);
        let ports = match (template.plugin, seen.connection) {
            _ if !has_ports || keeps_ports => Ports::Kept,
            (Some(Plugin::Rtsp | Plugin::Sip), number @ 1..=MEDIA_CONNECTIONS) => {
                Ports::Both(number as u16)
            }
            _ if seen.client_port == first_port => Ports::Client,
            _ => {
                kept += 1;
                Ports::Kept
            }
        };
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
        let converted = shape.ipv6.and_then(|_| as_ipv6(&plain));
        let is_converted = converted.is_some();
        let plain = converted.unwrap_or(plain);
        let number = packets.len();
        let edits: Vec<PayloadEdit> =
            template.edits.iter().filter(|edit| edit.packet == number).copied().collect();
        let edits = (&edits[..], is_converted);
        packets.push(packet_template(plain, from_client, gap, ports, edits, shape)?);
    }
    let name = units::foreign(&template.name);
    let mut notes = Vec::new();
    match skipped {
        Some((_, kind)) if packets.is_empty() => {
            return Err(format!("the capture has no IP packet; the first one is {kind}"));
        }
        Some((count, kind)) => notes.push(format!(
            "{name}: {count} packets that are not IP are left out; the first of them is {kind}"
        )),
        None if packets.is_empty() => return Err("the capture has no packets".to_owned()),
        None => {}
    }
    if kept > 0 {
        notes.push(format!(
            "{name}: {kept} packets of further connections keep the client's port of the capture"
        ));
    }
    if let Some(edit) = template.edits.iter().find(|edit| edit.packet >= packets.len()) {
        notes.push(format!(
            "{name}: `dyn_pyload` changes packet {}, and the capture has {} packets, counted from 0",
            edit.packet,
            packets.len()
        ));
    }
    Ok((packets, notes))
}

/// Returns a captured frame without tags, padded at least to Ethernet's minimum length. Returns an
/// error that describes the frame if the frame is not IP.
fn ip_packet(frame: &[u8]) -> Result<(Vec<u8>, Layout), String> {
    let short = || "shorter than a MAC header".to_owned();
    let mut plain = untagged(frame).ok_or_else(short)?;
    let layout = Layout::parse(&plain).ok_or_else(short)?;
    match layout.network {
        Network::Ipv4 | Network::Ipv6 => {
            plain.truncate(layout.end);
            plain.resize(plain.len().max(SHORTEST), 0);
            Ok((plain, layout))
        }
        Network::Other(IPV4 | IPV6) => Err("IP with an invalid header".to_owned()),
        Network::Other(0x8863 | 0x8864) => Err("PPPoE, which is not supported".to_owned()),
        Network::Other(0x8847 | 0x8848) => Err("MPLS, which is not supported".to_owned()),
        Network::Other(0x0806) => Err("ARP".to_owned()),
        Network::Other(kind) => Err(format!("a frame of EtherType {kind:#06x}")),
    }
}

fn packet_template(
    mut bytes: Vec<u8>,
    from_client: bool,
    gap: Span,
    ports: Ports,
    (edits, is_converted): (&[PayloadEdit], bool),
    shape: Shape,
) -> Result<PacketTemplate, String> {
    if shape.tagged {
        bytes.splice(MAC_HEADER - 2..MAC_HEADER - 2, [0x81, 0x00, 0, 0]);
    }
    let layout = Layout::parse(&bytes).ok_or("a frame is too short")?;
    let at = layout.network_offset;
    bytes[..12].fill(0);
    let (ipv6, kept) = match layout.network {
        Network::Ipv4 => {
            let kept = kept_addresses(&bytes[at..]);
            bytes[at + 10..at + 20].fill(0);
            (None, kept)
        }
        _ => {
            let captured = captured_prefixes(&bytes[at..], from_client);
            bytes[at + 8..at + 40].fill(0);
            (Some(if is_converted { shape.ipv6.unwrap_or(captured) } else { captured }), [None; 2])
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
    let ports = match (ports, checksum_at) {
        (Ports::Kept, _) | (_, None) => PortPlaces::None,
        (Ports::Client, _) => PortPlaces::One(start + if from_client { 0 } else { 2 }),
        (Ports::Both(number), _) => PortPlaces::Two(start, number),
    };
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
    match ports {
        PortPlaces::None => {}
        PortPlaces::One(at) => bytes[at..at + 2].fill(0),
        PortPlaces::Two(at, _) => bytes[at..at + 4].fill(0),
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
    let len = bytes.len();
    bytes.resize(len.next_multiple_of(BLOCK), 0);
    Ok(PacketTemplate {
        blocks: bytes.as_chunks().0.into(),
        len,
        from_client,
        gap,
        network_at: at,
        ipv6,
        kept,
        header_sum,
        transport: checksum_at.map(|_| TransportFields { ports, checksum, is_udp }),
        edits: places.into_boxed_slice(),
        stamp,
    })
}

/// Returns the addresses of an IPv4 header that stay as captured.
fn kept_addresses(header: &[u8]) -> [Option<u32>; 2] {
    let long = |at: usize| header.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let is_group = |address: &u32| address >> 28 == 0xe || *address == u32::MAX;
    [long(12).filter(|source| *source == 0), long(16).filter(is_group)]
}

fn captured_prefixes(header: &[u8], from_client: bool) -> Ipv6Prefixes {
    let prefix = |at: usize| {
        std::array::from_fn(|word| wire::headers::word(header, at + 2 * word).unwrap_or(0))
    };
    let (source, destination) = (prefix(8), prefix(24));
    match from_client {
        true => Ipv6Prefixes { clients: source, servers: destination },
        false => Ipv6Prefixes { clients: destination, servers: source },
    }
}

impl PacketTemplate {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Copies the packet to the start of a buffer. Copies whole blocks if the buffer has room for
    /// whole blocks, because this needs no function call.
    #[inline(always)]
    fn copy<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let room = buffer.as_chunks_mut::<BLOCK>().0;
        match (self.blocks.len(), room.get_mut(..self.blocks.len())) {
            (..=FEW_BLOCKS, Some(places)) => {
                for (place, block) in places.iter_mut().zip(&self.blocks) {
                    *place = *block;
                }
            }
            _ => {
                let bytes = self.blocks.as_flattened().get(..self.len)?;
                buffer.get_mut(..self.len)?.copy_from_slice(bytes);
            }
        }
        buffer.get_mut(..self.len)
    }

    /// Writes the packet of a flow, without MAC addresses and tag. Returns `None` if the buffer is
    /// too short.
    #[inline]
    pub(super) fn write(&self, tuple: &Tuple, flow: u64, buffer: &mut [u8]) -> Option<usize> {
        let frame = self.copy(buffer)?;
        let (source, destination) = match self.from_client {
            true => (tuple.client, tuple.server),
            false => (tuple.server, tuple.client),
        };
        let source = self.kept[0].unwrap_or(source);
        let destination = self.kept[1].unwrap_or(destination);
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
        let Some(transport) = &self.transport else { return Some(self.len) };
        let mut sum = addresses;
        match transport.ports {
            PortPlaces::None => {}
            PortPlaces::One(port_at) => {
                let place = frame[port_at..].first_chunk_mut::<2>()?;
                *place = tuple.client_port.to_be_bytes();
                sum = sum.plus_word(tuple.client_port);
            }
            PortPlaces::Two(port_at, number) => {
                let place = frame[port_at..].first_chunk_mut::<4>()?;
                let port = tuple.client_port.wrapping_add(number);
                place[..2].copy_from_slice(&port.to_be_bytes());
                place[2..].copy_from_slice(&port.to_be_bytes());
                sum = sum.plus_word(port).plus_word(port);
            }
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
        Some(self.len)
    }
}

impl Edit {
    /// Changes a word. Returns the change of the checksum's sum: the new word plus the complement
    /// of the old word.
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

/// Returns the frame without its VLAN tags. Returns `None` for a frame that is too short.
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

/// Replaces the IPv4 header of a packet by an IPv6 header. Returns `None` if IPv6 cannot express
/// the packet.
pub(crate) fn as_ipv6(frame: &[u8]) -> Option<Vec<u8>> {
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
    bytes.extend([frame[at + 9], HOP_LIMIT]);
    bytes.extend([0; 32]);
    bytes.extend(transport);
    Some(bytes)
}

/// Number of further connections to which a plug-in gives ports.
const MEDIA_CONNECTIONS: usize = 2;
/// The hop limit of IPv4 packets that become IPv6, as in TRex.
const HOP_LIMIT: u8 = 64;
/// Size of a block. A few instructions copy a block.
const BLOCK: usize = 64;
/// Maximum number of blocks that are copied block by block. For longer packets, the library's copy
/// function is faster.
const FEW_BLOCKS: usize = 4;
/// Minimum length of a frame: 64 bytes without the check sequence.
const SHORTEST: usize = 60;
