use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A TCP or UNIX connection that never blocks.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// How a peer connected to the switch. The peers of each origin have their own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A peer on the UNIX socket: the switch's user or root, because no other user can open it.
    Unix,
    /// A TCP peer: anybody who can reach the address.
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
            Self::Tcp(_) => Origin::Tcp,
        }
    }

    pub(super) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(stream))
    }

    pub(super) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Starts to connect. When the stream becomes writable, [`Stream::outcome`] has the result.
    pub(super) fn connect(to: SocketAddr) -> io::Result<Self> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Self::tcp(TcpStream::from(socket)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the result of the connection attempt.
    pub(super) fn outcome(&self) -> io::Result<()> {
        sockopt::socket_error(self)?.map_err(Into::into)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
