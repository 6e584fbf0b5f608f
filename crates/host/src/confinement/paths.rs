//! The files of a confined program.

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directories that a program uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfinedPaths {
    /// Directories in which the program reads files.
    read: BTreeSet<PathBuf>,
    /// Directories in which the program creates and removes UNIX sockets.
    sockets: BTreeSet<PathBuf>,
    /// Directories in which the program creates and writes files.
    written: BTreeSet<PathBuf>,
    /// Directories in which the program removes files.
    removed: BTreeSet<PathBuf>,
    /// Devices that the program reads, writes and controls by ioctl(2).
    devices: BTreeSet<PathBuf>,
    /// Whether another user owns a file or directory of this program.
    has_foreign: bool,
}

impl ConfinedPaths {
    /// Adds the directory of a file that the program reads. If the file is a symbolic link, adds
    /// the directory of the link's target too.
    pub fn reads(&mut self, file: &Path) {
        self.note_owner(file);
        self.read.insert(directory_of(file));
        self.read.extend(file.canonicalize().ok().as_deref().map(directory_of));
    }

    /// Adds the directory of a file that the program writes. If the file is a symbolic link, adds
    /// the directory of the link's target too.
    pub fn writes(&mut self, file: &Path) {
        self.note_owner(file);
        self.written.insert(directory_of(file));
        self.written.extend(file.canonicalize().ok().as_deref().map(directory_of));
    }

    /// Adds the directory of a file that the program removes.
    pub fn removes(&mut self, file: &Path) {
        self.removed.insert(directory_of(file));
    }

    /// Adds a device that the program reads, writes and controls by ioctl(2).
    pub fn controls(&mut self, device: &Path) {
        self.devices.insert(resolved(device.to_owned()));
    }

    /// Adds the directory of a UNIX socket that the program creates.
    pub fn binds(&mut self, socket: &Path) {
        self.note_owner(socket);
        self.sockets.insert(directory_of(socket));
    }

    /// Adds a directory in which the program may create any socket.
    pub fn binds_in(&mut self, directory: &Path) {
        self.note_owner(directory);
        self.sockets.insert(resolved(directory.to_owned()));
    }

    /// Notes a UNIX socket, or a directory of sockets, that the program connects to. Landlock
    /// restricts no connections, so the directory is not added.
    pub fn connects(&mut self, path: &Path) {
        self.has_foreign |= !is_own(path) || path.is_dir();
    }

    /// Notes that the program may connect to any UNIX socket.
    pub fn connects_anywhere(&mut self) {
        self.has_foreign = true;
    }

    /// Whether the user of this process alone cannot use all files and sockets: another user owns a
    /// file or a socket, or a socket to which the program connects does not exist yet.
    pub fn has_foreign(&self) -> bool {
        self.has_foreign
    }

    /// Returns the directories with all files of the system's configuration or of the machine that
    /// the program may read.
    pub fn too_wide(&self) -> impl Iterator<Item = &Path> {
        let all = self.read.iter().chain(&self.sockets);
        all.map(PathBuf::as_path).filter(|path| WIDE.contains(&path.to_str().unwrap_or_default()))
    }

    fn note_owner(&mut self, path: &Path) {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // A file that does not exist yet will be made by this process in its directory.
        let existing = whole.ancestors().find(|path| path.exists());
        self.has_foreign |= !existing.is_none_or(is_own)
            || whole.parent().is_some_and(|directory| directory.exists() && !is_own(directory));
    }

