pub(super) use crate::control::is_transient;
use crate::event::Stop;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts<'a> {
    over: &'a AtomicBool,
    stop: &'a Stop,
    pub(super) silence: Duration,
    moved: Option<&'a AtomicBool>,
}

/// The reason why a transfer ended before its last byte.
#[derive(Debug)]
pub(super) enum TransferError {
    /// The measurement has ended, or was called off.
    Ended,
    Closed,
    Silent,
    Failed(io::Error),
}

impl<'a> Timeouts<'a> {
    pub(super) fn new(over: &'a AtomicBool, stop: &'a Stop, silence: Duration) -> Self {
        Self { over, stop, silence, moved: None }
    }

    /// Returns the same timeouts, which also set `moved` when bytes are transferred.
    pub(super) fn noting(self, moved: &'a AtomicBool) -> Self {
        Self { moved: Some(moved), ..self }
    }

    pub(super) fn note(&self) {
        // Reads before writing, so that the threads of a measurement share the cache line.
        if let Some(moved) = self.moved
            && !moved.load(Ordering::Relaxed)
        {
            moved.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.stop.is_called()
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Sends all of `bytes` on a blocking socket that has the timeout [`POLL_INTERVAL`].
    pub(super) fn send(&self, socket: &TcpStream, mut bytes: &[u8]) -> Result<(), TransferError> {
        while !bytes.is_empty() {
            let count = self.repeat(|| (&*socket).write(bytes))?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Sends `count` bytes of arbitrary content.
    pub(super) fn send_any(&self, socket: &TcpStream, mut count: u64) -> Result<(), TransferError> {
        while count > 0 {
            let piece = &ZEROS[..ZEROS.len().min(usize::try_from(count).unwrap_or(usize::MAX))];
            count -= self.repeat(|| (&*socket).write(piece))? as u64;
        }
        Ok(())
    }

    /// Receives `count` bytes and discards them.
    pub(super) fn receive(
        &self,
        socket: &TcpStream,
        mut count: u64,
        buffer: &mut [u8],
    ) -> Result<(), TransferError> {
        while count > 0 {
            let room = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            count -= self.repeat(|| (&*socket).read(&mut buffer[..room]))? as u64;
        }
        Ok(())
    }

    /// Repeats a read or write until it transfers bytes; zero bytes mean that the peer closed the
    /// connection.
    pub(super) fn repeat(
        &self,
        attempt: impl FnMut() -> io::Result<usize>,
    ) -> Result<usize, TransferError> {
        match self.wait_for(attempt)? {
            0 => Err(TransferError::Closed),
            count => {
                self.note();
                Ok(count)
            }
        }
    }

    /// Repeats `attempt`, which itself waits, until it succeeds, fails, or the timeout is over.
    pub(super) fn wait_for<T>(
        &self,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> Result<T, TransferError> {
        let mut waiting_since = None;
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(TransferError::of(error)),
            }
            if self.is_over() {
                return Err(TransferError::Ended);
            }
            let since = *waiting_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.silence {
                return Err(TransferError::Silent);
            }
        }
    }
}

impl TransferError {
    pub(super) fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

/// Prepares a data connection: disables Nagle's algorithm, and sets the timeout of reads and writes
/// to [`POLL_INTERVAL`].
pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    socket.set_write_timeout(Some(POLL_INTERVAL))
}

/// Maximum delay until a waiting thread notices that it should end.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of bytes per read or write of a request or response.
pub(super) const PIECE: usize = 64 * 1024;
static ZEROS: [u8; PIECE] = [0; PIECE];
