use std::collections::{BTreeMap, BTreeSet};

use crate::tree::Tree;

/// Finds the other processes in the shell pipelines of these processes: `tar` and `gzip` for the
/// `nc` of `tar c . | gzip | nc HOST PORT`. A process is in a pipeline if a pipe connects its
/// standard input or output with that of another process of the pipeline.
pub fn pipelines(tree: &Tree, pids: &BTreeSet<u32>) -> BTreeMap<u32, BTreeSet<u32>> {
    let asked: Vec<_> = pids.iter().map(|pid| (*pid, Ends::of(tree, *pid))).collect();
    if !asked.iter().any(|(_, ends)| ends.has_pipe()) {
        return BTreeMap::new();
    }
    let names = tree.names("/proc").unwrap_or_default();
    let all = names.iter().filter_map(|name| name.parse::<u32>().ok());
    let all = all.map(|pid| (pid, Ends::of(tree, pid))).filter(|(_, ends)| ends.has_pipe());
    let all: Vec<(u32, Ends)> = all.collect();
    let found = asked.into_iter().map(|(pid, ends)| {
        let mut others = BTreeSet::from([pid]);
        follow(&all, ends.reads, |one| (one.writes, one.reads), &mut others);
        follow(&all, ends.writes, |one| (one.reads, one.writes), &mut others);
        others.remove(&pid);
        (pid, others)
    });
    found.filter(|(_, others)| !others.is_empty()).collect()
}

/// The pipes of standard input and output.
#[derive(Debug, Clone, Copy)]
struct Ends {
    reads: Option<u64>,
    writes: Option<u64>,
}

impl Ends {
    fn of(tree: &Tree, pid: u32) -> Self {
        let pipe = |descriptor: u32| {
            let target = tree.link(&format!("/proc/{pid}/fd/{descriptor}"))?;
            target.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
        };
        Self { reads: pipe(0), writes: pipe(1) }
    }

    fn has_pipe(&self) -> bool {
        self.reads.is_some() || self.writes.is_some()
    }
}

/// Adds the processes at the other end of a pipe, and the processes further along the pipeline.
/// `ends` returns a process's pipe towards the start of the search, and its pipe in the other
/// direction.
fn follow(
    all: &[(u32, Ends)],
    start: Option<u64>,
    ends: fn(&Ends) -> (Option<u64>, Option<u64>),
    found: &mut BTreeSet<u32>,
) {
    let mut pipes: Vec<u64> = start.into_iter().collect();
    for _ in 0..LONGEST {
        let mut further = Vec::new();
        for (pid, one) in all {
            let (near, far) = ends(one);
            if near.is_some_and(|pipe| pipes.contains(&pipe)) && found.insert(*pid) {
                further.extend(far);
            }
        }
        pipes = further;
    }
}

/// Maximum number of steps from process to process in each direction of a pipeline.
const LONGEST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_processes_of_a_pipeline_are_found() {
        let sleep = || {
            let mut command = Command::new("sleep");
            command.arg("600").stdin(Stdio::null()).stdout(Stdio::null());
            command
        };
        let mut first = sleep().stdout(Stdio::piped()).spawn().unwrap();
        let pipe = first.stdout.take().unwrap();
        let mut second = sleep().stdin(pipe).stdout(Stdio::piped()).spawn().unwrap();
        let pipe = second.stdout.take().unwrap();
        let mut third = sleep().stdin(pipe).spawn().unwrap();
        let ids = [first.id(), second.id(), third.id()];
        let of = |pid: u32| pipelines(&Tree::here(), &BTreeSet::from([pid])).remove(&pid);
        let found = ids.map(of);
        for child in [&mut first, &mut second, &mut third] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found[0], Some(BTreeSet::from([ids[1], ids[2]])));
        assert_eq!(found[1], Some(BTreeSet::from([ids[0], ids[2]])));
        assert_eq!(found[2], Some(BTreeSet::from([ids[0], ids[1]])));
    }
}
