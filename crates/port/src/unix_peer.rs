//! UNIX sockets through which peers pass memory and descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::{BoundFile, SocketFile};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::Mode;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::PortError;
use crate::socket::peer_user;

/// A socket that listens for one peer after another. Dropping this value removes the socket's file.
#[derive(Debug)]
struct Door {
    listener: UnixListener,
    _file: BoundFile,
}

impl Door {
    /// Listens at a path, and replaces the socket of a dead process. Only the socket's owner may
    /// connect.
    fn open(path: &Path) -> io::Result<Self> {
        let (listener, file) = SocketFile::at(path)?.listen(Some(Mode::RUSR | Mode::WUSR))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, _file: file })
    }

    fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Checks the peer's user, because a peer can write anything into the memory. Accepts peers of
/// root, because root could write there in any case.
fn check_owner(stream: &UnixStream) -> io::Result<()> {
    let user = peer_user(stream.as_fd())?;
    if user == rustix::process::geteuid().as_raw() || user == 0 {
        return Ok(());
    }
    let problem = format!("the peer belongs to user {user}: only your own are served");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Sends bytes together with descriptors.
pub(crate) fn send(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent =
        rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    // Messages are smaller than any socket's buffer.
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives descriptors, and at most as many bytes as the buffer holds. Returns 0 bytes when the
/// peer has closed the connection.
pub(crate) fn receive(
    socket: &UnixStream,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let mut pieces = [IoSliceMut::new(buffer)];
    let received = rustix::net::recvmsg(socket, &mut pieces, &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors at once"));
    }
    Ok(received.bytes)
}

/// Fills the buffer. Returns an error if the peer closes the connection first, or is too slow.
pub(crate) fn receive_exactly(
    socket: &UnixStream,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match receive(socket, &mut buffer[done..], fds) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The way in which a port finds its peers.
#[derive(Debug)]
pub(crate) struct Meeting {
    path: PathBuf,
    /// The socket at which peers connect. The mode of the socket's file decides which users may
    /// connect.
    door: Option<Door>,
    /// Whether the listening process must belong to the same user or to root.
    is_strict: bool,
}

impl Meeting {
    /// Creates a meeting that listens at a path for peers.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), door: Some(Door::open(path)?), is_strict: true })
    }

    /// Creates a meeting that connects to a listening process at a path. This process must belong
    /// to the same user or to root.
    pub(crate) fn with(path: &Path) -> Self {
        Self { path: path.to_owned(), door: None, is_strict: true }
    }

    /// Like [`Self::with`], but root also connects to a virtual machine of another user.
    pub(crate) fn with_any(path: &Path) -> Self {
        let is_strict = !rustix::process::geteuid().is_root();
        Self { path: path.to_owned(), door: None, is_strict }
    }

    pub(crate) fn listens(&self) -> bool {
        self.door.is_some()
    }

    /// Returns the next peer, or the reason for which no peer is connected yet. Returns `None` when
    /// the port is closed.
    pub(crate) fn next(&self, stop: &StopSignal) -> Result<Option<UnixStream>, String> {
        let Some(door) = &self.door else {
            let connected = self.connect().map_err(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    format!("nobody listens at {}: start the other end first", self.path.display())
                }
                _ => error.to_string(),
            });
            return connected.map(Some);
        };
        if stop.wait(Some((door.as_fd(), PollFlags::IN)), None) == Wake::Stop {
            return Ok(None);
        }
        door.accept().map(Some).map_err(|error| error.to_string())
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.path)?;
        if self.is_strict {
            check_owner(&stream)?;
        }
        Ok(stream)
    }
}

/// Returns the error of a port at `place` that failed while `doing` something.
pub(crate) fn failed(place: &Path, doing: &str, error: io::Error) -> PortError {
    PortError::from_io(format!("{doing} {}", place.display()), error)
}

/// A thread that connects a port to its peers. The thread ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Attendant {
    stop: OwnedFd,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// A descriptor that wakes a thread so that it ends.
#[derive(Debug)]
pub(crate) struct StopSignal(OwnedFd);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    Stop,
    Ready,
    Timeout,
}

impl Attendant {
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(StopSignal) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let signal = StopSignal(stop.try_clone()?);
        let builder = std::thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn(move || work(signal))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl StopSignal {
    /// Waits for events of a descriptor, for the stop signal, or for the timeout. If no flags are
    /// given, only a hang-up by the peer is an event.
    pub(crate) fn wait(
        &self,
        of: Option<(BorrowedFd<'_>, PollFlags)>,
        time: Option<Duration>,
    ) -> Wake {
        let mut fds = vec![PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        fds.extend(of.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        loop {
            match poll(&mut fds, time.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) => return Wake::Timeout,
                _ if !fds[0].revents().is_empty() => return Wake::Stop,
                _ => return Wake::Ready,
            }
        }
    }
}

/// Space for the descriptors of the largest message.
const ANCILLARY: usize = rustix::cmsg_space!(ScmRights(64));

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn listening_replaces_only_a_socket_without_a_listener() {
        let folder = std::env::temp_dir().join(format!("weir-door-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let door = Door::open(&path).unwrap();
        assert_eq!(Door::open(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(door);
        assert!(!path.exists());
        std::fs::write(&path, "text").unwrap();
        assert_eq!(Door::open(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_unix_socket_message_carries_file_descriptors() {
        let (left, right) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        send(&left, b"hello", &[writer.as_fd()]).unwrap();
        drop(writer);
        let mut bytes = [0; 5];
        let mut fds = Vec::new();
        receive_exactly(&right, &mut bytes, &mut fds).unwrap();
        assert_eq!((&bytes, fds.len()), (b"hello", 1));
        rustix::io::write(&fds[0], b"x").unwrap();
        fds.clear();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
    }
}
