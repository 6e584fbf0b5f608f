//! Segments a super-packet into frames as they cross a wire.
//!
//! Linux passes TCP and UDP data on in packets of up to 64 KiB (GSO, generic segmentation offload)
//! and leaves the segmentation to the last stage of sending that can do it. The result equals the
//! result of the kernel's own code: `tcp_gso_segment` (net/ipv4/tcp_offload.c), `__udp_gso_segment`
//! (net/ipv4/udp_offload.c), `inet_gso_segment` (net/ipv4/af_inet.c) and `ipv6_gso_segment`
//! (net/ipv6/ip6_offload.c).

use crate::checksum::Sum;
use crate::headers::{Layout, Network, TCP, Transport, UDP, word};
use crate::virtio::{GsoKind, VirtioHeader};

/// Writes the frames of one super-packet in order.
#[derive(Debug, Clone)]
pub struct Segmenter<'a> {
    header: &'a [u8],
    payload: &'a [u8],
    size: usize,
    network: Network,
    network_offset: usize,
    transport_offset: usize,
    udp: bool,
    /// Whether the frames carry a checksum. A UDP datagram over IPv4 may omit the checksum; its
    /// frames then omit the checksum too.
    checksummed: bool,
    /// The sum over the header bytes that are the same in every frame.
    network_sum: Sum,
    transport_sum: Sum,
    identification: u16,
    sequence: u32,
    /// The number of payload bytes written so far.
    done: usize,
}

/// The reason for which a packet cannot be segmented into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The virtio header has no GSO type.
    #[error("not a super-packet: its virtio_net_hdr asks for no segmentation")]
    NotSuper,
    /// The virtio header has this GSO type, which this module does not segment.
    #[error("segmentation of type {0:?} is not known; turn that offload off on the sender")]
    UnknownKind(GsoKind),
    /// The packet's headers are truncated, or belong to a protocol other than the protocol of this
    /// GSO type.
    #[error("virtio_net_hdr has type {0:?}, and the packet's headers contradict it")]
    Mismatch(GsoKind),
    /// The virtio header has a GSO size of 0.
    #[error("virtio_net_hdr asks for segments without payload")]
    NoSize,
    /// The payload would need more than [`Segmenter::MOST_FRAMES`] frames.
    #[error("virtio_net_hdr asks for more than 2048 segments")]
    TooMany,
}

impl<'a> Segmenter<'a> {
    /// Maximum number of frames of a super-packet. With Linux's smallest MSS (`tcp_min_snd_mss`, 48
    /// bytes) and timestamps, 64 KiB of TCP data become 1,821 frames. UDP senders make up to 128
    /// frames.
    pub const MOST_FRAMES: usize = 2048;

    /// Reads the headers of a frame that `virtio` describes. VLAN tags must be within the frame.
    pub fn new(frame: &'a [u8], virtio: &VirtioHeader) -> Result<Self, SegmentError> {
        let gso = virtio.gso.ok_or(SegmentError::NotSuper)?;
        let mismatch = SegmentError::Mismatch(gso.kind);
        let layout = Layout::parse(frame).ok_or(mismatch)?;
        let udp = match (gso.kind, layout.network, layout.transport) {
            (GsoKind::TcpV4, Network::Ipv4, Transport::Tcp { .. })
            | (GsoKind::TcpV6, Network::Ipv6, Transport::Tcp { .. }) => false,
            (GsoKind::UdpL4, Network::Ipv4 | Network::Ipv6, Transport::Udp) => true,
            (GsoKind::TcpV4 | GsoKind::TcpV6 | GsoKind::UdpL4, ..) => return Err(mismatch),
            (kind, ..) => return Err(SegmentError::UnknownKind(kind)),
        };
        if gso.size == 0 {
            return Err(SegmentError::NoSize);
        }
        let payload_offset = layout.payload_offset().ok_or(mismatch)?;
        let (header, payload) =
            frame[..layout.end].split_at_checked(payload_offset).ok_or(mismatch)?;
        if payload.len().div_ceil(usize::from(gso.size)) > Self::MOST_FRAMES {
            return Err(SegmentError::TooMany);
        }
        let at = layout.transport_offset;
        let unchecked = udp
            && virtio.partial_checksum.is_none()
            && layout.network == Network::Ipv4
            && word(header, at + 6) == Some(0);
        let mut this = Self {
            header,
            payload,
            size: usize::from(gso.size),
            network: layout.network,
            network_offset: layout.network_offset,
            transport_offset: at,
            udp,
            checksummed: !unchecked,
            network_sum: Sum::default(),
            transport_sum: Sum::default(),
            identification: word(header, layout.network_offset + 4).unwrap_or(0),
            sequence: if udp {
                0
            } else {
                u32::from_be_bytes([header[at + 4], header[at + 5], header[at + 6], header[at + 7]])
            },
            done: 0,
        };
        this.sum_what_stays();
        Ok(this)
    }

