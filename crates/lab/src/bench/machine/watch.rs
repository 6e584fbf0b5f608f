//! CPU time and other activity of the machine during a cell's measurement.

use super::{CpuPlan, cpu_limit, validity};
use crate::model::Measurement;
use probe::ProbeError;
use probe::cpu::{CpuSnapshot, CpuUse};
use probe::process::{KsoftirqdSnapshot, Processes, Thread};
use results::CpuLimit;
use std::sync::OnceLock;
use units::{Span, Time};

/// Assigns processes, and thereby their CPU time, to the client's side, the server's side and the
/// emulator.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roles {
    /// The processes of the system under test on the client's side, with their descendants: the
    /// system's own programs, or the workload's processes if the kernel's TCP runs in their CPU
    /// time.
    pub client: Vec<u32>,
    pub server: Vec<u32>,
    /// The id of the emulator's thread. `None` if no emulator runs.
    pub emulator_tid: Option<u32>,
}

/// A snapshot of the machine's CPU time and activity. The difference of two snapshots is the
/// activity between them.
#[derive(Debug)]
pub(crate) struct Watch {
    cpu: CpuSnapshot,
    ksoftirqd: KsoftirqdSnapshot,
    client: Processes,
    server: Processes,
    client_threads: Vec<Thread>,
    server_threads: Vec<Thread>,
    emulator: Option<Thread>,
    /// CPU time of all processes of the machine.
    everyone: Processes,
    /// CPU time of this process and of all programs that this process started, including ended
    /// programs.
    own: Processes,
    /// The threads of the lab's programs.
    program_threads: Vec<Thread>,
}

impl Watch {
    pub(crate) fn read(roles: &Roles) -> Result<Self, ProbeError> {
        let (client, server) = (trees(&roles.client)?, trees(&roles.server)?);
        let own = Processes::tree(std::process::id())?;
        let programs = own.each.keys().filter(|pid| **pid != std::process::id());
        let program_threads =
            programs.filter_map(|pid| Thread::all_of(*pid).ok()).flatten().collect();
        Ok(Self {
            cpu: CpuSnapshot::read()?,
            ksoftirqd: ksoftirqd()?,
            client_threads: threads(&client),
            server_threads: threads(&server),
            client,
            server,
            emulator: roles.emulator_tid.map(Thread::read).transpose()?,
            everyone: Processes::matching(|_| true)?,
            own,
            program_threads,
        })
    }

    pub(crate) fn taken(&self) -> Time {
        self.cpu.taken
    }

