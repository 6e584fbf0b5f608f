//! Where the sockets of this machine's tunnels are: `/run/weir/tunnel` for root, below `$XDG_RUNTIME_DIR`
//! or in `/tmp/weir-UID` for others. Only their owner can enter it.

use super::{PATIENCE, Status};
use rustix::fs::{Mode, OFlags};
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error("cannot {doing} {path}: {source}")]
    Socket { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("another process answers on {0}: end it, or choose another --status-socket")]
    Taken(PathBuf),
    #[error("{0} must be a directory of yours that nobody else may enter (mode 0700)")]
    Unsafe(PathBuf),
    #[error("what answers on {path} is no tunnel of this version: {reason}")]
    Senseless { path: PathBuf, reason: String },
}

#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

/// Tells how the end fares, whenever asked; nothing once it has ended.
pub type Tell = Arc<dyn Fn() -> Option<Status> + Send + Sync>;

/// A socket that answers; its file goes with it.
#[derive(Debug)]
pub struct StatusListener {
    listener: UnixListener,
    path: PathBuf,
}

impl Directory {
    pub fn of_user() -> Self {
        let uid = rustix::process::geteuid();
        Self(match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
            _ if uid.is_root() => PathBuf::from("/run/weir/tunnel"),
            Some(path) if path.is_absolute() => path.join("weir/tunnel"),
            _ => PathBuf::from(format!("/tmp/weir-{}/tunnel", uid.as_raw())),
        })
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The usual place of an end of this process.
    pub fn socket(&self, role: &str) -> PathBuf {
        self.0.join(format!("{role}-{}.sock", std::process::id()))
    }

    /// Makes the directory if need be, and makes sure that it is nobody else's.
    pub fn prepare(&self) -> Result<(), StatusError> {
        let parent = self.0.parent().unwrap_or(&self.0);
        for path in [parent, &self.0] {
            match DirBuilder::new().recursive(true).mode(0o700).create(path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(StatusError::socket("make", path, error));
                }
                _ => {}
            }
            let found = std::fs::symlink_metadata(path)
                .map_err(|error| StatusError::socket("look at", path, error))?;
            let ours = rustix::process::geteuid().as_raw();
            if !found.is_dir() || found.uid() != ours || found.mode() & 0o077 != 0 {
                return Err(StatusError::Unsafe(path.to_owned()));
            }
        }
        Ok(())
    }

    /// Those that are there, whether anyone answers or not.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return Vec::new() };
        let sockets =
            entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
        let mut sockets: Vec<_> = sockets.map(|entry| entry.path()).collect();
        sockets.sort();
        sockets
    }
}

/// For its owner alone. What a dead process left in its place is removed.
pub fn listen(path: &Path) -> Result<StatusListener, StatusError> {
    let failed = |error| StatusError::socket("listen on", path, error);
    let bind = || {
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::UNIX, kind, None)?;
        // Before it has a place: unix_bind (net/unix/af_unix.c) gives the file the socket's own mode.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        let reach = Reach::of(path)?;
        socket.bind(&socket2::SockAddr::unix(&reach.path)?)?;
        socket.listen(16)?;
        socket.set_nonblocking(true)?;
        UnixListener::from_std(socket.into())
    };
    let listener = match bind() {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let reach = Reach::of(path).map_err(failed)?;
            match std::os::unix::net::UnixStream::connect(&reach.path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed)?;
                    bind().map_err(failed)?
                }
                _ => return Err(StatusError::Taken(path.to_owned())),
            }
        }
        bound => bound.map_err(failed)?,
    };
    Ok(StatusListener { listener, path: path.to_owned() })
}

impl StatusListener {
    /// For ever: the whole document to whoever connects.
    pub async fn serve(self, tell: Tell) {
        loop {
            match self.listener.accept().await {
                Ok((mut stream, _)) => {
                    let Some(status) = tell() else { return };
                    let document = serde_json::to_vec(&status).unwrap_or_default();
                    tokio::spawn(tokio::time::timeout(PATIENCE, async move {
                        let _ = stream.write_all(&document).await;
                        let _ = stream.shutdown().await;
                    }));
                }
                // Too many open files: whoever asks again may have more luck.
                Err(_) => tokio::time::sleep(PATIENCE / 50).await,
            }
        }
    }
}

impl Drop for StatusListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// How the end behind that socket fares; `None` if nobody is there any more.
pub async fn ask(path: &Path) -> Result<Option<Status>, StatusError> {
    let failed = |error| StatusError::socket("read", path, error);
    let reach = Reach::of(path).map_err(failed)?;
    let mut stream = match UnixStream::connect(&reach.path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        connected => connected.map_err(failed)?,
    };
    let mut document = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut document))
        .await
        .map_err(|_| failed(ErrorKind::TimedOut.into()))?
        .map_err(failed)?;
    serde_json::from_slice(&document).map(Some).map_err(|error| StatusError::Senseless {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// A path by which a socket can be named, while this lives: its address has room for 107 bytes (unix(7)).
struct Reach {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl Reach {
    fn of(path: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Self { path: path.to_owned(), _folder: None });
        };
        if path.as_os_str().len() <= LONGEST {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let near = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        Ok(Self { path: near, _folder: Some(folder) })
    }
}

impl StatusError {
    fn socket(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Socket { doing, path: path.to_owned(), source }
    }
}

const LONGEST: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_may_lie_deep() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a".repeat(100)).join("b".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let path = deep.join("status.sock");
        let first = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(StatusError::Taken(_))));
        drop(first);
        assert!(!path.exists());
        assert!(matches!(ask(&path).await, Err(StatusError::Socket { .. })));
        drop(listen(&path).unwrap());
    }
}
