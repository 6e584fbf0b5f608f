use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;

use rustix::fs::{RawDir, readlinkat_raw};

use crate::ProbeError;
use crate::tree::Tree;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holders {
    /// The IDs of the processes that hold a socket, by the socket's inode.
    pub of: BTreeMap<u32, BTreeSet<u32>>,
    /// The number of processes whose descriptors this user may not read.
    pub refused: usize,
}

impl Holders {
    /// Searches the descriptors of all processes for these sockets.
    pub fn find(tree: &Tree, inodes: &BTreeSet<u32>) -> Result<Self, ProbeError> {
        let mut found = Self::default();
        if inodes.is_empty() {
            return Ok(found);
        }
        for pid in tree.names("/proc")?.iter().filter_map(|name| name.parse::<u32>().ok()) {
            let read = each_socket(tree, pid, |inode| {
                if inodes.contains(&inode) {
                    found.of.entry(inode).or_default().insert(pid);
                }
            });
            // A process that has ended has no directory.
            found.refused += usize::from(read.is_err() && tree.has(&format!("/proc/{pid}")));
        }
        Ok(found)
    }

    pub fn sockets_of(tree: &Tree, pid: u32) -> Result<BTreeSet<u32>, ProbeError> {
        let mut sockets = BTreeSet::new();
        each_socket(tree, pid, |inode| {
            sockets.insert(inode);
        })
        .map_err(|source| ProbeError::Read { path: format!("/proc/{pid}/fd").into(), source })?;
        Ok(sockets)
    }
}

/// Passes the inode of each socket of a process to `each`. Allocates nothing for a socket, because
/// a process may have many thousands.
fn each_socket(tree: &Tree, pid: u32, mut each: impl FnMut(u32)) -> io::Result<()> {
    let directory = tree.directory(&format!("/proc/{pid}/fd"))?;
    let mut names = [MaybeUninit::uninit(); NAMES];
    let mut target = [MaybeUninit::uninit(); TARGET];
    let mut entries = RawDir::new(&directory, &mut names);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        // The target of a link to another file than a socket may be longer, and is then cut off.
        let Ok((target, _)) = readlinkat_raw(&directory, entry.file_name(), &mut target) else {
            continue;
        };
        if let Some(inode) = inode_of(target) {
            each(inode);
        }
    }
    Ok(())
}

/// Parses a link's target `socket:[12345]`.
fn inode_of(target: &[u8]) -> Option<u32> {
    std::str::from_utf8(target.strip_prefix(b"socket:[")?.strip_suffix(b"]")?).ok()?.parse().ok()
}

/// Bytes of directory entries read per system call, and maximum bytes of a link's target.
const NAMES: usize = 16 * 1024;
const TARGET: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_process_that_holds_a_socket_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tree = Tree::here();
        let own = Holders::sockets_of(&tree, std::process::id()).unwrap();
        assert!(!own.is_empty());
        let found = Holders::find(&tree, &own).unwrap();
        assert!(found.of.values().all(|pids| pids.contains(&std::process::id())));
        drop(listener);
        assert_eq!(inode_of(b"socket:[12]"), Some(12));
        assert_eq!(inode_of(b"pipe:[12]"), None);
    }
}
