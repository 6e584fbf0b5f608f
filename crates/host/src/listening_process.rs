use crate::HostError;
use nix::sys::socket::{UnixCredentials, getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The process that listens at a UNIX socket, as the kernel recorded it at listen(2), independent
/// of any text or file name.
#[derive(Debug)]
pub struct ListeningProcess {
    pid: u32,
    /// A process ID may be reused when this process has ended; a descriptor never refers to another
    /// process.
    process: OwnedFd,
}

impl ListeningProcess {
    /// Finds the process behind a connected stream. The process must belong to this user, root or
    /// `also`. A process that has passed its socket on and ended is an error.
    pub fn behind(stream: &impl AsFd, also: Option<u32>) -> Result<Self, HostError> {
        let peer = trusted_peer(stream, also)?;
        // The kernel reports 0 for a process outside this process namespace (pid_namespaces(7)).
        let number = Pid::from_raw(peer.pid()).ok_or_else(|| asking(nix::Error::ESRCH))?;
        let pid = peer.pid();
        let process = match getsockopt(stream, sockopt::PeerPidfd) {
            Ok(process) => process,
            // Linux before 6.5 lacks SO_PEERPIDFD.
            Err(nix::Error::ENOPROTOOPT) => by_number(number, peer.uid())?,
            Err(nix::Error::ESRCH | nix::Error::EINVAL) => {
                return Err(HostError::ProcessGone { pid });
            }
            Err(error) => return Err(asking(error)),
        };
        match is_alive(&process).map_err(asking)? {
            true => Ok(Self { pid: pid.unsigned_abs(), process }),
            false => Err(HostError::ProcessGone { pid }),
        }
    }

    /// Checks that the listening process belongs to this user or root, even if it is outside this
    /// process namespace.
    pub fn verify(stream: &impl AsFd) -> Result<(), HostError> {
        trusted_peer(stream, None).map(drop)
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Duplicates the descriptor, for another process (pidfd_open(2)).
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.process.try_clone()
    }

    pub fn hang_up(&self) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.process, Signal::HUP)?)
    }
}

fn trusted_peer(stream: &impl AsFd, also: Option<u32>) -> Result<UnixCredentials, HostError> {
    let peer = getsockopt(stream, sockopt::PeerCredentials).map_err(asking)?;
    let ours = rustix::process::geteuid().as_raw();
    if peer.uid() != ours && peer.uid() != 0 && Some(peer.uid()) != also {
        return Err(HostError::ForeignProcess { pid: peer.pid(), uid: peer.uid() });
    }
    Ok(peer)
}

/// Opens the process with this ID, if it runs as user `uid`. The ID may already belong to another
/// process; if that process has the same user, no privilege is gained.
fn by_number(number: Pid, uid: u32) -> Result<OwnedFd, HostError> {
    let pid = number.as_raw_nonzero().get();
    let process = match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Err(HostError::ProcessGone { pid }),
        opened => opened.map_err(|error| asking(io::Error::from(error)))?,
    };
    // The caller checks that the process has not ended, so this was its user.
    match user_of(pid) {
        Some(user) if user == uid => Ok(process),
        _ => Err(HostError::ProcessGone { pid }),
    }
}

/// Returns the effective user of a process.
fn user_of(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Whether the process has not ended. The descriptor becomes readable when the process ends
/// (pidfd_open(2)).
fn is_alive(process: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(rustix::event::poll(&mut polled, Some(&at_once))? == 0)
}

fn asking(source: impl Into<io::Error>) -> HostError {
    let doing = "asking the kernel which process listens there".to_owned();
    HostError::Io { doing, source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_user_than_the_listener_is_refused() {
        let own = rustix::process::getpid();
        let uid = rustix::process::geteuid().as_raw();
        assert!(is_alive(&by_number(own, uid).unwrap()).unwrap());
        let other = by_number(own, uid + 1).unwrap_err();
        assert!(matches!(other, HostError::ProcessGone { .. }), "{other}");
    }

    #[test]
    fn the_descriptor_of_an_ended_process_reports_the_process_as_dead() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let process = by_number(pid, rustix::process::geteuid().as_raw()).unwrap();
        assert!(is_alive(&process).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(&process).unwrap());
    }
}
