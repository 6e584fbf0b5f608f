use crate::HostError;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, getgid, getuid};
use std::fs;
use std::time::Duration;

/// The rights with which the program builds its networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    Root,
    /// Root of a new user namespace: the program can build networks, but has no real-time
    /// scheduling, no large socket buffers, and no other namespaces of the machine.
    UserNamespace,
}

impl Privilege {
    /// Describes the restrictions compared with root, in one sentence; `None` for root.
    pub fn degradation(self) -> Option<&'static str> {
        match self {
            Self::Root => None,
            Self::UserNamespace => Some(
                "running without root, in a user namespace: no real-time scheduling for the emulated \
                 link, socket buffers within net.core.rmem_max, so expect more lateness",
            ),
        }
    }
}

/// Gets the right to build networks: as root, or as root of a new user namespace.
///
/// Must run before the program starts its first thread: the kernel moves only single-threaded
/// programs into a user namespace (`user_namespaces(7)`).
pub fn acquire() -> Result<Privilege, HostError> {
    if Uid::effective().is_root() && can_make_networks() {
        return Ok(Privilege::Root);
    }
    let (uid, gid) = (getuid(), getgid());
    let denied =
        |_: std::io::Error| HostError::NotPermitted { doing: "building networks".to_owned() };
    become_root_of_a_namespace().map_err(denied)?;
    // An unprivileged process may map its group only after giving up setgroups(2).
    fs::write("/proc/self/setgroups", "deny").map_err(denied)?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).map_err(denied)?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).map_err(denied)?;
    // AppArmor may allow a user namespace and then forbid every operation in it.
    crate::wiring::bring_up_here("lo")?;
    Ok(Privilege::UserNamespace)
}

/// Lets an ordinary user confine programs: in a new user namespace, in which the user keeps their
/// user ID and the machine's network. Must run before the program starts its first thread.
pub fn confine_as_user() -> Result<(), HostError> {
    let (uid, gid) = (getuid(), getgid());
    let denied =
        |_: std::io::Error| HostError::NotPermitted { doing: "confining programs".to_owned() };
    unshare_when_alone(CloneFlags::CLONE_NEWUSER).map_err(denied)?;
    fs::write("/proc/self/setgroups", "deny").map_err(denied)?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).map_err(denied)?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).map_err(denied)
}

fn become_root_of_a_namespace() -> std::io::Result<()> {
    unshare_when_alone(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
}

fn unshare_when_alone(flags: CloneFlags) -> std::io::Result<()> {
    let mut tries = 0;
    loop {
        match unshare(flags) {
            // A joined thread counts as a thread until the kernel has removed it.
            Err(Errno::EINVAL) if tries < 1000 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return Ok(other?),
        }
    }
}

/// Whether this process can make networks. Root in a container may lack a capability, which is
/// checked first, or be forbidden to use the capability, which only an attempt shows.
fn can_make_networks() -> bool {
    has_capabilities()
        && std::thread::scope(|scope| {
            scope.spawn(|| unshare(CloneFlags::CLONE_NEWNET).is_ok()).join().unwrap_or(false)
        })
}

/// Whether the process has the capabilities for namespaces, interfaces and packet sockets.
fn has_capabilities() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Without /proc, only an attempt shows whether the process has them.
    effective.is_none_or(|mask| NEEDED.iter().all(|bit| mask & (1 << bit) != 0))
}

/// CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN of include/uapi/linux/capability.h.
const NEEDED: [u32; 3] = [12, 13, 21];
