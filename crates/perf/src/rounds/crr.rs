//! A TCP connection for each request and its response, netperf's TCP_CRR.
//!
//! The server closes first, as an HTTP/1.0 server does, and the client waits for it. The closed
//! connections therefore linger (TIME-WAIT) at the server, where they do not use up the client's
//! ports.

use super::heat::{StartLine, Tally};
use super::patience::{Broken, PIECE, Patience, TURN, is_transient};
use super::serve::Arrivals;
use super::wire::Order;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// The server's end. Connections from other addresses than `peer` are closed.
pub(super) fn answer(
    listener: &TcpListener,
    peer: IpAddr,
    order: &Order,
    patience: Patience<'_>,
    arrivals: &Arrivals,
) {
    let mut buffer = vec![0; PIECE.min(order.request as usize)];
    let mut count = 0;
    while !patience.is_over() {
        let socket = match listener.accept() {
            Ok((socket, from)) if from.ip().to_canonical() == peer => socket,
            Ok(_) => continue,
            Err(error) if is_transient(&error) => continue,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // File descriptors have run out, for example: other sessions may free some.
                tracing::warn!("accepting a connection: {error}");
                thread::sleep(TURN);
                continue;
            }
        };
        let served = patience
            .receive(&socket, order.request, &mut buffer)
            .and_then(|()| patience.send_any(&socket, order.response));
        count += u64::from(served.is_ok());
    }
    arrivals.add(count, count * order.request);
}

/// The endpoints of the client's connections.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) remote: SocketAddr,
    pub(super) bind: Option<IpAddr>,
    pub(super) bind_device: Option<String>,
}

/// The client's end.
pub(super) fn ask(
    ends: &Ends,
    order: &Order,
    patience: Patience<'_>,
    line: &StartLine,
) -> Result<Tally, Broken> {
    let mut buffer = vec![0; PIECE];
    let mut transact = || ends.transact(order, patience, &mut buffer);
    // The first transaction waits until the server's thread runs, and is not counted.
    let (mut tally, until) = line.cross(transact(), patience)?;
    let mut began = Instant::now();
    let mut answered = began;
    while began < until && !patience.is_over() {
        match transact() {
            Ok(()) => {
                began = tally.transact(began);
                answered = began;
            }
            // The connection was reset: the server's queue may have been full.
            Err(Broken::Closed) if answered.elapsed() < patience.silence => {
                tally.lost += 1;
                began = Instant::now();
            }
            Err(Broken::Closed) => return Err(Broken::Silent),
            Err(error) => return Err(error),
        }
    }
    tally.bytes = tally.count * order.request;
    Ok(tally)
}

impl Ends {
    /// One transaction, from the connection's beginning to its end.
    fn transact(
        &self,
        order: &Order,
        patience: Patience<'_>,
        buffer: &mut [u8],
    ) -> Result<(), Broken> {
        let socket = self.connect(patience)?;
        patience.send_any(&socket, order.request)?;
        patience.receive(&socket, order.response, buffer)?;
        match patience.wait_for(|| (&socket).read(buffer))? {
            0 => Ok(()),
            _ => Err(Broken::Failed(io::Error::other("more bytes arrived than the response has"))),
        }
    }

    fn connect(&self, patience: Patience<'_>) -> Result<TcpStream, Broken> {
        let socket = self.open().map_err(Broken::Failed)?;
        let remote = self.remote.into();
        // The send timeout also bounds each turn of connecting (net/ipv4/af_inet.c).
        patience.wait_for(|| match socket.connect(&remote) {
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
        socket.set_read_timeout(Some(TURN))?;
        socket.set_write_timeout(Some(TURN))?;
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
