//! The root of `/proc` and `/sys`: the code that reads this machine can also read recorded trees of
//! other machines.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::ProbeError;

/// A root of `/proc` and `/sys`, see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Returns the tree of this machine.
    pub fn here() -> Self {
        Self { root: "/".into() }
    }

    /// Returns a recorded tree, with `proc` and `sys` in it.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Reads the text of a file such as `/proc/stat`, at most 32 MiB of it.
    pub fn text(&self, path: &str) -> Result<String, ProbeError> {
        let bytes = self.bytes(path, LONGEST)?;
        // Process names and interrupt descriptions may contain any bytes.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the text of a file of at most `most` bytes. Returns `None` for a longer file, of which
    /// the kernel then writes no more than `most` bytes and one.
    pub fn short_text(&self, path: &str, most: u64) -> Result<Option<String>, ProbeError> {
        let bytes = self.bytes(path, most + 1)?;
        let is_short = bytes.len() as u64 <= most;
        Ok(is_short.then(|| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn bytes(&self, path: &str, most: u64) -> Result<Vec<u8>, ProbeError> {
        let path = self.path(path);
        let read = |path: &Path| {
            // Most files of /proc are short, and the kernel does not report their length.
            let mut bytes = Vec::with_capacity(USUAL);
            std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read(&path).map_err(|source| ProbeError::Read { path, source })
    }

    /// Reads the first line of a file, without blanks around it. Returns `None` if the file is
    /// missing or empty.
    pub fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path).ok()?;
        let line = text.lines().next()?.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// Reads a number in a file of one line.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.line(path)?.parse().ok()
    }

    /// Returns the names in a directory, sorted.
    pub fn names(&self, path: &str) -> Result<Vec<String>, ProbeError> {
        let path = self.path(path);
        let entries = std::fs::read_dir(&path)
            .map_err(|source| ProbeError::Read { path: path.clone(), source })?;
        let mut names: Vec<_> = entries
            .flatten()
            .take(MOST_NAMES)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Opens a directory, to read links in it without their whole paths.
    pub(crate) fn directory(&self, path: &str) -> std::io::Result<std::fs::File> {
        std::fs::File::open(self.path(path))
    }

    /// Returns the number of open descriptors of a process. Since Linux 6.2 the size of their
    /// directory (fs/proc/fd.c, proc_fd_getattr) is this number; on older kernels this method
    /// counts them.
    pub fn descriptors(&self, pid: u32) -> Option<u64> {
        let directory = self.path(&format!("/proc/{pid}/fd"));
        let size = if self.is_here() { directory.metadata().ok()?.len() } else { 0 };
        match size {
            0 => Some(std::fs::read_dir(directory).ok()?.take(MOST_NAMES).count() as u64),
            size => Some(size),
        }
    }

    pub fn link(&self, path: &str) -> Option<PathBuf> {
        std::fs::read_link(self.path(path)).ok()
    }

    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl ProbeError {
    /// Returns the reason in a few words, for a list of sources that could not be read.
    pub fn reason(&self) -> String {
        match self {
            Self::Read { path, source } => match source.kind() {
                ErrorKind::NotFound => format!("there is no {}", path.display()),
                ErrorKind::PermissionDenied => {
                    format!("{} may not be read without root", path.display())
                }
                _ => format!("{}: {source}", path.display()),
            },
            other => other.to_string(),
        }
    }
}

/// Maximum bytes read of a file: `/proc/interrupts` of 512 cores has about 5 MB.
const LONGEST: u64 = 32 << 20;
/// Usual size of a file, in bytes.
const USUAL: usize = 4096;
const MOST_NAMES: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_tree_are_read_below_its_root() {
        let here = Tree::here();
        assert!(here.text("/proc/stat").unwrap().starts_with("cpu"));
        assert!(here.names("/proc").unwrap().contains(&"self".to_owned()));
        assert!(here.number("/proc/sys/kernel/pid_max").unwrap() > 0);
        assert!(here.link("/proc/self").is_some());
        let file = std::fs::File::open("/proc/stat").unwrap();
        assert!(here.descriptors(std::process::id()).is_some_and(|count| count > 0));
        drop(file);
        let line = here.text("/proc/version").unwrap();
        let length = line.len() as u64;
        assert_eq!(here.short_text("/proc/version", length).unwrap(), Some(line));
        assert_eq!(here.short_text("/proc/version", length - 1).unwrap(), None);
        let nowhere = Tree::at("/nowhere");
        let reason = nowhere.text("/proc/stat").unwrap_err().reason();
        assert_eq!(reason, "there is no /nowhere/proc/stat");
        assert_eq!(nowhere.line("/proc/stat"), None);
        assert!(nowhere.names("/proc").is_err() && !nowhere.has("/proc"));
    }
}
