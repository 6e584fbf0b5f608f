//! Captures in libpcap's format (draft-ietf-opsawg-pcap, "PCAP Capture File Format"): Ethernet
//! frames, with microseconds or nanoseconds, in either byte order.

/// Iterates over the records of a capture. The first error ends the iteration.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    /// The offset of the next record in the capture.
    at: usize,
    is_big_endian: bool,
    /// Nanoseconds per unit of a record's fraction of a second.
    unit_ns: u64,
    /// The number of records read so far.
    count: usize,
}

/// A frame of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The time of the frame, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The captured bytes, from the MAC addresses on. The capture has fewer bytes than
    /// `original_length` if it cut the frame.
    pub frame: &'a [u8],
    /// The offset of the frame in the capture.
    pub at: usize,
    /// The frame's length before the capture cut it.
    pub original_length: u32,
}

/// The reason for which a capture cannot be read. The text continues a sentence that begins with
/// the capture's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// The first four bytes are not a magic number of pcap.
    #[error("is not a pcap file")]
    NotPcap,
    /// The file begins with a section header of pcapng; [`crate::capture`] reads such files.
    #[error("is a pcapng: `editcap -F pcap IN OUT` makes a pcap of it")]
    Pcapng,
    /// The file ends before the link type in its header.
    #[error("ends within its header")]
    CutHeader,
    /// The file has frames of this link type; only Ethernet is supported.
    #[error("has link type {0}, not Ethernet (1): capture on an interface with Ethernet headers")]
    LinkType(u32),
    /// The file ends within the record with this number; the first record has number 1.
    #[error("ends within packet {0}")]
    CutPacket(usize),
}

impl<'a> Records<'a> {
    /// Reads the file header of the capture.
    pub fn of(bytes: &'a [u8]) -> Result<Self, PcapError> {
        let Some(magic) = bytes.first_chunk() else { return Err(PcapError::NotPcap) };
        let (is_big_endian, unit_ns) = match u32::from_be_bytes(*magic) {
            MICROSECONDS => (true, 1000),
            NANOSECONDS => (true, 1),
            PCAPNG => return Err(PcapError::Pcapng),
            other => match other.swap_bytes() {
                MICROSECONDS => (false, 1000),
                NANOSECONDS => (false, 1),
                _ => return Err(PcapError::NotPcap),
            },
        };
        let records = Self { bytes, at: FILE_HEADER, is_big_endian, unit_ns, count: 0 };
        // The upper bits hold the length of a frame check sequence.
        match records.word(LINK_TYPE_AT).map(|word| word & 0xffff) {
            Some(ETHERNET) => Ok(records),
            Some(other) => Err(PcapError::LinkType(other)),
            None => Err(PcapError::CutHeader),
        }
    }

    fn word(&self, at: usize) -> Option<u32> {
        let four = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
    }

    fn record(&self) -> Option<Record<'a>> {
        let word = |number: usize| self.word(self.at + 4 * number);
        let (seconds, part, length, original_length) = (word(0)?, word(1)?, word(2)?, word(3)?);
        let at = self.at + RECORD_HEADER;
        let frame = self.bytes.get(at..at.checked_add(length as usize)?)?;
        // Both numbers are 32 bits wide, so the sum fits in 64 bits.
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(part) * self.unit_ns;
        Some(Record { time_ns, frame, at, original_length })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, PcapError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        self.count += 1;
        match self.record() {
            Some(record) => {
                self.at = record.at + record.frame.len();
                Some(Ok(record))
            }
            None => {
                self.at = self.bytes.len();
                Some(Err(PcapError::CutPacket(self.count)))
            }
        }
    }
}

/// Returns the file header of a new capture with nanoseconds, whose frames have at most `longest`
/// bytes.
#[must_use]
pub fn file_header(longest: u32) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[..4].copy_from_slice(&NANOSECONDS.to_le_bytes());
    header[4..6].copy_from_slice(&2_u16.to_le_bytes());
    header[6..8].copy_from_slice(&4_u16.to_le_bytes());
    header[16..20].copy_from_slice(&longest.to_le_bytes());
    header[LINK_TYPE_AT..].copy_from_slice(&ETHERNET.to_le_bytes());
    header
}

/// Returns the header of a frame's record in a capture with nanoseconds. The time is in nanoseconds
/// since 1970.
#[must_use]
pub fn record_header(time_ns: u64, length: u32) -> [u8; RECORD_HEADER] {
    record_header_cut(time_ns, length, length)
}

