//! Work on a frame that the frame's sender left to a network card.

use wire::headers::{Layout, Network, Transport};
use wire::virtio::{GsoKind, PartialChecksum};
use wire::{Gso, Segmenter, VirtioHeader};

use crate::Frame;

/// The work on a TCP or UDP frame that the sender left to the network card: the checksum, and
/// perhaps the segmentation. The checksum field holds only the sum of the pseudo-header.
///
/// A port with the option to keep offloads delivers such frames unchanged. [`Frame::finish`]
/// computes the checksum and cuts the segments in software.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Offload {
    /// The offset of the transport header.
    start: u16,
    /// The length of all headers together.
    headers: u16,
    /// The number of payload bytes per segment; 0 without segmentation.
    size: u16,
    kind: Kind,
    /// Properties of the work: bits of [`flag`].
    flags: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
enum Kind {
    #[default]
    None,
    Tcp,
    Udp,
}

mod flag {
    /// `VIRTIO_NET_HDR_GSO_ECN`.
    pub(super) const ECN: u8 = 1;
    pub(super) const IPV6: u8 = 1 << 1;
}

impl Offload {
    /// The offload of a finished frame: no work is left.
    pub const NONE: Self = Self { start: 0, headers: 0, size: 0, kind: Kind::None, flags: 0 };

    /// Returns the offload that a `virtio_net_hdr` describes. Returns `None` for a finished frame,
    /// and for a frame that some type of port could not send. The frame must be TCP or UDP over IP,
    /// with the partial checksum in the transport header; a super-packet must also be complete.
    #[must_use]
    pub fn of(frame: &[u8], virtio: &VirtioHeader) -> Option<Self> {
        let partial = virtio.partial_checksum?;
        let layout = Layout::parse(frame)?;
        let (kind, field) = match layout.transport {
            Transport::Tcp { .. } => (Kind::Tcp, TCP_FIELD),
            Transport::Udp => (Kind::Udp, UDP_FIELD),
            _ => return None,
        };
        let is_v6 = layout.network == Network::Ipv6;
        if usize::from(partial.start) != layout.transport_offset || partial.offset != field {
            return None;
        }
        let headers = layout.payload_offset()?;
        let mut flags = if is_v6 { flag::IPV6 } else { 0 };
        let mut size = 0;
        if let Some(gso) = virtio.gso {
            let fits = match gso.kind {
                GsoKind::TcpV4 => kind == Kind::Tcp && !is_v6,
                GsoKind::TcpV6 => kind == Kind::Tcp && is_v6,
                GsoKind::UdpL4 => kind == Kind::Udp,
                GsoKind::UdpFragments | GsoKind::Unknown(_) => false,
            };
            // The IP total length must cover the whole frame: the frame has no padding, and the IP
            // packet has at most 65,535 bytes.
            let is_whole = layout.end == frame.len()
                && frame.len() - layout.network_offset <= usize::from(u16::MAX);
            if !fits || !is_whole || gso.size == 0 || headers >= frame.len() {
                return None;
            }
            let frames = (frame.len() - headers).div_ceil(usize::from(gso.size));
            if frames > Segmenter::MOST_FRAMES {
                return None;
            }
            size = gso.size;
            flags |= if gso.ecn { flag::ECN } else { 0 };
        }
        Some(Self { start: partial.start, headers: headers as u16, size, kind, flags })
    }

    /// Whether the frame is unfinished: a checksum or the segmentation is missing.
    #[inline(always)]
    #[must_use]
    pub fn is_some(self) -> bool {
        !matches!(self.kind, Kind::None)
    }

    /// Whether the frame is a super-packet, which segmentation cuts into several frames.
    #[inline]
    #[must_use]
    pub fn is_super(self) -> bool {
        self.size != 0
    }

    /// Returns the `virtio_net_hdr` that describes the offload to packet sockets, TAP devices and
    /// virtio.
    #[must_use]
    pub fn virtio(self) -> VirtioHeader {
        let (offset, gso) = match self.kind {
            Kind::None => return VirtioHeader::default(),
            Kind::Tcp if self.flags & flag::IPV6 != 0 => (TCP_FIELD, GsoKind::TcpV6),
            Kind::Tcp => (TCP_FIELD, GsoKind::TcpV4),
            Kind::Udp => (UDP_FIELD, GsoKind::UdpL4),
        };
        let ecn = self.flags & flag::ECN != 0;
        VirtioHeader {
            partial_checksum: Some(PartialChecksum { start: self.start, offset }),
            data_valid: false,
            gso: self.is_super().then_some(Gso { kind: gso, ecn, size: self.size }),
            header_len: self.headers,
        }
    }

