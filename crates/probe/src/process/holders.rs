use std::collections::{BTreeMap, BTreeSet};

use crate::ProbeError;
use crate::tree::Tree;

/// The processes that hold sockets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holders {
    /// By the socket's inode.
    pub of: BTreeMap<u32, BTreeSet<u32>>,
    /// Processes whose descriptors may not be read by this user.
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
            let directory = format!("/proc/{pid}/fd");
            let Ok(descriptors) = tree.names(&directory) else {
                // A process that has ended has no directory any more.
                found.refused += usize::from(tree.has(&format!("/proc/{pid}")));
                continue;
            };
            for descriptor in descriptors {
                let inode = tree
                    .link(&format!("{directory}/{descriptor}"))
                    .and_then(|target| inode_of(target.to_str()?));
                if let Some(inode) = inode.filter(|inode| inodes.contains(inode)) {
                    found.of.entry(inode).or_default().insert(pid);
                }
            }
        }
        Ok(found)
    }

    /// The sockets of one process.
    pub fn sockets_of(tree: &Tree, pid: u32) -> Result<BTreeSet<u32>, ProbeError> {
        let directory = format!("/proc/{pid}/fd");
        let descriptors = tree.names(&directory)?;
        let targets =
            descriptors.iter().filter_map(|name| tree.link(&format!("{directory}/{name}")));
        Ok(targets.filter_map(|target| inode_of(target.to_str()?)).collect())
    }
}

/// `socket:[12345]`
fn inode_of(target: &str) -> Option<u32> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn finds_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tree = Tree::here();
        let own = Holders::sockets_of(&tree, std::process::id()).unwrap();
        assert!(!own.is_empty());
        let found = Holders::find(&tree, &own).unwrap();
        assert!(found.of.values().all(|pids| pids.contains(&std::process::id())));
        drop(listener);
        assert_eq!(inode_of("socket:[12]"), Some(12));
        assert_eq!(inode_of("pipe:[12]"), None);
    }
}
