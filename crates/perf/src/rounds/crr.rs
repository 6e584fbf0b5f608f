//! A TCP connection for each request and its response, netperf's TCP_CRR.
//!
//! The server closes first, as an HTTP/1.0 server does, and the client waits for the close.
//! TIME-WAIT therefore remains at the server, and the client does not run out of ports.

use super::serve::Arrivals;
use super::start_barrier::{StartBarrier, Tally};
use super::timeouts::{PIECE, POLL_INTERVAL, Timeouts, TransferError, is_transient};
use super::wire::Order;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// The server's side. Closes connections from other addresses than `peer`.
pub(super) fn respond(
    listener: &TcpListener,
    peer: IpAddr,
    order: &Order,
    timeouts: Timeouts<'_>,
    arrivals: &Arrivals,
) {
    let mut buffer = vec![0; PIECE.min(order.request as usize)];
    let mut count = 0;
    while !timeouts.is_over() {
        let socket = match listener.accept() {
            Ok((socket, from)) if from.ip().to_canonical() == peer => socket,
            Ok(_) => continue,
            Err(error) if is_transient(&error) => continue,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // File descriptors may have run out: wait until other sessions free some.
                tracing::warn!("accepting a connection: {error}");
                thread::sleep(POLL_INTERVAL);
                continue;
            }
        };
        let served = timeouts
            .receive(&socket, order.request, &mut buffer)
            .and_then(|()| timeouts.send_any(&socket, order.response));
        count += u64::from(served.is_ok());
    }
    arrivals.add(count, count * order.request);
}

#[derive(Debug, Clone)]
pub(super) struct Addresses {
    pub(super) remote: SocketAddr,
    pub(super) bind: Option<IpAddr>,
    pub(super) bind_device: Option<String>,
}

pub(super) fn request(
    addresses: &Addresses,
    order: &Order,
    timeouts: Timeouts<'_>,
    barrier: &StartBarrier,
) -> Result<Tally, TransferError> {
    let mut buffer = vec![0; PIECE];
    let mut transact = || addresses.transact(order, timeouts, &mut buffer);
    // The first transaction is not counted, because the transaction may wait until the server's
    // thread runs.
    let (mut tally, until) = barrier.wait(transact(), timeouts)?;
    let mut began = Instant::now();
    let mut answered = began;
    while began < until && !timeouts.is_over() {
        match transact() {
            Ok(()) => {
                began = tally.transact(began);
                answered = began;
            }
            // The connection was reset: the server's queue may have been full.
            Err(TransferError::Closed) if answered.elapsed() < timeouts.silence => {
                tally.lost += 1;
                began = Instant::now();
            }
            Err(TransferError::Closed) => return Err(TransferError::Silent),
            Err(error) => return Err(error),
        }
    }
    tally.bytes = tally.count * order.request;
    Ok(tally)
}

impl Addresses {
    /// Makes a transaction, from opening the connection to its close.
    fn transact(
        &self,
        order: &Order,
        timeouts: Timeouts<'_>,
        buffer: &mut [u8],
    ) -> Result<(), TransferError> {
        let socket = self.connect(timeouts)?;
        timeouts.send_any(&socket, order.request)?;
        timeouts.receive(&socket, order.response, buffer)?;
        match timeouts.wait_for(|| (&socket).read(buffer))? {
            0 => Ok(()),
            _ => Err(TransferError::Failed(io::Error::other(
                "more bytes arrived than the response has",
            ))),
        }
    }

    fn connect(&self, timeouts: Timeouts<'_>) -> Result<TcpStream, TransferError> {
        let socket = self.open().map_err(TransferError::Failed)?;
        let remote = self.remote.into();
        // The send timeout also bounds each wait of `connect` (net/ipv4/af_inet.c).
        timeouts.wait_for(|| match socket.connect(&remote) {
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INPROGRESS | Errno::ALREADY) => Err(ErrorKind::WouldBlock.into()),
                Some(Errno::ISCONN) => Ok(()),
                Some(Errno::ADDRNOTAVAIL) => Err(io::Error::new(error.kind(), NO_PORT)),
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        })?;
        Ok(socket.into())
    }

    fn open(&self) -> io::Result<Socket> {
        let domain = Domain::for_address(self.remote);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        socket.set_write_timeout(Some(POLL_INTERVAL))?;
        if let Some(device) = &self.bind_device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        if let Some(local) = self.bind {
            socket.bind(&SocketAddr::new(local, 0).into())?;
        }
        Ok(socket)
    }
}

const NO_PORT: &str = "every local port is in use, most by connections that ended less than a minute \
                       ago: widen net.ipv4.ip_local_port_range, or measure for a shorter time";
