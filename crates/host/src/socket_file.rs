//! UNIX sockets by their files: a dead one is told from a live one, and nothing else is ever removed.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A place for a socket. Its folder is held open: nobody can put another folder in its place meanwhile.
#[derive(Debug, Clone)]
pub struct SocketFile {
    folder: Arc<OwnedFd>,
    name: OsString,
    path: PathBuf,
}

/// The file of a socket that this process has bound. Dropped, it is removed, unless another file has taken its
/// place.
#[derive(Debug)]
pub struct BoundFile {
    file: SocketFile,
    inode: Inode,
}

/// One file of one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode(u64, u64);

/// A file as it was when it was looked at.
struct Seen {
    file: OwnedFd,
    inode: Inode,
    is_socket: bool,
}

impl SocketFile {
    /// Its folder must be there.
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

    /// The sockets of a folder, by name.
    pub(crate) fn all_inside(folder: &Arc<OwnedFd>, path: &Path) -> io::Result<Vec<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listing = rustix::fs::openat(&**folder, ".", flags, Mode::empty())?;
        let mut all = Vec::new();
        for entry in Dir::new(listing)? {
            let entry = entry?;
            let file = Self::inside(folder, path, OsStr::from_bytes(entry.file_name().to_bytes()));
            if file.look()?.is_some_and(|seen| seen.is_socket) {
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

    /// The path for connect(2), valid as long as this lives. An address holds 107 bytes (unix(7)); by the folder's
    /// descriptor a long path fits.
    pub fn address(&self) -> PathBuf {
        by_descriptor(&self.folder).join(&self.name)
    }

    /// Removes a socket that a process left behind when it died. A live socket stays
    /// ([`io::ErrorKind::AddrInUse`]), and so does any other file ([`io::ErrorKind::AlreadyExists`]).
    pub fn clear(&self) -> io::Result<()> {
        let Some(seen) = self.look()? else { return Ok(()) };
        if !seen.is_socket {
            let problem = "a file is there that is no socket: remove it, or choose another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        if !seen.is_dead()? {
            return Err(taken());
        }
        self.remove(seen.inode)
    }

    /// Listens there, with the file mode `mode` where one is given. The socket of a dead process gives way.
    pub fn listen(self, mode: Option<Mode>) -> io::Result<(UnixListener, BoundFile)> {
        self.clear()?;
        let kind = SocketFlags::CLOEXEC;
        let family = AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, kind, None)?;
        if let Some(mode) = mode {
            // Before it has a place: unix_bind (net/unix/af_unix.c) gives the file the socket's own mode.
            rustix::fs::fchmod(&socket, mode)?;
        }
        // The short form only where it must be: ss(8) shows the address.
        let short = self.path.as_os_str().len() > LONGEST_ADDRESS;
        let address = if short { self.address() } else { self.path.clone() };
        rustix::net::bind(&socket, &SocketAddrUnix::new(address)?).map_err(
            |error| match error {
                Errno::ADDRINUSE => taken(),
                error => error.into(),
            },
        )?;
        let seen = self.look()?.filter(|seen| seen.is_socket).ok_or_else(taken)?;
        let bound = BoundFile { inode: seen.inode, file: self };
        rustix::net::listen(&socket, BACKLOG)?;
        Ok((UnixListener::from(socket), bound))
    }

    /// A stream to the process that listens there. A full backlog is waited for no longer than `patience`.
    pub fn connect(&self, patience: Duration) -> io::Result<UnixStream> {
        let family = AddressFamily::UNIX;
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // It bounds connect(2), too (unix_stream_connect in net/unix/af_unix.c).
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

    fn look(&self) -> io::Result<Option<Seen>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&*self.folder, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        let found = rustix::fs::fstat(&file)?;
        let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
        Ok(Some(Seen { file, inode: Inode::of(&found), is_socket }))
    }

    /// Removes the file as long as it is that inode. The kernel removes by name only: the name is moved aside
    /// first, and given back where it turns out to be another file's.
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
            // Not every file system has RENAME_NOREPLACE. There the comparison above has to do.
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

impl Seen {
    /// Whether no process has this very socket any more. The kernel looks for the socket behind the inode, then
    /// compares the types: a datagram socket that connects is refused by a dead one only (unix_find_bsd in
    /// net/unix/af_unix.c). A listener does not notice, and nothing waits.
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
    fn a_dead_socket_gives_way_and_nothing_else_does() {
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
        // The dead datagram socket gives way to a listener, which is alive in its turn.
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
    fn a_listener_with_a_full_backlog_is_alive_and_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = socket(&folder);
        let listener = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let listener = listener.unwrap();
        listener.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
        // It has a place and does not listen yet.
        assert_eq!(file.clear().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        listener.listen(0).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        // A stream's connect(2) waits for accept(2) now.
        assert_eq!(file.clear().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let late = file.connect(Duration::from_millis(10)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn the_end_of_a_listener_leaves_the_file_that_took_its_place() {
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
    fn a_file_that_takes_the_place_of_a_dead_socket_is_given_its_name_back() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = socket(&folder);
        drop(UnixListener::bind(&path).unwrap());
        let dead = file.look().unwrap().unwrap();
        std::fs::rename(&path, folder.path().join("b.sock")).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        file.remove(dead.inode).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(theirs);
    }
}
