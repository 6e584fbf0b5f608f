//! A second host with CAQM, written from docs/reference/caqm-wire.md alone: a small TCP on a TAP
//! device. The host shares no code with Weir's hosts.

use port::{Frame, Port as _, TapPort};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use units::Time;

pub const SYN: u8 = 0x02;
pub const ACK: u8 = 0x10;
pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;
/// The bits `en`, `C` and `I` among the 16 bits of a tag.
const EN: u16 = 1 << 10;
const C: u16 = 1 << 9;
const I: u16 = 1 << 8;

const TPID: u16 = 0x88a8;
const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];
const HERE: [u8; 4] = [10, 9, 0, 2];
const THERE: [u8; 4] = [10, 9, 0, 1];
const PATIENCE: Duration = Duration::from_secs(20);

/// The parameters of caqm-wire.md that this host needs.
const ALPHA: u64 = 8;
const BETA: i64 = 512;
const MTU_UNIT: i64 = 1024;
const DATA_UNIT: i64 = 8;
const ACK_UNIT: i64 = 64;

/// Returns the bytes that a tag on data requests; negative: the bytes by which a port decreases the
/// window.
pub fn asked(tag: u16) -> i64 {
    match (tag & C != 0, tag & I != 0) {
        (false, true) => i64::from(tag & 255) * DATA_UNIT,
        (true, false) => -BETA,
        _ => 0,
    }
}

/// Returns the bytes that a tag on a pure ACK answers.
pub fn answered(tag: u16) -> i64 {
    let bytes = i64::from(tag & 255) * ACK_UNIT;
    match (tag & C != 0, tag & I != 0) {
        (false, true) => bytes,
        (true, false) => -bytes,
        _ => 0,
    }
}

/// Returns the tag of a request after a port has refused the request.
pub fn refused(tag: u16) -> u16 {
    tag & !I | C
}

#[derive(Debug, Default)]
pub struct Receiver {
    pub owed: i64,
}

impl Receiver {
    pub fn data(&mut self, tag: u16) {
        self.owed += asked(tag);
    }

    /// Returns the tag of the next pure ACK.
    pub fn ack(&mut self) -> u16 {
        let units = (self.owed.abs() / ACK_UNIT).min(255);
        let bits = if self.owed < 0 && units > 0 { C } else { I };
        self.owed -= self.owed.signum() * units * ACK_UNIT;
        bits | units as u16
    }
}

/// The state of a sender whose round trips are below a quarter of the standard round trip, and
/// therefore count as the standard.
#[derive(Debug)]
pub struct Sender {
    pub start: bool,
    pub cwnd: i64,
    share: u64,
    sum: i64,
}

impl Sender {
    pub fn new(cwnd: i64) -> Self {
        Self { start: true, cwnd, share: 0, sum: 0 }
    }

    /// Returns the tag of the next data segment.
    pub fn request(&mut self) -> u16 {
        let hint = if self.start {
            (MTU_UNIT / DATA_UNIT).min(255) as u64
        } else {
            let part = ((ALPHA * MTU_UNIT as u64) << 20) / (8 * (DATA_UNIT * self.cwnd) as u64);
            self.share += part;
            let hint = (self.share >> 20).min(255);
            self.share = (self.share - (hint << 20)).min(1 << 20);
            hint
        };
        EN | I | hint as u16
    }

    pub fn answer(&mut self, bytes: i64, limited: bool) {
        if bytes <= 0 {
            self.start = false;
        }
        if bytes < 0 || limited {
            self.sum += bytes;
            let whole = self.sum / MTU_UNIT;
            self.cwnd = (self.cwnd + whole).max(1);
            self.sum -= whole * MTU_UNIT;
        }
    }
}

/// A TCP segment as received from the wire.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub tag: Option<u16>,
    pub ports: (u16, u16),
    pub reserved: u8,
    pub flags: u8,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub payload: u32,
    pub checksum_holds: bool,
}

/// The host: its device, and one connection.
#[derive(Debug)]
pub struct Host {
    tap: TapPort,
    peer_mac: [u8; 6],
    waiting: VecDeque<Seen>,
    /// The ports of this host and of the peer; 0 stands for any port.
    pub ports: (u16, u16),
    /// Sequence numbers of the next byte to send, and of the next byte expected.
    pub next: u32,
    pub expected: u32,
}

impl Host {
    pub fn new(tap: TapPort) -> Self {
        Self {
            tap,
            peer_mac: [0xff; 6],
            waiting: VecDeque::new(),
            ports: (40_000, 0),
            next: 1000,
            expected: 0,
        }
    }

