use super::wire::{WireCore, WireCpu};
use probe::cpu::CpuSnapshot;
use probe::process::{CpuTime, Thread};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// CPU time of the threads of one measurement. An end may carry others at the same time, so that the
/// process's own would not do.
#[derive(Debug, Default)]
pub(super) struct WorkerCpu(Mutex<CpuTime>);

impl WorkerCpu {
    /// Runs `work` on the calling thread, pinned if asked, and counts what it took.
    pub(super) fn of<T>(&self, affinity: Option<usize>, work: impl FnOnce() -> T) -> T {
        if let Some(cpu) = affinity {
            pin(cpu);
        }
        let before = Thread::own().ok();
        let done = work();
        let spent = before.zip(Thread::own().ok()).and_then(|(before, now)| now.since(&before));
        if let Some(spent) = spent {
            let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *sum = sum.plus(&spent.cpu);
        }
        done
    }

    /// With what the machine did meanwhile. The threads must have ended.
    pub(super) fn beside(&self, machine: WireCpu) -> WireCpu {
        let sum = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        WireCpu {
            user: sum.user.secs_f64(),
            system: sum.system.secs_f64(),
            total: sum.total().secs_f64(),
            ..machine
        }
    }
}

/// What the machine's cores do meanwhile, whoever they work for.
#[derive(Debug)]
pub(super) struct MachineCpu {
    since: Instant,
    before: Option<CpuSnapshot>,
}

impl MachineCpu {
    pub(super) fn start() -> Self {
        Self { since: Instant::now(), before: CpuSnapshot::read().ok() }
    }

    pub(super) fn spent(&self) -> WireCpu {
        let elapsed = self.since.elapsed().as_secs_f64();
        let cores = self.before.as_ref().zip(CpuSnapshot::read().ok());
        let cores = cores.map(|(before, now)| now.since(before).cores).unwrap_or_default();
        let cores = cores.into_iter().map(|(core, times)| WireCore {
            core: core as u64,
            busy: times.busy().secs_f64(),
            softirq: times.softirq.secs_f64(),
        });
        WireCpu { elapsed, cores: cores.collect(), ..WireCpu::default() }
    }
}

fn pin(cpu: usize) {
    if cpu >= CpuSet::MAX_CPU {
        return;
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    // Whoever gave the number has checked it; a core that went offline since is no reason to fail.
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("a thread could not be pinned to CPU {cpu}: {error}");
    }
}
