//! Streams of this machine: what the tunnel takes from and gives to.

use bytes::BytesMut;
use host::{BoundFile, SocketFile};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use tokio::net::{TcpStream, UnixListener, UnixStream};

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

    /// As long as the listener's backlog is full: the caller sets a time.
    pub(crate) async fn dial_unix(path: &Path) -> io::Result<Self> {
        loop {
            match UnixStream::connect(path).await {
                // No event tells when there is room again (connect(2), EAGAIN).
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(BREATH).await;
                }
                connected => return Ok(Self::Unix(connected?)),
            }
        }
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

/// A listener on a path. Its file goes with it.
#[derive(Debug)]
pub(crate) struct UnixDoor {
    listener: UnixListener,
    _file: BoundFile,
}

impl UnixDoor {
    /// The socket of a dead process is replaced. A live one, of whatever type, and any other file stay, and that is
    /// an error.
    pub(crate) async fn open(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        // A file system may take its time, and a shard carries others' bytes.
        let bound = tokio::task::spawn_blocking(move || SocketFile::at(&path)?.listen(None));
        let (listener, file) = bound.await.map_err(io::Error::other)??;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, _file: file })
    }

    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

fn abort(stream: &TcpStream) {
    // Closing with a linger of zero sends a reset (tcp(7), SO_LINGER in socket(7)).
    let _ = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
}

/// Between two looks for room in a backlog.
const BREATH: std::time::Duration = std::time::Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[tokio::test]
    async fn a_live_datagram_socket_of_another_process_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.sock");
        let theirs = UnixDatagram::bind(&path).unwrap();
        let refused = UnixDoor::open(&path).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
        let other = UnixDatagram::unbound().unwrap();
        other.send_to(b"still there", &path).unwrap();
        let mut heard = [0; 11];
        theirs.recv(&mut heard).unwrap();
        assert_eq!(&heard, b"still there");
        drop(theirs);
        // A dead one gives way.
        let door = UnixDoor::open(&path).await.unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(door);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_full_backlog_holds_up_its_own_dial_and_no_other_task() {
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
        // One thread runs all: were it held up, this would never end.
        tokio::time::sleep(BREATH * 5).await;
        assert!(!waiting.is_finished());
        assert_eq!(
            UnixDoor::open(&path).await.unwrap_err().kind(),
            io::ErrorKind::AddrInUse,
            "a busy listener is alive"
        );
        busy.accept().unwrap();
        waiting.await.unwrap().unwrap();
    }
}
