//! Streams of this machine: what the tunnel takes from and gives to.

use bytes::BytesMut;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use tokio::net::{TcpStream, UnixStream};

#[derive(Debug)]
pub(crate) enum Local {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Not bound to a thread's reactor yet.
#[derive(Debug)]
pub(crate) enum Loose {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Local {
    pub(crate) async fn dial_tcp(address: SocketAddr) -> io::Result<Self> {
        Self::of_tcp(TcpStream::connect(address).await?)
    }

    pub(crate) async fn dial_unix(path: &Path) -> io::Result<Self> {
        Ok(Self::Unix(UnixStream::connect(path).await?))
    }

    pub(crate) fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        // What comes from the tunnel is sent as it comes.
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Who is at the other end; a UNIX socket tells nothing.
    pub(crate) fn remote_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip().to_canonical()),
            Self::Unix(_) => None,
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read_buf(buffer),
            Self::Unix(stream) => stream.try_read_buf(buffer),
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }

    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(slices),
            Self::Unix(stream) => stream.try_write_vectored(slices),
        }
    }

    /// Nothing follows; what the other side says is still heard.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let socket = match self {
            Self::Tcp(stream) => socket2::SockRef::from(stream),
            Self::Unix(stream) => socket2::SockRef::from(stream),
        };
        match socket.shutdown(std::net::Shutdown::Write) {
            // It is gone already: then it knows.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Whoever is there gets a reset rather than an end. A UNIX socket has none: closed with what it did not
    /// hear, that is all.
    pub(crate) fn abort(self) {
        if let Self::Tcp(stream) = self {
            abort(&stream);
        }
    }
}

impl Loose {
    pub(crate) fn bind(self) -> io::Result<Local> {
        match self {
            Self::Tcp(stream) => Local::of_tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Ok(Local::Unix(UnixStream::from_std(stream)?)),
        }
    }

    pub(crate) fn abort(self) {
        if let Self::Tcp(stream) = self {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
        }
    }
}

/// A socket that a dead process left is taken away; anything else stays, and is told.
pub(crate) fn clear(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else is there"));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::from(io::ErrorKind::AddrInUse));
    }
    std::fs::remove_file(path)
}

fn abort(stream: &TcpStream) {
    // Closing with a linger of zero sends a reset (tcp(7), SO_LINGER in socket(7)).
    let _ = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
}
