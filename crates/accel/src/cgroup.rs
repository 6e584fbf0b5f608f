//! Control groups of version 2: their mount point, and the kernel's number of each control group.

use crate::AccelError;
use crate::mounts::{MountTable, hidden_cgroups};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    pub path: PathBuf,
    /// The inode number of the group's directory.
    pub id: u64,
}

impl Cgroup {
    /// Finds a control group by its path below the mount (`/system.slice/nginx.service`), or by the
    /// path of its directory.
    pub fn named(name: &Path) -> Result<Self, AccelError> {
        let mount = mount()?;
        let below = mount.join(name.strip_prefix("/").unwrap_or(name));
        let path = if name.starts_with(&mount) { name.to_owned() } else { below };
        let missing = || AccelError::NoSuchCgroup { name: name.to_owned(), mount: mount.clone() };
        // Each control group has this file; no other directory has the file.
        if !path.join("cgroup.events").exists() && path != mount {
            return Err(missing());
        }
        let id = fs::metadata(&path).map_err(|_| missing())?.ino();
        Ok(Self { path, id })
    }

    /// Finds a control group by its number, if the group still exists.
    pub fn numbered(id: u64) -> Option<Self> {
        let mut folders = vec![mount().ok()?];
        while let Some(path) = folders.pop() {
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if !about.is_dir() {
                continue;
            }
            if about.ino() == id {
                return Some(Self { path, id });
            }
            folders.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        }
        None
    }
}

/// Returns the mount point of control groups of version 2.
pub fn mount() -> Result<PathBuf, AccelError> {
    let point = MountTable::own().point_of("cgroup2").map(Path::to_owned);
    point.ok_or_else(|| {
        hidden_cgroups().unwrap_or(AccelError::NotSupported {
            feature: "mounted control groups of version 2",
            doing: "choosing connections",
            advice: "mount -t cgroup2 none /sys/fs/cgroup (systemd does it by itself)",
        })
    })
}
