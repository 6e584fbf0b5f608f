//! Opens and writes the files of a run directory without following symbolic links in the directory.

use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The user whose files a reader accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Myself,
    Anybody,
}

/// Checks that the run belongs to the user. The later reading reports a missing folder.
pub(super) fn check_folder(path: &Path, owner: Owner) -> Result<(), String> {
    fs::metadata(path).map_or(Ok(()), |folder| owner.check(&folder))
}

pub(super) fn read(path: &Path, owner: Owner) -> io::Result<String> {
    let mut text = String::new();
    open(File::options().read(true), path, owner)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a regular file of an accepted user.
pub(super) fn open(options: &mut OpenOptions, path: &Path, owner: Owner) -> io::Result<File> {
    // Opening a pipe would block until its other end is opened.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path).map_err(in_words)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("is no regular file: put the run's own there"));
    }
    owner.check(&metadata).map_err(io::Error::other)?;
    Ok(file)
}

/// Writes a new file in place of an existing file of the same name.
pub(super) fn write_new(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // `create_new` opens with O_EXCL, which follows no symbolic link (open(2)).
    File::create_new(path)?.write_all(text.as_bytes())
}

impl Owner {
    fn check(self, file: &Metadata) -> Result<(), String> {
        let me = geteuid().as_raw();
        if self == Self::Anybody || file.uid() == me {
            return Ok(());
        }
        Err(format!(
            "belongs to user {}, and this is user {me}: read what it holds, then add --trust",
            file.uid()
        ))
    }
}

fn in_words(error: io::Error) -> io::Error {
    match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::LOOP) => {
            io::Error::other("is a symbolic link, which is not followed: put the file itself there")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_are_read_and_symbolic_links_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("outside"), "outside").unwrap();
        symlink(at("outside"), at("link")).unwrap();
        assert!(read(&at("link"), Owner::Anybody).unwrap_err().to_string().contains("link"));
        assert_eq!(read(&at("outside"), Owner::Myself).unwrap(), "outside");
        let error = read(folder.path(), Owner::Anybody).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");

        write_new(&at("link"), "inside").unwrap();
        assert_eq!(fs::read_to_string(at("outside")).unwrap(), "outside");
        assert_eq!(read(&at("link"), Owner::Myself).unwrap(), "inside");
        write_new(&at("link"), "again").unwrap();
        assert_eq!(read(&at("link"), Owner::Myself).unwrap(), "again");
    }
}
