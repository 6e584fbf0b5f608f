use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use host::{Earlier, open_output_file};
use units::{Span, Time};
use wire::pcap::{self, PcapError, Records};

use super::{Capture, CapturedPacket};
use crate::GenError;

pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Capture, GenError> {
    let refuse =
        |problem: &str| GenError::Capture { file: file.to_owned(), problem: problem.to_owned() };
    let unreadable = |error: PcapError| refuse(&format!("the capture {error}"));
    let mut packets = Vec::new();
    let mut first = None;
    for record in Records::of(bytes).map_err(unreadable)? {
        let record = record.map_err(unreadable)?;
        let number = packets.len() + 1;
        let (captured, original) = (record.frame.len(), record.original_length as usize);
        if captured < original {
            return Err(refuse(&format!(
                "packet {number} is truncated to {captured} of {original} bytes: capture whole \
                 packets"
            )));
        }
        if captured > LONGEST_FRAME {
            return Err(refuse(&format!(
                "packet {number} has {captured} bytes, more than {LONGEST_FRAME}: capture with \
                 segmentation offloads off"
            )));
        }
        if number > MOST_PACKETS {
            return Err(refuse(&format!(
                "the capture has more than {MOST_PACKETS} packets: shorten it"
            )));
        }
        let start = *first.get_or_insert(record.time_ns);
        packets.push(CapturedPacket {
            at: Span::from_nanos(record.time_ns.saturating_sub(start)),
            bytes: record.frame.to_vec(),
        });
    }
    if packets.is_empty() {
        return Err(refuse("the capture has no packets: name another"));
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
        let file = open_output_file(path, Earlier::Replaced, READABLE).map_err(unwritable)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&pcap::file_header(LONGEST_FRAME as u32)).map_err(unwritable)?;
        Ok(Self { file, name })
    }

    pub fn write(&mut self, frame: &[u8], at: Time) -> Result<(), GenError> {
        let header = pcap::record_header(at.nanos(), frame.len() as u32);
        let written = self.file.write_all(&header).and_then(|()| self.file.write_all(frame));
        written.map_err(|reason| GenError::Unwritable { file: self.name.clone(), reason })
    }

    pub fn finish(mut self) -> Result<(), GenError> {
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> Result<(), GenError> {
        let flushed = self.file.flush();
        flushed.map_err(|reason| GenError::Unwritable { file: self.name.clone(), reason })
    }
}

/// Maximum length of a frame of a capture: a jumbo frame of 9216 bytes with tags.
pub(super) const LONGEST_FRAME: usize = 9216 + 18;
const MOST_PACKETS: usize = 200_000;
const READABLE: u32 = 0o666;

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(packets: &[(u64, u32, &[u8])]) -> Vec<u8> {
        let mut bytes = pcap::file_header(65535).to_vec();
        for (time, original, frame) in packets {
            let mut header = pcap::record_header(*time, frame.len() as u32);
            header[12..].copy_from_slice(&original.to_le_bytes());
            bytes.extend(header);
            bytes.extend(*frame);
        }
        bytes
    }

    #[test]
    fn capture_times_count_from_the_first_packet() {
        let bytes = capture(&[(7_999_999_000, 60, &[1; 60]), (8_000_001_000, 60, &[2; 60])]);
        let capture = parse("x.pcap", &bytes).unwrap();
        let times: Vec<u64> = capture.packets.iter().map(|packet| packet.at.nanos()).collect();
        assert_eq!(times, [0, 2000]);
    }

    #[test]
    fn a_capture_truncated_at_any_byte_is_an_error_or_has_fewer_packets() {
        let bytes = capture(&[(7, 60, &[1; 60]), (8, 61, &[2; 61])]);
        for len in 0..bytes.len() {
            if let Ok(capture) = parse("x.pcap", &bytes[..len]) {
                assert_eq!((capture.packets.len(), len), (1, 24 + 16 + 60));
            }
        }
        assert_eq!(parse("x.pcap", &bytes).unwrap().packets.len(), 2);
    }

    #[test]
    fn captures_with_truncated_packets_or_super_packets_are_refused() {
        let long = vec![1; LONGEST_FRAME + 1];
        for (packet, told) in [
            ((0, 61, &[1; 60][..]), "truncated to 60 of 61 bytes"),
            ((0, long.len() as u32, &long[..]), "segmentation offloads off"),
        ] {
            let error = parse("x.pcap", &capture(&[packet])).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_written_capture_parses_to_the_same_packets() {
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
