use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use units::Time;

/// The switch's time: a monotonic clock that tests may stop and advance.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    /// The reading of the system's monotonic clock at the start.
    origin: Time,
    /// Nanoseconds that `time/warp` has added.
    warped: AtomicU64,
    /// The reading at which the clock was stopped; [`RUNNING`] for a running clock.
    stopped_at: AtomicU64,
}

impl Clock {
    #[must_use]
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            origin: monotonic(),
            warped: AtomicU64::new(0),
            stopped_at: AtomicU64::new(RUNNING),
        }
    }

    /// Returns the nanoseconds since the start.
    #[must_use]
    pub(super) fn now_ns(&self) -> u64 {
        let base = match self.stopped_at.load(Ordering::Acquire) {
            RUNNING => self.start.elapsed().as_nanos() as u64,
            stopped => stopped,
        };
        base + self.warped.load(Ordering::Acquire)
    }

    /// Returns a frame's arrival time on the switch's clock. Returns `now` if the frame has no
    /// arrival time or the clock is stopped.
    #[must_use]
    pub(super) fn of_arrival(&self, arrival: Time, now: Time) -> Time {
        if arrival == Time::ZERO || self.stopped_at.load(Ordering::Acquire) != RUNNING {
            return now;
        }
        let since = arrival.since(self.origin).nanos() + self.warped.load(Ordering::Acquire);
        Time::from_nanos(since).min(now)
    }

    #[must_use]
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// Stops the clock. From then on only [`Clock::warp`] advances the clock.
    pub(super) fn stop(&self) {
        let now = self.start.elapsed().as_nanos() as u64;
        let _ = self.stopped_at.compare_exchange(RUNNING, now, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn warp(&self, by: Duration) {
        self.warped.fetch_add(by.as_nanos() as u64, Ordering::AcqRel);
    }
}

fn monotonic() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

const RUNNING: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_warp_advances_a_stopped_clock() {
        let clock = Clock::start();
        clock.stop();
        let before = clock.now_ns();
        clock.stop();
        assert_eq!(clock.now_ns(), before);
        clock.warp(Duration::from_millis(1500));
        assert_eq!(clock.now_ns(), before + 1_500_000_000);
    }

    #[test]
    fn a_frame_keeps_its_arrival_time_unless_the_clock_is_stopped() {
        let clock = Clock::start();
        clock.warp(Duration::from_millis(5));
        let seen = monotonic();
        let later = Time::from_nanos(clock.now_ns() + 1_000_000_000);
        let arrival = clock.of_arrival(seen, later);
        assert!(arrival >= Time::from_nanos(5_000_000), "{arrival:?}");
        assert!(arrival <= Time::from_nanos(clock.now_ns()), "{arrival:?}");
        assert_eq!(clock.of_arrival(Time::ZERO, later), later);
        assert_eq!(clock.of_arrival(seen, Time::from_nanos(7)), Time::from_nanos(7));
        clock.stop();
        assert_eq!(clock.of_arrival(seen, later), later);
    }
}