    /// Records the activity since `earlier` of a workload whose programs poll, and so always use
    /// their CPUs. `goodput`, in Mbit/s, relates the CPU time to the data.
    pub(crate) fn account_polling(
        &self,
        earlier: &Self,
        cpus: &CpuPlan,
        goodput: Option<f64>,
        into: &mut Measurement,
    ) {
        into.window = Some(earlier.taken()..self.taken());
        let used = self.cpu.since(&earlier.cpu);
        let elapsed = used.elapsed.secs_f64();
        if elapsed <= 0.0 {
            return;
        }
        let percent = |time: Span| Some(time.secs_f64() / elapsed * 100.0);
        let system = match cpus.emulator {
            // The kernel receives the emulator's packets in the emulator's time slice. This softirq
            // work belongs to the system, all other work on the emulator's CPU to the emulator.
            Some(own) => {
                let there = used.over([own]);
                used.over(cpus.workload.iter().copied()).busy() + there.softirq + there.irq
            }
            None => {
                let emulator = self.emulator.as_ref().zip(earlier.emulator.as_ref());
                let emulator = emulator.and_then(|(now, then)| now.since(then));
                let own = emulator.map_or(Span::ZERO, |used| used.cpu.total());
                used.total.busy().saturating_sub(own)
            }
        };
        let client = self.client.since(&earlier.client).sum().total();
        let server = self.server.since(&earlier.server).sum().total();
        let softirqs = self.ksoftirqd.since(&earlier.ksoftirqd);
        let ksoftirqd = softirqs.sum().total();
        // A lab that judges the emulated link has no programs with CPU time.
        let own = |processes: &Processes, used| (!processes.is_empty()).then_some(used);
        let client = own(&earlier.client, client);
        let server = own(&earlier.server, server);
        into.record("cpu_percent.client", client.and_then(percent));
        into.record("cpu_percent.server", server.and_then(percent));
        let sides = [
            ("threads_at_work.client", &self.client_threads, &earlier.client_threads),
            ("threads_at_work.server", &self.server_threads, &earlier.server_threads),
        ];
        for (name, now, then) in sides {
            into.record(name, at_work(now, then));
        }
        into.record("cpu_percent.system", percent(system));
        into.record("cpu_percent.ksoftirqd", percent(ksoftirqd));
        // The packets of each host are steered to its own CPUs only if an emulator runs.
        if cpus.emulator.is_some() && cpus.is_apart() {
            let of = |own: &[usize]| {
                let threads = own.iter().filter_map(|cpu| softirqs.cores.get(cpu));
                threads.fold(Span::ZERO, |sum, thread| sum + thread.total())
            };
            into.record("cpu_percent.ksoftirqd_client", percent(of(&cpus.from)));
            into.record("cpu_percent.ksoftirqd_server", percent(of(&cpus.to)));
        }
        into.record("cpu_softirq_percent", percent(used.total.softirq));
        let gbit = goodput.map(|mbit| mbit / 1000.0 * elapsed).filter(|gbit| *gbit > 0.0);
        let price = |time: Option<Span>| Some(time?.secs_f64() / gbit?);
        into.record("cpu_seconds_per_gbit.client", price(client));
        into.record("cpu_seconds_per_gbit.server", price(server));
        into.record("cpu_seconds_per_gbit.system", price(Some(system)));
        let Shares { idle, steal } = Shares::of(&used, &cpus.workload);
        into.record("idle_percent", Some(idle));
        into.record("steal_percent", Some(steal));
        into.invalid.extend(validity::stolen(steal));
    }

    /// Records the activity as [`Self::account_polling`] does, for a workload that leaves CPUs idle
    /// when it has no work.
    pub(crate) fn account(
        &self,
        earlier: &Self,
        cpus: &CpuPlan,
        goodput: Option<f64>,
        into: &mut Measurement,
    ) {
        self.account_polling(earlier, cpus, goodput, into);
        let used = self.cpu.since(&earlier.cpu);
        if used.elapsed == Span::ZERO {
            return;
        }
        let emulator = self.emulator.as_ref().zip(earlier.emulator.as_ref());
        let emulator = emulator.and_then(|(now, then)| now.since(then));
        let emulator = emulator.map(|used| used.cpu.total());
        // The lab's programs run only on the workload's CPUs, so subtract the emulator's time on
        // its own CPU.
        let mut own = self.own.since(&earlier.own).sum().total();
        if let (Some(time), Some(_)) = (emulator, cpus.emulator) {
            own = own.saturating_sub(time);
        }
        let user = self.foreign_user(earlier, &cpus.workload, own);
        let waited = self.waited(earlier, used.elapsed);
        into.beside = user.clone().filter(|user| user.percent >= WORTH_NAMING_PERCENT);
        let flaw = user.zip(waited).and_then(|(user, waited)| validity::shared(&user, waited));
        into.invalid.extend(flaw);
        if Shares::of(&used, &cpus.workload).idle < LEAST_IDLE_PERCENT {
            into.cpu_limited = true;
            into.cpu_limit = cpu_limit::largest(&cpu_limit::Spent {
                elapsed: used.elapsed,
                cpus: &cpus.workload,
                cores: &used,
                sides: &[
                    ("client", &self.client.since(&earlier.client)),
                    ("server", &self.server.since(&earlier.server)),
                ],
                everyone: &self.everyone.since(&earlier.everyone),
                emulator: emulator.map(|time| cpu_limit::Emulating {
                    time,
                    is_among_workload: cpus.emulator.is_none(),
                }),
            });
        }
    }

