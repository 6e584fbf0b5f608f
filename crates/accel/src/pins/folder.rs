//! Directories of the BPF file system, by descriptor. Follows no symbolic link. Removes only root's
//! files, in a directory that only root can write.

use crate::AccelError;
use crate::mounts::hidden_bpf;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, fstatfs, mkdirat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A directory that only root can write.
#[derive(Debug)]
pub(super) struct Folder {
    directory: OwnedFd,
    path: PathBuf,
}

#[derive(Debug)]
pub(super) enum FolderEntry {
    Absent,
    Ours(Folder),
    /// An entry that another user may have made; the text gives the reason.
    Foreign(String),
}

/// The names in a directory: files that root pinned, and all other entries.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) ours: Vec<String>,
    pub(super) foreign: Vec<String>,
}

impl Folder {
    /// Opens the root of the BPF file system. Another user who can write there could take Weir's
    /// names.
    pub(super) fn of_bpf(at: &str) -> Result<Self, AccelError> {
        let path = Path::new(at);
        let none =
            || hidden_bpf(at).unwrap_or_else(|| AccelError::NoBpfFiles { path: path.to_owned() });
        let directory = openat(CWD, path, DIRECTORY, Mode::empty()).map_err(|_| none())?;
        if fstatfs(&directory).map(|about| about.f_type as u32) != Ok(BPF_FS_MAGIC) {
            return Err(none());
        }
        Self::of_root(directory, path, "0700")
    }

    /// Opens any other directory in which Weir's names have to be safe.
    pub(super) fn of_system(path: &Path) -> Result<Self, AccelError> {
        let directory = openat(CWD, path, DIRECTORY, Mode::empty())
            .map_err(|errno| AccelError::file("opening", path, errno.into()))?;
        Self::of_root(directory, path, "0755")
    }

    fn of_root(directory: OwnedFd, path: &Path, mode: &'static str) -> Result<Self, AccelError> {
        let about = fstat(&directory).map_err(|errno| failed("reading", path, errno))?;
        match exposed(&about) {
            None => Ok(Self { directory, path: path.to_owned() }),
            Some(problem) => Err(AccelError::Exposed { path: path.to_owned(), problem, mode }),
        }
    }

    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn inner(&self, name: &str) -> Result<FolderEntry, AccelError> {
        let path = self.path.join(name);
        let directory = match openat(&self.directory, name, DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(FolderEntry::Absent),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Ok(FolderEntry::Foreign("it is not a directory".to_owned()));
            }
            Err(errno) => return Err(failed("opening", &path, errno)),
        };
        let about = fstat(&directory).map_err(|errno| failed("reading", &path, errno))?;
        Ok(match exposed(&about) {
            None => FolderEntry::Ours(Self { directory, path }),
            Some(problem) => FolderEntry::Foreign(problem),
        })
    }

    /// Creates a directory, or accepts an existing directory that is Weir's.
    pub(super) fn make(&self, name: &str) -> Result<(), AccelError> {
        let path = self.path.join(name);
        match mkdirat(&self.directory, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("making", &path, errno)),
        }
        match self.inner(name)? {
            FolderEntry::Ours(_) => Ok(()),
            FolderEntry::Foreign(problem) => Err(AccelError::NotOurs { path, problem }),
            FolderEntry::Absent => Err(failed("opening", &path, Errno::NOENT)),
        }
    }

    /// Whether the entry is a file that belongs to root.
    pub(super) fn holds(&self, name: &str) -> bool {
        let about = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        about.is_ok_and(|about| is_pin(&about))
    }

    pub(super) fn entries(&self) -> Result<Entries, AccelError> {
        let fail = |errno| failed("reading", &self.path, errno);
        let mut entries = Entries::default();
        for entry in Dir::read_from(&self.directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            match entry.file_name().to_str() {
                Ok("." | "..") => {}
                Ok(name) if self.holds(name) => entries.ours.push(name.to_owned()),
                _ => entries.foreign.push(entry.file_name().to_string_lossy().into_owned()),
            }
        }
        Ok(entries)
    }

    /// Removes a file that belongs to root, and no other entry.
    pub(super) fn unlink(&self, name: &str) -> Result<(), AccelError> {
        if !self.holds(name) {
            return Ok(());
        }
        unlinkat(&self.directory, name, AtFlags::empty())
            .map_err(|errno| failed("removing", &self.path.join(name), errno))
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), AccelError> {
        unlinkat(&self.directory, name, AtFlags::REMOVEDIR)
            .map_err(|errno| failed("removing", &self.path.join(name), errno))
    }

    /// Moves an entry from another directory here and replaces the old entry.
    pub(super) fn take(&self, from: &Self, name: &str) -> Result<(), AccelError> {
        renameat(&from.directory, name, &self.directory, name)
            .map_err(|errno| failed("replacing", &self.path.join(name), errno))
    }
}

/// Returns the reason why other users can create entries there, if they can.
fn exposed(about: &Stat) -> Option<String> {
    let mode = Mode::from_raw_mode(about.st_mode);
    if about.st_uid != ROOT {
        return Some(format!("it belongs to user {}", about.st_uid));
    }
    let others = mode.intersects(Mode::WGRP | Mode::WOTH);
    others.then(|| format!("others can write there (mode {:04o})", about.st_mode & 0o7777))
}

fn is_pin(about: &Stat) -> bool {
    FileType::from_raw_mode(about.st_mode) == FileType::RegularFile && about.st_uid == ROOT
}

fn failed(doing: &'static str, path: &Path, errno: Errno) -> AccelError {
    AccelError::file(doing, path, errno.into())
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const ROOT: u32 = 0;
/// The type of the BPF file system, from include/uapi/linux/magic.h.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;
