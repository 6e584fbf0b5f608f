//! CPU time of the cores: `/proc/stat` (see proc(5)).

use std::collections::BTreeMap;

use units::{Share, Span, Time};

use crate::clock;
use crate::error::{ProbeError, read_text};

/// The CPU time of every online core since boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuSnapshot {
    pub taken: Time,
    pub total: CoreTimes,
    /// Times by core number. An offline core has no entry.
    pub cores: BTreeMap<usize, CoreTimes>,
}

impl CpuSnapshot {
    pub fn read() -> Result<Self, ProbeError> {
        let text = read_text(PATH)?;
        Ok(Self { taken: clock::now(), ..Self::parse(&text, clock::tick())? })
    }

    /// Parses `/proc/stat`. `tick`: the length of the file's time unit, see [`clock::tick`].
    pub fn parse(text: &str, tick: Span) -> Result<Self, ProbeError> {
        let mut snapshot = Self::default();
        let mut seen = false;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let Some(core) = words.next().and_then(|word| word.strip_prefix("cpu")) else {
                continue;
            };
            let times = CoreTimes::parse(words, tick)
                .ok_or_else(|| ProbeError::malformed(PATH, format!("{line:?}")))?;
            if core.is_empty() {
                snapshot.total = times;
                seen = true;
            } else {
                let core =
                    core.parse().map_err(|_| ProbeError::malformed(PATH, format!("{line:?}")))?;
                snapshot.cores.insert(core, times);
            }
        }
        if seen { Ok(snapshot) } else { Err(ProbeError::malformed(PATH, "no line \"cpu\"")) }
    }

    /// Returns the numbers of the online cores.
    pub fn online(&self) -> impl Iterator<Item = usize> + '_ {
        self.cores.keys().copied()
    }

    /// Returns the cores' use of time since `earlier`, without cores that went online or offline in
    /// between.
    pub fn since(&self, earlier: &Self) -> CpuUse {
        CpuUse {
            elapsed: self.taken.since(earlier.taken),
            total: self.total.since(&earlier.total),
            cores: self
                .cores
                .iter()
                .filter_map(|(core, times)| Some((*core, times.since(earlier.cores.get(core)?))))
                .collect(),
        }
    }
}

/// CPU time by state. `user` and `nice` contain the time of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreTimes {
    pub user: Span,
    pub nice: Span,
    pub system: Span,
    pub idle: Span,
    pub iowait: Span,
    pub irq: Span,
    pub softirq: Span,
    pub steal: Span,
}

impl CoreTimes {
    /// Returns the sum of all times, including idle time.
    pub fn sum(&self) -> Span {
        self.busy() + self.idle + self.iowait + self.steal
    }

