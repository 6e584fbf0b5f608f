//! The emulator's clock.

use rustix::time::{ClockId, clock_gettime};
use units::{Span, Time};

pub(crate) fn cpu_time() -> Span {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Span::from_nanos(spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64)
}

/// Returns the time of `CLOCK_MONOTONIC`. The ports' timestamps use the same clock.
pub fn now() -> Time {
    let at = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}
