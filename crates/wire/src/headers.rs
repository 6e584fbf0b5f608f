//! The offsets of the headers of an Ethernet frame.

/// The offsets of the headers within one frame. Every offset is inside the frame or at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The number of tags before the network header, at most three: two VLAN tags and CAQM's tag.
    pub tags: u8,
    /// The type of the network header.
    pub network: Network,
    /// The start of the network header, after the tags; for another protocol, the start of its
    /// data.
    pub network_offset: usize,
    /// The type of the transport header.
    pub transport: Transport,
    /// The start of the transport header, or of the bytes after the network header if no known
    /// transport header follows.
    pub transport_offset: usize,
    /// The end of the IP packet, without the padding of a short frame. For a packet that is not IP,
    /// or whose length field exceeds the frame, the end of the frame.
    pub end: usize,
}

/// The header that follows the MAC header and the tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// A complete IPv4 header, including its options.
    Ipv4,
    /// A complete IPv6 header of 40 bytes; extension headers may follow.
    Ipv6,
    /// Another EtherType, or IP with an invalid header.
    Other(u16),
}

/// The header that follows the network header. Only a header that lies completely within the frame
/// counts as `Tcp`, `Udp` or `Icmp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP: the frame has the complete header, including its options.
    Tcp {
        /// Length of the header in bytes, including its options: 20 to 60.
        header_len: usize,
    },
    /// UDP: the frame has the 8 bytes of the header.
    Udp,
    /// ICMP or ICMPv6: the frame has the first 8 bytes of the message.
    Icmp,
    /// Another protocol, or a truncated header of TCP, UDP or ICMP.
    Other(u8),
    /// A fragment, including the first fragment. Code that treats all fragments of a packet alike
    /// must not use ports, which only the first fragment has.
    Fragment(u8),
    /// No transport header: the packet is not IP.
    None,
}

impl Layout {
    /// Reads a frame that starts with its MAC addresses; `None` for a frame shorter than a MAC
    /// header.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut ether_type = word(frame, 12)?;
        let mut offset = MAC_HEADER;
        let mut tags = 0;
        while tags < MAX_TAGS && is_tag(ether_type) {
            let Some(next) = word(frame, offset + 2) else {
                break;
            };
            ether_type = next;
            offset += TAG;
            tags += 1;
        }
        let ip = match ether_type {
            IPV4 => ipv4(frame, offset),
            IPV6 => ipv6(frame, offset),
            _ => None,
        };
        let ip = ip.unwrap_or(Ip {
            network: Network::Other(ether_type),
            transport: Transport::None,
            transport_offset: offset,
            end: frame.len(),
        });
        Some(Self {
            tags,
            network: ip.network,
            network_offset: offset,
            transport: ip.transport,
            transport_offset: ip.transport_offset,
            end: ip.end,
        })
    }

    /// Returns the start of the transport's payload, if the transport header is known.
    pub fn payload_offset(&self) -> Option<usize> {
        match self.transport {
            Transport::Tcp { header_len } => Some(self.transport_offset + header_len),
            Transport::Udp | Transport::Icmp => Some(self.transport_offset + 8),
            _ => None,
        }
    }
}

/// Length of a MAC header, in bytes: two addresses and the EtherType.
pub const MAC_HEADER: usize = 14;
/// Length of a VLAN tag, in bytes.
pub const TAG: usize = 4;
/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of ICMP, for IPv4.
pub const ICMP: u8 = 1;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Whether the EtherType marks a customer tag (802.1Q) or a service tag (802.1ad, or the older
/// number 0x9100).
pub fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100)
}

/// Reads the 16-bit number at `offset`, if it lies within the frame.
#[inline]
pub fn word(bytes: &[u8], offset: usize) -> Option<u16> {
    let piece = bytes.get(offset..offset.checked_add(2)?)?;
    Some(u16::from_be_bytes([piece[0], piece[1]]))
}

struct Ip {
    network: Network,
    transport: Transport,
    transport_offset: usize,
    end: usize,
}

fn ipv4(frame: &[u8], offset: usize) -> Option<Ip> {
    let header: &[u8; 20] = frame.get(offset..)?.first_chunk()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < header.len() || offset + header_len > frame.len() {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]) & MORE_FRAGMENTS_OR_OFFSET != 0;
    let transport_offset = offset + header_len;
    // A total length of 0 marks a super-packet beyond 64 KiB ("BIG TCP"), so use the frame's
    // length.
    let end = if total < header_len { frame.len() } else { frame.len().min(offset + total) };
    Some(Ip {
        network: Network::Ipv4,
        transport: transport(header[9], fragment, &frame[..end], transport_offset),
        transport_offset,
        end,
    })
}

fn ipv6(frame: &[u8], offset: usize) -> Option<Ip> {
    let header: &[u8; 40] = frame.get(offset..)?.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut at = offset + header.len();
    // A payload length of 0 marks a jumbogram (RFC 2675), so use the frame's length.
    let end = if payload == 0 { frame.len() } else { frame.len().min(at + payload) };
    let mut next = header[6];
    let mut fragment = false;
    for _ in 0..MAX_EXTENSIONS {
        let Some(&[following, length]) = frame[..end].get(at..).and_then(<[u8]>::first_chunk)
        else {
            break;
        };
        let length = match next {
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6 => {
                (usize::from(length) + 1) * 8
            }
            // The authentication header gives its length in units of 4 bytes (RFC 4302 section
            // 2.2).
            AUTHENTICATION => (usize::from(length) + 2) * 4,
            FRAGMENT => {
                // An "atomic fragment" (RFC 6946) holds the whole packet, so it does not count as a
                // fragment.
                fragment |= word(frame, at + 2).is_some_and(|word| word & 0xfff9 != 0);
                8
            }
            _ => break,
        };
        if at + length > end {
            break;
        }
        at += length;
        next = following;
        if fragment {
            break;
        }
    }
    Some(Ip {
        network: Network::Ipv6,
        transport: transport(next, fragment, &frame[..end], at),
        transport_offset: at,
        end,
    })
}

#[inline]
fn transport(protocol: u8, fragment: bool, packet: &[u8], offset: usize) -> Transport {
    if fragment {
        return Transport::Fragment(protocol);
    }
    let there = packet.len().saturating_sub(offset);
    match protocol {
        TCP if there >= 20 => match usize::from(packet[offset + 12] >> 4) * 4 {
            header_len if header_len >= 20 && header_len <= there => Transport::Tcp { header_len },
            _ => Transport::Other(protocol),
        },
        UDP if there >= 8 => Transport::Udp,
        ICMP | ICMPV6 if there >= 8 => Transport::Icmp,
        _ => Transport::Other(protocol),
    }
}

const MAX_TAGS: u8 = 3;
/// Maximum number of extension headers, which is higher than in any real packet. After a longer
/// chain, the transport protocol counts as unknown.
const MAX_EXTENSIONS: usize = 8;
const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;