    /// Waits for the peer's next TCP segment, for at most `time`.
    pub fn segment_within(&mut self, time: Duration) -> Option<Seen> {
        let deadline = Instant::now() + time;
        loop {
            // Segments of earlier connections may still arrive.
            while let Some(seen) = self.waiting.pop_front() {
                let (from, to) = seen.ports;
                if to == self.ports.0 && (self.ports.1 == 0 || from == self.ports.1) {
                    return Some(seen);
                }
            }
            let mut batch = Vec::new();
            if self.tap.receive(&mut batch, 64).unwrap() == 0 {
                if Instant::now() >= deadline {
                    return None;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            for frame in batch {
                self.take(frame.bytes());
            }
        }
    }

    pub fn segment(&mut self) -> Seen {
        self.segment_within(PATIENCE).expect("the peer sends a segment")
    }

    fn take(&mut self, frame: &[u8]) {
        let word = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let (Some(outer), Some(from)) = (word(12), frame.get(6..12)) else { return };
        if outer == 0x0806 {
            return self.answer_arp(frame);
        }
        let (tag, ip) = match outer {
            TPID => (word(14), frame.get(18..)),
            _ => (None, frame.get(14..)),
        };
        let Some(ip) = ip.filter(|ip| ip.len() >= 40 && ip[0] == 0x45 && ip[9] == 6) else {
            return;
        };
        if ip[16..20] != HERE {
            return;
        }
        self.peer_mac.copy_from_slice(from);
        let length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let Some(tcp) = ip.get(20..length) else { return };
        let wide = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        self.waiting.push_back(Seen {
            tag,
            ports: (u16::from_be_bytes([tcp[0], tcp[1]]), u16::from_be_bytes([tcp[2], tcp[3]])),
            reserved: tcp[12] & 15,
            flags: tcp[13],
            sequence: wide(4),
            acknowledgement: wide(8),
            payload: tcp.len() as u32 - u32::from(tcp[12] >> 4) * 4,
            checksum_holds: sum(tcp, pseudo(&ip[12..20], tcp.len())) == 0,
        });
    }

    fn answer_arp(&mut self, frame: &[u8]) {
        let Some(arp) = frame.get(14..42) else { return };
        if arp[7] != 1 || arp[24..28] != HERE {
            return;
        }
        let mut bytes = [&arp[8..14], &MAC[..], &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
        bytes.extend(MAC);
        bytes.extend(HERE);
        bytes.extend(&arp[8..18]);
        self.put(&bytes);
    }

    /// Resolves the peer's MAC address, as a host does before its first packet.
    pub fn find_peer(&mut self) {
        let mut bytes = [&[0xff; 6][..], &MAC, &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        bytes.extend(MAC);
        bytes.extend(HERE);
        bytes.extend([0; 6]);
        bytes.extend(THERE);
        let deadline = Instant::now() + PATIENCE;
        while self.peer_mac == [0xff; 6] {
            assert!(Instant::now() < deadline, "the peer has no MAC address");
            self.put(&bytes);
            std::thread::sleep(Duration::from_millis(5));
            let mut batch = Vec::new();
            self.tap.receive(&mut batch, 64).unwrap();
            for frame in batch {
                let bytes = frame.bytes();
                if bytes.get(12..14) == Some(&[8, 6]) && bytes.get(28..32) == Some(&THERE[..]) {
                    self.peer_mac.copy_from_slice(&bytes[22..28]);
                }
            }
        }
    }

    pub fn send(&mut self, flags: u8, reserved: u8, payload: u16, tag: Option<u16>) {
        // The option for the maximum segment size: 1000 bytes.
        let options: &[u8] = if flags & SYN != 0 { &[2, 4, 3, 232] } else { &[] };
        let mut tcp = Vec::new();
        tcp.extend(self.ports.0.to_be_bytes());
        tcp.extend(self.ports.1.to_be_bytes());
        tcp.extend(self.next.to_be_bytes());
        tcp.extend(self.expected.to_be_bytes());
        tcp.push((((20 + options.len()) / 4) as u8) << 4 | reserved);
        tcp.push(flags);
        tcp.extend([0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(options);
        tcp.resize(tcp.len() + usize::from(payload), 7);
        let addresses = [HERE, THERE].concat();
        let check = sum(&tcp, pseudo(&addresses, tcp.len()));
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        let mut ip = vec![0x45, 0];
        ip.extend((20 + tcp.len() as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        ip.extend(addresses);
        let check = sum(&ip, 0);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        let mut bytes = [self.peer_mac, MAC].concat();
        if let Some(tag) = tag {
            bytes.extend(TPID.to_be_bytes());
            bytes.extend(tag.to_be_bytes());
        }
        bytes.extend([0x08, 0]);
        bytes.extend(ip);
        bytes.extend(tcp);
        self.put(&bytes);
        self.next = self.next.wrapping_add(u32::from(payload) + u32::from(flags & SYN != 0));
    }

    fn put(&mut self, bytes: &[u8]) {
        self.tap.send(&[Frame::from_bytes(bytes, Time::ZERO)]).unwrap();
    }
}

fn pseudo(addresses: &[u8], length: usize) -> u32 {
    let words = addresses.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    words.sum::<u32>() + 6 + length as u32
}

/// Computes the Internet checksum: 0 over data that includes its correct checksum.
fn sum(bytes: &[u8], more: u32) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum = words.sum::<u32>() + more;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
