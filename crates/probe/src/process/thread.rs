use units::{Span, Time};

use super::stat::{CpuTime, Process, ended};
use crate::clock;
use crate::error::{ProbeError, read_text};

/// The state of one thread at the time of reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    pub taken: Time,
    pub tid: u32,
    pub name: String,
    pub state: char,
    pub cpu: CpuTime,
    /// Time spent runnable but waiting for a core, if the kernel provides it (CONFIG_SCHED_INFO).
    pub waited: Option<Span>,
}

impl Thread {
    /// Reads the calling thread by its own clock. This reading is exact, unlike a reading by
    /// [`Self::read`].
    pub fn own() -> Result<Self, ProbeError> {
        let mut thread = Self::read_at("/proc/thread-self", 0)?;
        thread.cpu.precise = Some(clock::own_thread_cpu_time());
        Ok(thread)
    }

    /// Reads any thread by its ID. The `schedstat` of a running thread is up to a scheduler tick (4
    /// ms) late (kernel/sched/fair.c, update_curr).
    pub fn read(tid: u32) -> Result<Self, ProbeError> {
        // /proc lists no threads, but has a directory for each thread. The `task/` of this
        // directory lists the threads of the whole process.
        Self::read_at(&format!("/proc/{tid}/task/{tid}"), tid)
    }

    pub fn all_of(pid: u32) -> Result<Vec<Self>, ProbeError> {
        let path = format!("/proc/{pid}/task");
        let entries = std::fs::read_dir(&path).map_err(|source| {
            let path = path.clone().into();
            ended(pid, ProbeError::Read { path, source })
        })?;
        let mut threads = Vec::new();
        for tid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            match Self::read_at(&format!("{path}/{tid}"), tid) {
                Err(ProbeError::Ended { .. }) => {}
                thread => threads.push(thread?),
            }
        }
        threads.sort_by_key(|thread| thread.tid);
        Ok(threads)
    }

    /// Returns the CPU time used since `earlier`; `None` if `earlier` is of another thread.
    pub fn since(&self, earlier: &Self) -> Option<ThreadUse> {
        (self.tid == earlier.tid).then(|| ThreadUse {
            elapsed: self.taken.since(earlier.taken),
            cpu: self.cpu.since(&earlier.cpu),
            waited: self.waited.zip(earlier.waited).map(|(later, earlier)| later - earlier),
        })
    }

    fn read_at(directory: &str, tid: u32) -> Result<Self, ProbeError> {
        let text = read_text(format!("{directory}/stat")).map_err(|error| ended(tid, error))?;
        let stat = Process::parse(&text, clock::tick())?;
        let schedstat = read_text(format!("{directory}/schedstat"))
            .ok()
            .and_then(|text| parse_schedstat(&text));
        Ok(Self {
            taken: clock::now(),
            tid: stat.pid,
            name: stat.name,
            state: stat.state,
            cpu: CpuTime { precise: schedstat.map(|(ran, _)| ran), ..stat.cpu },
            waited: schedstat.map(|(_, waited)| waited),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadUse {
    pub elapsed: Span,
    pub cpu: CpuTime,
    pub waited: Option<Span>,
}

/// Parses the time on a core and the time waiting for a core, in nanoseconds
/// (Documentation/scheduler/sched-stats).
fn parse_schedstat(text: &str) -> Option<(Span, Span)> {
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let ran = words.next()?.ok()?;
    let waited = words.next()?.ok()?;
    Some((Span::from_nanos(ran), Span::from_nanos(waited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_schedstat_are_parsed() {
        let pair = (Span::from_nanos(68_212), Span::from_nanos(44_906));
        assert_eq!(parse_schedstat("68212 44906 2\n"), Some(pair));
        assert_eq!(parse_schedstat("68212"), None);
        assert_eq!(parse_schedstat("0 x 2"), None);
    }

    #[test]
    fn the_calling_thread_and_other_threads_of_its_process_are_read() {
        let own = std::thread::Builder::new()
            .name("weir-sibling".to_owned())
            .spawn(|| {
                let own = Thread::own().unwrap();
                assert_eq!(Thread::read(own.tid).unwrap().tid, own.tid);
                let siblings = Thread::all_of(std::process::id()).unwrap();
                assert!(siblings.iter().any(|thread| thread.tid == own.tid));
                own
            })
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(own.name, "weir-sibling");
        assert!(own.since(&Thread::own().unwrap()).is_none());
    }
}
