//! Parses the TCP segment of a captured packet. The capture may have cut the packet's payload and
//! options.

use crate::ecn::Ecn;
use std::net::{IpAddr, SocketAddr};

/// A segment's header, and the length that the payload had before the capture cut the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Sequence number of the first payload byte, or of the SYN.
    pub sequence: u32,
    /// Acknowledgement number; valid only with the ACK flag.
    pub acknowledgement: u32,
    /// The flag byte of the header, from CWR to FIN.
    pub flags: Flags,
    /// The window field of the header, before window scaling.
    pub window: u16,
    /// Payload bytes according to the IP header, including bytes that the capture cut off. If the
    /// IP header has no length (a super-packet), the packet's original length counts.
    pub payload: u32,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
    /// The options that the capture kept.
    pub options: Options,
}

/// The flags of RFC 9293 section 3.1 and RFC 3168.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// FIN flag: the sender has no more data.
    pub fn fin(self) -> bool {
        self.0 & 0x01 != 0
    }

    /// SYN flag: the segment opens a connection.
    pub fn syn(self) -> bool {
        self.0 & 0x02 != 0
    }

    /// RST flag: the sender aborts or refuses the connection.
    pub fn rst(self) -> bool {
        self.0 & 0x04 != 0
    }

    /// ACK flag: the acknowledgement number is valid.
    pub fn ack(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// ECE flag: the sender has received a congestion mark. On a SYN, the sender offers ECN (RFC
    /// 3168).
    pub fn ece(self) -> bool {
        self.0 & 0x40 != 0
    }
}

/// The options that a diagnosis needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Maximum segment size, in bytes; a SYN carries this option.
    pub mss: Option<u16>,
    /// Left shift of all later windows of this sender, at most 14; a SYN carries this option.
    pub window_scale: Option<u8>,
    /// Whether the sender understands selective acknowledgements; a SYN carries this option.
    pub sack_permitted: bool,
    /// The timestamp's value and echo (RFC 7323).
    pub timestamps: Option<(u32, u32)>,
    /// The left and right edges of the first four SACK blocks (RFC 2018).
    pub sack: [Option<(u32, u32)>; 4],
}

