use rustix::time::{ClockId, clock_gettime};
use units::Time;

/// Converts the kernel's receive timestamps, which are on `CLOCK_REALTIME`, to `CLOCK_MONOTONIC`.
///
/// The difference between the two clocks is sampled once per batch. The clock may be set between a
/// packet's arrival and the sample, so each time is clamped between the previous batch's sample and
/// the present. Arrival times never decrease, so that a model receives packets in order.
#[derive(Debug)]
pub(crate) struct ArrivalClock {
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, in nanoseconds.
    difference: i64,
    /// The start of this batch and of the previous batch.
    now: Time,
    before: Time,
    latest: Time,
}

impl ArrivalClock {
    pub(crate) fn new() -> Self {
        let now = monotonic();
        Self { difference: 0, now, before: now, latest: Time::ZERO }
    }

    pub(crate) fn begin_batch(&mut self) {
        self.before = self.now;
        let mut narrowest = u64::MAX;
        for _ in 0..ATTEMPTS {
            let first = monotonic();
            let real = nanos(ClockId::Realtime);
            let second = monotonic();
            let width = second.since(first).nanos();
            if width < narrowest {
                narrowest = width;
                let middle = first.nanos() + width / 2;
                self.difference = real.wrapping_sub(middle as i64);
            }
            self.now = second;
            if width <= NARROW {
                break;
            }
        }
    }

    /// Returns the arrival time of a packet of the current batch, from the kernel's timestamp.
    pub(crate) fn arrival(&mut self, seconds: u32, nanoseconds: u32) -> Time {
        let stamp = i64::from(seconds) * 1_000_000_000 + i64::from(nanoseconds);
        let time = Time::from_nanos(stamp.wrapping_sub(self.difference).max(0) as u64);
        if time > self.now {
            // The packet arrived after the batch began. The clock is read again, because copying
            // earlier packets took time.
            self.now = monotonic();
        }
        self.latest = time.clamp(self.before, self.now).max(self.latest);
        self.latest
    }

    pub(crate) fn unstamped(&mut self) -> Time {
        self.latest = self.now.max(self.latest);
        self.latest
    }
}

pub(crate) fn monotonic() -> Time {
    Time::from_nanos(nanos(ClockId::Monotonic) as u64)
}

fn nanos(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec as i64
}

/// Maximum time for three readings of the clock, which usually take about 0.1 us. A longer time
/// shows that the thread was interrupted.
const NARROW: u64 = 1_000;
const ATTEMPTS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_time_is_clamped_to_its_batch_and_never_decreases() {
        let mut clock = ArrivalClock::new();
        let mut last = Time::ZERO;
        for _ in 0..100 {
            clock.begin_batch();
            let real = nanos(ClockId::Realtime);
            let now = ((real / 1_000_000_000) as u32, (real % 1_000_000_000) as u32);
            for (seconds, nanoseconds) in [(0, 0), now, (u32::MAX, 999_999_999), now] {
                let time = clock.arrival(seconds, nanoseconds);
                assert!(time >= last && time >= clock.before && time <= monotonic());
                last = time;
            }
        }
    }
}
