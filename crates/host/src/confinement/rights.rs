//! The user and the capabilities of a thread.

use nix::unistd;
use rustix::process::{
    Gid, Uid, getpid, getppid, kill_process, parent_process_death_signal,
    set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::io;

/// A user of this machine, with the groups that a login would give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("this machine has no user {0}: see `getent passwd`")]
    Unknown(String),
    #[error("the user {0} cannot be looked up: {1}")]
    Lookup(String, #[source] io::Error),
    #[error("this process cannot become user {0}: {1}; start it as root, or as that user")]
    Refused(u32, #[source] io::Error),
}

impl User {
    /// Looks up a user by name or number.
    pub fn named(name: &str) -> Result<Self, UserError> {
        let found = match name.parse() {
            Ok(uid) => unistd::User::from_uid(unistd::Uid::from_raw(uid)),
            Err(_) => unistd::User::from_name(name),
        };
        let found = found.map_err(|error| UserError::Lookup(name.to_owned(), error.into()))?;
        let user = found.ok_or_else(|| UserError::Unknown(name.to_owned()))?;
        let groups = std::ffi::CString::new(user.name.as_str())
            .ok()
            .and_then(|name| unistd::getgrouplist(&name, user.gid).ok())
            .unwrap_or_default();
        let groups = groups.into_iter().map(unistd::Gid::as_raw).collect();
        Ok(Self { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups })
    }

    /// The user `nobody`, who owns no file.
    pub fn nobody() -> Self {
        Self { uid: NOBODY, gid: NOBODY, groups: Vec::new() }
    }

    pub fn uid(&self) -> u32 {
        self.uid
    }
}

/// Changes this thread, and threads that it starts later, to `user` for good. The thread can still
/// get the capabilities that it had: call [`super::confine`] next, which drops them. Changes
/// nothing if the thread already has this user.
pub fn become_user(user: &User) -> Result<(), UserError> {
    if rustix::process::geteuid().as_raw() == user.uid {
        return Ok(());
    }
    // Before Linux 6.4, rustix reads the size of a page and the length of a tick once, from
    // /proc/self/auxv, and panics if the file is closed. The file belongs to root after the change.
    let _ = rustix::param::page_size();
    let (parent, death) = (getppid(), parent_process_death_signal());
    let change = || -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        let groups: Vec<_> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_keep_capabilities(true)?;
        set_thread_res_uid(uid, uid, uid)?;
        set_keep_capabilities(false)?;
        // The kernel forgets this signal when a thread changes its user.
        let Some(death) = death? else { return Ok(()) };
        set_parent_process_death_signal(Some(death))?;
        // The parent may have ended meanwhile.
        if getppid() == parent { Ok(()) } else { kill_process(getpid(), death) }
    };
    change().map_err(|error| UserError::Refused(user.uid, error.into()))
}

/// Drops all capabilities except `kept`, and gains none by execve(2).
pub(super) fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let permitted = capabilities(None)?.permitted;
    if kept.contains(permitted) {
        // The filter of a systemd unit may refuse capset(2).
        return Ok(());
    }
    let inheritable = CapabilitySet::empty();
    // A thread that changed its user has no effective capabilities.
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?;
    // Without CAP_SETPCAP the bounding set stays. The bounding set matters for execve(2) alone, by
    // which this thread gains nothing any more.
    if permitted.contains(CapabilitySet::SETPCAP) {
        for capability in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << capability);
            // The kernel knows fewer than 64 capabilities, and refuses other capabilities.
            if !kept.contains(one) && remove_capability_from_bounding_set(one).is_err() {
                break;
            }
        }
    }
    clear_ambient_capability_set()?;
    let permitted = permitted & kept;
    Ok(set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?)
}

/// The user `nobody` of Debian, Ubuntu and Fedora, and the kernel's overflow user.
const NOBODY: u32 = 65_534;