impl Segment {
    /// Parses an IP packet whose length was `original_length` before the capture cut it. Returns
    /// `None` for a fragment, another protocol, or a packet that was cut within the fixed part of
    /// the TCP header.
    pub fn of_ip(packet: &[u8], original_length: usize) -> Option<Self> {
        let (source, destination, at, end, traffic_class) = match packet.first()? >> 4 {
            4 => ipv4(packet, original_length)?,
            6 => ipv6(packet, original_length)?,
            _ => return None,
        };
        let header: &[u8; 20] = packet.get(at..)?.first_chunk()?;
        let length = usize::from(header[12] >> 4) * 4;
        if length < header.len() {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let long = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let options = packet.get(at + 20..packet.len().min(at + length)).unwrap_or_default();
        Some(Self {
            source: SocketAddr::new(source, word(0)),
            destination: SocketAddr::new(destination, word(2)),
            sequence: long(4),
            acknowledgement: long(8),
            flags: Flags(header[13]),
            window: word(14),
            payload: u32::try_from(end.saturating_sub(at + length)).ok()?,
            ecn: Ecn::of_traffic_class(traffic_class),
            options: Options::read(options),
        })
    }

    /// Returns the number of sequence numbers that the segment takes up: payload bytes, SYN and
    /// FIN.
    pub fn length(&self) -> u32 {
        let flags = u32::from(self.flags.syn()) + u32::from(self.flags.fin());
        self.payload.saturating_add(flags)
    }
}

impl Options {
    fn read(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        while let Some((kind, rest)) = bytes.split_first() {
            match kind {
                0 => break,
                1 => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let Some(length) = rest.first().map(|length| usize::from(*length)) else { break };
            let Some(value) = bytes.get(2..length) else { break };
            match (kind, value) {
                (2, [a, b]) => options.mss = Some(u16::from_be_bytes([*a, *b])),
                // RFC 7323 section 2.3: a larger scale counts as 14.
                (3, [scale]) => options.window_scale = Some((*scale).min(14)),
                (4, []) => options.sack_permitted = true,
                (5, blocks) => {
                    let (blocks, _) = blocks.as_chunks::<8>();
                    for (slot, block) in options.sack.iter_mut().zip(blocks) {
                        *slot = Some(pair(block));
                    }
                }
                (8, value) => {
                    options.timestamps = value.first_chunk().map(pair).filter(|_| value.len() == 8);
                }
                _ => {}
            }
            bytes = &bytes[length.min(bytes.len())..];
        }
        options
    }
}

fn pair(bytes: &[u8; 8]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = *bytes;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// Addresses, offset of the TCP header, end of the packet, and traffic class.
type Ip = (IpAddr, IpAddr, usize, usize, u8);

fn ipv4(packet: &[u8], original_length: usize) -> Option<Ip> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let at = usize::from(header[0] & 0x0f) * 4;
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if at < header.len() || is_fragment || header[9] != crate::headers::TCP {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // A total length of 0 marks a super-packet, which the network card segments after the capture.
    let end = if total == 0 { original_length } else { total };
    let address = |at: usize| -> IpAddr {
        [header[at], header[at + 1], header[at + 2], header[at + 3]].into()
    };
    Some((address(12), address(16), at, end, header[1]))
}

fn ipv6(packet: &[u8], original_length: usize) -> Option<Ip> {
    let header: &[u8; 40] = packet.first_chunk()?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = if length == 0 { original_length } else { header.len() + length };
    let (mut next, mut at) = (header[6], header.len());
    for _ in 0..MOST_EXTENSIONS {
        match next {
            0 | 43 | 60 => {
                let [following, units] = *packet.get(at..)?.first_chunk()?;
                at += (usize::from(units) + 1) * 8;
                next = following;
            }
            _ => break,
        }
    }
    let address = |at: usize| -> Option<IpAddr> {
        Some(<[u8; 16]>::try_from(&header[at..at + 16]).ok()?.into())
    };
    let class = header[0] << 4 | header[1] >> 4;
    (next == crate::headers::TCP).then_some((address(8)?, address(24)?, at, end, class))
}

const MOST_EXTENSIONS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    fn packet(v6: bool, payload: &[u8]) -> Vec<u8> {
        let tcp = |step: etherparse::PacketBuilderStep<etherparse::IpHeaders>| {
            let options = [
                TcpOptionElement::MaximumSegmentSize(1460),
                TcpOptionElement::WindowScale(7),
                TcpOptionElement::SelectiveAcknowledgementPermitted,
                TcpOptionElement::Timestamp(5, 6),
            ];
            let step = step.tcp(4000, 80, 9, 1000).ack(11).syn().options(&options).unwrap();
            let mut bytes = Vec::new();
            step.write(&mut bytes, payload).unwrap();
            bytes
        };
        match v6 {
            true => tcp(PacketBuilder::ip(etherparse::IpHeaders::Ipv6(
                etherparse::Ipv6Header {
                    source: [1; 16],
                    destination: [2; 16],
                    hop_limit: 64,
                    ..Default::default()
                },
                Default::default(),
            ))),
            false => tcp(PacketBuilder::ip(etherparse::IpHeaders::Ipv4(
                etherparse::Ipv4Header::new(
                    0,
                    64,
                    etherparse::IpNumber::TCP,
                    [10, 0, 0, 1],
                    [10, 0, 0, 2],
                )
                .unwrap(),
                Default::default(),
            ))),
        }
    }

    #[test]
    fn a_tcp_segment_over_ipv4_or_ipv6_is_parsed_with_its_options() {
        for v6 in [false, true] {
            let bytes = packet(v6, &[7; 100]);
            let segment = Segment::of_ip(&bytes, bytes.len()).unwrap();
            assert_eq!((segment.sequence, segment.acknowledgement, segment.window), (9, 11, 1000));
            assert_eq!((segment.payload, segment.length()), (100, 101));
            assert!(segment.flags.syn() && segment.flags.ack() && !segment.flags.fin());
            let options = segment.options;
            assert_eq!((options.mss, options.window_scale), (Some(1460), Some(7)));
            assert_eq!((options.timestamps, options.sack_permitted), (Some((5, 6)), true));
            // If the capture keeps only 20 bytes of the TCP header, the length of the payload is
            // still known.
            let kept = bytes.len() - 120;
            assert_eq!(Segment::of_ip(&bytes[..kept], bytes.len()).unwrap().payload, 100);
        }
    }

    #[test]
    fn sack_blocks_are_parsed() {
        let mut bytes = vec![1, 1, 5, 18];
        bytes.extend([1_u32, 2, 3, 4].iter().flat_map(|edge| edge.to_be_bytes()));
        let options = Options::read(&bytes);
        assert_eq!(options.sack, [Some((1, 2)), Some((3, 4)), None, None]);
    }

    proptest! {
        #[test]
        fn parsing_arbitrary_or_truncated_segments_causes_no_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..90),
            cut in 0usize..200,
        ) {
            let _ = Segment::of_ip(&bytes, cut);
            let whole = packet(cut % 2 == 0, &[0; 30]);
            let _ = Segment::of_ip(&whole[..cut.min(whole.len())], whole.len());
        }
    }
}
