//! Directories of a single user, where programs of this user find one another's sockets.

use crate::path_above::{check_above, shown};
use crate::{HostError, SocketFile};
use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory in which only this user or root can put files. An open descriptor keeps the
/// directory, so that every lookup uses the directory that was checked.
#[derive(Debug, Clone)]
pub struct PrivateDirectory {
    folder: Arc<OwnedFd>,
    path: PathBuf,
}

/// The directory of this user for a socket. Dropping this value removes the directory if it is
/// empty, and then the directory above if it is empty, so that the last program leaves nothing
/// behind. Drop this value after the socket's file.
#[derive(Debug)]
pub struct RemovedWhenEmpty {
    path: PathBuf,
    /// The highest directory to remove, noted before a user namespace changes the user.
    top: PathBuf,
}

impl PrivateDirectory {
    /// Returns the path of this user's directory: `/run/weir` for root, `$XDG_RUNTIME_DIR/weir` or
    /// `/tmp/weir-UID` for other users. Call this function before a user namespace changes the
    /// user.
    pub fn of_user() -> PathBuf {
        let uid = rustix::process::geteuid();
        match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
            _ if uid.is_root() => PathBuf::from("/run/weir"),
            Some(path) if path.is_absolute() => path.join("weir"),
            _ => PathBuf::from(format!("/tmp/weir-{}", uid.as_raw())),
        }
    }

    /// Makes the directory if it does not exist, and opens it.
    pub fn make(path: &Path) -> Result<Self, HostError> {
        make(path, Self::open)
    }

    /// Opens the directory; `None` if the directory does not exist. Refuses a directory of another
    /// user, and a directory that other users may enter.
    pub fn open(path: &Path) -> Result<Option<Self>, HostError> {
        let Some((directory, found)) = open(path, OWN_ADVICE)? else { return Ok(None) };
        if found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(foreign(path, format!("belongs to user {}", found.st_uid), OWN_ADVICE));
        }
        let mode = Mode::from_raw_mode(found.st_mode);
        if mode.intersects(Mode::RWXG | Mode::RWXO) {
            return Err(HostError::NotPrivate {
                path: path.to_owned(),
                found: format!("can be entered by others ({})", shown(mode)),
                advice: format!("check its contents, then chmod 700 {}", path.display()),
            });
        }
        Ok(Some(directory))
    }

    /// As [`Self::make`], for a directory that a user names.
    pub fn make_named(path: &Path) -> Result<Self, HostError> {
        check_above(path)?;
        make(path, Self::open_named)
    }

    /// As [`Self::open`], for a directory that a user names. The directory may be root's, and other
    /// users may enter the directory. Only this user and root may change the directory or a
    /// directory above it.
    pub fn open_named(path: &Path) -> Result<Option<Self>, HostError> {
        check_above(path)?;
        let Some((directory, found)) = open(path, NAMED_ADVICE)? else { return Ok(None) };
        if found.st_uid != rustix::process::geteuid().as_raw() && found.st_uid != 0 {
            return Err(foreign(path, format!("belongs to user {}", found.st_uid), NAMED_ADVICE));
        }
        let mode = Mode::from_raw_mode(found.st_mode);
        if mode.intersects(Mode::WGRP | Mode::WOTH) {
            let found = format!("can be changed by others ({})", shown(mode));
            return Err(foreign(path, found, NAMED_ADVICE));
        }
        Ok(Some(directory))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn removed_when_empty(&self) -> RemovedWhenEmpty {
        RemovedWhenEmpty { path: self.path.clone(), top: Self::of_user() }
    }

    pub fn socket(&self, name: impl AsRef<OsStr>) -> SocketFile {
        SocketFile::inside(&self.folder, &self.path, name.as_ref())
    }

    /// Returns the sockets in the directory, sorted by name, including dead sockets.
    pub fn sockets(&self) -> Result<Vec<SocketFile>, HostError> {
        SocketFile::all_inside(&self.folder, &self.path)
            .map_err(|error| failed("read", &self.path, error))
    }

    /// Locks the directory for one process at a time. The lock lasts until the returned value is
    /// dropped.
    pub fn lock(&self) -> Result<File, HostError> {
        let failed = |error| failed("lock", &self.path, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Opens the directory again, because the lock belongs to the open file description
        // (flock(2)).
        let own = rustix::fs::openat(&*self.folder, ".", flags, Mode::empty());
        let own = own.map_err(|error| failed(error.into()))?;
        rustix::fs::flock(&own, FlockOperation::LockExclusive)
            .map_err(|error| failed(error.into()))?;
        Ok(File::from(own))
    }
}

impl Drop for RemovedWhenEmpty {
    fn drop(&mut self) {
        for path in self.path.ancestors().take_while(|path| path.starts_with(&self.top)) {
            // The kernel refuses to remove a directory that another program uses.
            if rustix::fs::rmdir(path).is_err() {
                return;
            }
        }
    }
}

/// Makes a directory and the directories above it, and opens it.
fn make(
    path: &Path,
    open: impl Fn(&Path) -> Result<Option<PrivateDirectory>, HostError>,
) -> Result<PrivateDirectory, HostError> {
    // Another program may remove the empty directory before it is opened (`RemovedWhenEmpty`).
    for _ in 0..ATTEMPTS {
        match DirBuilder::new().recursive(true).mode(0o700).create(path) {
            // `open` verifies the directory's owner.
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("make", path, error)),
        }
        if let Some(directory) = open(path)? {
            return Ok(directory);
        }
    }
    Err(failed("make", path, io::ErrorKind::NotFound.into()))
}

