//! Checks whether another user can replace a directory above a path.

use crate::HostError;
use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Returns an error if a user other than this user and root can replace a directory or a symbolic
/// link above the path's last name. Names that do not exist yet are accepted, because only this
/// user or root can make them.
pub(crate) fn check_above(path: &Path) -> Result<(), HostError> {
    let failed = |path: &Path, source: io::Error| HostError::Io {
        doing: format!("cannot look at {}", path.display()),
        source,
    };
    let whole = std::path::absolute(path).map_err(|error| failed(path, error))?;
    let trusted = Trusted::now();
    let mut way = PathBuf::from("/");
    let mut left = whole.parent().map(names).unwrap_or_default();
    let mut links = 0;
    let root = rustix::fs::stat(&way).map_err(|error| failed(&way, error.into()))?;
    trusted.check_directory(&way, &root)?;
    while let Some(name) = left.pop() {
        if name == ".." {
            way.pop();
            continue;
        }
        let next = way.join(&name);
        let found = match rustix::fs::lstat(&next) {
            Err(Errno::NOENT) => return Ok(()),
            found => found.map_err(|error| failed(&next, error.into()))?,
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                trusted.check_directory(&next, &found)?;
                way = next;
            }
            FileType::Symlink => {
                trusted.check_owner(&next, "a symbolic link", &found)?;
                links += 1;
                if links > MOST_LINKS {
                    return Err(failed(&next, Errno::LOOP.into()));
                }
                let target = std::fs::read_link(&next).map_err(|error| failed(&next, error))?;
                if target.is_absolute() {
                    way = PathBuf::from("/");
                }
                left.extend(names(&target));
            }
            _ => return Err(refusal(&next, "is no directory".to_owned())),
        }
    }
    Ok(())
}

/// Users whose directories are safe.
struct Trusted {
    user: u32,
    group: u32,
    /// The user ID that stands for all users that this user namespace lacks, including root of the
    /// machine.
    unmapped: Option<u32>,
}

impl Trusted {
    fn now() -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            unmapped: unmapped(),
        }
    }

    fn check_owner(&self, path: &Path, what: &str, found: &Stat) -> Result<(), HostError> {
        let owner = found.st_uid;
        if owner == 0 || owner == self.user || Some(owner) == self.unmapped {
            return Ok(());
        }
        Err(refusal(path, format!("is {what} of user {owner}")))
    }

    /// Refuses a directory in which another user could replace files. In a directory with the
    /// sticky bit, users can replace only their own files (unlink(2)).
    fn check_directory(&self, path: &Path, found: &Stat) -> Result<(), HostError> {
        self.check_owner(path, "a directory", found)?;
        let mode = Mode::from_raw_mode(found.st_mode);
        let is_own_group = found.st_gid == 0 || found.st_gid == self.group;
        let is_open = mode.contains(Mode::WOTH) || mode.contains(Mode::WGRP) && !is_own_group;
        if is_open && !mode.contains(Mode::SVTX) {
            return Err(refusal(path, format!("can be changed by others ({})", shown(mode))));
        }
        Ok(())
    }
}

/// Formats the mode of a file, as chmod(1) takes it.
pub(crate) fn shown(mode: Mode) -> String {
    format!("mode {:04o}", mode.as_raw_mode() & 0o7777)
}

fn refusal(path: &Path, found: String) -> HostError {
    let advice = "another user could put sockets of their own there. Choose a directory that only this user and \
                  root can change, such as one in /run/weir";
    HostError::NotPrivate { path: path.to_owned(), found, advice: advice.to_owned() }
}

/// Returns the names of a path, the last name first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

/// Returns the user ID for unmapped users; `None` if this user namespace has all users of the
/// machine.
fn unmapped() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    if map.split_whitespace().eq(["0", "0", "4294967295"]) {
        return None;
    }
    std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

/// The kernel's limit of symbolic links (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    fn directory(path: &Path, mode: u32) {
        std::fs::create_dir(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_path_below_own_directories_and_links_is_accepted() {
        let home = tempfile::tempdir().unwrap();
        directory(&home.path().join("a"), 0o755);
        directory(&home.path().join("sticky"), 0o1777);
        directory(&home.path().join("sticky/own"), 0o700);
        symlink("sticky/own/../../a", home.path().join("link")).unwrap();
        for name in ["a/b", "link/b", "sticky/own/b", "sticky/new", "new/b/c", "a/../a/b"] {
            check_above(&home.path().join(name)).unwrap();
        }
    }

    #[test]
    fn a_parent_directory_that_other_users_can_change_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o733, 0o702] {
            let path = home.path().join(format!("{mode:o}"));
            directory(&path, mode);
            let error = check_above(&path.join("a/b")).unwrap_err().to_string();
            let part = format!("can be changed by others (mode 0{mode:o})");
            assert!(error.contains(&part), "{error}");
        }
        symlink("777", home.path().join("link")).unwrap();
        check_above(&home.path().join("link/a")).unwrap_err();
        symlink("loop", home.path().join("loop")).unwrap();
        check_above(&home.path().join("loop/a")).unwrap_err();
    }

    #[test]
    fn parent_directories_and_links_of_another_user_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return testing::skip(testing::Need::Root);
        }
        let home = tempfile::tempdir().unwrap();
        let (theirs, link) = (home.path().join("theirs"), home.path().join("link"));
        directory(&theirs, 0o755);
        chown(&theirs, Some(1234), None).unwrap();
        symlink("/usr", &link).unwrap();
        lchown(&link, Some(1234), None).unwrap();
        directory(&home.path().join("group"), 0o770);
        chown(home.path().join("group"), None, Some(1234)).unwrap();
        for (name, part) in [
            ("theirs/a", "is a directory of user 1234"),
            ("link/a", "is a symbolic link of user 1234"),
            ("group/a", "can be changed by others (mode 0770)"),
        ] {
            let error = check_above(&home.path().join(name)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
