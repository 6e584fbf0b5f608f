use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The switch's time: a monotonic clock that tests may stop and advance.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    /// Nanoseconds that `time/warp` has added.
    warped: AtomicU64,
    /// The clock's reading when it was stopped; [`RUNNING`] if it runs.
    stopped_at: AtomicU64,
}

impl Clock {
    #[must_use]
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            warped: AtomicU64::new(0),
            stopped_at: AtomicU64::new(RUNNING),
        }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub(super) fn now_ns(&self) -> u64 {
        let base = match self.stopped_at.load(Ordering::Acquire) {
            RUNNING => self.start.elapsed().as_nanos() as u64,
            stopped => stopped,
        };
        base + self.warped.load(Ordering::Acquire)
    }

    #[must_use]
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// Stops the clock; from then on it advances by [`Clock::warp`] alone.
    pub(super) fn stop(&self) {
        let now = self.start.elapsed().as_nanos() as u64;
        let _ = self.stopped_at.compare_exchange(RUNNING, now, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(super) fn warp(&self, by: Duration) {
        self.warped.fetch_add(by.as_nanos() as u64, Ordering::AcqRel);
    }
}

const RUNNING: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_advances_by_warps_alone() {
        let clock = Clock::start();
        clock.stop();
        let before = clock.now_ns();
        clock.stop();
        assert_eq!(clock.now_ns(), before);
        clock.warp(Duration::from_millis(1500));
        assert_eq!(clock.now_ns(), before + 1_500_000_000);
    }
}
