use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The server's output, recorded for a client that requested it. Only the beginning and the end of
/// a very long output are kept.
#[derive(Debug, Clone, Default)]
pub(super) struct Transcript(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Transcript {
    pub(super) fn text(&self) -> String {
        let kept = self.kept();
        let mut text = String::from_utf8_lossy(&kept.head).into_owned();
        let tail: Vec<u8> = kept.tail.iter().copied().collect();
        let tail = String::from_utf8_lossy(&tail);
        if kept.left_out == 0 {
            text.push_str(&tail);
        } else {
            text.push_str(&format!("\n… {} bytes are left out …\n", kept.left_out));
            // Start the kept end at the beginning of a line.
            text.push_str(tail.split_once('\n').map_or("", |(_, rest)| rest));
        }
        text
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Transcript {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.kept();
        let room = MOST_HEAD.saturating_sub(kept.head.len());
        let (head, tail) = bytes.split_at(room.min(bytes.len()));
        kept.head.extend_from_slice(head);
        kept.tail.extend(tail);
        let over = kept.tail.len().saturating_sub(MOST_TAIL);
        kept.tail.drain(..over);
        kept.left_out += over as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Maximum number of bytes kept of the beginning, and of the end. The sum of both maxima is well
/// below a client's limit for a message.
const MOST_HEAD: usize = 1 << 20;
const MOST_TAIL: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_transcript_keeps_its_beginning_and_end() {
        let mut transcript = Transcript::default();
        let shared = transcript.clone();
        for line in 0..200_000 {
            writeln!(transcript, "line {line}").unwrap();
        }
        let text = shared.text();
        assert!(text.starts_with("line 0\nline 1\n"));
        assert!(text.ends_with("line 199998\nline 199999\n"));
        assert!(text.contains("bytes are left out …\nline "));
        assert!(text.len() < MOST_HEAD + MOST_TAIL + 100);
    }
}
