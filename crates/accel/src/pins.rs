//! Objects that stay in the kernel after the command has ended: links and maps by name in the BPF
//! file system.

mod folder;
mod lock;

use crate::AccelError;
use crate::algorithm::NAME;
use crate::object::with_libbpf_log;
use crate::system::read_sysctl;
use folder::{Folder, FolderEntry};
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore, MapHandle};
use lock::CommandLock;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct PinLayout {
    /// The name by which sockets choose the algorithm.
    pub(crate) algorithm: &'static str,
    folder: &'static str,
    /// The directory of a replacement in progress. The kernel refuses names with a dot there
    /// (kernel/bpf/inode.c).
    staging: &'static str,
    maps: &'static [&'static str],
}

/// Weir's directory, locked against other commands until this value is dropped.
#[derive(Debug)]
pub struct Pins {
    layout: &'static PinLayout,
    root: Arc<Folder>,
    folder: &'static str,
    /// `None` if another value holds the lock.
    _lock: Option<CommandLock>,
}

/// The extent of the installation. A command that is killed between two steps leaves a part of an
/// installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Nothing,
    /// Connections may run with the algorithm; [`Pins::gives`] tells whether new connections get
    /// the algorithm.
    Part,
    Whole,
}

impl Pins {
    /// Opens the pins of `tcpa`. Waits for any other `weir accel` command.
    pub fn open() -> Result<Self, AccelError> {
        Self::open_of(&TCPA)
    }

    /// Opens the pins; `None` without a BPF file system, where nothing can be pinned.
    pub(crate) fn open_if_any() -> Result<Option<Self>, AccelError> {
        Self::open_of_if_any(&TCPA)
    }

    pub(crate) fn open_of_if_any(layout: &'static PinLayout) -> Result<Option<Self>, AccelError> {
        match Self::open_of(layout) {
            Err(AccelError::NoBpfFiles { .. }) => Ok(None),
            pins => pins.map(Some),
        }
    }

    pub(crate) fn open_of(layout: &'static PinLayout) -> Result<Self, AccelError> {
        if !rustix::process::geteuid().is_root() {
            return Err(AccelError::NotPermitted { doing: "weir accel" });
        }
        let root = Folder::of_bpf(BPF_FILES)?;
        let lock = CommandLock::wait(&root)?;
        Ok(Self { layout, root: Arc::new(root), folder: layout.folder, _lock: Some(lock) })
    }

    pub fn presence(&self) -> Presence {
        if self.staging().is_made() {
            // An update did not complete: the maps may not belong to the programs.
            Presence::Part
        } else if self.holds(POLICY) && (self.holds(ALGORITHM) || self.holds(ALGORITHM_MAP)) {
            Presence::Whole
        } else if self.is_made() {
            Presence::Part
        } else {
            Presence::Nothing
        }
    }

    /// Whether new connections are inspected.
    pub fn gives(&self) -> bool {
        self.holds(POLICY)
    }

    /// Lists another user's entries with Weir's names, which Weir neither uses nor removes.
    pub fn foreign(&self) -> Result<Vec<PathBuf>, AccelError> {
        let mut found = Vec::new();
        for name in [self.layout.folder, self.layout.staging] {
            let path = self.root.path().join(name);
            match self.root.inner(name)? {
                FolderEntry::Absent => {}
                FolderEntry::Foreign(_) => found.push(path),
                FolderEntry::Ours(folder) => {
                    found.extend(folder.entries()?.foreign.iter().map(|name| path.join(name)));
                }
            }
        }
        Ok(found)
    }

    /// Returns the pins of CAQM, under the same lock.
    pub(crate) fn of_caqm(&self) -> Self {
        let root = Arc::clone(&self.root);
        Self { layout: &CAQM, root, folder: CAQM.folder, _lock: None }
    }