    /// Returns the same offload after the headers have grown by `bytes` at the front.
    #[inline]
    #[must_use]
    pub(crate) fn moved(mut self, bytes: i32) -> Self {
        let moved = |offset: u16| (i32::from(offset) + bytes).clamp(0, u16::MAX.into()) as u16;
        (self.start, self.headers) = (moved(self.start), moved(self.headers));
        self
    }

    /// Returns the number of frames that a frame of `len` bytes becomes, and their bytes.
    #[inline]
    pub(crate) fn on_wire(self, len: usize) -> (u64, u64) {
        if !self.is_super() {
            return (1, len as u64);
        }
        let headers = usize::from(self.headers);
        let frames = len.saturating_sub(headers).div_ceil(self.size.into()).max(1);
        (frames as u64, (len + (frames - 1) * headers) as u64)
    }

    /// Returns the length of the longest frame that a frame of `len` bytes becomes.
    #[inline]
    pub(crate) fn longest_on_wire(self, len: usize) -> usize {
        match self.is_super() {
            true => len.min(usize::from(self.headers) + usize::from(self.size)),
            false => len,
        }
    }
}

impl Frame {
    /// Computes the checksum, cuts a super-packet into frames, and appends the results to `frames`.
    pub fn finish(mut self, frames: &mut Vec<Self>) {
        if !self.offload().is_super() {
            self.complete_checksum();
            frames.push(self);
            return;
        }
        let virtio = self.offload().virtio();
        // If a changed header contradicts the offload, the frame cannot be sent and is dropped.
        let Ok(mut segmenter) = Segmenter::new(self.bytes(), &virtio) else { return };
        while let Some(len) = segmenter.next_len() {
            let mut frame = Self::with_len(len, self.arrival());
            segmenter.write_next(frame.bytes_mut());
            frames.push(frame);
        }
    }

    /// Computes the checksum that the sender left out, unless segmentation does it for each
    /// segment.
    pub fn complete_checksum(&mut self) {
        let offload = self.offload();
        if let (Some(partial), None) = (offload.virtio().partial_checksum, offload.virtio().gso) {
            let layout = Layout::parse(self.bytes());
            let end = layout.map_or(self.len(), |layout| layout.end);
            let (start, offset) = (usize::from(partial.start), usize::from(partial.offset));
            // Padding is not part of the packet.
            wire::checksum::complete(&mut self.bytes_mut()[..end], start, offset);
            self.set_offload(Offload::NONE);
        }
    }

    pub fn finish_all(frames: &mut Vec<Self>) {
        Self::finish_unless(frames, |_| false);
    }

    /// Finishes the frames, except the frames for whose offload `is_taken` returns true.
    pub fn finish_unless(frames: &mut Vec<Self>, is_taken: impl Fn(Offload) -> bool) {
        let is_left = |frame: &Self| frame.is_unfinished() && !is_taken(frame.offload());
        if !frames.iter().any(is_left) {
            return;
        }
        let mut finished = Vec::with_capacity(frames.len());
        for frame in frames.drain(..) {
            if is_left(&frame) {
                frame.finish(&mut finished);
            } else {
                finished.push(frame);
            }
        }
        *frames = finished;
    }
}

