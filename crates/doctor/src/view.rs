//! Differences between the samples of a period, as the rules see them.

mod cores;
mod counter;
mod end;
mod flow;
mod interface;
mod occupancy;
mod places;
mod queues;
mod task;

pub use cores::CoreUse;
pub use counter::counted;
pub use end::{BURST, End};
pub use flow::Flow;
pub use interface::InterfaceUse;
pub use occupancy::{Occupancy, without_interrupts};
pub use places::FlowCores;
pub use queues::QueueUse;
pub use task::{GroupUse, OFTEN_THROTTLED, TaskUse};

use crate::recording::{Holder, Machine, Period, Recording, Sample, SocketLimit, Unseen, bound};
use std::collections::BTreeMap;
use units::Span;

/// One period of a recording.
#[derive(Debug)]
pub struct View<'a> {
    pub recording: &'a Recording,
    pub period: &'a Period,
    first: &'a Sample,
    last: &'a Sample,
    pub cores: BTreeMap<usize, CoreUse>,
    pub tasks: Vec<TaskUse<'a>>,
    pub processes: Vec<TaskUse<'a>>,
    pub groups: Vec<GroupUse<'a>>,
    pub queues: Vec<QueueUse<'a>>,
    /// The flows, the busiest first.
    pub flows: Vec<Flow<'a>>,
    /// Connections outside the focus, to the hosts of the connections in focus.
    pub beside: Vec<Flow<'a>>,
    /// Whether the period has more flows, threads or control groups than are judged.
    pub is_cut: bool,
}

impl<'a> View<'a> {
    /// Compares the samples of a period; `None` with fewer than two samples, which give no rate.
    pub fn of(recording: &'a Recording, period: &'a Period) -> Option<Self> {
        let (first, last) = (period.samples.first()?, period.samples.last()?);
        let is_beside = |flow: &Flow<'_>| flow.end().last().beside;
        let mut flows = flow::of(recording, period);
        let mut tasks = task::between(&period.samples, |sample| &sample.tasks);
        let mut processes = task::between(&period.samples, |sample| &sample.processes);
        let mut groups = task::groups_between(&period.samples);
        let mut is_cut = bound(&mut flows, MOST_FLOWS);
        is_cut |= bound(&mut tasks, MOST_TASKS);
        is_cut |= bound(&mut processes, MOST_TASKS);
        is_cut |= bound(&mut groups, MOST_GROUPS);
        let (beside, flows) = flows.into_iter().partition(is_beside);
        (last.at > first.at).then(|| Self {
            recording,
            period,
            first,
            last,
            cores: cores::between(first, last),
            tasks,
            processes,
            groups,
            queues: queues::between(&period.samples),
            flows,
            beside,
            is_cut,
        })
    }

    pub fn machine(&self) -> &'a Machine {
        &self.recording.machine
    }

    pub fn elapsed(&self) -> Span {
        self.last.at - self.first.at
    }

    pub fn last(&self) -> &'a Sample {
        self.last
    }

    pub fn samples(&self) -> &'a [Sample] {
        &self.period.samples
    }

    /// Returns the control group of these processes that refused memory to its sockets most often,
    /// and the number of refusals.
    pub fn socket_limit(&self, holders: &[Holder]) -> Option<(&'a SocketLimit, u64)> {
        let is_held =
            |limit: &&SocketLimit| holders.iter().any(|holder| limit.pids.contains(&holder.pid));
        let refused = |limit: &'a SocketLimit| {
            let earlier = self.period.samples.iter().find_map(|sample| {
                sample.socket_limits.iter().find(|earlier| earlier.path == limit.path)
            })?;
            Some((limit, counted(limit.refused, earlier.refused)?))
        };
        let limits = self.last.socket_limits.iter().filter(is_held).filter_map(refused);
        limits.max_by_key(|(_, refused)| *refused)
    }

    /// Returns the increment of a counter of `/proc/net`; `None` if the counter is missing or was
    /// reset.
    pub fn counter(&self, name: &str) -> Option<u64> {
        counted(*self.last.counters.get(name)?, *self.first.counters.get(name)?)
    }

    /// Whether the recording has counters of `/proc/net`.
    pub fn has_counters(&self) -> bool {
        !self.last.counters.is_empty() && !self.first.counters.is_empty()
    }

    pub fn interface(&self, name: &str) -> Option<InterfaceUse<'a>> {
        InterfaceUse::between(
            self.machine().interfaces.get_key_value(name)?,
            self.first.interfaces.get(name),
            self.last.interfaces.get(name),
            self.elapsed(),
        )
    }

    /// Returns all interfaces that are in the first and in the last sample.
    pub fn interfaces(&self) -> impl Iterator<Item = InterfaceUse<'a>> + '_ {
        self.machine().interfaces.keys().filter_map(|name| self.interface(name))
    }

    /// Returns, for each core, the increments of the packets processed, the packets dropped, and
    /// the rounds that ended by their budget.
    pub fn softnet(&self) -> BTreeMap<usize, [u64; 3]> {
        let both = self.last.softnet.iter().filter_map(|(core, later)| {
            let earlier = self.first.softnet.get(core)?;
            let values = [
                counted(later.processed, earlier.processed)?,
                counted(later.dropped, earlier.dropped)?,
                counted(later.squeezed, earlier.squeezed)?,
            ];
            Some((*core, values))
        });
        both.collect()
    }

    /// Returns the share of the time in which at least one task, or every task, waited.
    pub fn pressure(&self, resource: &str) -> Option<(f64, f64)> {
        let (later, earlier) =
            (self.last.pressure.get(resource)?, self.first.pressure.get(resource)?);
        let elapsed = self.elapsed().secs_f64();
        let share = |later: Span, earlier: Span| ((later - earlier).secs_f64() / elapsed).min(1.0);
        let full = later.full.zip(earlier.full).map_or(0.0, |(l, e)| share(l, e));
        Some((share(later.some, earlier.some), full))
    }

    /// Returns the core with the largest busy share.
    pub fn busiest_core(&self) -> Option<(usize, CoreUse)> {
        self.cores
            .iter()
            .max_by(|(_, a), (_, b)| a.busy().total_cmp(&b.busy()))
            .map(|(core, shares)| (*core, *shares))
    }

    /// Returns the stolen share of the time, over all cores.
    pub fn steal(&self) -> Option<f64> {
        let count = self.cores.len();
        (count > 0).then(|| self.cores.values().map(|core| core.steal).sum::<f64>() / count as f64)
    }

    pub fn sysctl(&self, name: &str) -> Option<&'a str> {
        self.machine().sysctls.get(name).map(String::as_str)
    }

    /// Returns one number of a setting such as `net.ipv4.tcp_rmem`.
    pub fn sysctl_number(&self, name: &str, column: usize) -> Option<u64> {
        self.sysctl(name)?.split_ascii_whitespace().nth(column)?.parse().ok()
    }
}

/// Returns the signals that are missing if the lists of a period were cut.
pub fn cut_off() -> Unseen {
    Unseen {
        what: "the least busy connections, threads and control groups".to_owned(),
        reason: format!(
            "Weir judges at most {MOST_FLOWS} connections, {MOST_TASKS} threads and {MOST_GROUPS} control groups of a \
             period"
        ),
    }
}

/// Maximum numbers of flows, tasks and groups of a period. An observation keeps fewer; a file may
/// have any number.
const MOST_FLOWS: usize = 4096;
const MOST_TASKS: usize = 16_384;
const MOST_GROUPS: usize = 1024;
