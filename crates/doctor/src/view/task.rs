use super::counted;
use crate::recording::{Sample, Task};
use std::collections::BTreeMap;
use units::Span;

/// A thread, or a whole process, with its shares of one core's time.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskUse<'a> {
    pub pid: u32,
    pub tid: u32,
    pub name: &'a str,
    /// Cores' worth of CPU time; a process with several threads may exceed 1.
    pub cpu: f64,
    /// The share of the time in which the task was runnable and had no core.
    pub waited: Option<f64>,
    /// The share of the time in which the task waited for block I/O, by the kernel's accounting or
    /// else by its state in the samples.
    pub blocked: Option<f64>,
    pub core: Option<usize>,
    /// The core that the task ran on in most of the samples.
    pub home: Option<usize>,
    /// The only core that the task may run on.
    pub confined_to: Option<usize>,
    /// Whether the task is a thread of the kernel.
    pub in_kernel: bool,
    pub elapsed: Span,
}

impl TaskUse<'_> {
    /// Whether the task waits for block I/O longer than it sleeps. The disk, not a timer or a peer,
    /// then sets the task's pace.
    pub fn waits_for_disk(&self) -> bool {
        let blocked = self.blocked.unwrap_or(0.0);
        let sleeps = 1.0 - self.cpu - self.waited.unwrap_or(0.0) - blocked;
        blocked >= BLOCKED && blocked >= sleeps
    }

    /// Returns the core that the task is confined to, or else its usual core.
    pub fn place(&self) -> Option<usize> {
        self.confined_to.or(self.home)
    }

    /// Whether the task is a thread of the kernel that processes packets: `ksoftirqd/0`,
    /// `napi/eth0-8193`, `irq/24-eth0`. A program with such a name does not count.
    pub fn serves_network(&self) -> bool {
        self.in_kernel && NETWORK.iter().any(|prefix| self.name.starts_with(prefix))
    }
}

const NETWORK: [&str; 3] = ["ksoftirqd/", "napi/", "irq/"];
/// Minimum share of the samples in which a task is on its usual core.
const USUALLY: f64 = 0.66;

/// Minimum share of disk waits: a program that reads its own files waits for less.
const BLOCKED: f64 = 0.2;

/// Minimum share of the periods in which the quota ran out (measured).
pub const OFTEN_THROTTLED: f64 = 0.1;
/// Minimum share of the time in which the quota stopped the group.
const LONG_STOPPED: f64 = 0.04;

/// A control group's use of its quota.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupUse<'a> {
    pub path: &'a str,
    pub pids: &'a [u32],
    /// The cores that the quota grants.
    pub quota: Option<f64>,
    pub periods: u64,
    pub throttled: u64,
    pub throttled_time: Span,
    pub elapsed: Span,
}

impl GroupUse<'_> {
    /// Returns the share of the group's periods in which the quota ran out.
    pub fn throttled_share(&self) -> f64 {
        if self.periods == 0 { 0.0 } else { self.throttled as f64 / self.periods as f64 }
    }

    /// Returns the share of the time in which the quota stopped the group, added over the cores;
    /// `None` if the kernel does not report this time.
    pub fn stopped_share(&self) -> Option<f64> {
        let stopped = Some(self.throttled_time).filter(|time| *time > Span::ZERO)?;
        Some(stopped.secs_f64() / self.elapsed.secs_f64())
    }

    /// Whether the quota runs out often, and not only at the very end of the periods.
    pub fn is_held_back(&self) -> bool {
        self.throttled_share() >= OFTEN_THROTTLED
            && self.stopped_share().is_none_or(|share| share >= LONG_STOPPED)
    }
}

