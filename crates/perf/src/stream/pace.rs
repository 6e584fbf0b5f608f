use super::Lifecycle;
use crate::options::TestOptions;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};
use std::time::{Duration, Instant};
use units::{Rate, Span};

/// Computes when blocks are due at a rate. All times count from the start, so delays do not add up,
/// and a delayed sender catches up, as in iperf3.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    rate: Rate,
    block_bits: u128,
    /// Number of blocks that are sent back to back.
    burst: u64,
    /// Minimum sleep, because a timer has a cost.
    quantum: Duration,
    started: Instant,
}

impl Pace {
    /// Returns the pace of a test; `None` without a target rate.
    pub(crate) fn of(options: &TestOptions, quantum: Span) -> Option<Self> {
        let rate = options.rate.filter(|rate| rate.bits_per_second() > 0)?;
        Some(Self {
            rate,
            block_bits: options.block_bytes() as u128 * 8,
            burst: u64::from(options.burst.max(1)),
            quantum: quantum.as_duration(),
            started: Instant::now(),
        })
    }

    pub(crate) fn begin(&mut self, at: Instant) {
        self.started = at;
    }

    /// Returns the number of blocks that are due in a span at the rate, at least a burst.
    pub(crate) fn blocks_in(&self, span: Span) -> u64 {
        let bits = u128::from(self.rate.bits_per_second()) * u128::from(span.nanos()) / NANOS;
        ((bits / self.block_bits) as u64).max(self.burst)
    }

    /// Waits until the next block is due after `sent` blocks, and returns how many blocks are due;
    /// zero if the lifecycle ended.
    pub(crate) fn wait(&self, sent: u64, lifecycle: &Lifecycle) -> u64 {
        loop {
            if !lifecycle.may_send() {
                return 0;
            }
            let now = Instant::now();
            let due = self.due_after(now.saturating_duration_since(self.started));
            if due > sent {
                return due - sent;
            }
            let at = (self.started + self.time_of(sent)).max(now + self.quantum);
            sleep_until(at.min(now + LONGEST_SLEEP), now);
        }
    }

    /// Returns the number of blocks that are due after `elapsed`. Block n, counted from 0, is due
    /// after the time that n blocks take at the rate. A whole burst is due with its first block.
    fn due_after(&self, elapsed: Duration) -> u64 {
        let bits = elapsed.as_nanos() * u128::from(self.rate.bits_per_second()) / NANOS;
        let begun = (bits / self.block_bits) as u64;
        (begun / self.burst + 1) * self.burst
    }

    fn time_of(&self, block: u64) -> Duration {
        let bits = u128::from(block) * self.block_bits * NANOS;
        let nanos = bits.div_ceil(u128::from(self.rate.bits_per_second()));
        Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
    }
}

/// Sleeps until `at`. Reads the kernel's clock to compute an absolute time, since an `Instant` does
/// not reveal its value.
fn sleep_until(at: Instant, now: Instant) {
    let clock = rustix::time::clock_gettime(ClockId::Monotonic);
    let wait = at.saturating_duration_since(now);
    let nanos = clock.tv_nsec + i64::from(wait.subsec_nanos());
    let until = Timespec {
        tv_sec: clock.tv_sec + wait.as_secs() as i64 + nanos / 1_000_000_000,
        tv_nsec: nanos % 1_000_000_000,
    };
    // A signal ends the sleep early, and the caller checks the time again.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

const NANOS: u128 = 1_000_000_000;
/// Maximum delay until a sleeping sender notices the end of a test.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Stop;
    use proptest::prelude::*;
    use units::Bytes;

    fn pace(bits: u64, block: u64, burst: u32) -> Pace {
        let options = TestOptions {
            rate: Some(Rate::from_bits_per_second(bits)),
            block: Some(Bytes::new(block)),
            burst,
            ..TestOptions::default()
        };
        Pace::of(&options, Span::from_millis(1)).unwrap()
    }

    #[test]
    fn blocks_are_due_at_the_pacing_rate() {
        // 1250 bytes at 1 Mbit/s take 10 ms.
        let pace = pace(1_000_000, 1250, 1);
        assert_eq!(pace.due_after(Duration::ZERO), 1);
        assert_eq!(pace.due_after(Duration::from_micros(9_999)), 1);
        assert_eq!(pace.due_after(Duration::from_millis(10)), 2);
        assert_eq!(pace.due_after(Duration::from_secs(86_400)), 8_640_001);
        assert_eq!(pace.time_of(8_640_000), Duration::from_secs(86_400));
    }

    #[test]
    fn all_blocks_of_a_burst_are_due_together() {
        let pace = pace(1_000_000, 1250, 10);
        assert_eq!(pace.due_after(Duration::ZERO), 10);
        assert_eq!(pace.due_after(Duration::from_millis(99)), 10);
        assert_eq!(pace.due_after(Duration::from_millis(100)), 20);
        assert_eq!(pace.blocks_in(Span::from_micros(100)), 10);
    }

    #[test]
    fn a_sender_does_not_wait_after_the_end_of_the_test() {
        let lifecycle = Lifecycle::new(Stop::default());
        lifecycle.go();
        lifecycle.stop_sending();
        assert_eq!(pace(1, 1 << 20, 1).wait(1, &lifecycle), 0);
    }

    proptest! {
        #[test]
        fn a_block_is_due_at_its_time_and_not_before(
            bits in 1_000u64..100_000_000_000,
            block in 1u64..1_000_000,
            sent in 1u64..100_000_000,
        ) {
            let pace = pace(bits, block, 1);
            let at = pace.time_of(sent);
            prop_assert!(pace.due_after(at) > sent);
            prop_assert!(pace.due_after(at - Duration::from_nanos(1)) <= sent);
        }
    }
}
