//! The kernel's notices about TCP sockets that it destroys (sock_diag multicast groups).

use std::io;

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};

use super::RawSocket;
use super::diag;
use crate::ProbeError;

/// Receives a notice with the last state of each TCP socket that the kernel destroys in one network
/// namespace. The kernel sends notices only while a receiver exists. A connection's socket is
/// destroyed when the connection ends, also if it goes on as TIME-WAIT.
#[derive(Debug)]
pub struct EndedSockets {
    socket: Socket,
    buffer: Vec<u8>,
}

/// Whether a reading is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notices {
    /// All notices since the last reading.
    All,
    /// More notices came than the receiver has room for, or than the caller asked for.
    Some,
}

impl EndedSockets {
    /// Starts to receive notices about the calling thread's network namespace.
    pub fn begin() -> Result<Self, ProbeError> {
        let failed = |source| ProbeError::Kernel { what: WHAT, source };
        let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(failed)?;
        // The kernel cuts the size to `net.core.rmem_max`.
        socket.set_rx_buf_sz(ROOM).map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        socket.bind(&NetlinkAddress::new(0, GROUPS)).map_err(failed)?;
        Ok(Self { socket, buffer: Vec::with_capacity(NOTICE_MAX) })
    }

    /// Passes each socket that was destroyed since the last reading to `each`, at most `most`. The
    /// state of these sockets is always CLOSE. If the kernel had no room for some notices, passes
    /// the other notices.
    pub fn read(
        &mut self,
        most: usize,
        mut each: impl FnMut(RawSocket<'_>),
    ) -> Result<Notices, ProbeError> {
        let mut outcome = Notices::All;
        for _ in 0..most {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => {
                    diag::read(&self.buffer, WHAT, &mut each)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(outcome),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel reports the overflow once, before the notices that it kept.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    outcome = Notices::Some;
                }
                Err(source) => return Err(ProbeError::Kernel { what: WHAT, source }),
            }
        }
        Ok(Notices::Some)
    }
}

const WHAT: &str = "notices about TCP sockets that end";
/// `SKNLGRP_INET_TCP_DESTROY` and `SKNLGRP_INET6_TCP_DESTROY` of include/uapi/linux/sock_diag.h, as
/// bits.
const GROUPS: u32 = 1 << 0 | 1 << 2;
const ROOM: libc::c_int = 1 << 20;
const NOTICE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::TcpInfo;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn a_connection_that_ends_is_announced_with_its_bytes() {
        let mut ended = EndedSockets::begin().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let mut server = listener.accept().unwrap().0;
        let local = client.local_addr().unwrap();
        client.write_all(&[1; 5000]).unwrap();
        drop(client);
        server.read_to_end(&mut Vec::new()).unwrap();
        drop(server);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut moved = None;
        while moved.is_none() && Instant::now() < deadline {
            // Tests beside this test end connections, too.
            let read = ended.read(usize::MAX, |socket| {
                if (socket.local(), socket.remote()) == (local, address) {
                    moved = socket.info().and_then(TcpInfo::moved);
                }
            });
            read.unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        // The kernel also counts the SYN and the FIN.
        assert!(moved.is_some_and(|moved| moved.count() >= 5000), "{moved:?}");
    }
}
