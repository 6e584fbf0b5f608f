//! Keeps the last part of a program's output, which comes through pipes, and counts all its bytes.

use super::seam::Captured;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Reads one stream of a program until every writer has closed it.
#[derive(Debug, Clone, Default)]
pub(super) struct Capture(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    last: VecDeque<u8>,
    total: u64,
    has_ended: bool,
}

impl Capture {
    /// Creates a capture, and returns it with the write end of its pipe.
    pub(super) fn new() -> io::Result<(Self, File)> {
        let (reader, writer) = io::pipe()?;
        let capture = Self::default();
        let own = capture.clone();
        std::thread::Builder::new()
            .name("output of a program".to_owned())
            .spawn(move || own.drain(reader))?;
        Ok((capture, File::from(OwnedFd::from(writer))))
    }

    fn drain(&self, mut reader: impl Read) {
        let mut piece = vec![0; PIECE];
        loop {
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => self.keep(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.lock().has_ended = true;
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        kept.total += bytes.len() as u64;
        kept.last.extend(bytes);
        let beyond = kept.last.len().saturating_sub(KEPT);
        kept.last.drain(..beyond);
    }

    /// Whether everything that the program printed has been read.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Polls for the rest of the output, at most `looks` times, a millisecond apart. A deadline
    /// would also count a stall of the machine, during which no thread reads.
    pub(super) fn await_end(&self, looks: u32) {
        for _ in 0..looks {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn so_far(&self) -> Captured {
        let mut kept = self.lock();
        let total = kept.total;
        let text = String::from_utf8_lossy(kept.last.make_contiguous()).into_owned();
        Captured { text, total }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum size of the kept output. JSON is read only if the whole document was kept; iperf3's
/// document about 128 streams over an hour fits.
pub(super) const KEPT: usize = 4 << 20;
const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_end_and_counts_all_bytes() {
        let capture = Capture::default();
        let bytes = vec![b'a'; KEPT + 5];
        capture.drain([&bytes[..], b"last\n"].concat().as_slice());
        let seen = capture.so_far();
        assert!(capture.has_ended() && seen.is_cut());
        assert_eq!(seen.total, KEPT as u64 + 10);
        assert_eq!(seen.text.len(), KEPT);
        assert!(seen.last_lines(1).ends_with('…') && seen.text.ends_with("alast\n"));
    }

    #[test]
    fn last_output_lines_are_escaped() {
        let seen = Captured { text: "one\n\n\x1b[2Jtwo \nthree\n".to_owned(), total: 20 };
        assert_eq!(seen.last_lines(2), r"\x1b[2Jtwo | three");
    }
}
