//! Leaves other tasks their share of a CPU that the emulator spins on.
//!
//! The kernel stops a real-time thread that never sleeps: ordinary tasks that it starves get 50 ms
//! of every second in one piece (the fair server, kernel/sched/deadline.c, since Linux 6.12;
//! before, RT throttling, sched_rt_runtime_us). For a link that is 50 ms of lateness. The kernel
//! does not intervene if those tasks get as much in smaller pieces, so after a stall the emulator
//! takes a breath of 100 µs every half millisecond for a while. Two emulators on one CPU take turns
//! by the same means, and should be late by half a millisecond at most. On a CPU without competing
//! tasks the emulator never takes a breath.
//!
//! Measured by `weir lab run link-accuracy --quick` on two cores that compilers kept busy: without
//! breaths 8 of 14 cells were up to 45 ms late at p99, with them none exceeded 1 ms.

use std::sync::atomic::{AtomicU64, Ordering};
use units::{Span, Time};

/// Decides when to take a breath.
#[derive(Debug)]
pub(crate) struct Breath {
    /// Only if the thread precedes all others by its scheduling class.
    matters: bool,
    looked: Time,
    last: Time,
    crowded_until: &'static AtomicU64,
}

impl Breath {
    pub(crate) fn new(now: Time, real_time: bool) -> Self {
        Self { matters: real_time, looked: now, last: now, crowded_until: &CROWDED_UNTIL }
    }

    /// Called once in every round of the loop; `true` requests a breath of [`LENGTH`] now.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        if !self.matters {
            return false;
        }
        let gap = now.since(self.looked);
        self.looked = now;
        if gap > STALL {
            self.crowded_until.store((now + CROWDED_FOR).nanos(), Ordering::Relaxed);
        }
        let crowded = now.nanos() < self.crowded_until.load(Ordering::Relaxed);
        let due = crowded && now.since(self.last) >= EVERY;
        if due {
            self.last = now;
        }
        due
    }

    /// Reports a sleep of the thread, of `asked` at most. The time beyond that is a stall like any
    /// other, and a long enough sleep was a breath.
    pub(crate) fn slept(&mut self, asked: Span, from: Time, until: Time) {
        self.looked = until.min(from + asked);
        if until.since(from) >= LENGTH {
            self.last = until;
        }
    }
}

/// The length of a breath.
pub(crate) const LENGTH: Span = Span::from_micros(100);
const EVERY: Span = Span::from_micros(400);
/// Longer than any round of the loop takes, shorter than the kernel's interventions.
const STALL: Span = Span::from_millis(5);
const CROWDED_FOR: Span = Span::from_secs(20);

/// All emulators of the process share the knowledge that the machine is crowded, so that the next
/// cell of a lab need not find it out by another stall.
static CROWDED_UNTIL: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stall_causes_breaths_and_only_for_a_while() {
        let mut now = Time::from_nanos(1_000_000_000_000);
        static OWN: AtomicU64 = AtomicU64::new(0);
        let mut breath = Breath { crowded_until: &OWN, ..Breath::new(now, true) };
        let mut round = |breath: &mut Breath, step: Span| {
            now += step;
            breath.is_due(now)
        };
        let quiet = (0..10_000).filter(|_| round(&mut breath, Span::from_micros(10))).count();
        assert_eq!(quiet, 0);
        assert!(round(&mut breath, Span::from_millis(50)));
        let crowded = (0..10_000).filter(|_| round(&mut breath, Span::from_micros(10))).count();
        assert!((240..=260).contains(&crowded), "{crowded} breaths in 100 ms");
        let later = (0..30_000).filter(|_| round(&mut breath, Span::from_millis(1))).count();
        assert!((19_000..=20_000).contains(&later), "{later} breaths in 30 s");
    }

    #[test]
    fn a_long_sleep_is_a_breath_and_an_overlong_sleep_is_a_stall() {
        static OWN: AtomicU64 = AtomicU64::new(0);
        let start = Time::from_nanos(1_000_000_000_000);
        let mut breath = Breath { crowded_until: &OWN, ..Breath::new(start, true) };
        let woken = start + Span::from_micros(20);
        breath.slept(Span::from_millis(10), start, woken);
        assert_eq!((breath.looked, breath.last), (woken, start));
        let late = woken + Span::from_millis(30);
        breath.slept(Span::from_millis(1), woken, late);
        assert_eq!(breath.last, late);
        assert!(!breath.is_due(late), "it has just slept");
        assert!(breath.is_due(late + EVERY), "29 ms too long in a sleep is a stall");
    }
}
