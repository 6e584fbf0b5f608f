//! The listening side of a workload that opens its own connections.

use super::{PORT, Turn};
use crate::Failure;
use crate::file::SystemKind;
use crate::testbed::Testbed;
use nix::sys::socket;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A listener in the far host. Many threads may wait for connections. Closing it wakes all of them.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    /// The listener's address without a program in between.
    pub(super) direct: SocketAddr,
    closed: AtomicBool,
}

/// Closes the door on every path, because threads wait for that.
#[derive(Debug)]
pub(super) struct Closing<'a>(&'a Door);

impl Door {
    pub(super) fn open(turn: &Turn<'_>, testbed: &Testbed) -> Result<Self, Failure> {
        let (from, to) = (turn.ends.from.as_str(), turn.ends.to.as_str());
        let direct = SocketAddr::new(testbed.address(to, from)?, PORT);
        let at = match turn.system.kind {
            // A tunnel's far end may also reach the listener over loopback.
            SystemKind::External => SocketAddr::new([0, 0, 0, 0].into(), PORT),
            _ => direct,
        };
        let listener = testbed.namespace(to)?.run(|| Ok(TcpListener::bind(at)))?;
        let listener = listener.map_err(|error| Failure::io("listening", &error))?;
        Ok(Self { listener, direct, closed: AtomicBool::new(false) })
    }

    pub(super) fn closing(&self) -> Closing<'_> {
        Closing(self)
    }

    /// The next connection, or `None` once the door is closed.
    pub(super) fn next(&self) -> Result<Option<TcpStream>, Failure> {
        let wrong = |error: std::io::Error| Failure::io("accepting", &error);
        loop {
            let guest = self.listener.accept();
            if self.is_closed() {
                return Ok(None);
            }
            match guest {
                Ok((guest, _)) => {
                    guest.set_nodelay(true).map_err(wrong)?;
                    guest.set_read_timeout(Some(LOOK)).map_err(wrong)?;
                    return Ok(Some(guest));
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return Err(wrong(error)),
            }
        }
    }

    /// Reads the peer's next bytes. Returns 0 if the peer or the door has closed.
    pub(super) fn hear(&self, mut guest: &TcpStream, into: &mut [u8]) -> usize {
        loop {
            match guest.read(into) {
                Ok(count) => return count,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                    ) && !self.is_closed() => {}
                Err(_) => return 0,
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        // This wakes the threads that wait in accept(2).
        let _ = socket::shutdown(self.0.listener.as_raw_fd(), socket::Shutdown::Both);
    }
}

/// The time that a silent peer keeps a thread after the door has closed.
const LOOK: Duration = Duration::from_millis(100);
