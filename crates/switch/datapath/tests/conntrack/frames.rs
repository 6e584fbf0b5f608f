//! Frames to track, with valid checksums.

use std::net::IpAddr;

use datapath::conntrack::Headers;
use flow::{Field, Key};
use wire::checksum::Sum;

/// An endpoint of a packet: an address with a port.
pub(crate) type End = (IpAddr, u16);

#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) key: Key,
    pub(crate) headers: Headers,
}

pub(crate) fn end(text: &str) -> End {
    let address: std::net::SocketAddr = text.parse().expect("address and port");
    (address.ip(), address.port())
}

pub(crate) fn udp(from: End, to: End) -> Frame {
    let mut segment = vec![0; 8];
    segment.extend_from_slice(b"data");
    segment[4..6].copy_from_slice(&12u16.to_be_bytes());
    frame(from, to, 17, segment)
}

pub(crate) fn udp_with(from: End, to: End, data: &[u8]) -> Frame {
    let mut segment = vec![0; 8];
    segment.extend_from_slice(data);
    let length = segment.len() as u16;
    segment[4..6].copy_from_slice(&length.to_be_bytes());
    frame(from, to, 17, segment)
}

/// Builds a packet of a protocol without ports.
pub(crate) fn plain(from: IpAddr, to: IpAddr, protocol: u8) -> Frame {
    frame((from, 0), (to, 0), protocol, vec![1, 2, 3, 4, 5, 6, 7, 8])
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tcp {
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) window: u16,
    pub(crate) scale: Option<u8>,
    pub(crate) payload: usize,
}

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

impl Tcp {
    pub(crate) fn new(flags: u8, sequence: u32, acknowledgement: u32) -> Self {
        Self { flags, sequence, acknowledgement, window: 8192, scale: None, payload: 0 }
    }
}

pub(crate) fn tcp(from: End, to: End, tcp: Tcp) -> Frame {
    let mut segment = vec![0; 20];
    segment[4..8].copy_from_slice(&tcp.sequence.to_be_bytes());
    segment[8..12].copy_from_slice(&tcp.acknowledgement.to_be_bytes());
    segment[13] = tcp.flags;
    segment[14..16].copy_from_slice(&tcp.window.to_be_bytes());
    if let Some(scale) = tcp.scale {
        segment.extend_from_slice(&[1, 3, 3, scale]);
    }
    segment[12] = (segment.len() as u8 / 4) << 4;
    segment.resize(segment.len() + tcp.payload, b'x');
    frame(from, to, 6, segment)
}

/// Builds a segment with `data` as its payload.
pub(crate) fn tcp_with(from: End, to: End, tcp: Tcp, data: &[u8]) -> Frame {
    let mut segment = vec![0; 20];
    segment[4..8].copy_from_slice(&tcp.sequence.to_be_bytes());
    segment[8..12].copy_from_slice(&tcp.acknowledgement.to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, tcp.flags);
    segment[14..16].copy_from_slice(&tcp.window.to_be_bytes());
    segment.extend_from_slice(data);
    frame(from, to, 6, segment)
}

/// Builds an echo request (`kind` 8 or 128) or reply (0 or 129).
pub(crate) fn echo(from: IpAddr, to: IpAddr, kind: u8, identifier: u16) -> Frame {
    let mut message = vec![kind, 0, 0, 0];
    message.extend_from_slice(&identifier.to_be_bytes());
    message.extend_from_slice(&[0, 1, b'p', b'i', b'n', b'g']);
    frame((from, 0), (to, 0), if from.is_ipv4() { 1 } else { 58 }, message)
}

/// Builds an ICMP error that a router sends about the packet `quoted`.
pub(crate) fn unreachable(router: IpAddr, to: IpAddr, quoted: &Frame) -> Frame {
    let mut message = vec![if router.is_ipv4() { 3 } else { 1 }, 1, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&quoted.bytes[14..]);
    frame((router, 0), (to, 0), if router.is_ipv4() { 1 } else { 58 }, message)
}

pub(crate) fn sctp(from: End, to: End) -> Frame {
    let segment = vec![0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 8, 1, 2, 3, 4];
    frame(from, to, 132, segment)
}

