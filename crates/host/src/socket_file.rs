//! UNIX sockets by their files: distinguishes dead sockets from live sockets, and removes only dead
//! sockets.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The path of a socket. An open descriptor keeps the socket's folder, so that nobody can replace
/// the folder in between.
#[derive(Debug, Clone)]
pub struct SocketFile {
    folder: Arc<OwnedFd>,
    name: OsString,
    path: PathBuf,
}

/// The file of a socket that this process has bound. Dropping this value removes the file, unless
/// another file has replaced it.
#[derive(Debug)]
pub struct BoundFile {
    file: SocketFile,
    inode: Inode,
}

/// Identifies a file by its device and inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode(u64, u64);

/// The state of a file when it was examined.
struct Examined {
    file: OwnedFd,
    inode: Inode,
    is_socket: bool,
}

impl SocketFile {
    /// Returns the socket at `path`, whose folder must exist.
    pub fn at(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "this path names no file: add a name")
        })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        Ok(Self { folder: Arc::new(folder), name: name.to_owned(), path: path.to_owned() })
    }

    pub(crate) fn inside(folder: &Arc<OwnedFd>, path: &Path, name: &OsStr) -> Self {
        Self { folder: Arc::clone(folder), name: name.to_owned(), path: path.join(name) }
    }

    /// Returns the sockets of a folder, by name.
    pub(crate) fn all_inside(folder: &Arc<OwnedFd>, path: &Path) -> io::Result<Vec<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listing = rustix::fs::openat(&**folder, ".", flags, Mode::empty())?;
        let mut all = Vec::new();
        for entry in Dir::new(listing)? {
            let entry = entry?;
            let file = Self::inside(folder, path, OsStr::from_bytes(entry.file_name().to_bytes()));
            if file.examine()?.is_some_and(|seen| seen.is_socket) {
                all.push(file);
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the path for connect(2), valid until this value is dropped. An address holds 107
    /// bytes (unix(7)); a longer path is replaced by a path through the folder's descriptor.
    pub fn address(&self) -> PathBuf {
        by_descriptor(&self.folder).join(&self.name)
    }

    /// Removes a socket whose process has died. A live socket stays ([`io::ErrorKind::AddrInUse`]),
    /// and so does any other file ([`io::ErrorKind::AlreadyExists`]).
    pub fn clear(&self) -> io::Result<()> {
        let Some(seen) = self.examine()? else { return Ok(()) };
        if !seen.is_socket {
            let problem = "a file is there that is no socket: remove it, or choose another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        if !seen.is_dead()? {
            return Err(taken());
        }
        self.remove(seen.inode)
    }

    /// Listens at the path; `mode`: the mode of the socket's file. Replaces the socket of a dead
    /// process.
    pub fn listen(self, mode: Option<Mode>) -> io::Result<(UnixListener, BoundFile)> {
        self.clear()?;
        let kind = SocketFlags::CLOEXEC;
        let family = AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, kind, None)?;
        // Set before bind(2): unix_bind (net/unix/af_unix.c) gives the file the socket's own mode
        // without the bits of the umask.
        let is_refused = match mode.map(|mode| rustix::fs::fchmod(&socket, mode)) {
            // A confined program may not change modes.
            Some(Err(Errno::PERM)) => true,
            Some(result) => result.map(|()| false)?,
            None => false,
        };
        // The umask belongs to the whole process, so another thread binds before or after.
        let turn = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
        let mask = mode
            .filter(|_| is_refused)
            .map(|mode| rustix::process::umask((Mode::RWXU | Mode::RWXG | Mode::RWXO) - mode));
        // Use the path through the descriptor only if the path is too long, because ss(8) shows the
        // address.
        let short = self.path.as_os_str().len() > LONGEST_ADDRESS;
        let address = if short { self.address() } else { self.path.clone() };
        let bound = SocketAddrUnix::new(address).and_then(|at| rustix::net::bind(&socket, &at));
        if let Some(mask) = mask {
            rustix::process::umask(mask);
        }
        drop(turn);
        bound.map_err(|error| match error {
            Errno::ADDRINUSE => taken(),
            error => io::Error::from(error),
        })?;
        let seen = self.examine()?.filter(|seen| seen.is_socket).ok_or_else(taken)?;
        let bound = BoundFile { inode: seen.inode, file: self };
        rustix::net::listen(&socket, BACKLOG)?;
        Ok((UnixListener::from(socket), bound))
    }

    /// Connects a stream to the process that listens. Waits no longer than `patience` for a full
    /// backlog.
    pub fn connect(&self, patience: Duration) -> io::Result<UnixStream> {
        let family = AddressFamily::UNIX;
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // The timeout also bounds connect(2) (unix_stream_connect in net/unix/af_unix.c).
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(self.address())?).map_err(|error| {
            match error {
                Errno::AGAIN => io::ErrorKind::TimedOut.into(),
                error => io::Error::from(error),
            }
        })?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
        Ok(UnixStream::from(socket))
    }

    fn examine(&self) -> io::Result<Option<Examined>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&*self.folder, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        let found = rustix::fs::fstat(&file)?;
        let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
        Ok(Some(Examined { file, inode: Inode::of(&found), is_socket }))
    }

    /// Removes the file if its inode is still `inode`. The kernel removes files by name only, so
    /// this method first renames the file, and restores the name if the file has another inode.
    fn remove(&self, inode: Inode) -> io::Result<()> {
        if self.inode_of(&self.name)? != Some(inode) {
            return Ok(());
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let aside = OsString::from(format!(".weir-{}-{number}", std::process::id()));
        match self.rename(&self.name, &aside) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            // On a file system without RENAME_NOREPLACE, the comparison above must suffice.
            Err(Errno::INVAL | Errno::NOSYS) => return Ok(self.unlink(&self.name)?),
            Err(error) => return Err(error.into()),
        }
        if self.inode_of(&aside)? == Some(inode) {
            return Ok(self.unlink(&aside)?);
        }
        self.rename(&aside, &self.name)?;
        Err(taken())
    }

    fn inode_of(&self, name: &OsStr) -> io::Result<Option<Inode>> {
        match rustix::fs::statat(&*self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(Inode::of(&found?))),
        }
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> rustix::io::Result<()> {
        let folder = &*self.folder;
        rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE)
    }

    fn unlink(&self, name: &OsStr) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&*self.folder, name, AtFlags::empty())
    }
}