    /// Returns the total number of frames.
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.size).max(1)
    }

    /// Returns the length of the next frame; `None` after the last frame.
    pub fn next_len(&self) -> Option<usize> {
        let left = self.payload.len() - self.done;
        // A packet without payload becomes one frame, which has headers only.
        (left > 0 || (self.payload.is_empty() && self.done == 0 && !self.header.is_empty()))
            .then(|| self.header.len() + left.min(self.size))
    }

    /// Writes the next frame to the start of `out` and returns the frame's length. Returns `None`
    /// after the last frame, or if `out` is shorter than [`next_len`](Self::next_len).
    pub fn write_next(&mut self, out: &mut [u8]) -> Option<usize> {
        let len = self.next_len()?;
        let out = out.get_mut(..len)?;
        let (header, body) = out.split_at_mut(self.header.len());
        header.copy_from_slice(self.header);
        let piece = &self.payload[self.done..self.done + body.len()];
        let body_sum = Sum::of_copy(piece, body);
        let first = self.done == 0;
        let last = self.done + body.len() == self.payload.len();

        self.write_network(header, body.len());
        if self.udp {
            self.write_udp(header, body.len(), body_sum);
        } else {
            self.write_tcp(header, body.len(), body_sum, first, last);
        }
        self.done += body.len();
        self.identification = self.identification.wrapping_add(1);
        self.sequence = self.sequence.wrapping_add(body.len() as u32);
        if self.payload.is_empty() {
            self.header = &[];
        }
        Some(len)
    }

    fn sum_what_stays(&mut self) {
        let header = self.header;
        let (ip, at) = (self.network_offset, self.transport_offset);
        let (addresses, protocol) = match self.network {
            Network::Ipv4 => (&header[ip + 12..ip + 20], if self.udp { UDP } else { TCP }),
            _ => (&header[ip + 8..ip + 40], if self.udp { UDP } else { TCP }),
        };
        if self.network == Network::Ipv4 {
            // Sum all fields except the length, the identification and the checksum itself.
            self.network_sum = Sum::of(&header[ip..ip + 2])
                .plus(Sum::of(&header[ip + 6..ip + 10]))
                .plus(Sum::of(&header[ip + 12..at]));
        }
        let pseudo = Sum::of(addresses).plus_word(u16::from(protocol));
        self.transport_sum = if self.udp {
            pseudo.plus(Sum::of(&header[at..at + 4]))
        } else {
            // Sum all fields except the sequence number, the flags and the checksum.
            pseudo
                .plus(Sum::of(&header[at..at + 4]))
                .plus(Sum::of(&header[at + 8..at + 12]))
                .plus(Sum::of(&header[at + 14..at + 16]))
                .plus(Sum::of(&header[at + 18..]))
        };
    }

    fn write_network(&self, header: &mut [u8], payload: usize) {
        let ip = self.network_offset;
        match self.network {
            Network::Ipv4 => {
                let total = (header.len() - ip + payload) as u16;
                put(header, ip + 2, total);
                put(header, ip + 4, self.identification);
                let sum = self.network_sum.plus_word(total).plus_word(self.identification);
                put(header, ip + 10, sum.checksum());
            }
            _ => put(header, ip + 4, (header.len() - ip - 40 + payload) as u16),
        }
    }

    fn write_udp(&self, header: &mut [u8], payload: usize, body: Sum) {
        let at = self.transport_offset;
        let length = (8 + payload) as u16;
        put(header, at + 4, length);
        if self.checksummed {
            // Add the length twice: once for the pseudo-header, and once for the UDP header.
            let sum = self.transport_sum.plus_word(length).plus_word(length).plus(body);
            put(header, at + 6, sum.checksum_nonzero());
        }
    }

    fn write_tcp(&self, header: &mut [u8], payload: usize, body: Sum, first: bool, last: bool) {
        let at = self.transport_offset;
        header[at + 4..at + 8].copy_from_slice(&self.sequence.to_be_bytes());
        let flags = &mut header[at + 13];
        if !first {
            *flags &= !CWR;
        }
        if !last {
            *flags &= !(FIN | PSH);
        }
        let sum = self
            .transport_sum
            .plus(Sum::of(&header[at + 4..at + 8]))
            .plus(Sum::of(&header[at + 12..at + 14]))
            .plus_long((header.len() - at + payload) as u32)
            .plus(body);
        put(header, at + 16, sum.checksum());
    }
}

fn put(bytes: &mut [u8], offset: usize, word: u16) {
    bytes[offset..offset + 2].copy_from_slice(&word.to_be_bytes());
}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