    /// Returns the program beside the lab that used many of the workload's or the emulator's CPUs
    /// since `earlier`, if those CPUs had no idle time.
    pub(crate) fn starved_by(&self, earlier: &Self, cpus: &CpuPlan) -> Option<CpuLimit> {
        let used = self.cpu.since(&earlier.cpu);
        if used.elapsed < SHORTEST_LOOK {
            return None;
        }
        let user_of = |cpus: &[usize]| {
            let is_full = Shares::of(&used, cpus).idle < LEAST_IDLE_PERCENT;
            let user = is_full.then(|| self.foreign_user(earlier, cpus, Span::ZERO)).flatten();
            user.filter(|user| user.percent >= LARGE_PERCENT)
        };
        user_of(&cpus.workload).or_else(|| user_of(&[cpus.emulator?]))
    }

    /// Returns the longest wait of a thread of the lab's programs for a CPU, in percent of the
    /// time. Counts only threads that almost always had work.
    fn waited(&self, earlier: &Self, elapsed: Span) -> Option<f64> {
        let waited = self.program_threads.iter().filter_map(|thread| {
            let before = earlier.program_threads.iter().find(|before| before.tid == thread.tid)?;
            waited_of(thread, before, elapsed)
        });
        waited.max_by(f64::total_cmp)
    }

    /// Returns the program beside the lab that used the emulator's CPU most since `earlier`.
    pub(crate) fn beside_the_emulator(&self, earlier: &Self, cpus: &CpuPlan) -> Option<CpuLimit> {
        let everyone = self.everyone.since(&earlier.everyone);
        let lab = everyone.each.get(&std::process::id());
        let lab = lab.map_or(Span::ZERO, |lab| lab.cpu.total());
        let user = self.foreign_user(earlier, &[cpus.emulator?], lab);
        user.filter(|user| user.percent >= WORTH_NAMING_PERCENT)
    }

    /// Returns the program beside the lab that used most of these CPUs since `earlier`. `own`: the
    /// maximum time that the lab itself used on these CPUs.
    fn foreign_user(&self, earlier: &Self, cpus: &[usize], own: Span) -> Option<CpuLimit> {
        let used = self.cpu.since(&earlier.cpu);
        let mut everyone = self.everyone.since(&earlier.everyone);
        everyone.each.retain(|pid, _| !self.own.each.contains_key(pid));
        let user = cpu_limit::foreign(&cpu_limit::Spent {
            elapsed: used.elapsed,
            cpus,
            cores: &used,
            sides: &[],
            everyone: &everyone,
            emulator: None,
        });
        let all = used.over(cpus.iter().copied());
        let foreign = (all.user + all.nice + all.system).saturating_sub(own);
        let percent = foreign.secs_f64() / used.elapsed.secs_f64() * 100.0;
        user.map(|user| CpuLimit { percent: user.percent.min(percent), ..user })
    }
}

/// The percentages of idle time and of stolen time of some CPUs.
struct Shares {
    idle: f64,
    steal: f64,
}

impl Shares {
    fn of(used: &CpuUse, cpus: &[usize]) -> Self {
        let all = used.over(cpus.iter().copied());
        let capacity = used.elapsed.secs_f64() * cpus.len().max(1) as f64;
        let part = |time: Span| (time.secs_f64() / capacity * 100.0).clamp(0.0, 100.0);
        // Compute idle time from the busy counters. The idle counter stops on a sleeping core and
        // catches up later (kernel/time/tick-sched.c).
        let idle = 100.0 - part(all.busy() + all.steal);
        Self { idle, steal: part(all.steal) }
    }
}

/// Reads the ksoftirqd threads. Only the first reading searches all processes for these threads.
fn ksoftirqd() -> Result<KsoftirqdSnapshot, ProbeError> {
    static FIRST: OnceLock<KsoftirqdSnapshot> = OnceLock::new();
    match FIRST.get() {
        Some(first) => first.again(),
        None => {
            let first = KsoftirqdSnapshot::read()?;
            Ok(FIRST.get_or_init(|| first).clone())
        }
    }
}

