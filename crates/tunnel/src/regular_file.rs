use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a file of the configuration. A pipe or a device would keep this end waiting, with all who
/// ask for its status, so any file except a regular one is an error.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // open(2) of a pipe waits for a writer without it.
    let without_waiting = nix::libc::O_NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, Mode};
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_a_regular_file_is_read_and_nothing_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, socket) = (folder.path().join("pipe"), folder.path().join("socket"));
        let (kind, mode) = (FileType::Fifo, Mode::RUSR | Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for path in [&pipe, &socket, Path::new("/dev/zero"), Path::new("/tmp")] {
                send.send((path.to_owned(), read(path).is_err())).unwrap();
            }
        });
        for _ in 0..4 {
            let (path, is_refused) = receive.recv_timeout(NEVER_LONGER).unwrap();
            assert!(is_refused, "{path:?}");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_to_string(&link).unwrap(), "text");
    }

    const NEVER_LONGER: std::time::Duration = std::time::Duration::from_secs(30);
}