fn frame(from: End, to: End, protocol: u8, mut segment: Vec<u8>) -> Frame {
    if matches!(protocol, 6 | 17 | 132) {
        segment[..2].copy_from_slice(&from.1.to_be_bytes());
        segment[2..4].copy_from_slice(&to.1.to_be_bytes());
    }
    let mut bytes = vec![2; 12];
    match (from.0, to.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
            bytes.extend_from_slice(&(20 + segment.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&[0, 7, 0, 0, 64, protocol, 0, 0]);
            bytes.extend_from_slice(&source.octets());
            bytes.extend_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend_from_slice(&(segment.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&[protocol, 64]);
            bytes.extend_from_slice(&source.octets());
            bytes.extend_from_slice(&destination.octets());
        }
        _ => panic!("addresses of two IP versions"),
    }
    bytes.extend_from_slice(&segment);
    let mut frame = Frame { bytes, key: Key::ZERO, headers: Headers::default() };
    frame.parse();
    frame.complete();
    frame
}

impl Frame {
    pub(crate) fn is_v6(&self) -> bool {
        self.bytes[12] == 0x86
    }

    fn network_length(&self) -> usize {
        if self.is_v6() { 40 } else { usize::from(self.bytes[14] & 0x0f) * 4 }
    }

    pub(crate) fn protocol(&self) -> u8 {
        if self.is_v6() { self.bytes[20] } else { self.bytes[23] }
    }

    pub(crate) fn source(&self) -> IpAddr {
        self.address(0)
    }

    pub(crate) fn destination(&self) -> IpAddr {
        self.address(1)
    }

    pub(crate) fn ports(&self) -> (u16, u16) {
        let at = self.headers.transport;
        let port = |at: usize| u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]);
        if matches!(self.protocol(), 1 | 58) {
            return (port(at + 4), port(at + 4));
        }
        (port(at), port(at + 2))
    }

    pub(crate) fn ends(&self) -> (End, End) {
        let (source, destination) = self.ports();
        ((self.source(), source), (self.destination(), destination))
    }

    /// Sets the header offsets and the key fields that connection tracking reads.
    pub(crate) fn parse(&mut self) {
        let network = 14;
        let transport = network + self.network_length();
        self.headers = Headers { network, transport, end: self.bytes.len() };
        self.key.write(Field::EthType, if self.is_v6() { 0x86dd } else { 0x0800 });
        self.key.write(Field::NwProto, self.protocol().into());
        match (self.source(), self.destination()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.key.write(Field::IpSrc, u32::from(source).into());
                self.key.write(Field::IpDst, u32::from(destination).into());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.key.write(Field::Ipv6Src, source.into());
                self.key.write(Field::Ipv6Dst, destination.into());
            }
            _ => {}
        }
        if matches!(self.protocol(), 6 | 17 | 132) {
            let (source, destination) = self.ports();
            self.key.write(Field::TcpSrc, source.into());
            self.key.write(Field::TcpDst, destination.into());
        }
    }

    /// Computes all checksums.
    pub(crate) fn complete(&mut self) {
        let (network, at) = (self.headers.network, self.headers.transport);
        if !self.is_v6() {
            self.bytes[network + 10..network + 12].fill(0);
            let sum = Sum::of(&self.bytes[network..at]).checksum();
            self.bytes[network + 10..network + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let protocol = self.protocol();
        let field = match protocol {
            6 => at + 16,
            17 => at + 6,
            1 | 58 => at + 2,
            132 => {
                let crc = crc32c(&self.bytes[at..]);
                self.bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
                return;
            }
            _ => return,
        };
        self.bytes[field..field + 2].fill(0);
        let mut sum = Sum::of(&self.bytes[at..]);
        if protocol != 1 {
            sum = sum.plus(self.pseudo_header());
        }
        let sum = if protocol == 17 { sum.checksum_nonzero() } else { sum.checksum() };
        self.bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Panics if a checksum is wrong, or if the key disagrees with the bytes.
    pub(crate) fn check(&self) {
        let mut fresh = self.clone();
        fresh.parse();
        assert_eq!(fresh.key, self.key, "fields and bytes differ");
        fresh.complete();
        assert_eq!(fresh.bytes, self.bytes, "a checksum is wrong");
    }

    fn pseudo_header(&self) -> Sum {
        let length = (self.bytes.len() - self.headers.transport) as u32;
        let sum = match (self.source(), self.destination()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Sum::of(&source.octets()).plus(Sum::of(&destination.octets()))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Sum::of(&source.octets()).plus(Sum::of(&destination.octets()))
            }
            _ => unreachable!("one IP version"),
        };
        sum.plus_long(length).plus_word(self.protocol().into())
    }

    fn address(&self, index: usize) -> IpAddr {
        if self.is_v6() {
            let at = 22 + index * 16;
            let bytes: [u8; 16] = self.bytes[at..at + 16].try_into().expect("16 bytes");
            bytes.into()
        } else {
            let at = 26 + index * 4;
            let bytes: [u8; 4] = self.bytes[at..at + 4].try_into().expect("4 bytes");
            bytes.into()
        }
    }
}

/// Computes the CRC32c of a packet bit by bit, with the checksum field as zero.
fn crc32c(packet: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for (at, byte) in packet.iter().enumerate() {
        crc ^= if (8..12).contains(&at) { 0 } else { u32::from(*byte) };
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}
