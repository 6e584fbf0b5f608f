//! `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h): the checksum and the segmentation
//! that the kernel has left undone on a packet for a packet socket or a TAP device.

/// The partial checksum of a packet, and the way to segment a super-packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VirtioHeader {
    /// The checksum to complete: the field at `start + offset` holds only the pseudo-header's sum.
    pub partial_checksum: Option<PartialChecksum>,
    /// Whether the receiver need not verify the checksum, because it was verified or the packet
    /// crossed no wire.
    pub data_valid: bool,
    /// The segmentation still to do; `None` for a packet that is a single frame.
    pub gso: Option<Gso>,
    /// The sender's hint about the total length of all headers. The hint may be wrong, so no code
    /// relies on it.
    pub header_len: u16,
}

/// The unfinished checksum of a packet. The sum over all bytes from `start` on must still be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Offset in the packet at which the checksummed bytes begin (`csum_start`).
    pub start: u16,
    /// Offset of the checksum field from `start` (`csum_offset`).
    pub offset: u16,
}

/// Generic segmentation offload: the packet stands for several frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gso {
    /// The protocol of the frames, which decides how to segment the packet.
    pub kind: GsoKind,
    /// Whether the congestion window reduced (CWR) flag may be set (`VIRTIO_NET_HDR_GSO_ECN`).
    pub ecn: bool,
    /// Payload bytes of every frame except the last.
    pub size: u16,
}

/// The type of segmentation (`gso_type`), without its ECN bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
    TcpV4,
    /// TCP over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
    TcpV6,
    /// UDP datagrams of one socket (`UDP_SEGMENT`), each of which gets its own UDP header.
    UdpL4,
    /// The old UDP fragmentation offload, which no kernel since 4.14 generates by itself.
    UdpFragments,
    /// A type that this code does not know.
    Unknown(u8),
}

impl VirtioHeader {
    /// Length of the header without `num_buffers`, which packet sockets and TAP use by default.
    pub const LEN: usize = 10;
    /// Length of the header with `num_buffers` (`virtio_net_hdr_mrg_rxbuf`).
    pub const LEN_MERGEABLE: usize = 12;

    /// Reads the first 10 bytes, in native byte order. Returns `None` if `bytes` is shorter.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let [flags, gso, header_0, header_1, size_0, size_1, start_0, start_1, offset_0, offset_1] =
            *bytes;
        let word = |first, second| u16::from_ne_bytes([first, second]);
        Some(Self {
            partial_checksum: (flags & NEEDS_CSUM != 0).then(|| PartialChecksum {
                start: word(start_0, start_1),
                offset: word(offset_0, offset_1),
            }),
            data_valid: flags & DATA_VALID != 0,
            gso: (gso & !GSO_ECN != GSO_NONE).then(|| Gso {
                kind: GsoKind::from_number(gso & !GSO_ECN),
                ecn: gso & GSO_ECN != 0,
                size: word(size_0, size_1),
            }),
            header_len: word(header_0, header_1),
        })
    }

    /// Encodes the header as 12 bytes; the first 10 bytes are the shorter form. `num_buffers` is 0.
    pub fn to_bytes(self) -> [u8; Self::LEN_MERGEABLE] {
        let mut bytes = [0; Self::LEN_MERGEABLE];
        if self.data_valid {
            bytes[0] |= DATA_VALID;
        }
        bytes[2..4].copy_from_slice(&self.header_len.to_ne_bytes());
        if let Some(gso) = self.gso {
            bytes[1] = gso.kind.number() | if gso.ecn { GSO_ECN } else { 0 };
            bytes[4..6].copy_from_slice(&gso.size.to_ne_bytes());
        }
        if let Some(partial) = self.partial_checksum {
            bytes[0] |= NEEDS_CSUM;
            bytes[6..8].copy_from_slice(&partial.start.to_ne_bytes());
            bytes[8..10].copy_from_slice(&partial.offset.to_ne_bytes());
        }
        bytes
    }

    /// Returns the header for the packet after `bytes` were inserted before the checksummed bytes.
    #[must_use]
    pub fn shifted(mut self, bytes: u16) -> Self {
        self.header_len = self.header_len.saturating_add(bytes);
        if let Some(partial) = &mut self.partial_checksum {
            partial.start = partial.start.saturating_add(bytes);
        }
        self
    }
}

impl GsoKind {
    fn from_number(number: u8) -> Self {
        match number {
            GSO_TCPV4 => Self::TcpV4,
            GSO_UDP => Self::UdpFragments,
            GSO_TCPV6 => Self::TcpV6,
            GSO_UDP_L4 => Self::UdpL4,
            other => Self::Unknown(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::TcpV4 => GSO_TCPV4,
            Self::UdpFragments => GSO_UDP,
            Self::TcpV6 => GSO_TCPV6,
            Self::UdpL4 => GSO_UDP_L4,
            Self::Unknown(number) => number,
        }
    }
}

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_UDP: u8 = 3;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_virtio_header_parses_to_the_same_header() {
        for kind in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpL4, GsoKind::UdpFragments] {
            let header = VirtioHeader {
                partial_checksum: Some(PartialChecksum { start: 34, offset: 16 }),
                data_valid: false,
                gso: Some(Gso { kind, ecn: true, size: 1448 }),
                header_len: 66,
            };
            assert_eq!(VirtioHeader::parse(&header.to_bytes()), Some(header));
        }
        assert_eq!(VirtioHeader::parse(&[0; 9]), None);
        assert_eq!(VirtioHeader::parse(&[0; 10]), Some(VirtioHeader::default()));
    }

    #[test]
    fn a_vlan_tag_moves_the_checksum_start() {
        let header = VirtioHeader {
            partial_checksum: Some(PartialChecksum { start: 34, offset: 16 }),
            ..VirtioHeader::default()
        };
        let start = header.shifted(4).partial_checksum.map(|partial| partial.start);
        assert_eq!(start, Some(38));
    }
}
