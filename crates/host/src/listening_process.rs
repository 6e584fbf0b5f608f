use crate::HostError;
use nix::sys::socket::{UnixCredentials, getsockopt, sockopt::PeerCredentials};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The process behind a UNIX socket, as the kernel recorded it when that process called listen(2).
/// No text and no file name is involved.
#[derive(Debug)]
pub struct ListeningProcess {
    pid: u32,
    /// A process ID may be reused when this process has ended; a descriptor never refers to another
    /// process.
    process: OwnedFd,
}

impl ListeningProcess {
    /// Takes a connected stream. Refuses a process of any user except this one, root and `also`.
    pub fn behind(stream: &impl AsFd, also: Option<u32>) -> Result<Self, HostError> {
        let peer = trusted_peer(stream, also)?;
        // 0 is a process outside this process namespace (pid_namespaces(7)).
        let pid =
            Pid::from_raw(peer.pid()).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let process = process.map_err(|error| failed(error.into()))?;
        Ok(Self { pid: peer.pid().unsigned_abs(), process })
    }

    /// Refuses a process of any user except this one and root, also one outside this process
    /// namespace.
    pub fn verify(stream: &impl AsFd) -> Result<(), HostError> {
        trusted_peer(stream, None).map(drop)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn hang_up(&self) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.process, Signal::HUP)?)
    }
}

fn trusted_peer(stream: &impl AsFd, also: Option<u32>) -> Result<UnixCredentials, HostError> {
    let peer = getsockopt(stream, PeerCredentials).map_err(|error| failed(error.into()))?;
    let ours = rustix::process::geteuid().as_raw();
    if peer.uid() != ours && peer.uid() != 0 && Some(peer.uid()) != also {
        return Err(HostError::ForeignProcess { pid: peer.pid(), uid: peer.uid() });
    }
    Ok(peer)
}

fn failed(source: io::Error) -> HostError {
    HostError::Io { doing: "asking the kernel which process listens there".to_owned(), source }
}
