use super::wire::{WireCore, WireCpu};
use crate::event::{CoreUse, CpuUse};
use crate::observe::cpu::{Counted, CpuAccount, CpuOf, CpuSampler};
use probe::clock;
use rustix::thread::{CpuSet, sched_setaffinity};
use units::{Span, Time};

#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    pub elapsed: Span,
    /// CPU use of the measuring threads and of each core of the host, in percent of a core.
    pub used: CpuUse,
}

impl Cpu {
    /// Returns the CPU time of the threads that measured.
    pub fn threads(&self) -> Span {
        self.of_percent(self.used.user + self.used.system)
    }

    /// Returns the CPU time of the whole host, other programs included, from which netperf computes
    /// its service demand.
    pub fn machine(&self) -> Span {
        self.of_percent(self.used.cores.iter().map(|core| core.busy).sum())
    }

    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (a, b) = (self.elapsed.secs_f64(), other.elapsed.secs_f64());
        let mix = |x: f64, y: f64| if a + b > 0.0 { (x * a + y * b) / (a + b) } else { 0.0 };
        let cores = self.used.cores.iter().filter_map(|core| {
            let other = other.used.cores.iter().find(|other| other.core == core.core)?;
            let (busy, softirq) = (mix(core.busy, other.busy), mix(core.softirq, other.softirq));
            Some(CoreUse { core: core.core, busy, softirq })
        });
        Self {
            elapsed: self.elapsed + other.elapsed,
            used: CpuUse {
                user: mix(self.used.user, other.used.user),
                system: mix(self.used.system, other.used.system),
                cores: cores.collect(),
            },
        }
    }

    /// Checks the CPU use that a peer reported; `None` if a value is impossible.
    pub(super) fn from_wire(wire: &WireCpu) -> Option<Self> {
        let percent = |value: f64, most: f64| value.is_finite() && (0.0..=most).contains(&value);
        let possible = wire.elapsed.is_finite()
            && (0.0..=MOST_SECONDS).contains(&wire.elapsed)
            && percent(wire.user, MOST_PERCENT)
            && percent(wire.system, MOST_PERCENT)
            && wire
                .cores
                .iter()
                .all(|core| percent(core.busy, 100.5) && percent(core.softirq, 100.5));
        possible.then(|| Self {
            elapsed: Span::from_secs_f64(wire.elapsed),
            used: CpuUse {
                user: wire.user,
                system: wire.system,
                cores: wire
                    .cores
                    .iter()
                    .map(|core| CoreUse {
                        core: core.core as usize,
                        busy: core.busy,
                        softirq: core.softirq,
                    })
                    .collect(),
            },
        })
    }

    pub(super) fn to_wire(&self) -> WireCpu {
        let core = |core: &CoreUse| WireCore {
            core: core.core as u64,
            busy: core.busy,
            softirq: core.softirq,
        };
        WireCpu {
            elapsed: self.elapsed.secs_f64(),
            user: self.used.user,
            system: self.used.system,
            cores: self.used.cores.iter().map(core).collect(),
        }
    }

    fn of_percent(&self, percent: f64) -> Span {
        Span::from_secs_f64(self.elapsed.secs_f64() * percent / 100.0)
    }
}

/// Measures the local CPU use during a measurement. The meter cannot use the process's CPU time,
/// because the process may serve other clients at the same time.
#[derive(Debug)]
pub(super) struct CpuMeter {
    began: Time,
    machine: CpuSampler,
}

impl CpuMeter {
    pub(super) fn start() -> Self {
        let began = clock::now();
        let machine = CpuSampler::begin(began, CpuOf::Threads, CpuAccount::default(), false);
        Self { began, machine }
    }

    /// Ends the meter and returns the host's CPU use. The measurement's threads may still run.
    pub(super) fn stop(self) -> Cpu {
        let now = clock::now();
        Cpu { elapsed: now.since(self.began), used: self.machine.used(now) }
    }
}

impl Cpu {
    /// Adds the CPU time of the measurement's threads. Call this function after the threads have
    /// ended.
    pub(super) fn with_threads(mut self, account: &CpuAccount) -> Self {
        let (threads, elapsed) = (account.used(), self.elapsed.secs_f64());
        if elapsed > 0.0 {
            self.used.user = threads.user.secs_f64() / elapsed * 100.0;
            self.used.system = threads.system.secs_f64() / elapsed * 100.0;
        }
        self
    }
}

/// Prepares the calling thread for a measurement: pins it if requested, and charges its CPU time to
/// `account`.
pub(super) fn enlist(account: &CpuAccount, affinity: Option<usize>) -> Counted {
    if let Some(cpu) = affinity.filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(cpu);
        // The caller checked the core's number; a core that went offline since then is no reason to
        // fail.
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::warn!("a thread could not be pinned to CPU {cpu}: {error}");
        }
    }
    account.enter()
}

const MOST_SECONDS: f64 = 2.0 * 86_400.0;
const MOST_PERCENT: f64 = 100.0 * 8192.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(seconds: u64, user: f64, busy: f64) -> Cpu {
        let core = |core| CoreUse { core, busy, softirq: 1.0 };
        Cpu {
            elapsed: Span::from_secs(seconds),
            used: CpuUse { user, system: 10.0, cores: vec![core(0), core(1)] },
        }
    }

    #[test]
    fn cpu_percents_convert_to_time_and_add_up() {
        let one = cpu(2, 40.0, 50.0);
        assert_eq!((one.threads(), one.machine()), (Span::from_secs(1), Span::from_secs(2)));
        let both = one.and(&cpu(6, 0.0, 10.0));
        assert_eq!(both.elapsed, Span::from_secs(8));
        assert!(
            (both.used.user - 10.0).abs() < 1e-9 && (both.used.cores[1].busy - 20.0).abs() < 1e-9
        );
    }

    #[test]
    fn impossible_cpu_use_of_a_peer_is_rejected() {
        let reported = cpu(2, 40.0, 50.0);
        assert_eq!(Cpu::from_wire(&reported.to_wire()), Some(reported.clone()));
        for wrong in [
            WireCpu { elapsed: f64::NAN, ..reported.to_wire() },
            WireCpu { elapsed: -1.0, ..reported.to_wire() },
            WireCpu { user: 1e300, ..reported.to_wire() },
            WireCpu {
                cores: vec![WireCore { core: 0, busy: 4711.0, softirq: 0.0 }],
                ..reported.to_wire()
            },
        ] {
            assert_eq!(Cpu::from_wire(&wrong), None);
        }
    }
}
