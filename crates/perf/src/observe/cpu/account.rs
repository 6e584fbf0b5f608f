use super::cpu_time;
use nix::sys::resource::UsageWho;
use probe::process::{CpuTime, Thread};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Account of the threads of one test in a process that runs several tests. Clones share the
/// account.
#[derive(Debug, Clone, Default)]
pub struct CpuAccount(Arc<Mutex<Entries>>);

/// Guard: the calling thread's CPU time counts as the test's until the guard is dropped.
#[derive(Debug)]
pub struct Counted {
    account: CpuAccount,
    tid: u32,
    begun: CpuTime,
    /// Keeps the guard on its thread: on drop the guard reads that thread's clock.
    _own: PhantomData<*const ()>,
}

#[derive(Debug, Default)]
struct Entries {
    running: Vec<(u32, CpuTime)>,
    ended: CpuTime,
}

impl CpuAccount {
    /// Charges the calling thread's CPU time from now on.
    pub fn enter(&self) -> Counted {
        let begun = cpu_time(UsageWho::RUSAGE_THREAD);
        // Use the number in /proc: with another process namespace's /proc mounted, gettid would
        // name another thread.
        let tid = Thread::own().map_or(0, |thread| thread.tid);
        self.entries().running.push((tid, begun));
        Counted { account: self.clone(), tid, begun, _own: PhantomData }
    }

    /// Returns the CPU time of all threads so far. The time of ended threads is exact; the time of
    /// running threads has a resolution of 10 ms.
    pub fn used(&self) -> CpuTime {
        let entries = self.entries();
        entries.running.iter().fold(entries.ended, |sum, (tid, begun)| {
            // The time of a thread that /proc does not show is added when the thread leaves.
            let now = Thread::read(*tid).map_or(*begun, |thread| split(thread.cpu));
            sum.plus(&now.since(begun))
        })
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let used = cpu_time(UsageWho::RUSAGE_THREAD).since(&self.begun);
        let mut entries = self.account.entries();
        if let Some(index) = entries.running.iter().position(|(tid, _)| *tid == self.tid) {
            entries.running.swap_remove(index);
        }
        entries.ended = entries.ended.plus(&used);
    }
}

/// Divides the exact time into user and system time in the proportion of the ticks, like the kernel
/// itself (cputime_adjust, kernel/sched/cputime.c).
fn split(cpu: CpuTime) -> CpuTime {
    let Some(precise) = cpu.precise else {
        return cpu;
    };
    if cpu.system == units::Span::ZERO {
        // As in the kernel, a time of less than a tick counts as user time.
        return CpuTime { user: precise, system: units::Span::ZERO, precise: None };
    }
    let ticks = (cpu.user + cpu.system).nanos();
    let user = u128::from(precise.nanos()) * u128::from(cpu.user.nanos()) / u128::from(ticks);
    let user = units::Span::from_nanos(u64::try_from(user).unwrap_or(u64::MAX));
    CpuTime { user, system: precise - user, precise: None }
}
