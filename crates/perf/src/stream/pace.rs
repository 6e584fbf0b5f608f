use super::Course;
use crate::options::TestOptions;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};
use std::time::{Duration, Instant};
use units::{Rate, Span};

/// When blocks are due at a rate. Everything is computed from the start, so that nothing adds up: a
/// sender that was held up catches up, as iperf3 does.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    rate: Rate,
    block_bits: u128,
    /// Blocks that go back to back.
    burst: u64,
    /// Sleeps are not shorter: a timer has its price.
    quantum: Duration,
    started: Instant,
}

impl Pace {
    /// `None` without a rate.
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

    /// How many blocks a span of the rate holds, at least one burst.
    pub(crate) fn blocks_in(&self, span: Span) -> u64 {
        let bits = u128::from(self.rate.bits_per_second()) * u128::from(span.nanos()) / NANOS;
        ((bits / self.block_bits) as u64).max(self.burst)
    }

    /// Waits until a block may go after `sent`, and says how many may; zero if the course ended.
    pub(crate) fn wait(&self, sent: u64, course: &Course) -> u64 {
        loop {
            if !course.may_send() {
                return 0;
            }
            let now = Instant::now();
            let due = self.due(now);
            if due > sent {
                return due - sent;
            }
            let at = (self.started + self.time_of(sent)).max(now + self.quantum);
            sleep_until(at.min(now + LONGEST_SLEEP), now);
        }
    }

    /// Blocks that should be gone: block n, from 0, belongs to the moment n blocks take at the rate, and
    /// a whole burst goes at the moment of its first.
    fn due(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.started).as_nanos();
        let bits = elapsed * u128::from(self.rate.bits_per_second()) / NANOS;
        let begun = (bits / self.block_bits) as u64;
        (begun / self.burst + 1) * self.burst
    }

    fn time_of(&self, block: u64) -> Duration {
        let bits = u128::from(block) * self.block_bits * NANOS;
        let nanos = bits.div_ceil(u128::from(self.rate.bits_per_second()));
        Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
    }
}

/// The kernel's clock is read again, since `Instant` keeps its own to itself.
fn sleep_until(at: Instant, now: Instant) {
    let clock = rustix::time::clock_gettime(ClockId::Monotonic);
    let wait = at.saturating_duration_since(now);
    let nanos = clock.tv_nsec + i64::from(wait.subsec_nanos());
    let until = Timespec {
        tv_sec: clock.tv_sec + wait.as_secs() as i64 + nanos / 1_000_000_000,
        tv_nsec: nanos % 1_000_000_000,
    };
    // A signal ends it early, and the caller looks at the time again.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

const NANOS: u128 = 1_000_000_000;
/// How long the end of a test may go unnoticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
