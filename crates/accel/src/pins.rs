//! What stays in the kernel after the command has ended: links and maps by name in the BPF file system.

use crate::AccelError;
use crate::algorithm::NAME;
use crate::object::told;
use crate::system::read_sysctl;
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore, MapHandle};
use rustix::fs::{FlockOperation, flock, statfs};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is pinned of one algorithm, and where.
#[derive(Debug)]
pub(crate) struct Kit {
    /// As sockets choose it.
    pub(crate) algorithm: &'static str,
    folder: &'static str,
    /// Names with a dot are refused there (kernel/bpf/inode.c).
    beside: &'static str,
    maps: &'static [&'static str],
}

/// The folder of ours, and nobody else in it until this is dropped.
#[derive(Debug)]
pub struct Pins {
    kit: &'static Kit,
    folder: PathBuf,
    /// None: it is another's turn that this is part of.
    _turn: Option<File>,
}

/// How much of us is there. A program that is killed between two steps leaves part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Nothing,
    /// Connections may run with the algorithm; whether new ones are given it, [`Pins::gives`] tells.
    Part,
    Whole,
}

impl Pins {
    /// Those of `tcpa`. Waits for another command of ours.
    pub fn open() -> Result<Self, AccelError> {
        Self::open_of(&TCPA)
    }

    pub(crate) fn open_of(kit: &'static Kit) -> Result<Self, AccelError> {
        if !rustix::process::geteuid().is_root() {
            return Err(AccelError::NotPermitted { doing: "weir accel" });
        }
        let root = Path::new(BPF_FILES);
        let magic = statfs(root).map(|about| about.f_type as u32);
        if magic != Ok(BPF_FS_MAGIC) {
            return Err(AccelError::NoBpfFiles { path: root.to_owned() });
        }
        let file = |source| AccelError::file("opening", root, source);
        let turn = File::open(root).map_err(file)?;
        flock(&turn, FlockOperation::LockExclusive).map_err(|errno| file(errno.into()))?;
        Ok(Self { kit, folder: root.join(kit.folder), _turn: Some(turn) })
    }

    pub fn presence(&self) -> Presence {
        let there = |name: &str| self.at(name).exists();
        if self.beside().folder.exists() {
            // An update did not come to its end: the maps may not be those of the programs.
            Presence::Part
        } else if there(POLICY) && (there(ALGORITHM) || there(ALGORITHM_MAP)) {
            Presence::Whole
        } else if self.folder.exists() {
            Presence::Part
        } else {
            Presence::Nothing
        }
    }

    /// Whether connections are looked at when they begin.
    pub fn gives(&self) -> bool {
        self.at(POLICY).exists()
    }

    /// Where what is to take our place is put together.
    pub(crate) fn beside(&self) -> Self {
        Self { kit: self.kit, folder: self.folder.with_file_name(self.kit.beside), _turn: None }
    }

