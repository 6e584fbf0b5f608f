//! Checks, before a measurement, the files and directories that the verb writes after the
//! measurement.

use crate::exit::Unusable;
use anyhow::Context;
use host::{Earlier, open_output_file};
use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;

/// Checks the directory that `flag` names. Refuses a directory that is not empty.
pub(crate) fn check_directory(directory: &Path, flag: &str) -> anyhow::Result<()> {
    let absent = directory.ancestors().filter(|path| !path.as_os_str().is_empty());
    let absent: Vec<&Path> = absent.take_while(|path| !path.exists()).collect();
    std::fs::create_dir_all(directory)
        .map_err(|cause| Unusable::path("create", directory, &cause, flag))?;
    let held =
        || std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name()).next();
    if let Some(name) = held() {
        return Err(Unusable::held(directory, &name, flag).into());
    }
    let trial = directory.join(".weir");
    // O_EXCL follows no link (open(2)).
    File::create_new(&trial)
        .and_then(|_| std::fs::remove_file(&trial))
        .map_err(|cause| Unusable::path("write to", directory, &cause, flag))?;
    // A measurement that never begins must leave nothing behind.
    absent.iter().try_for_each(std::fs::remove_dir).context("removing an empty directory")
}

/// Checks the file that `flag` names. An existing file keeps its content until the verb writes it.
pub(crate) fn check_file(path: &Path, flag: &str) -> anyhow::Result<()> {
    let tried = match std::fs::metadata(path) {
        // A pipe is not opened, because the pipe's reader would take the end of the check for the
        // end of the data.
        Ok(found) if !found.is_file() && !found.is_dir() => Ok(()),
        Ok(_) => open_output_file(path, Earlier::Kept, 0o600).map(drop),
        Err(error) if error.kind() == ErrorKind::NotFound => create_and_remove(path),
        Err(error) => Err(error),
    };
    Ok(tried.map_err(|cause| Unusable::path("write", path, &cause, flag))?)
}

/// Replaces the content of a file that the user named, opened by `host::open_output_file`.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    open_output_file(path, Earlier::Replaced, READABLE)?.write_all(content.as_ref())
}

/// Appends to a file that the user named, and makes the file if it does not exist.
pub(crate) fn append(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = open_output_file(path, Earlier::Kept, READABLE)?;
    // A pipe cannot seek.
    if file.metadata()?.is_file() {
        file.seek(SeekFrom::End(0))?;
    }
    file.write_all(content.as_ref())
}

fn create_and_remove(path: &Path) -> io::Result<()> {
    open_output_file(path, Earlier::Kept, 0o600)?;
    std::fs::remove_file(path)
}

/// Permission bits of a new file, before the umask applies.
const READABLE: u32 = 0o666;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_does_not_change_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen.json");
        check_file(&path, "--record").unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "earlier").unwrap();
        check_file(&path, "--record").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "earlier");
        check_file(Path::new("/dev/null"), "--record").unwrap();
    }

    #[test]
    fn appending_keeps_the_files_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.md");
        append(&path, "one\n").unwrap();
        append(&path, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn the_error_for_an_unwritable_file_names_its_flag() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("none/seen.json")] {
            let error = check_file(&path, "--record").unwrap_err().to_string();
            assert!(error.ends_with("name another with --record"), "{error}");
        }
    }
}