    /// Returns the time in which the core ran a task or the kernel: neither idle nor stolen by the
    /// hypervisor.
    pub fn busy(&self) -> Span {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    pub fn since(&self, earlier: &Self) -> Self {
        // Saturate, because iowait may decrease (proc(5)), and so may idle when a core goes offline
        // and comes back.
        self.zip(earlier, Span::saturating_sub)
    }

    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, Span::saturating_add)
    }

    /// Returns the share of each state, or `None` if no tick passed.
    pub fn shares(&self) -> Option<CoreShares> {
        let sum = self.sum().nanos();
        (sum > 0).then(|| {
            let share =
                |part: Span| Share::new(part.nanos() as f64 / sum as f64).unwrap_or(Share::ONE);
            CoreShares {
                busy: share(self.busy()),
                idle: share(self.idle + self.iowait),
                user: share(self.user + self.nice),
                system: share(self.system),
                irq: share(self.irq),
                softirq: share(self.softirq),
                iowait: share(self.iowait),
                steal: share(self.steal),
            }
        })
    }

    fn parse<'a>(words: impl Iterator<Item = &'a str>, tick: Span) -> Option<Self> {
        let mut ticks = [0u64; COLUMNS];
        let mut found = 0;
        for (slot, word) in ticks.iter_mut().zip(words) {
            *slot = word.parse().ok()?;
            found += 1;
        }
        // Linux 2.4 had four columns. Later versions added iowait, irq, softirq and steal in this
        // order.
        (found >= 4).then(|| {
            let [user, nice, system, idle, iowait, irq, softirq, steal] =
                ticks.map(|count| tick * count);
            Self { user, nice, system, idle, iowait, irq, softirq, steal }
        })
    }

    fn zip(&self, other: &Self, join: impl Fn(Span, Span) -> Span) -> Self {
        Self {
            user: join(self.user, other.user),
            nice: join(self.nice, other.nice),
            system: join(self.system, other.system),
            idle: join(self.idle, other.idle),
            iowait: join(self.iowait, other.iowait),
            irq: join(self.irq, other.irq),
            softirq: join(self.softirq, other.softirq),
            steal: join(self.steal, other.steal),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuUse {
    pub elapsed: Span,
    pub total: CoreTimes,
    pub cores: BTreeMap<usize, CoreTimes>,
}

impl CpuUse {
    /// Returns the sum over `cores`; cores that were not online throughout add nothing.
    pub fn over(&self, cores: impl IntoIterator<Item = usize>) -> CoreTimes {
        cores
            .into_iter()
            .filter_map(|core| self.cores.get(&core))
            .fold(CoreTimes::default(), |sum, times| sum.plus(times))
    }

    /// Returns the core with the largest busy share.
    pub fn busiest(&self) -> Option<(usize, CoreShares)> {
        self.cores
            .iter()
            .filter_map(|(core, times)| Some((*core, times.shares()?)))
            .max_by(|(_, a), (_, b)| a.busy.fraction().total_cmp(&b.busy.fraction()))
    }
}

/// Shares of a core's time: `busy`, `idle` and `steal` add up to one; `user`, `system`, `irq`
/// and `softirq` to `busy`. `idle` contains `iowait`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CoreShares {
    pub busy: Share,
    pub idle: Share,
    pub user: Share,
    pub system: Share,
    pub irq: Share,
    pub softirq: Share,
    pub iowait: Share,
    pub steal: Share,
}

/// Returns the cores on which the calling thread may run.
pub fn affinity() -> Result<Vec<usize>, ProbeError> {
    affinity_of(None)
}

/// Returns the cores on which the thread `tid` may run (a process ID names its main thread).
pub fn affinity_of(tid: impl Into<Option<u32>>) -> Result<Vec<usize>, ProbeError> {
    let tid = tid.into().and_then(|tid| rustix::process::Pid::from_raw(tid as i32));
    let set = rustix::thread::sched_getaffinity(tid)
        .map_err(|errno| ProbeError::Kernel { what: "the CPU affinity", source: errno.into() })?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

const PATH: &str = "/proc/stat";
const COLUMNS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Span = Span::from_millis(10);
    const RECORDED: &str = include_str!("../tests/fixtures/stat");

    #[test]
    fn a_recorded_stat_file_is_parsed() {
        let snapshot = CpuSnapshot::parse(RECORDED, TICK).unwrap();
        assert_eq!(snapshot.online().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(snapshot.cores[&0].user, Span::from_millis(29_240));
        assert_eq!(snapshot.cores[&1].softirq, Span::from_millis(330));
        assert_eq!(snapshot.cores[&1].steal, Span::from_millis(110));
    }

    #[test]
    fn stat_lines_of_old_kernels_with_fewer_columns_are_parsed() {
        let snapshot = CpuSnapshot::parse("cpu 1 2 3 4\ncpu3 1 2 3 4\n", TICK).unwrap();
        assert_eq!(snapshot.total.idle, Span::from_millis(40));
        assert_eq!(snapshot.total.steal, Span::ZERO);
        assert_eq!(snapshot.online().collect::<Vec<_>>(), [3]);
        assert!(CpuSnapshot::parse("cpu 1 2 3\n", TICK).is_err());
        assert!(CpuSnapshot::parse("", TICK).is_err());
        assert!(CpuSnapshot::parse("cpux 1 2 3 4\n", TICK).is_err());
    }

    #[test]
    fn cpu_time_differences_become_shares() {
        let earlier = CpuSnapshot::parse("cpu 0 0 0 0\ncpu0 0 0 0 0 9 0 0 0\n", TICK).unwrap();
        let later =
            CpuSnapshot::parse("cpu 0 0 0 0\ncpu0 50 0 10 20 5 0 20 0\ncpu1 1 1 1 1\n", TICK)
                .unwrap();
        let spent = later.since(&earlier);
        let shares = spent.cores[&0].shares().unwrap();
        assert_eq!(shares.busy.percent(), 80.0);
        assert_eq!(shares.softirq.percent(), 20.0);
        assert_eq!(shares.iowait, Share::ZERO, "went backwards");
        assert_eq!(spent.cores.len(), 1, "core 1 came online between the snapshots");
        assert_eq!(spent.total.shares(), None);
        assert_eq!(spent.over([0, 1]), spent.cores[&0]);
        assert_eq!(spent.busiest().unwrap().0, 0);
    }

    #[test]
    fn the_cores_of_this_machine_are_read() {
        let earlier = CpuSnapshot::read().unwrap();
        let later = CpuSnapshot::read().unwrap();
        assert!(later.since(&earlier).cores.len() <= earlier.online().count());
        let may = affinity().unwrap();
        assert!(!may.is_empty() && may.iter().all(|core| later.cores.contains_key(core)));
    }

    proptest! {
        #[test]
        fn the_parser_of_the_stat_file_never_panics(text in "(cpu[0-9]{0,20}( [0-9]{1,20}){0,12}\n|.{0,40}\n){0,6}") {
            if let Ok(snapshot) = CpuSnapshot::parse(&text, TICK) {
                let _ = snapshot.since(&CpuSnapshot::default()).busiest();
            }
        }
    }
}
