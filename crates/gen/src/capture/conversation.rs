use units::Span;
use wire::checksum::Sum;
use wire::headers::{MAC_HEADER, TCP, UDP};

use super::{Capture, CapturedPacket};

#[derive(Debug)]
pub(super) struct Conversation {
    protocol: u8,
    ports: [u16; 2],
    /// The next sequence number of the client, then of the server.
    sequence: [u32; 2],
    now: Span,
    identification: u16,
    packets: Vec<CapturedPacket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

impl Conversation {
    pub(super) fn udp(port: u16) -> Self {
        Self::new(UDP, port)
    }

    pub(super) fn tcp(port: u16) -> Self {
        let mut this = Self::new(TCP, port);
        this.segment(End::Client, SYN, &[]);
        this.segment(End::Server, SYN | ACK, &[]);
        this.segment(End::Client, ACK, &[]);
        this
    }

    fn new(protocol: u8, port: u16) -> Self {
        Self {
            protocol,
            ports: [CLIENT_PORT, port],
            sequence: [1000, 5000],
            now: Span::ZERO,
            identification: 1,
            packets: Vec::new(),
        }
    }

    pub(super) fn pause(mut self, span: Span) -> Self {
        self.now = self.now + span;
        self
    }

    /// Sends a text. Over TCP, the peer acknowledges every second segment.
    pub(super) fn says(mut self, end: End, text: &[u8]) -> Self {
        match self.protocol {
            UDP => self.datagram(end, text),
            _ => {
                for (number, piece) in text.chunks(SEGMENT).enumerate() {
                    self.segment(end, PSH | ACK, piece);
                    if number % 2 == 1 {
                        self.segment(end.other(), ACK, &[]);
                    }
                }
                if text.len().div_ceil(SEGMENT) % 2 == 1 {
                    self.segment(end.other(), ACK, &[]);
                }
            }
        }
        self
    }

    /// Sends `text`, padded with letters to `len` bytes.
    pub(super) fn sends(self, end: End, text: &str, len: usize) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.extend((text.len()..len).map(|n| b'a' + (n % 23) as u8));
        self.says(end, &bytes)
    }

    /// Closes a TCP connection and returns the capture.
    pub(super) fn capture(mut self) -> Capture {
        if self.protocol == TCP {
            self.segment(End::Client, FIN | ACK, &[]);
            self.segment(End::Server, FIN | ACK, &[]);
            self.segment(End::Client, ACK, &[]);
        }
        Capture { packets: self.packets }
    }

    fn datagram(&mut self, end: End, payload: &[u8]) {
        let mut transport = Vec::with_capacity(8 + payload.len());
        let (from, to) = self.ports_of(end);
        transport.extend(from.to_be_bytes());
        transport.extend(to.to_be_bytes());
        transport.extend(((8 + payload.len()) as u16).to_be_bytes());
        transport.extend([0, 0]);
        transport.extend(payload);
        self.packet(end, transport, 6);
    }

    fn segment(&mut self, end: End, flags: u8, payload: &[u8]) {
        let (own, other) = (end as usize, end.other() as usize);
        let (from, to) = self.ports_of(end);
        let acknowledged = if flags & ACK == 0 { 0 } else { self.sequence[other] };
        let mut transport = Vec::with_capacity(20 + payload.len());
        transport.extend(from.to_be_bytes());
        transport.extend(to.to_be_bytes());
        transport.extend(self.sequence[own].to_be_bytes());
        transport.extend(acknowledged.to_be_bytes());
        transport.extend([5 << 4, flags]);
        transport.extend(WINDOW.to_be_bytes());
        transport.extend([0, 0, 0, 0]);
        transport.extend(payload);
        let counted = payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.sequence[own] = self.sequence[own].wrapping_add(counted);
        self.packet(end, transport, 16);
    }

    fn ports_of(&self, end: End) -> (u16, u16) {
        (self.ports[end as usize], self.ports[end.other() as usize])
    }

    /// Adds the headers below the transport header, and the checksums.
    fn packet(&mut self, end: End, mut transport: Vec<u8>, checksum_at: usize) {
        let (from, to) = match end {
            End::Client => (CLIENT, SERVER),
            End::Server => (SERVER, CLIENT),
        };
        let pseudo = Sum::of(&from)
            .plus(Sum::of(&to))
            .plus_word(u16::from(self.protocol))
            .plus_word(transport.len() as u16);
        let sum = pseudo.plus(Sum::of(&transport));
        let checksum = match self.protocol {
            UDP => sum.checksum_nonzero(),
            _ => sum.checksum(),
        };
        transport[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());

        let mut bytes = Vec::with_capacity(MAC_HEADER + 20 + transport.len());
        let macs: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        bytes.extend(macs[end.other() as usize]);
        bytes.extend(macs[end as usize]);
        bytes.extend(wire::headers::IPV4.to_be_bytes());
        let mut ip = [0; 20];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((20 + transport.len()) as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&self.identification.to_be_bytes());
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = self.protocol;
        ip[12..16].copy_from_slice(&from);
        ip[16..].copy_from_slice(&to);
        let checksum = Sum::of(&ip).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend(ip);
        bytes.extend(transport);
        bytes.resize(bytes.len().max(SHORTEST), 0);
        self.packets.push(CapturedPacket { at: self.now, bytes });
        self.identification = self.identification.wrapping_add(1);
        self.now = self.now + GAP;
    }
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

const CLIENT: [u8; 4] = [16, 0, 0, 1];
const SERVER: [u8; 4] = [48, 0, 0, 1];
const CLIENT_PORT: u16 = 1024;
/// Maximum payload of a TCP segment without options in a frame of 1514 bytes.
const SEGMENT: usize = 1460;
const WINDOW: u16 = 32768;
const GAP: Span = Span::from_micros(10_000);
/// Minimum length of a frame: 64 bytes on the wire, of which 4 bytes are the frame check sequence.
const SHORTEST: usize = 60;
const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;
