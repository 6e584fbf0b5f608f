use units::Span;

use super::stat::Process;
use crate::device::cores_of_list;
use crate::tree::Tree;
use crate::{ProbeError, clock};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Task {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// `R`, `S`, `D` and so on, see proc(5).
    pub state: char,
    /// Start time in ticks after boot. Distinguishes a thread from a later thread with the same ID.
    pub started: u64,
    pub user: Span,
    pub system: Span,
    /// The sum of user and system time in nanoseconds, if the kernel provides it.
    pub ran: Option<Span>,
    /// Time spent runnable but waiting for a core (CONFIG_SCHED_INFO).
    pub waited: Option<Span>,
    pub core: Option<usize>,
    /// Time spent waiting for block I/O (CONFIG_TASK_DELAY_ACCT and `kernel.task_delayacct`).
    pub io_waited: Option<Span>,
}

impl Task {
    pub fn all_of(tree: &Tree, pid: u32) -> Result<Vec<Self>, ProbeError> {
        Self::first_of(tree, pid, MOST_THREADS)
    }

    /// Reads the threads of a process, and no more than `most` of them.
    pub fn first_of(tree: &Tree, pid: u32, most: usize) -> Result<Vec<Self>, ProbeError> {
        let directory = format!("/proc/{pid}/task");
        let tids = tree.names(&directory)?;
        let tids = tids.iter().filter_map(|name| name.parse::<u32>().ok()).take(most);
        Ok(tids
            .filter_map(|tid| {
                let stat = tree.text(&format!("{directory}/{tid}/stat")).ok()?;
                let schedstat = tree.text(&format!("{directory}/{tid}/schedstat")).ok();
                Self::parse(&stat, schedstat.as_deref(), clock::tick()).ok()
            })
            .map(|task| Self { pid, ..task })
            .collect())
    }

    /// Returns the cores on which a thread may run (`Cpus_allowed_list`); `None` for a list that
    /// cannot be read.
    pub fn cores_allowed(tree: &Tree, pid: u32, tid: u32) -> Option<Vec<usize>> {
        let status = tree.text(&format!("/proc/{pid}/task/{tid}/status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(cores_of_list(list.trim()))
    }

    /// Parses `stat` and `schedstat` below `/proc/PID/task/TID`; `pid` is the thread's own ID.
    pub fn parse(stat: &str, schedstat: Option<&str>, tick: Span) -> Result<Self, ProbeError> {
        let process = Process::parse(stat, tick)?;
        // The columns after the name, which ends at the last parenthesis; the state is column 3.
        let behind = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let column = |number: usize| {
            behind.split_ascii_whitespace().nth(number - 3).and_then(|word| word.parse().ok())
        };
        let mut times = schedstat
            .unwrap_or_default()
            .split_ascii_whitespace()
            .map(|word| word.parse().ok().map(Span::from_nanos));
        Ok(Self {
            pid: process.pid,
            tid: process.pid,
            name: process.name,
            state: process.state,
            started: process.started,
            user: process.cpu.user,
            system: process.cpu.system,
            ran: times.next().flatten(),
            waited: times.next().flatten(),
            core: column(39).and_then(|core: u64| usize::try_from(core).ok()),
            io_waited: column(42).map(|ticks: u64| tick * ticks),
        })
    }
}

/// Maximum number of threads that are read per process.
const MOST_THREADS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_core_and_the_waits_of_a_thread_are_parsed() {
        let tick = Span::from_millis(10);
        let task = Task::parse(STAT, Some("5000000 7000000 3\n"), tick).unwrap();
        assert_eq!((task.tid, task.name.as_str(), task.state), (42, "a) b", 'R'));
        assert_eq!((task.user, task.system), (Span::from_millis(110), Span::from_millis(120)));
        assert_eq!(task.ran, Some(Span::from_millis(5)));
        assert_eq!(task.waited, Some(Span::from_millis(7)));
        assert_eq!(task.core, Some(3));
        assert_eq!(task.io_waited, Some(Span::from_millis(90)));
        assert_eq!(Task::parse(STAT, None, tick).unwrap().waited, None);
    }

    #[test]
    fn the_threads_of_this_process_are_read() {
        let tasks = Task::all_of(&Tree::here(), std::process::id()).unwrap();
        assert!(tasks.iter().any(|task| task.tid == task.pid && task.core.is_some()));
        assert!(Task::all_of(&Tree::at("/nowhere"), 1).is_err());
        let own = std::process::id();
        let cores = Task::cores_allowed(&Tree::here(), own, own).unwrap();
        assert!(!cores.is_empty(), "{cores:?}");
    }

    #[test]
    fn no_more_threads_are_read_than_asked_for() {
        let root = tempfile::tempdir().unwrap();
        for tid in 1..=3 {
            let directory = root.path().join(format!("proc/9/task/{tid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("stat"), STAT).unwrap();
        }
        let tree = Tree::at(root.path());
        let read = |most| Task::first_of(&tree, 9, most).unwrap().len();
        assert_eq!((read(2), read(9)), (2, 3));
    }

    proptest! {
        #[test]
        fn the_parser_of_stat_lines_never_panics(text in "[0-9]{1,11} \\(.{0,9}\\) [RSD]( -?[0-9]{1,21}){0,50}") {
            let _ = Task::parse(&text, Some(&text), Span::from_millis(10));
        }
    }

    const STAT: &str = "42 (a) b) R 1 42 42 0 -1 4194304 1 0 0 0 11 12 0 0 20 0 1 0 777 1 1 1 \
                        1 1 1 1 1 0 0 0 0 0 0 0 17 3 0 0 9 0 0\n";
}