    /// The maps of `newer` are ours from now on.
    pub(crate) fn take(&self, newer: &Self) -> Result<(), AccelError> {
        for name in self.kit.maps {
            let to = self.at(name);
            fs::rename(newer.at(name), &to)
                .map_err(|source| AccelError::file("replacing", &to, source))?;
        }
        newer.remove_folder()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn make(&self) -> Result<(), AccelError> {
        fs::create_dir(&self.folder)
            .map_err(|source| AccelError::file("making", &self.folder, source))
    }

    pub(crate) fn link(&self, name: &'static str) -> Result<Link, AccelError> {
        told(name, || Link::open(self.at(name)))
    }

    pub(crate) fn link_named(&self, name: &str) -> Result<Link, AccelError> {
        told(LINK, || Link::open(self.at(name)))
    }

    /// Whether that link still is at its interface.
    pub(crate) fn link_lives(&self, name: &str) -> bool {
        let about = self.link_named(name).and_then(|link| told(LINK, || link.info()));
        about.is_ok_and(|about| match about.info {
            LinkTypeInfo::Tcx(tcx) => tcx.ifindex != 0,
            _ => false,
        })
    }

    pub(crate) fn map(&self, name: &'static str) -> Result<MapHandle, AccelError> {
        told(name, || MapHandle::from_pinned_path(self.at(name)))
    }

    pub(crate) fn remove(&self) -> Result<(), AccelError> {
        // New connections come first, so that none is given what is about to go.
        let ended = [self.end(POLICY)?, self.end(ALGORITHM)?];
        for name in self.others() {
            self.end(&name)?;
        }
        self.beside().remove_folder()?;
        if let Ok(ops) = MapHandle::from_pinned_path(self.at(ALGORITHM_MAP)) {
            // The only way out of the kernel for what is no link; gone already is as good.
            let _ = ops.delete(&0_u32.to_ne_bytes());
        }
        self.remove_folder()?;
        if ended.contains(&false) {
            wait_until_free(self.kit.algorithm);
        }
        Ok(())
    }

    /// Whether that link does nothing any more. A pin that is gone lets go of its link some time later
    /// (kernel/bpf/inode.c); until then connections would still be given the algorithm, and its name be taken.
    pub(crate) fn end(&self, name: &str) -> Result<bool, AccelError> {
        let at = self.at(name);
        let link = told(LINK, || Link::open(&at));
        let there = at.exists();
        // The pin first: what it stands for is never less than what it says.
        unpin(&at)?;
        Ok(!there || link.and_then(|link| told(LINK, || link.detach())).is_ok())
    }

    /// Links by names that are not known beforehand.
    pub(crate) fn others(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let known = |name: &str| {
            [POLICY, ALGORITHM, ALGORITHM_MAP].contains(&name) || self.kit.maps.contains(&name)
        };
        names.filter(|name| !known(name)).collect()
    }

    fn remove_folder(&self) -> Result<(), AccelError> {
        for name in [POLICY, ALGORITHM, ALGORITHM_MAP].iter().chain(self.kit.maps) {
            unpin(&self.at(name))?;
        }
        gone(&self.folder, fs::remove_dir(&self.folder))
    }
}

fn unpin(path: &Path) -> Result<(), AccelError> {
    gone(path, fs::remove_file(path))
}

/// What was not there is as good as removed.
fn gone(path: &Path, removed: std::io::Result<()>) -> Result<(), AccelError> {
    match removed {
        Err(error) if is_there(path) => Err(AccelError::file("removing", path, error)),
        _ => Ok(()),
    }
}

/// Where nothing can be written, what is not there cannot be removed either, and that is no failure.
pub(crate) fn is_there(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Err(error) => error.kind() != ErrorKind::NotFound,
        Ok(_) => true,
    }
}

/// The kernel unregisters in its own time where links of algorithms cannot be detached (before Linux 6.11).
fn wait_until_free(algorithm: &str) {
    let deadline = Instant::now() + PATIENCE;
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
/// The map that registers it, before Linux 6.4.
pub(crate) const ALGORITHM_MAP: &str = "algorithm-map";
/// The link that gives it to connections; the last that is made, the first that goes.
pub(crate) const POLICY: &str = "policy";
pub(crate) const FLOWS: &str = "flows";
pub(crate) const SETTINGS: &str = "settings";
pub(crate) const RULES: &str = "rules";
pub(crate) const ACTIVE: &str = "active";
/// What is remembered of paths.
pub(crate) const PATHS: &str = "paths";
pub(crate) static TCPA: Kit = Kit {
    algorithm: NAME,
    folder: "weir-accel",
    beside: "weir-accel-new",
    maps: &[FLOWS, SETTINGS, PATHS, RULES, ACTIVE],
};
/// Of CAQM: its connections, what holds for its network, the interfaces where it is spoken, connections to be,
/// and what passed.
pub(crate) const RECORDS: &str = "records";
pub(crate) const NETWORK: &str = "network";
pub(crate) const PLACES: &str = "places";
pub(crate) const PENDING: &str = "pending";
pub(crate) const TOTALS: &str = "totals";
pub(crate) static CAQM: Kit = Kit {
    algorithm: "caqm",
    folder: "weir-caqm",
    beside: "weir-caqm-new",
    maps: &[RECORDS, NETWORK, PLACES, PENDING, TOTALS, RULES, ACTIVE],
};
const LINK: &str = "a link of what is installed";
const BPF_FILES: &str = "/sys/fs/bpf";
/// include/uapi/linux/magic.h
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
/// Another's algorithm may have the name too.
const PATIENCE: Duration = Duration::from_secs(2);
