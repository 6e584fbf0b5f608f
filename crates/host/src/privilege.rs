use crate::HostError;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, getgid, getuid};
use std::fs;

/// With what rights the program builds its networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    Root,
    /// Root of a user namespace of its own. Networks can be built; real-time scheduling, big socket
    /// buffers and other namespaces of the machine are out of reach.
    UserNamespace,
}

impl Privilege {
    /// What is missing compared with root, in one sentence; nothing for root.
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

/// Makes sure networks can be built: as root, or by becoming root of a new user namespace.
///
/// Must run before the program starts its first thread: the kernel moves only single-threaded
/// programs into a user namespace (`user_namespaces(7)`).
pub fn acquire() -> Result<Privilege, HostError> {
    if Uid::effective().is_root() && can_make_networks() {
        return Ok(Privilege::Root);
    }
    let (uid, gid) = (getuid(), getgid());
    let doing = "building networks";
    let denied = |_: std::io::Error| HostError::NotPermitted {
        doing: doing.to_owned(),
    };
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|errno| denied(errno.into()))?;
    // An unprivileged process may map its group only after giving up setgroups(2).
    fs::write("/proc/self/setgroups", "deny").map_err(denied)?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).map_err(denied)?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).map_err(denied)?;
    Ok(Privilege::UserNamespace)
}

/// Root in a container may lack CAP_SYS_ADMIN; only trying tells.
fn can_make_networks() -> bool {
    std::thread::scope(|scope| {
        scope
            .spawn(|| unshare(CloneFlags::CLONE_NEWNET).is_ok())
            .join()
            .unwrap_or(false)
    })
}