fn open(path: &Path, advice: &str) -> Result<Option<(PrivateDirectory, Stat)>, HostError> {
    // Drops a slash at the end of the path: behind a slash the kernel follows a symbolic link in
    // spite of O_NOFOLLOW, to a target that the link's owner chooses.
    let path: PathBuf = path.components().collect();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(foreign(&path, "is no directory".to_owned(), advice));
        }
        // The directory's owner does not admit this user.
        Err(Errno::ACCESS) => return Err(refused_entry(&path, advice)),
        opened => opened.map_err(|error| failed("open", &path, error.into()))?,
    };
    let found = rustix::fs::fstat(&folder);
    let found = found.map_err(|error| failed("look at", &path, error.into()))?;
    Ok(Some((PrivateDirectory { folder: Arc::new(folder), path }, found)))
}

fn failed(doing: &str, path: &Path, source: io::Error) -> HostError {
    HostError::Io { doing: format!("cannot {doing} {}", path.display()), source }
}

fn refused_entry(path: &Path, advice: &str) -> HostError {
    let owner = rustix::fs::lstat(path).map(|found| found.st_uid);
    match owner {
        Ok(owner) if owner != rustix::process::geteuid().as_raw() => {
            foreign(path, format!("belongs to user {owner}"), advice)
        }
        _ => failed("open", path, io::ErrorKind::PermissionDenied.into()),
    }
}

fn foreign(path: &Path, found: String, advice: &str) -> HostError {
    HostError::NotPrivate { path: path.to_owned(), found, advice: advice.to_owned() }
}

const OWN_ADVICE: &str = "nothing in it is believed. Have it removed by its owner or by root, or set XDG_RUNTIME_DIR \
                          to a directory of your own";
const NAMED_ADVICE: &str = "sockets in it may be another user's, and none is used. Choose a directory that only \
                            this user and root can change, such as one in /run/weir, or run the command as its owner";
/// Maximum number of times that a program makes its directory again.
const ATTEMPTS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn refusal(path: &Path) -> String {
        let error = PrivateDirectory::open(path).unwrap_err();
        assert!(matches!(error, HostError::NotPrivate { .. }), "{error}");
        let made = PrivateDirectory::make(path).unwrap_err();
        assert_eq!(made.to_string(), error.to_string());
        error.to_string()
    }

    #[test]
    fn a_directory_is_made_for_its_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b");
        assert!(PrivateDirectory::open(&path).unwrap().is_none());
        let directory = PrivateDirectory::make(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let (_listener, bound) = directory.socket("x.sock").listen(None).unwrap();
        let sockets = directory.sockets().unwrap();
        assert_eq!(sockets[0].path(), path.join("x.sock"));
        drop(bound);
        assert!(directory.sockets().unwrap().is_empty());
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused_with_advice() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("open");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
        let text = refusal(&path);
        assert!(text.contains("mode 0750") && text.contains("chmod 700"), "{text}");
    }

    #[test]
    fn a_symbolic_link_or_file_in_place_of_a_directory_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (link, file) = (home.path().join("link"), home.path().join("file"));
        std::os::unix::fs::symlink(home.path(), &link).unwrap();
        std::fs::write(&file, "").unwrap();
        for path in [link, file] {
            let text = refusal(&path);
            assert!(text.contains("is no directory"), "{text}");
        }
    }

    #[test]
    fn a_named_directory_may_be_entered_but_not_changed_by_other_users() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("named");
        PrivateDirectory::make_named(&path).unwrap();
        for mode in [0o755, 0o711, 0o2750] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(PrivateDirectory::open_named(&path).unwrap().is_some());
        }
        for mode in [0o777, 0o775, 0o702, 0o1777] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = PrivateDirectory::open_named(&path).unwrap_err().to_string();
            let part = format!("can be changed by others (mode {mode:04o})");
            assert!(error.contains(&part) && error.contains("/run/weir"), "{error}");
        }
        assert!(PrivateDirectory::open_named(&home.path().join("none")).unwrap().is_none());
    }

    #[test]
    fn a_symbolic_link_is_refused_with_and_without_a_final_slash() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", home.path().join("link")).unwrap();
        for name in ["link", "link/", "link//.", "./link/"] {
            let path = home.path().join(name);
            for error in [
                PrivateDirectory::open_named(&path).unwrap_err(),
                PrivateDirectory::make_named(&path).unwrap_err(),
            ] {
                assert!(error.to_string().contains("is no directory"), "{error}");
            }
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            testing::skip(testing::Need::Root);
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("theirs");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        let text = refusal(&path);
        assert!(text.contains("belongs to user 65534"), "{text}");
        assert!(text.contains("XDG_RUNTIME_DIR"), "{text}");
        let text = PrivateDirectory::open_named(&path).unwrap_err().to_string();
        assert!(text.contains("belongs to user 65534"), "{text}");
    }
}