    /// Returns the pins of a replacement in progress, in a separate directory.
    pub(crate) fn staging(&self) -> Self {
        let root = Arc::clone(&self.root);
        Self { layout: self.layout, root, folder: self.layout.staging, _lock: None }
    }

    /// Moves the pins of `newer`'s maps into this directory.
    pub(crate) fn take(&self, newer: &Self) -> Result<(), AccelError> {
        if let (Some(here), Some(there)) = (self.folder()?, newer.folder()?) {
            self.layout.maps.iter().try_for_each(|name| here.take(&there, name))?;
        }
        newer.remove_folder()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(self.folder).join(name)
    }

    /// Returns the path of an existing pin. Only root can change the directory, so the path stays
    /// valid.
    pub(crate) fn pinned(&self, name: &str) -> Result<PathBuf, AccelError> {
        let path = self.at(name);
        match self.holds(name) {
            true => Ok(path),
            false => Err(AccelError::file("opening", &path, ErrorKind::NotFound.into())),
        }
    }

    pub(crate) fn make(&self) -> Result<(), AccelError> {
        self.root.make(self.folder)
    }

    pub(crate) fn link(&self, name: &'static str) -> Result<Link, AccelError> {
        let path = self.pinned(name)?;
        with_libbpf_log(name, || Link::open(path))
    }

    pub(crate) fn link_named(&self, name: &str) -> Result<Link, AccelError> {
        let path = self.pinned(name)?;
        with_libbpf_log(LINK, || Link::open(path))
    }

    /// Whether the link is still attached to its interface.
    pub(crate) fn link_lives(&self, name: &str) -> bool {
        let about = self.link_named(name).and_then(|link| with_libbpf_log(LINK, || link.info()));
        about.is_ok_and(|about| match about.info {
            LinkTypeInfo::Tcx(tcx) => tcx.ifindex != 0,
            _ => false,
        })
    }

    pub(crate) fn map(&self, name: &'static str) -> Result<MapHandle, AccelError> {
        let path = self.pinned(name)?;
        with_libbpf_log(name, || MapHandle::from_pinned_path(path))
    }

    /// Removes all of Weir's entries; [`Pins::foreign`] lists the other entries.
    pub(crate) fn remove(&self) -> Result<(), AccelError> {
        // Ends the policy first, so that no new connection gets an algorithm that is about to be
        // removed.
        let ended = [self.end(POLICY)?, self.end(ALGORITHM)?];
        for name in self.others() {
            self.end(&name)?;
        }
        self.staging().remove_folder()?;
        if let Ok(ops) = self.map(ALGORITHM_MAP) {
            // Without a link, only the removal from the map unregisters the algorithm. An error
            // means that the algorithm has gone already.
            let _ = ops.delete(&0_u32.to_ne_bytes());
        }
        self.remove_folder()?;
        if ended.contains(&false) {
            wait_until_free(self.layout.algorithm);
        }
        Ok(())
    }

    /// Ends a link; false if the kernel could not detach it. The kernel releases such a link some
    /// time after its pin is removed (kernel/bpf/inode.c). Until then new connections still get the
    /// algorithm, and its name stays taken.
    pub(crate) fn end(&self, name: &str) -> Result<bool, AccelError> {
        let Some(folder) = self.folder()?.filter(|folder| folder.holds(name)) else {
            return Ok(true);
        };
        let link = self.link_named(name);
        // Remove the pin before the link ends, so that each pin has a link in effect.
        folder.unlink(name)?;
        Ok(link.and_then(|link| with_libbpf_log(LINK, || link.detach())).is_ok())
    }

    /// Lists the links whose names depend on the interfaces.
    pub(crate) fn others(&self) -> Vec<String> {
        let entries = self.folder().ok().flatten().and_then(|folder| folder.entries().ok());
        let known = |name: &str| {
            [POLICY, ALGORITHM, ALGORITHM_MAP].contains(&name) || self.layout.maps.contains(&name)
        };
        entries.unwrap_or_default().ours.into_iter().filter(|name| !known(name)).collect()
    }