/// Returns tasks that are in at least two samples. Each increment is taken between the task's own
/// first and last sample.
pub(super) fn between<'a>(
    samples: &'a [Sample],
    of: fn(&'a Sample) -> &'a Vec<Task>,
) -> Vec<TaskUse<'a>> {
    struct Seen<'a> {
        first: (Span, &'a Task),
        last: (Span, &'a Task),
        times: u32,
        blocked: u32,
        cores: BTreeMap<usize, u32>,
    }
    let mut seen: BTreeMap<(u32, u32, u64), Seen<'a>> = BTreeMap::new();
    for sample in samples {
        for task in of(sample) {
            let now = (sample.at, task);
            let entry = seen.entry((task.pid, task.tid, task.started)).or_insert(Seen {
                first: now,
                last: now,
                times: 0,
                blocked: 0,
                cores: BTreeMap::new(),
            });
            entry.last = now;
            entry.times += 1;
            entry.blocked += u32::from(task.state == "D");
            if let Some(core) = task.core {
                *entry.cores.entry(core).or_default() += 1;
            }
        }
    }
    let mut uses: Vec<_> = seen
        .into_values()
        .filter_map(|seen| {
            let ((start, earlier), (end, later)) = (seen.first, seen.last);
            let elapsed = end - start;
            let over = |span: Span| span.secs_f64() / elapsed.secs_f64();
            let ticks = (later.user + later.system) - (earlier.user + earlier.system);
            // While a thread runs, its precise time is late by up to a tick of the scheduler.
            let precise = later.ran.zip(earlier.ran).map(|(later, earlier)| later - earlier);
            (elapsed > Span::ZERO).then(|| TaskUse {
                pid: later.pid,
                tid: later.tid,
                name: &later.name,
                cpu: over(precise.unwrap_or(ticks)),
                waited: later.waited.zip(earlier.waited).map(|(l, e)| over(l - e).min(1.0)),
                blocked: {
                    let io = later.io_waited.zip(earlier.io_waited).map(|(l, e)| over(l - e));
                    let by_state = f64::from(seen.blocked) / f64::from(seen.times.max(1));
                    let by_state = (!later.state.is_empty()).then_some(by_state);
                    io.into_iter().chain(by_state).reduce(f64::max).map(|share| share.min(1.0))
                },
                core: later.core,
                home: seen
                    .cores
                    .iter()
                    .max_by_key(|(_, times)| **times)
                    .filter(|(_, times)| f64::from(**times) >= USUALLY * f64::from(seen.times))
                    .map(|(core, _)| *core),
                // Old recordings lack this field. The kernel charges some ticks of its threads as
                // user time.
                in_kernel: later.in_kernel.unwrap_or(later.user == Span::ZERO),
                confined_to: match later.allowed.as_deref() {
                    Some([core]) => Some(*core),
                    _ => None,
                },
                elapsed,
            })
        })
        .collect();
    uses.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    uses
}

/// Returns control groups that are in at least two samples.
pub(super) fn groups_between(samples: &[Sample]) -> Vec<GroupUse<'_>> {
    let mut seen = BTreeMap::new();
    for sample in samples {
        for group in &sample.groups {
            let now = (sample.at, group);
            seen.entry(group.path.as_str()).or_insert((now, now)).1 = now;
        }
    }
    let mut uses: Vec<_> = seen
        .into_values()
        .filter_map(|((start, earlier), (end, later))| {
            let elapsed = end - start;
            (elapsed > Span::ZERO).then_some(())?;
            Some(GroupUse {
                path: &later.path,
                pids: &later.pids,
                quota: later.granted.zip(later.period).and_then(|(granted, period)| {
                    (period > Span::ZERO).then(|| granted.secs_f64() / period.secs_f64())
                }),
                periods: counted(later.periods, earlier.periods)?,
                throttled: counted(later.throttled, earlier.throttled)?,
                throttled_time: later.throttled_time - earlier.throttled_time,
                elapsed,
            })
        })
        .collect();
    // The caller cuts the end off a longer list.
    if uses.len() > super::MOST_GROUPS {
        uses.sort_by_key(|group| std::cmp::Reverse(group.throttled));
    }
    uses
}
