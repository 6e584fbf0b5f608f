use crate::usage::nearest;
use crate::{EmuError, UsageError};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where the sockets of this user's links are: `/run/weir` for root, `$XDG_RUNTIME_DIR/weir` or
/// `/tmp/weir-UID` for others. Only its owner can enter it.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

/// A name taken for a link, and the socket behind it. Dropping it gives both back.
#[derive(Debug)]
pub struct Claim {
    name: String,
    path: PathBuf,
    pub(super) listener: UnixListener,
}

impl Directory {
    /// To be called before a user namespace changes who we are.
    pub fn of_user() -> Self {
        let uid = rustix::process::geteuid();
        Self(match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
            _ if uid.is_root() => PathBuf::from("/run/weir"),
            Some(path) if path.is_absolute() => path.join("weir"),
            _ => PathBuf::from(format!("/tmp/weir-{}", uid.as_raw())),
        })
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Makes the directory if need be, and makes sure that it is nobody else's.
    pub fn prepare(&self) -> Result<(), EmuError> {
        let failed = |source| control(&format!("preparing {}", self.0.display()), source);
        match DirBuilder::new().recursive(true).mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let found = std::fs::symlink_metadata(&self.0).map_err(failed)?;
        let ours = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != ours || found.mode() & 0o077 != 0 {
            let problem =
                "it must be a directory of yours that nobody else may enter (mode 0700); remove it";
            return Err(failed(io::Error::other(problem)));
        }
        Ok(())
    }

    /// Takes `name`, or the first free of `link0`, `link1`, … What a dead link left is removed.
    pub fn claim(&self, name: Option<&str>) -> Result<Claim, EmuError> {
        let _lock = self.lock()?;
        match name {
            Some(name) => {
                check_name(name)?;
                self.take(name)?
                    .ok_or_else(|| EmuError::NameTaken { name: name.to_owned(), pid: None })
            }
            None => {
                for number in 0..MOST_UNNAMED {
                    if let Some(claim) = self.take(&format!("link{number}"))? {
                        return Ok(claim);
                    }
                }
                Err(EmuError::Refused(format!(
                    "{MOST_UNNAMED} links are up: give this one a --name"
                )))
            }
        }
    }

    /// The names of the links that are up. Sockets of dead ones are removed.
    pub fn names(&self) -> Result<Vec<String>, EmuError> {
        if !self.0.exists() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let failed = |source| control(&format!("reading {}", self.0.display()), source);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.0).map_err(failed)? {
            let file = entry.map_err(failed)?.file_name();
            let Some(name) = file.to_str().and_then(|name| name.strip_suffix(SUFFIX)) else {
                continue;
            };
            if alive(&self.path(name)) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    pub(super) fn connect(&self, name: &str) -> Result<UnixStream, EmuError> {
        check_name(name)?;
        UnixStream::connect(self.path(name)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                let known = self.names().unwrap_or_default();
                let hint = nearest(name, known.iter().map(String::as_str));
                EmuError::NoSuchLink { name: name.to_owned(), hint }
            }
            _ => control(&format!("speaking to link {name}"), error),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}{SUFFIX}"))
    }

    /// `None` if a living link has it.
    fn take(&self, name: &str) -> Result<Option<Claim>, EmuError> {
        let path = self.path(name);
        if alive(&path) {
            return Ok(None);
        }
        let listener = UnixListener::bind(&path)
            .map_err(|error| control(&format!("binding {}", path.display()), error))?;
        Ok(Some(Claim { name: name.to_owned(), path, listener }))
    }

    /// Of two commands that find the same dead socket, the second must not remove the first one's new
    /// one.
    fn lock(&self) -> Result<File, EmuError> {
        let failed = |source| control(&format!("locking {}", self.0.display()), source);
        let directory = File::open(&self.0).map_err(failed)?;
        flock(&directory, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        Ok(directory)
    }
}

impl Claim {
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // While it lives nobody else takes the path, so it is ours.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A name is part of a file's, and typed by hand.
pub fn check_name(name: &str) -> Result<&str, UsageError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > LONGEST_NAME
        || name.starts_with('.')
        || !name.chars().all(fits)
    {
        return Err(UsageError::value(
            "name",
            format!(
                "`{name}` is not a link's name: up to {LONGEST_NAME} letters, digits, `-`, `_` and `.`"
            ),
        ));
    }
    Ok(name)
}

/// Whether somebody listens; what nobody listens to any more is removed. The caller holds the lock.
fn alive(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = std::fs::remove_file(path);
            false
        }
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

fn control(doing: &str, source: io::Error) -> EmuError {
    EmuError::Control { doing: doing.to_owned(), source }
}

const SUFFIX: &str = ".sock";
/// A socket's path holds 107 bytes.
const LONGEST_NAME: usize = 40;
const MOST_UNNAMED: u32 = 1000;