fn trees(roots: &[u32]) -> Result<Processes, ProbeError> {
    let mut all: Option<Processes> = None;
    for root in roots {
        match Processes::tree(*root) {
            Ok(tree) => match &mut all {
                None => all = Some(tree),
                Some(all) => all.each.extend(tree.each),
            },
            // The process has just ended, so neither snapshot has the CPU time of the process.
            Err(ProbeError::Ended { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    match all {
        Some(all) => Ok(all),
        None => Processes::of([]),
    }
}

/// Returns the threads of the processes that still exist.
fn threads(processes: &Processes) -> Vec<Thread> {
    processes.each.keys().filter_map(|pid| Thread::all_of(*pid).ok()).flatten().collect()
}

/// Returns the percentage of the time for which the thread waited for a CPU. `None` unless the
/// thread almost always had work.
fn waited_of(now: &Thread, before: &Thread, elapsed: Span) -> Option<f64> {
    let used = now.since(before)?;
    let part = |time: Span| (time.secs_f64() / elapsed.secs_f64() * 100.0).min(100.0);
    let ran = part(used.cpu.total());
    // The kernel counts a wait only when the wait ends.
    let waits = before.state == WAITS && now.state == WAITS && ran < HARDLY_RAN_PERCENT;
    let waited = if waits { 100.0 - ran } else { part(used.waited?) };
    (waited + ran > BUSY_PERCENT).then_some(waited)
}

/// Returns the effective number of threads: the number of threads that would do the same work in
/// equal shares.
fn at_work(now: &[Thread], then: &[Thread]) -> Option<f64> {
    let used = now.iter().map(|thread| {
        let before = then.iter().find(|before| before.tid == thread.tid);
        let spent = before.and_then(|before| thread.since(before))?;
        Some(spent.cpu.total().secs_f64())
    });
    evenly(used.flatten())
}

fn evenly(parts: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, squares) =
        parts.fold((0.0, 0.0), |(sum, squares), part| (sum + part, squares + part * part));
    (squares > 0.0).then(|| sum * sum / squares)
}

/// Minimum percentage of idle time. With less, the workload waits for its CPU, and the wait
/// distorts its figures.
const LEAST_IDLE_PERCENT: f64 = 5.0;
/// A program beside the lab that uses this percentage of one CPU can make a turn fail by the delay.
const LARGE_PERCENT: f64 = 25.0;
const WORTH_NAMING_PERCENT: f64 = 3.0;
/// Minimum percentage of the time that a thread runs or waits to count as busy. A thread that
/// sleeps more gets the CPU time that it asks for.
const BUSY_PERCENT: f64 = 80.0;
const HARDLY_RAN_PERCENT: f64 = 5.0;
/// The state of a thread that runs or is ready to run.
const WAITS: char = 'R';
/// Minimum duration of a step for which the lab looks for a program that starved the step. A step
/// that fails sooner would fail on an idle machine too.
const SHORTEST_LOOK: Span = Span::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use probe::process::CpuTime;

    fn thread(state: char, ran_ms: u64, waited_ms: u64) -> Thread {
        let precise = Some(Span::from_millis(ran_ms));
        Thread {
            taken: Time::ZERO,
            tid: 7,
            name: "perf".to_owned(),
            state,
            cpu: CpuTime { precise, ..CpuTime::default() },
            waited: Some(Span::from_millis(waited_ms)),
        }
    }

    #[test]
    fn only_waits_of_busy_threads_count() {
        let waited = |before: &Thread, now: &Thread| waited_of(now, before, Span::from_secs(1));
        let begun = thread('S', 0, 0);
        assert_eq!(waited(&begun, &thread('R', 500, 400)), Some(40.0));
        assert_eq!(waited(&begun, &thread('S', 50, 150)), None);
        // The kernel counts a wait only when the wait ends: the first thread still waits, the
        // second thread's wait began before the interval.
        assert_eq!(waited(&thread('R', 0, 0), &thread('R', 0, 0)), Some(100.0));
        assert_eq!(waited(&thread('R', 0, 0), &thread('R', 600, 1_500)), Some(100.0));
    }

    #[test]
    fn idle_threads_do_not_count_as_working() {
        assert_eq!(evenly([0.0; 4].into_iter()), None);
        assert_eq!(evenly([3.0, 0.0, 0.0].into_iter()), Some(1.0));
        assert_eq!(evenly([2.0, 2.0, 0.0].into_iter()), Some(2.0));
    }
}
