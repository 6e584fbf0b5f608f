//! The emulator's clock.

use rustix::time::{ClockId, clock_gettime};
use units::Time;

/// `CLOCK_MONOTONIC` now, the clock of the ports' timestamps.
pub fn now() -> Time {
    let at = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}