    /// Returns the first directory of `self` that a process confined to `own` cannot use.
    fn outside<'a>(&'a self, own: &Self) -> Option<&'a Path> {
        fn first<'a>(
            mut all: impl Iterator<Item = &'a PathBuf>,
            own: &[&PathBuf],
        ) -> Option<&'a Path> {
            all.find(|path| !own.iter().any(|own| path.starts_with(own))).map(PathBuf::as_path)
        }
        let sockets: Vec<_> = own.sockets.iter().collect();
        let read: Vec<_> = own.read.iter().chain(&own.sockets).collect();
        let written: Vec<_> = own.written.iter().collect();
        first(self.sockets.iter(), &sockets)
            .or_else(|| first(self.written.iter(), &written))
            .or_else(|| first(self.read.iter(), &read))
    }

    /// Remembers that this process is confined to `self`. Directories of files that do not exist
    /// yet are not remembered, because no rule names such a directory.
    pub fn remember(&self) {
        let mut own = self.clone();
        own.read.retain(|directory| directory.exists());
        own.written.retain(|directory| directory.exists());
        let _ = IN_FORCE.set(own);
    }

    /// Returns the first directory of `self` that this process's confinement excludes.
    pub fn given_up(&self) -> Option<&Path> {
        self.outside(IN_FORCE.get()?)
    }

    /// Denies this thread all other files. Returns false if the kernel has no Landlock.
    pub(super) fn enforce(&self, system: &[&[&str]]) -> Result<bool, RulesetError> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let bind = AccessFs::MakeSock | AccessFs::RemoveFile;
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V5))?
            .create()?;
        let system = system.iter().copied().flatten().map(PathBuf::from);
        for path in system.chain(std::env::current_exe()) {
            rules = allow(rules, &path, read)?;
        }
        for directory in &self.read {
            rules = allow(rules, directory, read)?;
        }
        let write = AccessFs::WriteFile | AccessFs::Truncate;
        for directory in &self.written {
            rules = allow(rules, directory, write | AccessFs::MakeReg)?;
        }
        for device in &self.devices {
            rules = allow(rules, device, write | AccessFs::ReadFile | AccessFs::IoctlDev)?;
        }
        for directory in &self.removed {
            rules = allow(rules, directory, AccessFs::RemoveFile.into())?;
        }
        for directory in &self.sockets {
            // Another service may create its directory later, so allow the nearest existing
            // ancestor.
            let exists = directory.ancestors().find(|path| path.is_dir());
            rules = allow(rules, exists.unwrap_or(directory), read | bind)?;
        }
        Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
    }
}

fn is_own(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

fn directory_of(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    resolved(whole.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Resolves links, because the kernel compares directories and not paths.
fn resolved(directory: PathBuf) -> PathBuf {
    directory.canonicalize().unwrap_or(directory)
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(opened) => rules.add_rule(PathBeneath::new(opened, access)),
        // A path that does not exist needs no permission.
        Err(_) => Ok(rules),
    }
}

/// The directories to which this process is confined.
static IN_FORCE: OnceLock<ConfinedPaths> = OnceLock::new();

/// Directories in which files of root's lie that no program but their owner should read.
const WIDE: [&str; 7] = ["/", "/etc", "/root", "/home", "/var", "/run", "/proc"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_directory_outside_the_confinement_is_reported() {
        let mut own = ConfinedPaths::default();
        own.reads(Path::new("/etc/weir/tunnel.toml"));
        own.binds(Path::new("/run/weir/a.sock"));
        let mut other = own.clone();
        other.reads(Path::new("/etc/weir/tunnel/server.crt"));
        other.reads(Path::new("/run/weir/ca.pem"));
        assert_eq!(other.outside(&own), None);
        other.reads(Path::new("/root/key"));
        assert_eq!(other.outside(&own), Some(Path::new("/root")));
        other.writes(Path::new("/run/weir/access.log"));
        assert_eq!(other.outside(&own), Some(Path::new("/run/weir")));
        own.writes(Path::new("/run/weir/access.log"));
        assert_eq!(other.outside(&own), Some(Path::new("/root")));
        other.binds_in(Path::new("/etc/weir"));
        assert_eq!(other.outside(&own), Some(Path::new("/etc/weir")));
    }

    #[test]
    fn files_of_other_users_and_wide_directories_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own"), "").unwrap();
        let mut paths = ConfinedPaths::default();
        paths.reads(&folder.path().join("own"));
        paths.binds(&folder.path().join("later/new.sock"));
        assert!(!paths.has_foreign());
        assert_eq!(paths.too_wide().count(), 0);
        paths.reads(Path::new("/etc/tunnel.toml"));
        assert_eq!(paths.too_wide().collect::<Vec<_>>(), [Path::new("/etc")]);
        let mut paths = ConfinedPaths::default();
        // Nobody knows who will own a socket that does not exist yet.
        paths.connects(&folder.path().join("absent.sock"));
        assert!(paths.has_foreign());
        if rustix::process::geteuid().is_root() {
            let mut paths = ConfinedPaths::default();
            std::os::unix::fs::chown(folder.path().join("own"), Some(65_534), None).unwrap();
            paths.reads(&folder.path().join("own"));
            assert!(paths.has_foreign());
        }
    }
}
