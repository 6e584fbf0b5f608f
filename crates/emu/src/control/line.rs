//! Reads and writes lines on a socket, bounded in length and time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection, and its received bytes beyond the line last read.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: UnixStream,
    pending: Vec<u8>,
    patience: Duration,
}

impl Lines {
    /// Wraps a stream. `patience` bounds each line and each write as a whole, however slowly the
    /// bytes arrive.
    pub(crate) fn new(stream: UnixStream, patience: Duration) -> Self {
        Self { stream, pending: Vec::new(), patience }
    }

    /// Reads the next line, without its line break; returns `None` when the peer has closed.
    pub(crate) fn read(&mut self) -> io::Result<Option<String>> {
        let deadline = Instant::now() + self.patience;
        let mut searched = 0;
        loop {
            if let Some(at) = self.pending[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                let text = String::from_utf8(line);
                return text.map(Some).map_err(|_| io::Error::other("it is not UTF-8"));
            }
            searched = self.pending.len();
            if searched > LONGEST {
                return Err(io::Error::other(format!("it is longer than {LONGEST} bytes")));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 16384];
            match self.stream.read(&mut chunk) {
                Ok(0) if self.pending.is_empty() => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.pending.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn write(&mut self, mut line: String) -> io::Result<()> {
        line.push('\n');
        let deadline = Instant::now() + self.patience;
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_write_timeout(Some(left))?;
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Maximum length of a line: twice the JSON size of the largest possible trace.
const LONGEST: usize = 4 << 20;
