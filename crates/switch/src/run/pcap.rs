//! Capture files in libpcap's format: a reader and a writer.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use host::Earlier;
use port::prefetch::prefetch;
use port::{Frame, HugeVec, Lease};
use thiserror::Error;
use units::Time;
use wire::pcap::{self, Records};

/// Maximum length of a frame that the switch accepts: a jumbo frame with two VLAN tags.
pub const LONGEST_FRAME: usize = 9216 + 18;

const SHORTEST_FRAME: usize = 14;
const BIGGEST_FILE: u64 = 4 << 30;
/// The mode of a new file, before the umask.
const READABLE: u32 = 0o666;

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

/// The frames of a capture in memory. Each frame begins at a cache line, without its record header.
#[derive(Debug)]
pub struct Capture {
    lines: HugeVec<Line>,
    /// For each frame, the index of its first cache line, and its length.
    frames: Vec<(u32, u32)>,
}

type Line = [u8; LINE];
const LINE: usize = 64;

impl Capture {
    pub fn read(path: &Path) -> Result<Self, PcapError> {
        let refused = |error| PcapError::Read { path: path.to_owned(), error };
        let mut bytes = Vec::new();
        let file = host::open_regular_file(path).map_err(refused)?;
        file.take(BIGGEST_FILE).read_to_end(&mut bytes).map_err(refused)?;
        Self::parse(path, &bytes)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, PcapError> {
        let path = || path.to_owned();
        let format = |error| PcapError::Format { path: path(), error };
        let mut capture = Self { lines: HugeVec::new(), frames: Vec::new() };
        for record in Records::of(bytes).map_err(format)? {
            let record = record.map_err(format)?;
            let number = capture.frames.len() + 1;
            let damaged = |reason| PcapError::Record { path: path(), record: number, reason };
            if record.frame.len() > LONGEST_FRAME {
                return Err(damaged("the frame is longer than 9,234 bytes"));
            }
            if record.frame.len() < SHORTEST_FRAME {
                return Err(damaged("the frame is shorter than an Ethernet header"));
            }
            capture.push(record.frame);
        }
        if capture.frames.is_empty() {
            return Err(PcapError::Empty { path: path() });
        }
        Ok(capture)
    }

    /// Appends a frame. Capture files are so small that the index of a cache line fits in 32 bits.
    fn push(&mut self, frame: &[u8]) {
        self.frames.push((self.lines.len() as u32, frame.len() as u32));
        for part in frame.chunks(LINE) {
            let mut line = [0; LINE];
            line[..part.len()].copy_from_slice(part);
            self.lines.push(line);
        }
    }

    #[must_use]
    pub fn frame(&self, index: usize) -> Option<&[u8]> {
        let (lines, length) = self.lines(index)?;
        lines.as_flattened().get(..length)
    }

    /// Copies a frame.
    #[inline]
    pub(super) fn copy(&self, index: usize, pool: &mut Lease) -> Option<Frame> {
        let (lines, length) = self.lines(index)?;
        let mut frame = pool.frame(length, Time::ZERO);
        frame.fill_from_lines(lines);
        Some(frame)
    }

    /// Returns the cache lines of a frame, and its length.
    #[inline]
    fn lines(&self, index: usize) -> Option<(&[Line], usize)> {
        let (line, length) = *self.frames.get(index)?;
        let (line, length) = (line as usize, length as usize);
        Some((self.lines.get(line..line + length.div_ceil(LINE))?, length))
    }

    /// Prefetches a frame.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let Some(line) =
            self.frames.get(index).and_then(|(line, _)| self.lines.get(*line as usize))
        {
            prefetch(line);
        }
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

/// Writes frames to a new capture file, with timestamps in nanoseconds.
#[derive(Debug)]
pub struct CaptureWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl CaptureWriter {
    pub fn create(path: &Path) -> Result<Self, PcapError> {
        let refused = |error| PcapError::Write { path: path.to_owned(), error };
        // The path must not be a pipe, because a packet thread would wait for the reader.
        let opened = host::open_regular_output(path, Earlier::Replaced, READABLE);
        let mut file = BufWriter::new(opened.map_err(refused)?);
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
    fn a_written_pcap_file_parses_to_the_same_frames() {
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
    fn a_truncated_pcap_file_is_refused_or_has_fewer_frames() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cut.pcap");
        let mut writer = CaptureWriter::create(&path).unwrap();
        writer.write(&[1; 60], 0).unwrap();
        writer.write(&[2; 61], 0).unwrap();
        writer.flush().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            let read = Capture::parse(&path, &whole[..length]);
            assert_eq!(read.is_ok(), length == 24 + 16 + 60, "{length}");
        }
    }
}