/// Returns the header of a record that keeps the first `kept` bytes of a frame of `length` bytes.
#[must_use]
pub fn record_header_cut(time_ns: u64, kept: u32, length: u32) -> [u8; RECORD_HEADER] {
    let mut header = [0; RECORD_HEADER];
    header[..4].copy_from_slice(&((time_ns / 1_000_000_000) as u32).to_le_bytes());
    header[4..8].copy_from_slice(&((time_ns % 1_000_000_000) as u32).to_le_bytes());
    header[8..12].copy_from_slice(&kept.to_le_bytes());
    header[12..].copy_from_slice(&length.to_le_bytes());
    header
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const PCAPNG: u32 = 0x0a0d_0d0a;
const ETHERNET: u32 = 1;
const FILE_HEADER: usize = 24;
const LINK_TYPE_AT: usize = 20;
const RECORD_HEADER: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capture(frames: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = file_header(65_535).to_vec();
        for (time, frame) in frames {
            bytes.extend(record_header(*time, frame.len() as u32));
            bytes.extend(*frame);
        }
        bytes
    }

    /// Returns the capture with every field of its headers in the other byte order.
    fn swapped(bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let mut swap = |at: usize, length: usize| bytes[at..at + length].reverse();
        swap(0, 4);
        swap(4, 2);
        swap(6, 2);
        [8, 12, 16, 20].into_iter().for_each(|at| swap(at, 4));
        for record in Records::of(&capture(&FRAMES)).unwrap() {
            let at = record.unwrap().at - RECORD_HEADER;
            [0, 4, 8, 12].into_iter().for_each(|word| swap(at + word, 4));
        }
        bytes
    }

    const FRAMES: [(u64, &[u8]); 2] = [(1_000_000_005, &[1; 60]), (2_000_000_007, &[2; 61])];

    #[test]
    fn a_capture_reads_back_in_either_byte_order() {
        let written = capture(&FRAMES);
        for bytes in [written.clone(), swapped(&written)] {
            let read: Vec<Record<'_>> = Records::of(&bytes).unwrap().map(Result::unwrap).collect();
            assert_eq!(read.len(), 2);
            for (record, (time, frame)) in read.iter().zip(FRAMES) {
                assert_eq!((record.time_ns, record.frame), (time, frame));
                assert_eq!(bytes[record.at..record.at + frame.len()], *frame);
                assert_eq!(record.original_length as usize, frame.len());
            }
        }
    }

    #[test]
    fn microseconds_are_a_thousand_nanoseconds() {
        let mut bytes = capture(&[(7_000_000_000, &[1; 60])]);
        bytes[..4].copy_from_slice(&MICROSECONDS.to_le_bytes());
        bytes[FILE_HEADER + 4..FILE_HEADER + 8].copy_from_slice(&999_999_u32.to_le_bytes());
        let record = Records::of(&bytes).unwrap().next().unwrap().unwrap();
        assert_eq!(record.time_ns, 7_999_999_000);
    }

    #[test]
    fn files_of_other_formats_are_refused() {
        let refused = |bytes: &[u8]| Records::of(bytes).map(|_| ()).unwrap_err();
        assert_eq!(refused(b"{}"), PcapError::NotPcap);
        assert_eq!(refused(b"#!/bin/sh\n"), PcapError::NotPcap);
        assert_eq!(refused(&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0]), PcapError::Pcapng);
        let mut bytes = capture(&FRAMES);
        bytes[LINK_TYPE_AT] = 113;
        assert_eq!(refused(&bytes), PcapError::LinkType(113));
        assert_eq!(refused(&bytes[..23]), PcapError::CutHeader);
    }

    #[test]
    fn a_truncated_capture_gives_an_error_or_fewer_records() {
        let whole = capture(&FRAMES);
        for length in FILE_HEADER..whole.len() {
            let read: Result<Vec<_>, _> = Records::of(&whole[..length]).unwrap().collect();
            match length {
                FILE_HEADER => assert_eq!(read.unwrap(), []),
                100 => assert_eq!(read.unwrap().len(), 1),
                ..100 => assert_eq!(read.unwrap_err(), PcapError::CutPacket(1)),
                _ => assert_eq!(read.unwrap_err(), PcapError::CutPacket(2)),
            }
        }
    }

    proptest! {
        #[test]
        fn reading_arbitrary_bytes_as_a_capture_ends(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            let header = file_header(0);
            bytes.splice(..0, header);
            let records: Vec<_> = Records::of(&bytes).unwrap().collect();
            prop_assert!(records.len() <= bytes.len() / RECORD_HEADER + 1);
        }
    }
}
