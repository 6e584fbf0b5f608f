use std::collections::BTreeMap;

use super::stat::Process;
use super::task::Task;
use crate::tree::Tree;
use crate::{ProbeError, clock};

/// Returns the cores to which threads of other processes than `own` are pinned, each with the name
/// of one such process.
///
/// A thread that may run on only one core cannot move away from another program on this core.
/// Threads of the kernel do not count, and no thread counts on a machine with one core.
pub fn pinned(tree: &Tree, own: u32) -> Result<BTreeMap<usize, String>, ProbeError> {
    let mut found = BTreeMap::new();
    if tree.text("/proc/stat")?.lines().filter(|line| is_core(line)).count() < 2 {
        return Ok(found);
    }
    let pids = tree.names("/proc")?;
    for pid in pids.iter().filter_map(|name| name.parse::<u32>().ok()).filter(|pid| *pid != own) {
        // A process that has ended has no files.
        let Ok(stat) = tree.text(&format!("/proc/{pid}/stat")) else { continue };
        let Ok(process) = Process::parse(&stat, clock::tick()) else { continue };
        if process.in_kernel || process.state == 'Z' {
            continue;
        }
        for tid in tree.names(&format!("/proc/{pid}/task")).unwrap_or_default() {
            let cores = tid.parse().ok().and_then(|tid| Task::cores_allowed(tree, pid, tid));
            if let Some([core]) = cores.as_deref() {
                found.entry(*core).or_insert_with(|| process.name.clone());
            }
        }
    }
    Ok(found)
}

/// Whether this is the line of a core, such as `cpu0 1 2 3`, not the line of all cores.
fn is_core(line: &str) -> bool {
    line.strip_prefix("cpu")
        .is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_program_pinned_to_one_core_is_found() {
        let tree = Tree::here();
        let cores = crate::cpu::affinity().unwrap();
        let Some(core) = cores.last().filter(|_| cores.len() > 1) else {
            return testing::skip(testing::Need::TwoCpus);
        };
        let mut sleeping = Command::new("taskset");
        sleeping.args(["-c", &core.to_string(), "sleep", "600"]);
        let Ok(mut child) = sleeping.spawn() else {
            return testing::skip(testing::Need::Program("taskset"));
        };
        let is_found = || pinned(&tree, 0).unwrap().contains_key(core);
        let found = (0..3000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_found()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
    }

    #[test]
    fn threads_on_a_single_core_machine_and_own_threads_do_not_count_as_pinned() {
        let directory = tempfile::tempdir().unwrap();
        let proc = directory.path().join("proc");
        std::fs::create_dir_all(proc.join("7/task/7")).unwrap();
        let status = "Cpus_allowed_list:\t0\n";
        std::fs::write(proc.join("7/task/7/status"), status).unwrap();
        let columns = ["0"; 50].join(" ");
        std::fs::write(proc.join("7/stat"), format!("7 (a b) S {columns}")).unwrap();
        let tree = Tree::at(directory.path());
        for (stat, found) in [("cpu 1\ncpu0 1\n", 0), ("cpu 1\ncpu0 1\ncpu1 1\n", 1)] {
            std::fs::write(proc.join("stat"), stat).unwrap();
            assert_eq!(pinned(&tree, 1).unwrap().len(), found);
        }
        assert_eq!(pinned(&tree, 1).unwrap()[&0], "a b");
        assert!(pinned(&tree, 7).unwrap().is_empty());
    }
}
