use crate::{EmuError, UsageError};
use host::{BoundFile, ListeningProcess, PrivateDirectory, RemovedWhenEmpty};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// The directory of the sockets of this user's links, see [`PrivateDirectory::of_user`]. Only the
/// user can enter the directory.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

/// A name claimed for a link, and the socket of that name. Dropping the claim releases the name and
/// the socket.
#[derive(Debug)]
pub struct Claim {
    name: String,
    pub(super) listener: UnixListener,
    _file: BoundFile,
    _directory: RemovedWhenEmpty,
}

impl Directory {
    /// Returns the directory of this user. A process must call this function before a user
    /// namespace changes the user id.
    pub fn of_user() -> Self {
        Self(PrivateDirectory::of_user())
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Makes the directory if necessary, and verifies that only this user may enter the directory.
    pub fn prepare(&self) -> Result<(), EmuError> {
        self.made().map(|_| ())
    }

    /// Claims `name`, or the first free of `link0`, `link1`, … Removes the socket of a dead link.
    pub fn claim(&self, name: Option<&str>) -> Result<Claim, EmuError> {
        let mut attempts = 0..ATTEMPTS;
        loop {
            match self.try_to_claim(name) {
                // Another command has removed the empty directory before it was opened.
                Err(EmuError::Control { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && attempts.next().is_some() => {}
                outcome => return outcome,
            }
        }
    }

    fn try_to_claim(&self, name: Option<&str>) -> Result<Claim, EmuError> {
        let directory = self.made()?;
        // If two commands claim one name, the second command waits until the first command has
        // ended.
        let _lock = directory.lock().map_err(EmuError::Directory)?;
        match name {
            Some(name) => {
                check_name(name)?;
                take(&directory, name)?
                    .ok_or_else(|| EmuError::NameTaken { name: name.to_owned(), pid: None })
            }
            None => {
                for number in 0..MOST_UNNAMED {
                    if let Some(claim) = take(&directory, &format!("link{number}"))? {
                        return Ok(claim);
                    }
                }
                Err(EmuError::Refused(format!(
                    "{MOST_UNNAMED} links are up: give this one a --name"
                )))
            }
        }
    }

    /// Returns the names of the links that are up. Removes the sockets of dead links.
    pub fn names(&self) -> Result<Vec<String>, EmuError> {
        let Some(directory) = self.opened()? else { return Ok(Vec::new()) };
        let _lock = directory.lock().map_err(EmuError::Directory)?;
        let mut names = Vec::new();
        for file in directory.sockets().map_err(EmuError::Directory)? {
            let name = file.name().to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let Some(name) = name.filter(|name| check_name(name).is_ok()) else { continue };
            if file.clear().is_err() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Connects to the link of that name. The listening process must belong to this user or root.
    pub(super) fn connect(&self, name: &str) -> Result<UnixStream, EmuError> {
        check_name(name)?;
        let speaking = |error| control(&format!("speaking to link {name}"), error);
        let no_such_link = || {
            let known = self.names().unwrap_or_default();
            let hint = units::did_you_mean(name, known.iter().map(String::as_str));
            EmuError::NoSuchLink { name: name.to_owned(), hint }
        };
        let directory = self.opened()?.ok_or_else(no_such_link)?;
        let file = directory.socket(format!("{name}{SUFFIX}"));
        let stream = file.connect(PATIENCE).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => no_such_link(),
            _ => speaking(error),
        })?;
        ListeningProcess::behind(&stream, None)
            .map_err(|error| speaking(io::Error::other(error)))?;
        Ok(stream)
    }

    fn made(&self) -> Result<PrivateDirectory, EmuError> {
        PrivateDirectory::make(&self.0).map_err(EmuError::Directory)
    }

    fn opened(&self) -> Result<Option<PrivateDirectory>, EmuError> {
        PrivateDirectory::open(&self.0).map_err(EmuError::Directory)
    }
}

/// Claims `name`; returns `None` if a running link has this name.
fn take(directory: &PrivateDirectory, name: &str) -> Result<Option<Claim>, EmuError> {
    let file = directory.socket(format!("{name}{SUFFIX}"));
    let path = file.path().to_owned();
    match file.listen(None) {
        Ok((listener, file)) => Ok(Some(Claim {
            name: name.to_owned(),
            listener,
            _file: file,
            _directory: directory.removed_when_empty(),
        })),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(control(&format!("binding {}", path.display()), error)),
    }
}

impl Claim {
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Checks a link's name. Users type the name, and the name becomes part of a file's name.
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

fn control(doing: &str, source: io::Error) -> EmuError {
    EmuError::Control { doing: doing.to_owned(), source }
}

const SUFFIX: &str = ".sock";
/// Maximum length of a link's name, because the path of a socket holds only 107 bytes.
const LONGEST_NAME: usize = 40;
/// Maximum number of times that a command makes its directory again.
const ATTEMPTS: usize = 100;
const MOST_UNNAMED: u32 = 1000;
const PATIENCE: Duration = Duration::from_secs(10);
