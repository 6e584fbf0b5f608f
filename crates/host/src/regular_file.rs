use rustix::fs::OFlags;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file that the user named, for reading. Any file except a regular file is an error:
/// pipes, sockets and devices may have no end, and open(2) of a pipe waits for a writer.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    check(std::fs::metadata(path)?.file_type(), ADVICE)?;
    // The file may have been replaced since the check.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    check(file.metadata()?.file_type(), ADVICE)?;
    Ok(file)
}

/// Reads the text of a regular file, without a limit of its length.
pub fn read_regular_file(path: &Path) -> io::Result<String> {
    io::read_to_string(open_regular_file(path)?)
}

/// Reads the bytes of a regular file, without a limit of its length.
pub fn read_regular_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a file that is not regular. The error ends with `advice`.
pub(crate) fn check(kind: FileType, advice: &str) -> io::Result<()> {
    let kind = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        kind if kind.is_fifo() => "a pipe (FIFO)",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("is {kind}, not a regular file{advice}")))
}

const ADVICE: &str = ": copy its content into one";

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn only_regular_files_are_read_and_opening_a_pipe_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("pipe"), Kind::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink(at("pipe"), at("link-to-pipe")).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        let cases = [
            (at("pipe"), "is a pipe (FIFO), not a regular file"),
            (at("link-to-pipe"), "is a pipe (FIFO), not a regular file"),
            (at("socket"), "is a socket"),
            ("/dev/zero".into(), "is a device"),
            ("/dev/tty".into(), "is a device"),
            (folder.path().to_owned(), "directory"),
        ];
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            for (path, expected) in cases {
                let error = read_regular_file(&path).unwrap_err().to_string();
                let _ = send.send((path, error, expected));
            }
        });
        for _ in 0..6 {
            let (path, error, expected) = receive.recv_timeout(Duration::from_secs(30)).unwrap();
            assert!(error.contains(expected), "{path:?}: {error}");
        }
        std::fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert_eq!(read_regular_file(&at("link")).unwrap(), "text");
    }
}
