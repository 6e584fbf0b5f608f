//! The hand-over of an end's sockets to another process, which takes over from the end.
//!
//! The new process asks over the status socket of the running end. The running end stops reading
//! its UDP sockets, and sends descriptors with their names. The new process starts, and reports its
//! start with a byte. The running end confirms with a byte, accepts no new connections, and ends
//! with its last connection. If the new process fails before the confirmation, the running end goes
//! on as before.

use crate::status::{Reply, StatusError};
use host::{BoundFile, ListeningProcess};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};
use serde::{Deserialize, Serialize};
use std::fmt::{Debug, Display};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error("process {pid} hands nothing over, and goes on: {reason}")]
    Refused { pid: u32, reason: String },
    #[error(
        "the hand-over from process {pid}, which goes on, has failed: {source}; an end of an \
         earlier version hands nothing over: restart it instead"
    )]
    Broken { pid: u32, source: io::Error },
    #[error(
        "{0} ends of this role run here: name the process to take over from (--take-over-from=PID)"
    )]
    Several(usize),
    #[error(
        "process {pid} is no {role} that can hand over its sockets here: `weir tunnel status` lists \
         the ends and their processes"
    )]
    NotHere { pid: u32, role: String },
    #[error(
        "the running end serves {theirs}, and this process is to serve {ours}: an address changes \
         by a restart alone"
    )]
    Address { theirs: String, ours: String },
}

/// An end that can hand over its sockets.
pub trait HandOver: Send + Sync {
    /// Stops reading UDP sockets, and returns copies of all sockets.
    fn begin(&self) -> Result<Handed, String>;

    /// Resumes reading the UDP sockets after the other process has failed to start.
    fn give_up(&self);

    /// Leaves the sockets to the other process, which has started. This end may carry its last
    /// connections for the time `within`.
    fn complete(&self, handed: Handed, within: Duration);
}

/// Sockets that one process hands over to another process.
#[derive(Debug, Default)]
pub struct Handed {
    generation: u8,
    files: Vec<(String, OwnedFd)>,
    /// In the process that hands over: the files of its listening UNIX sockets.
    owners: Vec<SocketOwner>,
    /// In the process that takes over: whether the hand-over has completed.
    is_complete: Arc<AtomicBool>,
    is_of_process: bool,
}

/// The UDP sockets of a server, each with the processes that carry former connections.
#[derive(Debug)]
pub struct HandedUdp {
    /// The generation of the process that takes the sockets over.
    pub(crate) generation: u8,
    pub(crate) sockets: Vec<(UdpSocket, Vec<(u8, UnixDatagram)>)>,
}

/// The text that the running end sends with the descriptors, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    generation: u8,
    /// The names of the descriptors, in their order.
    names: Vec<String>,
    /// The reason for which the running end hands nothing over; otherwise empty.
    refused: String,
}

/// The file of a listening UNIX socket. Dropping the last clone removes the file, unless another
/// process has taken the socket over.
#[derive(Debug, Clone)]
pub(crate) struct SocketOwner(Arc<Mutex<Owner>>);

#[derive(Debug)]
enum Owner {
    Bound(#[expect(dead_code, reason = "dropped")] BoundFile),
    TakenOver { path: PathBuf, inode: Option<(u64, u64)>, is_complete: Arc<AtomicBool> },
    Given,
}

impl Handed {
    pub(crate) fn add(&mut self, name: impl Into<String>, file: impl Into<OwnedFd>) {
        self.files.push((name.into(), file.into()));
    }

    /// Adds a listening UNIX socket, whose file goes to the other process.
    pub(crate) fn add_path(&mut self, name: String, file: OwnedFd, owner: &SocketOwner) {
        self.owners.push(owner.clone());
        self.add(name, file);
    }

    /// Whether the sockets were handed over by a running end, even if all of them have been taken.
    pub(crate) fn is_of_process(&self) -> bool {
        self.is_of_process
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let place = self.files.iter().position(|(one, _)| one == name)?;
        Some(self.files.remove(place).1)
    }

    /// Takes a listening UNIX socket, together with its file.
    pub(crate) fn take_path(&mut self, name: &str, path: &Path) -> Option<(OwnedFd, SocketOwner)> {
        let file = self.take(name)?;
        let is_complete = Arc::clone(&self.is_complete);
        let inode = inode_of_socket(path);
        let owner = Owner::TakenOver { path: path.to_owned(), inode, is_complete };
        Some((file, SocketOwner(Arc::new(Mutex::new(owner)))))
    }

