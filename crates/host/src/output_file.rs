use crate::regular_file;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fcntl_getfl, fcntl_setfl, fstat,
    fstatfs, ftruncate, openat, readlinkat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

/// The treatment of a file's earlier content when the file is opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    Kept,
    Replaced,
}

/// Opens for writing a file that the user named, and creates it if it does not exist. `mode`: the
/// mode of a new file, before the umask.
///
/// In a directory where anybody may write, such as /tmp, another user could put a symbolic link or
/// a file of the same name. The call does not follow such a link and does not write such a file,
/// like the kernel with fs.protected_symlinks and fs.protected_regular.
///
/// The call never waits: a pipe that no program reads is an error. Writing to a pipe waits for its
/// reader.
pub fn open_output_file(path: &Path, earlier: Earlier, mode: u32) -> io::Result<File> {
    let file = open(path, earlier, mode)?;
    // Only open(2) must not block. Writes may block.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// As [`open_output_file`], for a program that must not wait while it writes: a pipe, a socket or a
/// device is an error.
pub fn open_regular_output(path: &Path, earlier: Earlier, mode: u32) -> io::Result<File> {
    // Check the file type first: opening a pipe without a reader would fail with another error.
    match std::fs::metadata(path) {
        Ok(found) => regular_file::check(found.file_type(), "")?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = open(path, earlier, mode)?;
    regular_file::check(file.metadata()?.file_type(), "")?;
    Ok(file)
}

fn open(path: &Path, earlier: Earlier, mode: u32) -> io::Result<File> {
    let place = Place::find(path)?;
    let end = if earlier == Earlier::Kept { OFlags::APPEND } else { OFlags::empty() };
    // Without O_NONBLOCK, open(2) of a pipe would wait for a reader.
    let fixed = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    let flags = fixed | OFlags::NONBLOCK | end;
    // A link in /proc/PID/fd leads to the open file itself, so it is followed.
    let flags = if place.is_process_file { flags } else { flags | OFlags::NOFOLLOW };
    let mode = Mode::from_raw_mode(mode);
    let file = openat(&place.directory, &place.name, flags, mode);
    let file = file.map_err(|error| place.in_words(error))?;
    // Since the check, another file may have taken the place of the checked file.
    let found = fstat(&file)?;
    place.check_file(&found)?;
    if earlier == Earlier::Replaced && FileType::from_raw_mode(found.st_mode).is_file() {
        ftruncate(&file, 0)?;
    }
    Ok(file.into())
}

/// The directory and the name to which a path leads, after all symbolic links are resolved.
struct Place {
    directory: OwnedFd,
    name: OsString,
    is_process_file: bool,
}

impl Place {
    fn find(path: &Path) -> io::Result<Self> {
        let mut left = parts(path);
        let mut directory = start(path)?;
        let mut links = 0;
        loop {
            let Some(name) = left.pop_front() else {
                return Err(io::ErrorKind::IsADirectory.into());
            };
            let found = match statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) if left.is_empty() => {
                    return Ok(Self { directory, name, is_process_file: false });
                }
                found => found?,
            };
            if !FileType::from_raw_mode(found.st_mode).is_symlink() {
                if left.is_empty() {
                    let place = Self { directory, name, is_process_file: false };
                    return place.check_file(&found).map(|()| place);
                }
                directory = open_directory(&directory, &name)?;
                continue;
            }
            if fstatfs(&directory)?.f_type == PROC_SUPER_MAGIC {
                if left.is_empty() {
                    return Ok(Self { directory, name, is_process_file: true });
                }
                directory = open_following(&directory, &name)?;
                continue;
            }
            check_link(&fstat(&directory)?, &found)?;
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = readlinkat(&directory, &name, Vec::new())?;
            let target = OsString::from_vec(target.into_bytes());
            if Path::new(&target).is_absolute() {
                directory = start(Path::new(&target))?;
            }
            for part in parts(Path::new(&target)).into_iter().rev() {
                left.push_front(part);
            }
        }
    }

    /// Refuses a file of another user in a directory where anybody may write.
    fn check_file(&self, file: &Stat) -> io::Result<()> {
        let directory = fstat(&self.directory)?;
        let kind = FileType::from_raw_mode(file.st_mode);
        if !(kind.is_file() || kind.is_fifo()) || is_trusted(&directory, file) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the file belongs to user {}, in a directory where anybody may write",
            file.st_uid
        )))
    }

    fn in_words(&self, error: Errno) -> io::Error {
        let is_pipe = || {
            let found = statat(&self.directory, &self.name, AtFlags::empty());
            found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_fifo())
        };
        match error {
            Errno::LOOP => io::Error::other("a symbolic link appeared there just now"),
            Errno::NXIO if is_pipe() => {
                io::Error::other("no program reads this pipe: start its reader first")
            }
            error => error.into(),
        }
    }
}

fn check_link(directory: &Stat, link: &Stat) -> io::Result<()> {
    if is_trusted(directory, link) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "a symbolic link of user {}, in a directory where anybody may write, is not followed",
        link.st_uid
    )))
}

/// Implements may_follow_link() and may_create_in_sticky() of fs/namei.c, but also for directories
/// without the sticky bit, which the kernel spares.
fn is_trusted(directory: &Stat, found: &Stat) -> bool {
    let is_open = Mode::from_raw_mode(directory.st_mode).contains(Mode::WOTH);
    !is_open || found.st_uid == geteuid().as_raw() || found.st_uid == directory.st_uid
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::from_bytes(b"..").to_owned()),
        _ => None,
    });
    named.collect()
}

