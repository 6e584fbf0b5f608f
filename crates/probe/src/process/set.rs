use std::collections::BTreeMap;

use units::{Span, Time};

use super::stat::{CpuTime, Process};
use crate::clock;
use crate::error::{ProbeError, read_text};

#[derive(Debug, Clone)]
pub struct Processes {
    pub taken: Time,
    pub each: BTreeMap<u32, Process>,
    is_tree: bool,
}

impl Processes {
    /// Reads these processes; leaves out processes that have ended.
    pub fn of(pids: impl IntoIterator<Item = u32>) -> Result<Self, ProbeError> {
        let mut each = BTreeMap::new();
        for pid in pids {
            match Process::read(pid) {
                Err(ProbeError::Ended { .. }) => {}
                process => {
                    each.insert(pid, process?);
                }
            }
        }
        Ok(Self::new(each, false))
    }

    /// Reads a process with all its descendants, and the time of reaped descendants.
    pub fn tree(root: u32) -> Result<Self, ProbeError> {
        // A child that is reaped while the tree is read may be counted twice, or be missed because
        // its time was not yet in the reading of the parent. In that case, read the tree again.
        let mut tree = Self::tree_once(root)?;
        for _ in 0..TREE_RETRIES {
            if tree.is_settled() {
                break;
            }
            tree = Self::tree_once(root)?;
        }
        Ok(tree)
    }

    pub fn matching(chosen: impl Fn(&Process) -> bool) -> Result<Self, ProbeError> {
        let mut found = Self::of(pids()?)?;
        found.each.retain(|_, process| chosen(process));
        Ok(found)
    }

    /// Reads the same processes again.
    pub fn again(&self) -> Result<Self, ProbeError> {
        Self::of(self.each.keys().copied())
    }

    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    pub fn since(&self, earlier: &Self) -> ProcessesUse {
        let mut spent =
            ProcessesUse { elapsed: self.taken.since(earlier.taken), ..ProcessesUse::default() };
        let mut reaped = CpuTime::default();
        for (pid, now) in &self.each {
            let before = earlier.each.get(pid).filter(|before| before.is_same_as(now));
            if before.is_none() {
                spent.started.push(*pid);
            }
            let (cpu, children) = match before {
                Some(before) => (now.cpu.since(&before.cpu), now.reaped.since(&before.reaped)),
                None => (now.cpu, now.reaped),
            };
            reaped = reaped.plus(&children);
            let name = now.name.clone();
            spent.each.insert(*pid, ProcessUse { name, cpu });
        }
        let mut ended_before = CpuTime::default();
        for before in earlier.each.values() {
            let still = self.each.get(&before.pid);
            if !still.is_some_and(|now| now.is_same_as(before)) {
                ended_before = ended_before.plus(&before.cpu).plus(&before.reaped);
                spent.ended.push(before.clone());
            }
        }
        if self.is_tree {
            // The parent's `reaped` contains the whole CPU time of a reaped child; the part before
            // the earlier snapshot was already counted.
            spent.reaped = CpuTime {
                precise: Some(reaped.total() - ended_before.total()),
                ..reaped.since(&ended_before)
            };
        }
        spent
    }

    fn new(each: BTreeMap<u32, Process>, is_tree: bool) -> Self {
        Self { taken: clock::now(), each, is_tree }
    }

    fn is_settled(&self) -> bool {
        self.each
            .values()
            .all(|before| Process::read(before.pid).is_ok_and(|now| now.reaped == before.reaped))
    }

    fn tree_once(root: u32) -> Result<Self, ProbeError> {
        let mut each = BTreeMap::from([(root, Process::read(root)?)]);
        if children_are_told() {
            let mut parents = vec![root];
            while let Some(parent) = parents.pop() {
                for child in children_of(parent) {
                    match Process::read(child) {
                        Err(ProbeError::Ended { .. }) => {}
                        process => {
                            each.insert(child, process?);
                            parents.push(child);
                        }
                    }
                }
            }
            return Ok(Self::new(each, true));
        }
        let mut others = Self::of(pids()?)?.each;
        others.remove(&root);
        loop {
            let (children, rest): (BTreeMap<_, _>, _) =
                others.into_iter().partition(|(_, process)| each.contains_key(&process.parent));
            if children.is_empty() {
                return Ok(Self::new(each, true));
            }
            each.extend(children);
            others = rest;
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessesUse {
    pub elapsed: Span,
    /// The use by process ID. Processes that started after the earlier snapshot count from their
    /// start.
    pub each: BTreeMap<u32, ProcessUse>,
    /// For a tree: time of descendants that ended and were waited for, accurate to a tick per
    /// descendant.
    pub reaped: CpuTime,
    pub started: Vec<u32>,
    /// Processes that have ended since the earlier snapshot, as recorded there. Their later CPU
    /// time is known only in a tree whose processes wait for their children; otherwise the sum
    /// lacks this time.
    pub ended: Vec<Process>,
}

impl ProcessesUse {
    pub fn sum(&self) -> CpuTime {
        self.each.values().fold(self.reaped, |sum, each| sum.plus(&each.cpu))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessUse {
    pub name: String,
    pub cpu: CpuTime,
}

fn pids() -> Result<Vec<u32>, ProbeError> {
    let entries = std::fs::read_dir("/proc")
        .map_err(|source| ProbeError::Read { path: "/proc".into(), source })?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Whether the kernel lists each process's children, which is optional (CONFIG_PROC_CHILDREN).
/// Searching all of `/proc` for children costs many times as much.
fn children_are_told() -> bool {
    std::path::Path::new("/proc/thread-self/children").exists()
}

/// Returns the children of a process, which the kernel lists for each thread; empty if the process
/// has ended.
fn children_of(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| read_text(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

const TREE_RETRIES: usize = 3;
