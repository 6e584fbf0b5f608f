//! Local streams: the sockets whose bytes a tunnel carries.

mod port;
mod unix;

use crate::hand_over::SocketOwner;
use bytes::BytesMut;
use host::SocketFile;
pub(crate) use port::{LocalPort, PortInUse};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use unix::UnixLocal;

#[derive(Debug)]
pub(crate) enum Local {
    Tcp(TcpStream, PortInUse),
    Unix(UnixLocal),
}

/// A stream that is not bound to a thread's reactor yet.
#[derive(Debug)]
pub(crate) enum DetachedLocal {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Local {
    pub(crate) async fn dial_tcp(address: SocketAddr) -> io::Result<Self> {
        Self::of_tcp(TcpStream::connect(address).await?)
    }

    /// Connects to a UNIX socket. Retries while the listener's backlog is full, so the caller must
    /// set a timeout.
    pub(crate) async fn dial_unix(path: &Path) -> io::Result<Self> {
        loop {
            match UnixStream::connect(path).await {
                // No event reports room in the backlog (connect(2), EAGAIN).
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                connected => return Ok(Self::of_unix(connected?)),
            }
        }
    }

    pub(crate) fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        // Forward bytes from the tunnel without delay.
        stream.set_nodelay(true)?;
        reset_unless_finished(&stream)?;
        Ok(Self::Tcp(stream, PortInUse::default()))
    }

    /// Keeps the port for as long as the connection occupies it.
    pub(crate) fn with_port(self, port: Option<Box<dyn LocalPort>>) -> Self {
        match self {
            Self::Tcp(stream, _) => Self::Tcp(stream, PortInUse::new(port)),
            unix => unix,
        }
    }

    pub(crate) fn of_unix(stream: UnixStream) -> Self {
        Self::Unix(UnixLocal::new(stream))
    }

    /// Returns the other end's address; `None` for a UNIX socket.
    pub(crate) fn remote_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream, _) => {
                stream.peer_addr().ok().map(|address| address.ip().to_canonical())
            }
            Self::Unix(_) => None,
        }
    }

    /// Returns the address and port of the other end; `None` for a UNIX socket.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream, _) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Returns this end's address and port; `None` for a UNIX socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream, _) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Writes all bytes. This may take any time, so the caller must set a timeout.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.writable().await?;
            match self.try_write(&[IoSlice::new(bytes)]) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Releases the stream from this thread's reactor.
    pub(crate) fn detach(self) -> io::Result<DetachedLocal> {
        match self {
            Self::Tcp(stream, _) => DetachedLocal::of_tcp(stream),
            // A UNIX stream cannot move: the last byte of a request stays in the socket
            // (`UnixLocal`).
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream, _) => stream.readable().await,
            Self::Unix(local) => local.stream().readable().await,
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream, port) => {
                let read = stream.try_read_buf(buffer);
                if let Ok(0) = read {
                    port.end_by_target();
                }
                read
            }
            Self::Unix(local) => local.try_read(buffer),
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream, _) => stream.writable().await,
            Self::Unix(local) => local.stream().writable().await,
        }
    }

    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream, _) => stream.try_write_vectored(slices),
            Self::Unix(local) => local.stream().try_write_vectored(slices),
        }
    }

    /// Ends the sending half. The receiving half stays open.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let socket = match self {
            Self::Tcp(stream, port) => {
                port.end_here();
                let socket = socket2::SockRef::from(stream);
                // From here on, the kernel delivers the bytes in the socket even if this process
                // dies.
                socket.set_linger(None)?;
                socket
            }
            Self::Unix(local) => {
                local.finish()?;
                socket2::SockRef::from(local.stream())
            }
        };
        match socket.shutdown(std::net::Shutdown::Write) {
            // The other side has already closed the connection.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Sends a reset instead of an orderly end. A UNIX socket has no reset ([`UnixLocal`]).
    pub(crate) fn abort(self) {
        if let Self::Tcp(stream, port) = self {
            let _ = reset_unless_finished(&stream);
            port.reset();
        }
    }
}

impl DetachedLocal {
    pub(crate) fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        reset_unless_finished(&stream)?;
        Ok(Self::Tcp(stream.into_std()?))
    }

    pub(crate) fn bind(self) -> io::Result<Local> {
        match self {
            Self::Tcp(stream) => Local::of_tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Ok(Local::of_unix(UnixStream::from_std(stream)?)),
        }
    }

    /// Returns the address and port of the other end; `None` for a UNIX socket.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Resets the connection, as [`Local::abort`] does: a socket that was not finished is reset
    /// when it is closed.
    pub(crate) fn abort(self) {
        drop(self);
    }
}

/// A listener on a path. The socket's file is removed when the listener is dropped.
#[derive(Debug)]
pub(crate) struct UnixPathListener {
    listener: UnixListener,
    owner: SocketOwner,
}

impl UnixPathListener {
    /// Binds the path, and replaces the socket of a dead process. A live socket of any type, or any
    /// other file, stays and causes an error.
    pub(crate) async fn open(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        // File system calls may block, and a shard must go on carrying other connections' bytes.
        let bound = tokio::task::spawn_blocking(move || SocketFile::at(&path)?.listen(None));
        let (listener, file) = bound.await.map_err(io::Error::other)??;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, owner: SocketOwner::of(file) })
    }

    /// Takes a socket over from another process.
    pub(crate) fn taken_over((file, owner): (OwnedFd, SocketOwner)) -> io::Result<Self> {
        let listener = std::os::unix::net::UnixListener::from(file);
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, owner })
    }

    /// Returns a copy of the socket, and its file, for another process.
    pub(crate) fn shared(&self) -> io::Result<(OwnedFd, SocketOwner)> {
        Ok((self.listener.as_fd().try_clone_to_owned()?, self.owner.clone()))
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

/// Sets a linger time of zero, so that a close without [`Local::finish`] sends a reset (socket(7),
/// SO_LINGER). If this process is killed, the kernel closes the process's sockets, and an orderly
/// end would make incomplete data look complete.
fn reset_unless_finished(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

/// The pause between two checks for room in a backlog.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[tokio::test]
    async fn a_listener_does_not_replace_a_live_datagram_socket_of_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.sock");
        let theirs = UnixDatagram::bind(&path).unwrap();
        let refused = UnixPathListener::open(&path).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
        let other = UnixDatagram::unbound().unwrap();
        other.send_to(b"still there", &path).unwrap();
        let mut received = [0; 11];
        theirs.recv(&mut received).unwrap();
        assert_eq!(&received, b"still there");
        drop(theirs);
        // The socket of a dead process is replaced.
        let listener = UnixPathListener::open(&path).await.unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_full_backlog_delays_only_its_own_dial() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("busy.sock");
        let busy =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        busy.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let _first = Local::dial_unix(&path).await.unwrap();
        let waiting = tokio::spawn({
            let path = path.clone();
            async move { Local::dial_unix(&path).await }
        });
        // All tasks share one thread, so this sleep would never end if the dial blocked the thread.
        tokio::time::sleep(RETRY_PAUSE * 5).await;
        assert!(!waiting.is_finished());
        assert_eq!(
            UnixPathListener::open(&path).await.unwrap_err().kind(),
            io::ErrorKind::AddrInUse,
            "a busy listener is alive"
        );
        busy.accept().unwrap();
        waiting.await.unwrap().unwrap();
    }
}