    pub(crate) fn add_udp(&mut self, udp: HandedUdp) {
        self.generation = udp.generation;
        for (socket, formers) in udp.sockets {
            self.add(UDP, socket);
            for (generation, former) in formers {
                self.add(format!("{FORMER}{generation}"), former);
            }
        }
    }

    pub(crate) fn take_udp(&mut self) -> Option<HandedUdp> {
        let mut sockets: Vec<(UdpSocket, Vec<(u8, UnixDatagram)>)> = Vec::new();
        for (name, file) in std::mem::take(&mut self.files) {
            let former = name.strip_prefix(FORMER).and_then(|text| text.parse().ok());
            match (former, sockets.last_mut()) {
                (Some(generation), Some((_, formers))) => formers.push((generation, file.into())),
                _ if name == UDP => sockets.push((file.into(), Vec::new())),
                _ => self.files.push((name, file)),
            }
        }
        let generation = self.generation;
        (!sockets.is_empty()).then_some(HandedUdp { generation, sockets })
    }

    /// Takes the sockets of the sending process's own predecessors, oldest first.
    pub(crate) fn take_processes(&mut self) -> Vec<OwnedFd> {
        std::iter::from_fn(|| self.take(PROCESS)).collect()
    }

    /// Leaves the files of UNIX sockets to the other process, which then removes them.
    pub(crate) fn give(&self) {
        self.owners.iter().for_each(SocketOwner::give);
    }
}

impl SocketOwner {
    pub(crate) fn of(file: BoundFile) -> Self {
        Self(Arc::new(Mutex::new(Owner::Bound(file))))
    }

    fn give(&self) {
        let mut owner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropping a value of `BoundFile` would remove the file.
        std::mem::forget(std::mem::replace(&mut *owner, Owner::Given));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Self::TakenOver { path, inode, is_complete } = self
            && is_complete.load(Ordering::Relaxed)
            && inode.is_some()
            && inode_of_socket(path) == *inode
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the device and inode of the socket at the path. The device and inode show whether
/// another program has put its own socket there.
fn inode_of_socket(path: &Path) -> Option<(u64, u64)> {
    let found = path.symlink_metadata().ok()?;
    let is_socket = found.mode() & 0o170_000 == 0o140_000;
    is_socket.then(|| (found.dev(), found.ino()))
}

/// Hands the sockets of `end` to the process at the other side of `stream`, and waits until that
/// process has started or failed.
pub(crate) async fn give(mut stream: tokio::net::UnixStream, end: &dyn HandOver, within: Duration) {
    let begun = end.begin().and_then(|handed| match handed.files.len() {
        count if count > MOST_FILES => {
            end.give_up();
            Err(format!(
                "the process has {count} sockets, and at most {MOST_FILES} can be handed over: \
                 restart it instead"
            ))
        }
        _ => Ok(handed),
    });
    let handed = match begun {
        Ok(handed) => handed,
        Err(refused) => {
            tracing::warn!(reason = %refused, "no hand-over");
            let refused = Manifest { generation: 0, names: Vec::new(), refused };
            let _ = tokio::time::timeout(STARTS_WITHIN, send(&mut stream, &refused, &[])).await;
            return;
        }
    };
    let names = handed.files.iter().map(|(name, _)| name.clone()).collect();
    let manifest = Manifest { generation: handed.generation, names, refused: String::new() };
    let files: Vec<_> = handed.files.iter().map(|(_, file)| file.as_fd()).collect();
    let started = async {
        send(&mut stream, &manifest, &files).await?;
        stream.read_exact(&mut [0]).await?;
        stream.write_all(&[AGREED]).await
    };
    match tokio::time::timeout(STARTS_WITHIN, started).await.unwrap_or_else(|_| {
        let late = format!("the new process has not started within {STARTS_WITHIN:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, late))
    }) {
        Ok(()) => end.complete(handed, within),
        Err(error) => {
            tracing::warn!(%error, "the hand-over has failed; this process goes on");
            end.give_up();
        }
    }
}

async fn send(
    stream: &mut tokio::net::UnixStream,
    manifest: &Manifest,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(manifest)?;
    let message = [&(text.len() as u32).to_le_bytes()[..], &text].concat();
    let rights = SendAncillaryMessage::ScmRights(files);
    let sent = loop {
        stream.writable().await?;
        let mut space = vec![MaybeUninit::uninit(); rights.size()];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(files));
        }
        let send = || {
            let parts = [IoSlice::new(&message)];
            Ok(rustix::net::sendmsg(&*stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)?)
        };
        match stream.try_io(Interest::WRITABLE, send) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => break sent?,
        }
    };
    stream.write_all(&message[sent..]).await
}

/// The sockets of a running end, which this process takes over.
#[derive(Debug)]
pub(crate) struct TakenOver {
    stream: UnixStream,
    pub(crate) process: ListeningProcess,
    pub(crate) handed: Handed,
}

impl TakenOver {
    /// Receives the sockets of the end at the other side of `stream`, to which the caller has sent
    /// the request.
    pub(crate) fn receive(
        stream: UnixStream,
        process: ListeningProcess,
    ) -> Result<Self, TakeOverError> {
        let pid = process.pid();
        let broken = |source| TakeOverError::Broken { pid, source };
        let (manifest, files) = received(&stream).map_err(broken)?;
        if !manifest.refused.is_empty() {
            let reason = units::foreign(manifest.refused).to_string();
            return Err(TakeOverError::Refused { pid, reason });
        }
        if manifest.names.len() != files.len() {
            let reason = format!("{} sockets of {} arrived", files.len(), manifest.names.len());
            return Err(broken(io::Error::other(reason)));
        }
        let files = manifest.names.into_iter().zip(files).collect();
        let generation = manifest.generation;
        let handed = Handed { generation, files, is_of_process: true, ..Handed::default() };
        Ok(Self { stream, process, handed })
    }

