//! Reads the TCP segments of a capture in chunks.

use std::io::{self, Read};
use wire::capture::{CaptureError, CaptureReader, LONGEST_STEP, Step};
use wire::tcp::Segment;

/// Whether a file that begins with these bytes is a capture.
pub fn is_capture(start: &[u8]) -> bool {
    let mut reader = CaptureReader::new();
    start.len() >= 4 && !matches!(reader.next(start), Err(CaptureError::NotCapture))
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("{0}")]
    Read(#[source] io::Error),
    #[error("{0}")]
    Format(#[source] CaptureError),
}

/// The packets of a capture in the order of the file.
#[derive(Debug)]
pub(super) struct Packets<R> {
    source: R,
    reader: CaptureReader,
    times: Option<(u64, u64)>,
    /// Nanoseconds by which the clock of the capture was set back so far.
    set_back: u64,
    is_cut: bool,
}

impl<R: Read> Packets<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, reader: CaptureReader::new(), times: None, set_back: 0, is_cut: false }
    }

    pub(super) fn count(&self) -> u64 {
        self.reader.count()
    }

    /// Nanoseconds of the first and of the last packet.
    pub(super) fn times(&self) -> Option<(u64, u64)> {
        self.times
    }

    /// Whether the file ends within a packet.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the time of the next packet, which is at least the time of the packet before.
    fn time(&mut self, told: Option<u64>) -> u64 {
        let latest = self.times.map_or(0, |(_, latest)| latest);
        let Some(told) = told else { return latest };
        let now = told.saturating_add(self.set_back);
        if latest.saturating_sub(now) >= CLOCK_STEP {
            self.set_back = self.set_back.saturating_add(latest - now);
        }
        now.max(latest)
    }

    /// Calls `take` with the time and the content of each segment, and whether the capture may have
    /// cut the segment's options. Times never decrease: a packet that another interface recorded
    /// late gets the time of the packet before. If the clock was set back, the times continue at
    /// the time of the packet before.
    pub(super) fn each(
        &mut self,
        mut take: impl FnMut(u64, &Segment, bool),
    ) -> Result<(), SourceError> {
        let mut buffer = vec![0; PIECE];
        let (mut start, mut end) = (0, 0);
        loop {
            let step = self.reader.next(&buffer[start..end]).map_err(SourceError::Format)?;
            match step {
                Step::Skip { used } => start += used,
                Step::Packet { used, packet } => {
                    let now = self.time(packet.time_ns);
                    self.times = Some((self.times.map_or(now, |(first, _)| first), now));
                    if let Some(at) = packet.link.ip_offset(packet.bytes)
                        && let Some(segment) = Segment::of_ip(
                            &packet.bytes[at..],
                            (packet.original_length as usize).saturating_sub(at),
                        )
                    {
                        let is_shorter = packet.bytes.len() < packet.original_length as usize;
                        take(now, &segment, is_shorter && lacks_header(&packet.bytes[at..]));
                    }
                    start += used;
                    if self.reader.count() >= MOST_PACKETS {
                        return Ok(());
                    }
                }
                Step::More => {
                    // Moves bytes only within a full buffer, so that a source that gives few bytes
                    // at a time causes no more moves.
                    if end == buffer.len() && start > 0 {
                        buffer.copy_within(start..end, 0);
                        (end, start) = (end - start, 0);
                    }
                    if end == buffer.len() {
                        if buffer.len() >= LONGEST_STEP * 2 {
                            self.is_cut = true;
                            return Ok(());
                        }
                        buffer.resize(buffer.len() * 2, 0);
                    }
                    let read = loop {
                        match self.source.read(&mut buffer[end..]) {
                            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                            read => break read.map_err(SourceError::Read)?,
                        }
                    };
                    if read == 0 {
                        self.is_cut = end > start;
                        return Ok(());
                    }
                    end += read;
                }
            }
        }
    }
}

/// Whether a part of the TCP header may be missing. The end of a packet may be missing because a
/// capture keeps neither data nor the padding of a short frame.
fn lacks_header(packet: &[u8]) -> bool {
    let at = match packet {
        [first, ..] if first >> 4 == 4 => usize::from(first & 0x0f) * 4,
        [first, _, _, _, _, _, TCP, ..] if first >> 4 == 6 => 40,
        _ => return true,
    };
    let length = packet.get(at + 12).map(|offset| usize::from(offset >> 4) * 4);
    length.is_none_or(|length| packet.len() < at + length)
}

/// The number of TCP in the headers of IP.
const TCP: u8 = 6;
const PIECE: usize = 256 << 10;
/// A packet that is earlier than the packet before by this many nanoseconds shows that the clock
/// was set back. Interfaces record packets with a smaller delay.
const CLOCK_STEP: u64 = 1_000_000_000;
/// Maximum number of packets read; later packets are ignored.
const MOST_PACKETS: u64 = 200_000_000;
