use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use units::{Span, Time};

use super::{Capture, CapturedPacket};
use crate::GenError;

/// draft-ietf-opsawg-pcap, "PCAP Capture File Format".
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Capture, GenError> {
    let refuse =
        |problem: &str| GenError::Capture { file: file.to_owned(), problem: problem.to_owned() };
    let (header, mut rest) =
        bytes.split_at_checked(HEADER).ok_or_else(|| refuse("the file is too short for a pcap"))?;
    let magic = [header[0], header[1], header[2], header[3]];
    let (big, nanoseconds) = match u32::from_be_bytes(magic) {
        0xa1b2_c3d4 => (true, false),
        0xa1b2_3c4d => (true, true),
        0xd4c3_b2a1 => (false, false),
        0x4d3c_b2a1 => (false, true),
        0x0a0d_0d0a => {
            return Err(refuse("this is a pcapng: `editcap -F pcap IN OUT` makes a pcap of it"));
        }
        _ => return Err(refuse("this is no pcap")),
    };
    let number = |bytes: &[u8], at: usize| -> u32 {
        let word = bytes[at..].first_chunk::<4>().copied().unwrap_or_default();
        if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    // The upper bits hold the length of a frame check sequence.
    let link_type = number(header, 20) & 0xffff;
    if link_type != ETHERNET {
        return Err(refuse(&format!(
            "link type {link_type} is not Ethernet: capture on an interface with Ethernet headers"
        )));
    }
    let mut packets = Vec::new();
    let mut first = None;
    while !rest.is_empty() {
        let (record, after) =
            rest.split_at_checked(RECORD).ok_or_else(|| refuse("the file ends within a record"))?;
        let fraction = u64::from(number(record, 4)) * if nanoseconds { 1 } else { 1000 };
        let at = u64::from(number(record, 0)) * 1_000_000_000 + fraction;
        let (captured, original) = (number(record, 8) as usize, number(record, 12) as usize);
        let (frame, after) = after
            .split_at_checked(captured)
            .ok_or_else(|| refuse("the file ends within a packet"))?;
        if captured < original {
            return Err(refuse(&format!(
                "packet {} is truncated to {captured} of {original} bytes: capture whole packets",
                packets.len() + 1
            )));
        }
        if captured > LONGEST_FRAME {
            return Err(refuse(&format!(
                "packet {} has {captured} bytes, more than {LONGEST_FRAME}: capture with \
                 segmentation offloads off",
                packets.len() + 1
            )));
        }
        if packets.len() >= MOST_PACKETS {
            return Err(refuse(&format!("the capture has more than {MOST_PACKETS} packets")));
        }
        let start = *first.get_or_insert(at);
        packets.push(CapturedPacket {
            at: Span::from_nanos(at.saturating_sub(start)),
            bytes: frame.to_vec(),
        });
        rest = after;
    }
    if packets.is_empty() {
        return Err(refuse("the capture has no packets"));
    }
    Ok(Capture { packets })
}

/// Writes a capture with nanoseconds.
#[derive(Debug)]
pub struct CaptureWriter {
    file: BufWriter<File>,
    name: String,
}

impl CaptureWriter {
    pub fn create(path: &Path) -> Result<Self, GenError> {
        let name = path.display().to_string();
        let unwritable = |reason| GenError::Unwritable { file: name.clone(), reason };
        let file = File::create(path).map_err(unwritable)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let mut header = Vec::with_capacity(HEADER);
        header.extend(0xa1b2_3c4du32.to_le_bytes());
        header.extend(2u16.to_le_bytes());
        header.extend(4u16.to_le_bytes());
        header.extend([0; 8]);
        header.extend((LONGEST_FRAME as u32).to_le_bytes());
        header.extend(ETHERNET.to_le_bytes());
        file.write_all(&header).map_err(unwritable)?;
        Ok(Self { file, name })
    }

    pub fn write(&mut self, frame: &[u8], at: Time) -> Result<(), GenError> {
        let nanos = at.nanos();
        let mut record = [0; RECORD];
        record[..4].copy_from_slice(&((nanos / 1_000_000_000) as u32).to_le_bytes());
        record[4..8].copy_from_slice(&((nanos % 1_000_000_000) as u32).to_le_bytes());
        record[8..12].copy_from_slice(&(frame.len() as u32).to_le_bytes());
        record[12..].copy_from_slice(&(frame.len() as u32).to_le_bytes());
        let written = self.file.write_all(&record).and_then(|()| self.file.write_all(frame));
        written.map_err(|reason| GenError::Unwritable { file: self.name.clone(), reason })
    }

    pub fn finish(mut self) -> Result<(), GenError> {
        let flushed = self.file.flush();
        flushed.map_err(|reason| GenError::Unwritable { file: self.name.clone(), reason })
    }
}

const HEADER: usize = 24;
const RECORD: usize = 16;
const ETHERNET: u32 = 1;
/// A jumbo frame of 9216 bytes with tags.
pub(super) const LONGEST_FRAME: usize = 9216 + 18;
const MOST_PACKETS: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn pcap(magic: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut bytes = magic.to_le_bytes().to_vec();
        bytes.extend([2, 0, 4, 0]);
        bytes.extend([0; 8]);
        bytes.extend(65535u32.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        for (seconds, fraction, frame) in packets {
            bytes.extend(seconds.to_le_bytes());
            bytes.extend(fraction.to_le_bytes());
            bytes.extend((frame.len() as u32).to_le_bytes());
            bytes.extend((frame.len() as u32).to_le_bytes());
            bytes.extend(*frame);
        }
        bytes
    }

    #[test]
    fn times_count_from_the_first_packet() {
        let bytes = pcap(0xa1b2_c3d4, &[(7, 999_999, &[1; 60]), (8, 1, &[2; 60])]);
        let capture = parse("x.pcap", &bytes).unwrap();
        let times: Vec<u64> = capture.packets.iter().map(|packet| packet.at.nanos()).collect();
        assert_eq!(times, [0, 2000]);
    }

    #[test]
    fn every_truncation_is_an_error_or_a_shorter_capture() {
        let bytes = pcap(0xa1b2_3c4d, &[(7, 5, &[1; 60]), (7, 6, &[2; 61])]);
        for len in 0..bytes.len() {
            if let Ok(capture) = parse("x.pcap", &bytes[..len]) {
                assert_eq!((capture.packets.len(), len), (1, 24 + 16 + 60));
            }
        }
        assert_eq!(parse("x.pcap", &bytes).unwrap().packets.len(), 2);
    }

    #[test]
    fn a_written_capture_reads_back() {
        let path = std::env::temp_dir().join(format!("gen-capture-{}", std::process::id()));
        let mut writer = CaptureWriter::create(&path).unwrap();
        writer.write(&[1; 60], Time::from_nanos(5)).unwrap();
        writer.write(&[2; 90], Time::from_nanos(2_000_000_007)).unwrap();
        writer.finish().unwrap();
        let read = parse("x", &std::fs::read(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.packets[1].at, Span::from_nanos(2_000_000_002));
        assert_eq!(read.packets[1].bytes, [2; 90]);
    }
}