fn start(path: &Path) -> io::Result<OwnedFd> {
    open_following(CWD, OsStr::new(if path.is_absolute() { "/" } else { "." }))
}

fn open_directory(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat(at, name, flags, Mode::empty())?)
}

fn open_following(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

/// The kernel's limit of symbolic links (MAXSYMLINKS).
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::fs::{self, Permissions};
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Makes two directories: anybody may write in the first, and only this user may write in the
    /// second.
    fn folders() -> Option<(tempfile::TempDir, PathBuf, PathBuf)> {
        if !geteuid().is_root() {
            testing::skip(testing::Need::Root);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let [open, own] = ["open", "own"].map(|name| folder.path().join(name));
        [&open, &own].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        Some((folder, open, own))
    }

    fn refusal(path: &Path) -> String {
        [Earlier::Kept, Earlier::Replaced]
            .map(|earlier| open_output_file(path, earlier, 0o600).unwrap_err().to_string())
            .concat()
    }

    #[test]
    fn symbolic_links_and_files_of_other_users_in_open_directories_are_refused() {
        let Some((_folder, open, own)) = folders() else { return };
        let precious = own.join("precious");
        fs::write(&precious, "precious").unwrap();
        for (name, target) in [("link", precious.as_path()), ("dangling", &own.join("new"))] {
            symlink(target, open.join(name)).unwrap();
            lchown(open.join(name), Some(OTHER), None).unwrap();
            assert!(refusal(&open.join(name)).contains("symbolic link of user 4711"));
        }
        // A link to a directory in the middle of the path, and a link to that link.
        symlink(&own, open.join("way")).unwrap();
        lchown(open.join("way"), Some(OTHER), None).unwrap();
        assert!(refusal(&open.join("way/precious")).contains("symbolic link of user 4711"));
        symlink("../open/link", own.join("second")).unwrap();
        assert!(refusal(&own.join("second")).contains("symbolic link of user 4711"));

        fs::write(open.join("file"), "theirs").unwrap();
        chown(open.join("file"), Some(OTHER), None).unwrap();
        assert!(refusal(&open.join("file")).contains("belongs to user 4711"));
        assert_eq!(fs::read_to_string(open.join("file")).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
        assert!(!own.join("new").exists());
    }

    #[test]
    fn output_is_written_through_own_links_and_to_own_files() {
        let Some((_folder, open, own)) = folders() else { return };
        fs::write(own.join("target"), "earlier ").unwrap();
        symlink(own.join("target"), open.join("link")).unwrap();
        // Another user's link in a directory where only this user writes.
        symlink("target", own.join("given")).unwrap();
        lchown(own.join("given"), Some(OTHER), None).unwrap();
        for path in [open.join("link"), own.join("given")] {
            let mut file = open_output_file(&path, Earlier::Kept, 0o600).unwrap();
            file.write_all(b"later ").unwrap();
        }
        assert_eq!(fs::read_to_string(own.join("target")).unwrap(), "earlier later later ");
        let mut file = open_output_file(&own.join("target"), Earlier::Replaced, 0o600).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(own.join("target")).unwrap(), "new");
        open_output_file(&open.join("made"), Earlier::Replaced, 0o640).unwrap();
        let mode = fs::metadata(open.join("made")).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "{mode:o}");
    }

    #[test]
    fn devices_and_paths_of_descriptors_can_be_written() {
        for path in ["/dev/null", "/dev/stderr", "/proc/self/fd/2"] {
            open_output_file(Path::new(path), Earlier::Kept, 0o600).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("none/file"), "/".into()] {
            assert!(open_output_file(&path, Earlier::Kept, 0o600).is_err(), "{path:?}");
        }
    }

    #[test]
    fn opening_a_pipe_for_output_fails_at_once_unless_a_program_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (send, receive) = mpsc::channel();
        let path = pipe.clone();
        std::thread::spawn(move || {
            let refused = [open_output_file, open_regular_output]
                .map(|open| open(&path, Earlier::Replaced, 0o600).unwrap_err().to_string());
            let _ = send.send(refused);
        });
        let [no_reader, no_file] = receive.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(no_reader.contains("no program reads this pipe"), "{no_reader}");
        assert!(no_file.contains("is a pipe (FIFO), not a regular file"), "{no_file}");

        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut reader = File::from(rustix::fs::open(&pipe, flags, Mode::empty()).unwrap());
        let mut written = open_output_file(&pipe, Earlier::Replaced, 0o600).unwrap();
        assert!(!fcntl_getfl(&written).unwrap().contains(OFlags::NONBLOCK));
        written.write_all(b"text").unwrap();
        let mut text = [0; 4];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"text");
        // The shell's `>(…)` names the descriptor of a pipe.
        let (mut end, start) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", start.as_raw_fd());
        let mut written = open_output_file(Path::new(&path), Earlier::Replaced, 0o600).unwrap();
        written.write_all(b"more").unwrap();
        end.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"more");
        open_regular_output(&folder.path().join("new"), Earlier::Replaced, 0o600).unwrap();
    }

    const OTHER: u32 = 4711;
}
