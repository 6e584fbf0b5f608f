//! Capture files in libpcap's format: a source that plays one, and a writer.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;
use wire::pcap::{self, Records};

/// The longest frame that the switch takes: a jumbo frame with two VLAN tags.
pub const LONGEST_FRAME: usize = 9216 + 18;

const SHORTEST_FRAME: usize = 14;
const BIGGEST_FILE: u64 = 4 << 30;

#[derive(Debug, Error)]
pub enum PcapError {
    #[error("cannot read {}: {error}; check the path and the permissions", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("cannot write {}: {error}; name another file", path.display())]
    Write { path: PathBuf, error: std::io::Error },
    #[error("{} {error}", path.display())]
    Format { path: PathBuf, error: pcap::PcapError },
    #[error("{}: record {record} is damaged: {reason}; name another capture", path.display())]
    Record { path: PathBuf, record: usize, reason: &'static str },
    #[error("{} has no frames: name another capture", path.display())]
    Empty { path: PathBuf },
}

/// The frames of a capture, in memory.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    /// Start and length in `bytes`.
    frames: Vec<(u32, u32)>,
}

impl Capture {
    pub fn read(path: &Path) -> Result<Self, PcapError> {
        let refused = |error| PcapError::Read { path: path.to_owned(), error };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(refused)?;
        file.take(BIGGEST_FILE).read_to_end(&mut bytes).map_err(refused)?;
        let frames = frames(path, &bytes)?;
        Ok(Self { bytes, frames })
    }

    #[must_use]
    pub fn frame(&self, index: usize) -> Option<&[u8]> {
        let (start, length) = *self.frames.get(index)?;
        self.bytes.get(start as usize..(start + length) as usize)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

fn frames(path: &Path, bytes: &[u8]) -> Result<Vec<(u32, u32)>, PcapError> {
    let path = || path.to_owned();
    let format = |error| PcapError::Format { path: path(), error };
    let mut frames = Vec::new();
    for record in Records::of(bytes).map_err(format)? {
        let record = record.map_err(format)?;
        let damaged = |reason| PcapError::Record { path: path(), record: frames.len() + 1, reason };
        let length = record.frame.len();
        if length > LONGEST_FRAME {
            return Err(damaged("the frame is longer than 9,234 bytes"));
        }
        if length < SHORTEST_FRAME {
            return Err(damaged("the frame is shorter than an Ethernet header"));
        }
        let start = u32::try_from(record.at).map_err(|_| damaged("the file is too long"))?;
        frames.push((start, length as u32));
    }
    if frames.is_empty() {
        return Err(PcapError::Empty { path: path() });
    }
    Ok(frames)
}

/// Writes frames to a new capture file, with times in nanoseconds.
#[derive(Debug)]
pub struct CaptureWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl CaptureWriter {
    pub fn create(path: &Path) -> Result<Self, PcapError> {
        let refused = |error| PcapError::Write { path: path.to_owned(), error };
        let mut file = BufWriter::new(File::create(path).map_err(refused)?);
        file.write_all(&pcap::file_header(LONGEST_FRAME as u32)).map_err(refused)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds a frame with its time, in nanoseconds since 1970.
    pub fn write(&mut self, frame: &[u8], time_ns: u64) -> Result<(), PcapError> {
        let header = pcap::record_header(time_ns, frame.len() as u32);
        let written = self.file.write_all(&header).and_then(|()| self.file.write_all(frame));
        written.map_err(|error| PcapError::Write { path: self.path.clone(), error })
    }

    pub fn flush(&mut self) -> Result<(), PcapError> {
        self.file.flush().map_err(|error| PcapError::Write { path: self.path.clone(), error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_reads_back_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("two.pcap");
        let mut writer = CaptureWriter::create(&path).unwrap();
        writer.write(&[1; 60], 1_000_000_001).unwrap();
        writer.write(&[2; 1514], 2_000_000_002).unwrap();
        writer.flush().unwrap();
        let capture = Capture::read(&path).unwrap();
        assert_eq!(capture.len(), 2);
        assert_eq!(capture.frame(0), Some(&[1; 60][..]));
        assert_eq!(capture.frame(1), Some(&[2; 1514][..]));
        assert_eq!(capture.frame(2), None);
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_or_shorter_but_never_a_panic() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cut.pcap");
        let mut writer = CaptureWriter::create(&path).unwrap();
        writer.write(&[1; 60], 0).unwrap();
        writer.write(&[2; 61], 0).unwrap();
        writer.flush().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            let read = frames(&path, &whole[..length]);
            assert_eq!(read.is_ok(), length == 24 + 16 + 60, "{length}");
        }
    }
}