impl Examined {
    /// Whether the socket is dead, because no process has the socket open. The kernel looks for the
    /// socket of the inode, then compares the types: only a dead socket refuses the connection of a
    /// datagram socket (unix_find_bsd in net/unix/af_unix.c). A listener does not notice the
    /// attempt, and the call does not block.
    fn is_dead(&self) -> io::Result<bool> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::UNIX;
        let probe = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        let address = SocketAddrUnix::new(by_descriptor(&self.file))?;
        Ok(rustix::net::connect(&probe, &address) == Err(Errno::CONNREFUSED))
    }
}

impl Inode {
    fn of(found: &Stat) -> Self {
        Self(found.st_dev, found.st_ino)
    }
}

impl Drop for BoundFile {
    fn drop(&mut self) {
        let _ = self.file.remove(self.inode);
    }
}

fn by_descriptor(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn taken() -> io::Error {
    let problem = "another process has its socket there: end it, or choose another path";
    io::Error::new(io::ErrorKind::AddrInUse, problem)
}

const LONGEST_ADDRESS: usize = 107;
const BACKLOG: i32 = 128;

/// Held while the umask of this process may be a socket's.
static UMASK: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixDatagram;

    fn socket(folder: &tempfile::TempDir) -> (PathBuf, SocketFile) {
        let path = folder.path().join("a.sock");
        (path.clone(), SocketFile::at(&path).unwrap())
    }

    #[test]
    fn only_a_dead_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = socket(&folder);
        let kept = |file: SocketFile, kind| {
            let before = std::fs::symlink_metadata(&path).unwrap().ino();
            assert_eq!(file.listen(None).unwrap_err().kind(), kind);
            assert_eq!(std::fs::symlink_metadata(&path).unwrap().ino(), before);
        };
        std::fs::write(&path, "figures").unwrap();
        kept(file.clone(), io::ErrorKind::AlreadyExists);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        kept(file.clone(), io::ErrorKind::AlreadyExists);
        std::fs::remove_file(&path).unwrap();
        let datagrams = UnixDatagram::bind(&path).unwrap();
        kept(file.clone(), io::ErrorKind::AddrInUse);
        drop(datagrams);
        // A listener replaces the dead datagram socket and is then alive itself.
        let first = file.clone().listen(None).unwrap();
        kept(file.clone(), io::ErrorKind::AddrInUse);
        let (listener, bound) = first;
        drop(listener);
        std::mem::forget(bound);
        let again = file.listen(Some(Mode::RUSR | Mode::WUSR)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(again);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_listener_with_a_full_backlog_counts_as_alive_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = socket(&folder);
        let listener = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let listener = listener.unwrap();
        listener.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
        // The socket is bound and does not listen yet.
        assert_eq!(file.clear().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        listener.listen(0).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        // From now on connect(2) of a stream waits for accept(2).
        assert_eq!(file.clear().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let late = file.connect(Duration::from_millis(10)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_dropped_listener_leaves_the_file_that_replaced_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = socket(&folder);
        let ours = file.listen(None).unwrap();
        std::fs::remove_file(&path).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        drop(ours);
        UnixStream::connect(&path).unwrap();
        drop(theirs);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_replaced_a_dead_socket_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = socket(&folder);
        drop(UnixListener::bind(&path).unwrap());
        let dead = file.examine().unwrap().unwrap();
        std::fs::rename(&path, folder.path().join("b.sock")).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        file.remove(dead.inode).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(theirs);
    }
}