const TCP_FIELD: u16 = 16;
const UDP_FIELD: u16 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Time;
    use wire::checksum::Sum;

    /// Builds a TCP packet with a partial checksum and this many payload bytes, as a kernel passes
    /// it.
    fn tcp(payload: usize, tags: usize) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        for tag in 0..tags {
            bytes.extend([0x81, 0, 0, tag as u8]);
        }
        bytes.extend([0x08, 0x00, 0x45, 0]);
        let total = (40 + payload) as u16;
        bytes.extend(total.to_be_bytes());
        bytes.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let ip = bytes.len() - 20;
        let sum = Sum::of(&bytes[ip..]).checksum();
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend([0x12, 0x34, 0, 80, 0, 0, 0, 9, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        let pseudo = Sum::of(&bytes[ip + 12..ip + 20]).plus_word(6).plus_long(20 + payload as u32);
        let at = ip + 36;
        bytes[at..at + 2].copy_from_slice(&pseudo.folded().to_be_bytes());
        bytes.extend((0..payload).map(|at| at as u8));
        bytes
    }

    fn virtio(start: u16, size: u16) -> VirtioHeader {
        VirtioHeader {
            partial_checksum: Some(PartialChecksum { start, offset: 16 }),
            gso: (size > 0).then_some(Gso { kind: GsoKind::TcpV4, ecn: true, size }),
            ..VirtioHeader::default()
        }
    }

    fn has_right_sum(frame: &[u8]) -> bool {
        let layout = Layout::parse(frame).unwrap();
        let segment = &frame[layout.transport_offset..layout.end];
        let addresses = &frame[layout.network_offset + 12..layout.network_offset + 20];
        let sum = Sum::of(segment).plus(Sum::of(addresses)).plus_word(6);
        sum.plus_long(segment.len() as u32).folded() == 0xffff
    }

    #[test]
    fn an_offload_survives_tags_clones_and_a_virtio_header() {
        let mut frame = Frame::from_bytes(&tcp(3_000, 0), Time::from_nanos(5));
        let offload = Offload::of(frame.bytes(), &virtio(34, 1_000)).unwrap();
        frame.set_offload(offload);
        assert_eq!(Offload::of(frame.bytes(), &offload.virtio()), Some(offload));
        assert_eq!(frame.on_wire(), (3, 3_000 + 3 * 54));
        assert_eq!(frame.longest_on_wire(), 1_054);
        // More tags than the headroom holds, so that the bytes move to another buffer.
        for _ in 0..2 {
            for _ in 0..30 {
                frame.grow_front(4);
                frame.bytes_mut().copy_within(4..16, 0);
                frame.bytes_mut()[12..16].copy_from_slice(&[0x81, 0, 0, 9]);
            }
            for _ in 0..29 {
                frame.bytes_mut().copy_within(0..12, 4);
                frame.cut_front(4);
            }
        }
        assert_eq!(frame.offload(), offload.moved(8));
        let mut segments = Vec::new();
        frame.clone().finish(&mut segments);
        assert_eq!(segments.len(), 3);
        for segment in &segments {
            assert!(!segment.is_unfinished() && segment.len() == 1_062);
            assert!(has_right_sum(segment.bytes()) && segment.arrival() == frame.arrival());
        }
        // A recycled buffer has no offload from its former frame.
        drop(frame);
        assert!(!Frame::from_bytes(&tcp(3_000, 0), Time::ZERO).is_unfinished());
    }

    #[test]
    fn a_completed_checksum_excludes_the_padding_of_the_frame() {
        let mut bytes = tcp(1, 1);
        bytes.extend([0xff; 5]);
        let mut frame = Frame::from_bytes(&bytes, Time::ZERO);
        frame.set_offload(Offload::of(&bytes, &virtio(38, 0)).unwrap());
        assert!(!has_right_sum(frame.bytes()) && frame.is_unfinished());
        let mut frames = vec![frame];
        Frame::finish_all(&mut frames);
        assert!(has_right_sum(frames[0].bytes()) && !frames[0].is_unfinished());
        assert_eq!(frames[0].len(), bytes.len());
    }

    #[test]
    fn a_virtio_header_that_no_offload_can_describe_is_refused() {
        let bytes = tcp(3_000, 0);
        assert!(Offload::of(&bytes, &virtio(34, 1_000)).is_some());
        let mut padded = bytes.clone();
        padded.push(0);
        let mut fragment = bytes.clone();
        fragment[20] |= 0x20;
        let v6 = Some(Gso { kind: GsoKind::TcpV6, ecn: false, size: 1_000 });
        let unsummed = VirtioHeader { partial_checksum: None, ..virtio(34, 1_000) };
        for (bytes, virtio) in [
            (&padded, virtio(34, 1_000)),
            (&fragment, virtio(34, 1_000)),
            (&bytes, virtio(33, 1_000)),
            // This number of segments is above a super-packet's maximum.
            (&bytes, virtio(34, 1)),
            (&bytes, VirtioHeader { gso: v6, ..virtio(34, 0) }),
            (&bytes, unsummed),
            (&bytes, VirtioHeader::default()),
            (&vec![0; 13], virtio(34, 1_000)),
        ] {
            assert_eq!(Offload::of(bytes, &virtio), None);
        }
    }
}