    /// Opens the directory; `None` if the directory does not exist, or is not Weir's.
    fn folder(&self) -> Result<Option<Folder>, AccelError> {
        Ok(match self.root.inner(self.folder)? {
            FolderEntry::Ours(folder) => Some(folder),
            FolderEntry::Absent | FolderEntry::Foreign(_) => None,
        })
    }

    fn holds(&self, name: &str) -> bool {
        self.folder().is_ok_and(|folder| folder.is_some_and(|folder| folder.holds(name)))
    }

    /// Whether the directory is Weir's and in use; false if only foreign entries are left in it.
    fn is_made(&self) -> bool {
        let Ok(Some(folder)) = self.folder() else { return false };
        let entries = folder.entries().unwrap_or_default();
        !entries.ours.is_empty() || entries.foreign.is_empty()
    }

    fn remove_folder(&self) -> Result<(), AccelError> {
        let Some(folder) = self.folder()? else { return Ok(()) };
        let entries = folder.entries()?;
        entries.ours.iter().try_for_each(|name| folder.unlink(name))?;
        if entries.foreign.is_empty() { self.root.remove(self.folder) } else { Ok(()) }
    }
}

/// Whether the entry exists: on a read-only file system even a missing entry cannot be removed,
/// which is no failure.
pub(crate) fn is_there(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Err(error) => error.kind() != ErrorKind::NotFound,
        Ok(_) => true,
    }
}

/// Waits until the kernel has unregistered the algorithm: before Linux 6.11 links of algorithms
/// cannot be detached, and the kernel unregisters the algorithm later.
fn wait_until_free(algorithm: &str) {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    let taken = || {
        let names = read_sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
        names.split(' ').any(|name| name == algorithm)
    };
    while taken() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The link that registers the algorithm.
pub(crate) const ALGORITHM: &str = "algorithm";
/// The map that registers the algorithm, before Linux 6.4.
pub(crate) const ALGORITHM_MAP: &str = "algorithm-map";
/// The link that gives connections their algorithm; created last, removed first.
pub(crate) const POLICY: &str = "policy";
pub(crate) const FLOWS: &str = "flows";
pub(crate) const SETTINGS: &str = "settings";
pub(crate) const RULES: &str = "rules";
pub(crate) const ACTIVE: &str = "active";
/// The memory of paths.
pub(crate) const PATHS: &str = "paths";
/// The work of ended connections.
pub(crate) const ENDED: &str = "ended";
pub(crate) static TCPA: PinLayout = PinLayout {
    algorithm: NAME,
    folder: "weir-accel",
    staging: "weir-accel-new",
    maps: &[FLOWS, SETTINGS, PATHS, ENDED, RULES, ACTIVE],
};
/// The maps of CAQM: the connections, the parameters of the network, the interfaces, the pending
/// connections, and the traffic counters.
pub(crate) const RECORDS: &str = "records";
pub(crate) const NETWORK: &str = "network";
pub(crate) const INTERFACES: &str = "places";
pub(crate) const PENDING: &str = "pending";
pub(crate) const TOTALS: &str = "totals";
/// The maps of handshakes with reserved bits: of passive ends, and of active ends.
pub(crate) const ASKED: &str = "asked";
pub(crate) const OFFERED: &str = "offered";
pub(crate) static CAQM: PinLayout = PinLayout {
    algorithm: "caqm",
    folder: "weir-caqm",
    staging: "weir-caqm-new",
    maps: &[RECORDS, NETWORK, INTERFACES, PENDING, TOTALS, ASKED, OFFERED, RULES, ACTIVE],
};
const LINK: &str = "a link of what is installed";
const BPF_FILES: &str = "/sys/fs/bpf";
/// Timeout of the wait for a free name: an algorithm that is not Weir's may have the name.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
