//! Leaves other tasks their share of a CPU that the emulator spins on.
//!
//! The kernel stops a real-time thread that never sleeps: ordinary tasks that it starves get 50 ms
//! of every second in one piece (the fair server, kernel/sched/deadline.c, since Linux 6.12;
//! before, RT throttling, sched_rt_runtime_us). For a link that is 50 ms of lateness. The kernel
//! does not intervene if those tasks get as much in smaller pieces, so after a stall the emulator
//! yields its CPU for 100 µs every half millisecond for a while. Two emulators on one CPU yield to
//! each other by the same means, and should be late by half a millisecond at most. On a CPU without
//! competing tasks the emulator never yields.
//!
//! Measured by `weir lab run link-accuracy --quick` on two cores that compilers kept busy: without
//! yielding 8 of 14 cells were up to 45 ms late at p99, with it none exceeded 1 ms.

use std::sync::atomic::{AtomicU64, Ordering};
use units::{Span, Time};

/// Decides when to yield the CPU.
#[derive(Debug)]
pub(crate) struct CpuYield {
    /// Only if the thread precedes all others by its scheduling class.
    enabled: bool,
    checked: Time,
    last: Time,
    contended_until: &'static AtomicU64,
}

impl CpuYield {
    pub(crate) fn new(now: Time, real_time: bool) -> Self {
        Self { enabled: real_time, checked: now, last: now, contended_until: &CONTENDED_UNTIL }
    }

    /// Called once in every round of the loop; `true` requests a sleep of [`LENGTH`] now.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        if !self.enabled {
            return false;
        }
        let gap = now.since(self.checked);
        self.checked = now;
        if gap > STALL {
            self.contended_until.store((now + CONTENDED_FOR).nanos(), Ordering::Relaxed);
        }
        let contended = now.nanos() < self.contended_until.load(Ordering::Relaxed);
        let due = contended && now.since(self.last) >= EVERY;
        if due {
            self.last = now;
        }
        due
    }

    /// Reports a sleep of the thread, of `asked` at most. The time beyond that is a stall like any
    /// other, and a long enough sleep has yielded the CPU.
    pub(crate) fn record_sleep(&mut self, asked: Span, from: Time, until: Time) {
        self.checked = until.min(from + asked);
        if until.since(from) >= LENGTH {
            self.last = until;
        }
    }
}

/// The length of one sleep.
pub(crate) const LENGTH: Span = Span::from_micros(100);
const EVERY: Span = Span::from_micros(400);
/// Longer than any round of the loop takes, shorter than the kernel's interventions.
const STALL: Span = Span::from_millis(5);
const CONTENDED_FOR: Span = Span::from_secs(20);

/// All emulators of the process share the knowledge that the CPU is contended, so that the next
/// cell of a lab need not find it out by another stall.
static CONTENDED_UNTIL: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stall_causes_yielding_and_only_for_a_while() {
        let mut now = Time::from_nanos(1_000_000_000_000);
        static OWN: AtomicU64 = AtomicU64::new(0);
        let mut cpu_yield = CpuYield { contended_until: &OWN, ..CpuYield::new(now, true) };
        let mut round = |cpu_yield: &mut CpuYield, step: Span| {
            now += step;
            cpu_yield.is_due(now)
        };
        let quiet = (0..10_000).filter(|_| round(&mut cpu_yield, Span::from_micros(10))).count();
        assert_eq!(quiet, 0);
        assert!(round(&mut cpu_yield, Span::from_millis(50)));
        let contended =
            (0..10_000).filter(|_| round(&mut cpu_yield, Span::from_micros(10))).count();
        assert!((240..=260).contains(&contended), "{contended} sleeps in 100 ms");
        let later = (0..30_000).filter(|_| round(&mut cpu_yield, Span::from_millis(1))).count();
        assert!((19_000..=20_000).contains(&later), "{later} sleeps in 30 s");
    }

    #[test]
    fn a_long_sleep_yields_the_cpu_and_an_overlong_sleep_is_a_stall() {
        static OWN: AtomicU64 = AtomicU64::new(0);
        let start = Time::from_nanos(1_000_000_000_000);
        let mut cpu_yield = CpuYield { contended_until: &OWN, ..CpuYield::new(start, true) };
        let woken = start + Span::from_micros(20);
        cpu_yield.record_sleep(Span::from_millis(10), start, woken);
        assert_eq!((cpu_yield.checked, cpu_yield.last), (woken, start));
        let late = woken + Span::from_millis(30);
        cpu_yield.record_sleep(Span::from_millis(1), woken, late);
        assert_eq!(cpu_yield.last, late);
        assert!(!cpu_yield.is_due(late), "it has just slept");
        assert!(cpu_yield.is_due(late + EVERY), "29 ms too long in a sleep is a stall");
    }
}
