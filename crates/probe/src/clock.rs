//! The clocks that timestamp every sample.

use rustix::time::{ClockId, clock_gettime};
use units::{Span, Time};

pub fn now() -> Time {
    Time::from_nanos(nanos(ClockId::Monotonic))
}

/// Returns the CPU time that the calling thread has used so far.
pub fn own_thread_cpu_time() -> Span {
    Span::from_nanos(nanos(ClockId::ThreadCPUTime))
}

/// Returns the length of the ticks in which `/proc` counts CPU time (`USER_HZ`, 100 a second).
pub fn tick() -> Span {
    Span::from_nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

fn nanos(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    (at.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(at.tv_nsec.max(0) as u64)
}
