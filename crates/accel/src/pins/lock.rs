//! Runs one command at a time: a lock on a file that root alone can open.

use super::folder::Folder;
use crate::AccelError;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fstat, ftruncate, openat, statat, unlinkat,
};
use rustix::io::{Errno, pread, pwrite};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The lock of a command. Dropping the value releases the lock.
#[derive(Debug)]
pub(super) struct CommandLock {
    /// The lock is on a file in the directory, or on a directory where no file can be created.
    locked: OwnedFd,
    folder: Option<Folder>,
}

impl CommandLock {
    /// Waits for the lock. Locks the directory `bpf` itself if /run cannot be written.
    pub(super) fn wait(bpf: &Folder) -> Result<Self, AccelError> {
        let run = Folder::of_system(Path::new(RUN))?;
        let mut timeout = LockTimeout::new();
        loop {
            let Some(file) = open(&run)? else {
                let again = bpf.directory().try_clone();
                let locked = again.map_err(|e| AccelError::file("opening", bpf.path(), e))?;
                timeout.lock(&locked, bpf.path())?;
                return Ok(Self { locked, folder: None });
            };
            timeout.lock(&file, &run.path().join(NAME))?;
            // If the former holder has removed the file, the next command locks another file: try
            // again.
            if is_named(&run, &file) {
                sign(&file);
                return Ok(Self { locked: file, folder: Some(run) });
            }
        }
    }
}

impl Drop for CommandLock {
    fn drop(&mut self) {
        // While the lock is held, no other command uses this name.
        if let Some(run) = &self.folder {
            let _ = unlinkat(run.directory(), NAME, AtFlags::empty());
        }
        // Unlock explicitly: a copy of the descriptor would keep the lock.
        let _ = flock(&self.locked, FlockOperation::Unlock);
    }
}

/// A timeout that expires when the same command holds the lock for too long.
struct LockTimeout {
    holder: Option<u32>,
    until: Instant,
}

impl LockTimeout {
    fn new() -> Self {
        Self { holder: None, until: Instant::now() + LOCK_TIMEOUT }
    }

    fn lock(&mut self, file: &OwnedFd, path: &Path) -> Result<(), AccelError> {
        loop {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(AccelError::file("locking", path, errno.into())),
            }
            let holder = signed(file);
            if holder != self.holder {
                *self = Self { holder, ..Self::new() };
            }
            if Instant::now() >= self.until {
                return Err(AccelError::Busy { path: path.to_owned(), holder });
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
    }
}

/// Opens the lock file; `None` if the file system is read-only.
fn open(run: &Folder) -> Result<Option<OwnedFd>, AccelError> {
    let path = run.path().join(NAME);
    let how = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(run.directory(), NAME, how, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::ROFS) => return Ok(None),
        Err(Errno::LOOP | Errno::ISDIR) => {
            return Err(AccelError::NotOurs { path, problem: "it is not a file".to_owned() });
        }
        Err(errno) => return Err(AccelError::file("opening", &path, errno.into())),
    };
    let about = fstat(&file).map_err(|errno| AccelError::file("reading", &path, errno.into()))?;
    let problem = match (about.st_uid, about.st_mode & 0o7777) {
        (0, mode) if mode & 0o077 == 0 => return Ok(Some(file)),
        (0, mode) => format!("others can lock it (mode {mode:04o})"),
        (user, _) => format!("it belongs to user {user}"),
    };
    Err(AccelError::NotOurs { path, problem })
}

fn is_named(run: &Folder, file: &OwnedFd) -> bool {
    let named = statat(run.directory(), NAME, AtFlags::SYMLINK_NOFOLLOW);
    let inode = |about: &rustix::fs::Stat| (about.st_dev, about.st_ino);
    matches!((fstat(file), named), (Ok(here), Ok(named)) if inode(&here) == inode(&named))
}

/// Writes this process's id for waiting commands.
fn sign(file: &OwnedFd) {
    let pid = format!("{}\n", std::process::id());
    let _ = ftruncate(file, 0);
    let _ = pwrite(file, pid.as_bytes(), 0);
}

fn signed(file: &OwnedFd) -> Option<u32> {
    let mut text = [0; 16];
    let length = pread(file, &mut text[..], 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim_end().parse().ok()
}

const RUN: &str = "/run";
const NAME: &str = "weir-accel.lock";
/// Timeout of the wait for one holder of the lock; a command takes a second at most.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(5);
