use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

/// Output that a peer has not read yet.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// The number of bytes that [`Outgoing::fresh`] has returned.
    seen: usize,
    /// The time at which the peer last read output.
    since: Instant,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), sent: 0, seen: 0, since: Instant::now() }
    }

    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Returns the buffer to which new bytes are appended.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.waiting() == 0 {
            self.since = Instant::now();
        }
        &mut self.bytes
    }

    /// Returns the bytes that were appended since the last call. The caller must call this function
    /// before [`Outgoing::write`], which forgets bytes.
    pub(super) fn fresh(&mut self) -> &[u8] {
        let seen = std::mem::replace(&mut self.seen, self.bytes.len());
        &self.bytes[seen..]
    }

    /// Writes the bytes that the stream accepts.
    pub(super) fn write(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while self.waiting() > 0 {
            match stream.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.sent += written;
                    self.since = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.compact();
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        (self.sent, self.seen) = (0, 0);
        self.bytes.clear();
        // Frees the memory of a large reply.
        self.bytes.shrink_to(KEPT);
        Ok(())
    }

    /// Returns the time for which the peer has not read any waiting output.
    pub(super) fn pause(&self) -> Duration {
        if self.waiting() == 0 { Duration::ZERO } else { self.since.elapsed() }
    }

    /// Whether the peer has read none of the waiting output for too long.
    pub(super) fn is_stuck(&self) -> bool {
        self.waiting() > 0 && self.since.elapsed().as_secs() >= PATIENCE_SECONDS
    }

    fn compact(&mut self) {
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.seen = self.seen.saturating_sub(self.sent);
            self.sent = 0;
        }
    }
}

const KEPT: usize = 1 << 20;
const PATIENCE_SECONDS: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that accepts five bytes per call, and refuses further bytes until the next call.
    struct Slow(Vec<u8>, usize);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(2) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let taken = bytes.len().min(5);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_gets_all_bytes_in_order() {
        let mut outgoing = Outgoing::new();
        let mut slow = Slow(Vec::new(), 0);
        let mut expected = Vec::new();
        for round in 0..100_u8 {
            outgoing.buffer().extend([round; 3]);
            expected.extend([round; 3]);
            assert_eq!(outgoing.fresh(), [round; 3]);
            outgoing.write(&mut slow).unwrap();
        }
        while outgoing.waiting() > 0 {
            outgoing.write(&mut slow).unwrap();
        }
        assert_eq!(slow.0, expected);
    }
}
