//! Lets other tasks run on a CPU that the emulator spins on.
//!
//! The kernel stops a real-time thread that never sleeps: ordinary tasks that it starves get 50 ms
//! of every second without a break (the fair server, kernel/sched/deadline.c, since Linux 6.12;
//! before, RT throttling, sched_rt_runtime_us). Such a stop makes a link 50 ms late. The kernel
//! does not intervene if the starved tasks get the same time in shorter slices, so for a while
//! after a stall the emulator yields its CPU for 30 µs every 400 to 500 µs, preferably between two
//! frames. Two emulators on one CPU yield to each other in the same way, and should be late by half
//! a millisecond at most. On a CPU without competing tasks the emulator never yields.
//!
//! Measured by `weir lab run link-accuracy --quick` on two cores that compilers kept busy: without
//! yielding 8 of 14 cells were up to 45 ms late at p99, with yielding no cell exceeded 1 ms.

use std::sync::atomic::{AtomicU64, Ordering};
use units::{Span, Time};

#[derive(Debug)]
pub(crate) struct CpuYield {
    /// Whether the thread is a real-time thread, which other tasks cannot interrupt.
    enabled: bool,
    checked: Time,
    last: Time,
    /// The time until which the emulator yields. All emulators of the process share this time, so
    /// that the emulator of a lab's next cell yields from its start.
    contended_until: &'static AtomicU64,
}

impl CpuYield {
    pub(crate) fn new(now: Time, real_time: bool) -> Self {
        Self { enabled: real_time, checked: now, last: now, contended_until: &CONTENDED_UNTIL }
    }

    /// Returns the time for which the thread must sleep now; `None` for no sleep. Called once in
    /// every round of the loop. `next` returns when the next frame is due: a sleep waits a little
    /// for a gap between frames.
    pub(crate) fn due(&mut self, now: Time, next: impl FnOnce() -> Time) -> Option<Span> {
        if !self.enabled {
            return None;
        }
        let gap = now.since(self.checked);
        self.checked = now;
        if gap > STALL {
            self.contended_until.store((now + CONTENDED_FOR).nanos(), Ordering::Relaxed);
        }
        let awake = now.since(self.last);
        let contended = now.nanos() < self.contended_until.load(Ordering::Relaxed);
        if !contended || awake < EVERY || awake < AT_LATEST && next() < now + LENGTH {
            return None;
        }
        self.last = now;
        Some(LENGTH)
    }

    /// Reports a sleep of the thread that was to last `asked` at most. Time beyond `asked` counts
    /// as a stall, and a long enough sleep has yielded the CPU.
    pub(crate) fn record_sleep(&mut self, asked: Span, from: Time, until: Time) {
        self.checked = until.min(from + asked);
        if until.since(from) >= LENGTH {
            self.last = until;
        }
    }
}

/// The length of a sleep. The kernel gives starved tasks 5 % of the time; the sleeps give the
/// starved tasks 6 to 7 %.
const LENGTH: Span = Span::from_micros(30);
const EVERY: Span = Span::from_micros(400);
const AT_LATEST: Span = Span::from_micros(500);
/// The shortest gap that counts as a stall: longer than any round of the loop, shorter than the
/// kernel's interventions.
const STALL: Span = Span::from_millis(5);
/// The time for which the emulator yields after a stall. The time is long, because a stall can
/// spoil a measurement, and yielding costs almost nothing.
const CONTENDED_FOR: Span = Span::from_secs(300);

static CONTENDED_UNTIL: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_yielded_only_for_300_s_after_a_stall() {
        let mut now = Time::from_nanos(1_000_000_000_000);
        static OWN: AtomicU64 = AtomicU64::new(0);
        let mut cpu_yield = CpuYield { contended_until: &OWN, ..CpuYield::new(now, true) };
        let mut round = |cpu_yield: &mut CpuYield, step: Span| {
            now += step;
            cpu_yield.due(now, || now + Span::from_secs(1))
        };
        let mut sleeps = |cpu_yield: &mut CpuYield, rounds: usize, step: Span| {
            (0..rounds).filter_map(|_| round(cpu_yield, step)).count()
        };
        assert_eq!(sleeps(&mut cpu_yield, 10_000, Span::from_micros(10)), 0);
        assert_eq!(sleeps(&mut cpu_yield, 1, Span::from_millis(50)), 1);
        let contended = sleeps(&mut cpu_yield, 10_000, Span::from_micros(10));
        assert!((240..=260).contains(&contended), "{contended} sleeps in 100 ms");
        let later = sleeps(&mut cpu_yield, 400_000, Span::from_millis(1));
        assert!((299_000..=300_000).contains(&later), "{later} sleeps in 400 s");
    }

    #[test]
    fn a_sleep_waits_for_a_gap_between_frames_but_not_for_long() {
        static OWN: AtomicU64 = AtomicU64::new(0);
        let start = Time::from_nanos(1_000_000_000_000);
        let mut cpu_yield = CpuYield { contended_until: &OWN, ..CpuYield::new(start, true) };
        OWN.store(u64::MAX, Ordering::Relaxed);
        let mut due = |after: u64, frame: u64| {
            let now = start + Span::from_micros(after);
            cpu_yield.due(now, || now + Span::from_micros(frame)).is_some()
        };
        assert!(!due(399, 1_000), "the emulator yields before 400 µs have passed");
        assert!(!due(400, 29));
        assert!(due(450, 30));
        assert!(!due(949, 0));
        assert!(due(950, 0), "the emulator does not yield at the latest time");
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
        assert_eq!(
            cpu_yield.due(late, || Time::NEVER),
            None,
            "the emulator yields directly after a sleep"
        );
        assert!(
            cpu_yield.due(late + EVERY, || Time::NEVER).is_some(),
            "29 ms too long in a sleep is a stall"
        );
    }
}
