use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::{ClientConfig, ServerConfig};

use super::tls::TlsStream;

/// A TCP, TLS or UNIX connection that never blocks.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
}

/// The way in which a peer connected to the switch. The peers of each origin have their own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A peer on the UNIX socket: the switch's user or root, because no other user can open it.
    Unix,
    /// A TCP peer, with or without TLS: anybody who can reach the address.
    Tcp,
}

impl Origin {
    pub(super) const ALL: [Self; 2] = [Self::Unix, Self::Tcp];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unix => "UNIX socket",
            Self::Tcp => "TCP",
        }
    }
}

impl Stream {
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Unix(_) => Origin::Unix,
            Self::Tcp(_) | Self::Tls(_) => Origin::Tcp,
        }
    }

    pub(super) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(stream))
    }

    pub(super) fn tcp(stream: TcpStream) -> io::Result<Self> {
        Ok(Self::Tcp(prompt(stream)?))
    }

    /// Accepts TLS on a connection.
    pub(super) fn tls(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        Ok(Self::Tls(Box::new(TlsStream::accepted(prompt(stream)?, config)?)))
    }

    /// Starts to connect to a peer with TLS. The TLS handshake follows.
    pub(super) fn connect_tls(to: SocketAddr, config: Arc<ClientConfig>) -> io::Result<Self> {
        let stream = connect(to)?;
        Ok(Self::Tls(Box::new(TlsStream::connecting(stream, to.ip(), config)?)))
    }

    /// Starts to connect. When the stream becomes writable, [`Stream::outcome`] has the result.
    pub(super) fn connect(to: SocketAddr) -> io::Result<Self> {
        Ok(Self::Tcp(connect(to)?))
    }

    /// Returns the events to wait for, so that the stream can do what `wanted` requests.
    pub(super) fn interest(&self, wanted: PollFlags) -> PollFlags {
        match self {
            Self::Tls(stream) => stream.interest(wanted),
            Self::Unix(_) | Self::Tcp(_) => wanted,
        }
    }

    /// Whether written bytes still wait in this process.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_sending())
    }

    /// Returns the result of the connection attempt.
    pub(super) fn outcome(&self) -> io::Result<()> {
        sockopt::socket_error(self)?.map_err(Into::into)
    }
}

/// Starts to connect a socket that never blocks.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => prompt(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Makes a socket send data without delay and never block.
fn prompt(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    /// Sends the bytes that wait in this process, until the peer's buffer is full.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
        }
    }
}