    /// Tells the other process that this process has started, and waits for the confirmation.
    pub(crate) fn started(&mut self) -> Result<(), TakeOverError> {
        let mut answer = [0];
        let asked = self.stream.write_all(&[AGREED]);
        let agreed = asked.and_then(|()| self.stream.read_exact(&mut answer));
        agreed.map_err(|source| TakeOverError::Broken { pid: self.process.pid(), source })?;
        self.handed.is_complete.store(true, Ordering::Relaxed);
        self.handed.files.clear();
        Ok(())
    }
}

fn received(stream: &UnixStream) -> io::Result<(Manifest, Vec<OwnedFd>)> {
    sockopt::set_socket_timeout(stream, sockopt::Timeout::Recv, Some(STARTS_WITHIN))?;
    sockopt::set_socket_timeout(stream, sockopt::Timeout::Send, Some(STARTS_WITHIN))?;
    let (mut text, mut files) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; LONGEST];
    loop {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = match rustix::net::recvmsg(stream, parts, &mut ancillary, flags) {
            Ok(message) => message.bytes,
            // A signal interrupted the read: the kernel does not restart a read with a timeout
            // (signal(7)).
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        text.extend_from_slice(&buffer[..got]);
        // An end of an earlier version sends a status reply instead.
        if let Ok(Reply::Refused(reason)) = serde_json::from_slice(&text) {
            return Err(io::Error::other(units::foreign(reason).to_string()));
        }
        if let Some((length, rest)) = text.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if rest.len() >= length {
                let manifest = serde_json::from_slice(&rest[..length])?;
                return Ok((manifest, files));
            }
        }
        if got == 0 || text.len() > LONGEST {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns the name of a listener's socket in the manifest.
pub(crate) fn listener_name(listen: &impl Display, number: usize) -> String {
    format!("listen {listen} {number}")
}

const UDP: &str = "udp";
const FORMER: &str = "former ";
pub(crate) const PROCESS: &str = "process";
pub(crate) const TCP: &str = "tcp";
pub(crate) const STATUS: &str = "status";
pub(crate) const METRICS: &str = "metrics";
const AGREED: u8 = b'+';
/// Maximum number of descriptors that the kernel passes at once (SCM_MAX_FD in include/net/scm.h).
const MOST_FILES: usize = 253;
const LONGEST: usize = 64 << 10;
/// Maximum time that a new process may take to start.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
