//! Frames of a forging host: TCP segments over IPv4 with a tag, for existing connections.

use super::TestMachine;
use port::{Frame, PacketPort, Port};
use std::time::{Duration, Instant};
use units::Time;

const TPID: [u8; 2] = [0x88, 0xa8];
/// The forger's address, which identifies its frames.
pub const FROM: [u8; 6] = [0x02, 0xca, 0x9b, 0, 0, 0x99];

/// The fields of a TCP segment over IPv4 that a forger needs.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    pub from: ([u8; 4], u16),
    pub to: ([u8; 4], u16),
    pub sequence: u32,
    pub acknowledgement: u32,
    pub payload: u16,
}

impl Segment {
    fn read(frame: &[u8]) -> Option<Self> {
        let ip = if frame.get(12..14)? == TPID { frame.get(18..)? } else { frame.get(14..)? };
        if ip.first()? != &0x45 || ip.get(9)? != &6 {
            return None;
        }
        let wide = |at: usize| Some(u32::from_be_bytes(*ip.get(at..)?.first_chunk()?));
        let narrow = |at: usize| Some(u16::from_be_bytes(*ip.get(at..)?.first_chunk()?));
        let headers = 20 + u16::from(ip.get(32)? >> 4) * 4;
        Some(Self {
            from: (*ip.get(12..)?.first_chunk()?, narrow(20)?),
            to: (*ip.get(16..)?.first_chunk()?, narrow(22)?),
            sequence: wide(24)?,
            acknowledgement: wide(28)?,
            payload: narrow(2)?.checked_sub(headers)?,
        })
    }

    /// Builds the acknowledgement that the other end sent before this segment arrived.
    pub fn answered(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            sequence: self.acknowledgement,
            acknowledgement: self.sequence,
            payload: 0,
        }
    }

    pub fn tagged(&self, mac: [u8; 6], info: u16) -> Vec<u8> {
        let mut bytes = [mac, FROM].concat();
        bytes.extend(TPID);
        bytes.extend(info.to_be_bytes());
        bytes.extend([0x08, 0x00, 0x45, 0]);
        bytes.extend((40 + self.payload).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        bytes.extend([self.from.0, self.to.0].concat());
        bytes.extend(self.from.1.to_be_bytes());
        bytes.extend(self.to.1.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgement.to_be_bytes());
        bytes.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        bytes.resize(bytes.len() + usize::from(self.payload), 7);
        bytes
    }
}

pub fn port(machine: &TestMachine, end: &str) -> PacketPort {
    machine.namespace(end).run(|| Ok(PacketPort::open("eth0").unwrap())).unwrap()
}

pub fn mac(machine: &TestMachine, end: &str) -> [u8; 6] {
    let output = machine.run("ip", &["-n", end, "link", "show", "eth0"]).stdout;
    let text = output.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap();
    let bytes: Vec<u8> = text.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

pub fn send(port: &mut PacketPort, frames: &[Vec<u8>]) {
    let frames: Vec<_> = frames.iter().map(|f| Frame::from_bytes(f, Time::ZERO)).collect();
    for frames in frames.chunks(32) {
        port.send(frames).unwrap();
    }
}

/// Returns the latest data segment of the connection that arrives at this port.
pub fn overheard(at: &mut PacketPort, from: u16, to: u16) -> Segment {
    let (mut batch, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    let mut latest = None;
    loop {
        assert!(Instant::now() < deadline, "no data comes");
        let count = at.receive(&mut batch, 256).unwrap();
        let honest = batch.drain(..).filter(|frame| frame.bytes().get(6..12) != Some(&FROM[..]));
        let segments = honest.filter_map(|frame| Segment::read(frame.bytes()));
        let mut data = segments
            .filter(|segment| segment.payload > 0 && (segment.from.1, segment.to.1) == (from, to));
        latest = data.next_back().or(latest);
        match latest {
            Some(segment) if count == 0 => return segment,
            None if count == 0 => std::thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
