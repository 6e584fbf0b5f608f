//! The listening side of a workload that opens its own connections.

use super::Testbed;
use super::{MachineStep, PORT};
use crate::model::Failure;
use crate::model::file::SystemKind;
use nix::sys::socket;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A listener in the server's host. Many threads may wait for connections. Closing the listener
/// wakes all these threads.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    /// The listener's address for connections that pass no program between client and server.
    pub(crate) direct: SocketAddr,
    closed: AtomicBool,
}

/// Closes the listener when this value is dropped, also after an error, because threads wait for
/// the close.
#[derive(Debug)]
pub(crate) struct Closing<'a>(&'a Listener);

impl Listener {
    pub(crate) fn open(step: &MachineStep<'_>, testbed: &Testbed) -> Result<Self, Failure> {
        let (from, to) = (step.ends.from.as_str(), step.ends.to.as_str());
        let direct = SocketAddr::new(testbed.address(to, from)?, PORT);
        let at = match step.system.kind {
            // A tunnel server may also reach the listener over loopback.
            SystemKind::External => SocketAddr::new([0, 0, 0, 0].into(), PORT),
            _ => direct,
        };
        let listener = testbed.namespace(to)?.run(|| Ok(TcpListener::bind(at)))?;
        let listener = listener.map_err(|error| Failure::io("listening", &error))?;
        Ok(Self { listener, direct, closed: AtomicBool::new(false) })
    }

    pub(crate) fn closing(&self) -> Closing<'_> {
        Closing(self)
    }

    /// Waits for the next connection. Returns `None` once the listener is closed.
    pub(crate) fn next(&self) -> Result<Option<TcpStream>, Failure> {
        let wrong = |error: std::io::Error| Failure::io("accepting", &error);
        loop {
            let peer = self.listener.accept();
            if self.is_closed() {
                return Ok(None);
            }
            match peer {
                Ok((peer, _)) => {
                    peer.set_nodelay(true).map_err(wrong)?;
                    peer.set_read_timeout(Some(LOOK)).map_err(wrong)?;
                    return Ok(Some(peer));
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

    /// Reads the peer's next bytes. Returns 0 if the peer or the listener has closed.
    pub(crate) fn read(&self, mut peer: &TcpStream, into: &mut [u8]) -> usize {
        loop {
            match peer.read(into) {
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
        // The shutdown wakes the threads that wait in accept(2).
        let _ = socket::shutdown(self.0.listener.as_raw_fd(), socket::Shutdown::Both);
    }
}

/// Polling interval: a silent peer keeps a thread for this time after the listener has closed.
const LOOK: Duration = Duration::from_millis(100);
