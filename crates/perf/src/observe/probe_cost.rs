//! The cost of sampling: within a test, samples are taken in some periods and not in others. The
//! goodput of periods with samples is compared with the goodput of periods without samples.
//!
//! Separate tests with and without samples would differ by far more than the samples cost: their
//! connections, buffers and states of the host differ. Within a single connection all of these stay
//! the same. Four periods form a block. At random, the block's two outer periods or its two inner
//! periods have samples. Drift and periodic effects therefore affect periods with and without
//! samples alike.

mod meter;
mod statistic;

pub use statistic::{Cost, ProbeCost};

pub(super) use meter::Meter;

use serde_json::{Value, json};
use units::{Span, Time};

/// The schedule of periods with and without samples, the same at client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplingPeriods {
    seed: u32,
    length: Span,
}

/// Settings of the side that compares the goodput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostSettings {
    /// Time at the start of each period that is not measured. In this time the peer also changes
    /// to the period, and the data of the previous period arrives.
    pub settling: Span,
    /// True if the peer samples in the same periods.
    pub both_ends: bool,
}

#[derive(Debug)]
pub(super) struct CurrentPeriod {
    periods: SamplingPeriods,
    origin: Time,
    period: u64,
}

impl SamplingPeriods {
    /// Returns random periods for a path with this round-trip time. The length of the periods is no
    /// multiple of the sampling interval, so that over many periods the samples fall on every part
    /// of a period.
    pub fn random(round_trip: Span) -> Self {
        Self { seed: rand::random(), length: USUAL.max(round_trip * ROUND_TRIPS).min(LONGEST) }
    }

    /// True if samples are taken in this period, counted from 0.
    pub fn are_on(&self, period: u64) -> bool {
        let inner = matches!(period % BLOCK, 1 | 2);
        let outer_first = mixed((u64::from(self.seed) << 32) | (period / BLOCK)) & 1 == 0;
        inner != outer_first
    }

    pub fn length(&self) -> Span {
        self.length
    }

    pub fn to_json(&self) -> Value {
        json!({ "seed": self.seed, "turn_us": self.length.nanos() / 1000 })
    }

    pub fn read(reported: &Value) -> Option<Self> {
        let seed = u32::try_from(reported.get("seed")?.as_u64()?).ok()?;
        let micros = reported.get("turn_us")?.as_u64().filter(|micros| *micros <= MOST_MICROS)?;
        let length = Span::from_micros(micros);
        (length >= SHORTEST && length <= LONGEST).then_some(Self { seed, length })
    }
}

impl CostSettings {
    pub fn of(round_trip: Span, both_ends: bool) -> Self {
        Self { settling: SETTLING + (round_trip * 2).min(LONGEST / 4), both_ends }
    }
}

impl CurrentPeriod {
    pub(super) fn begin(periods: SamplingPeriods, now: Time) -> Self {
        Self { periods, origin: now, period: 0 }
    }

    pub(super) fn samples(&self) -> bool {
        self.periods.are_on(self.period)
    }

    pub(super) fn period(&self) -> u64 {
        self.period
    }

    pub(super) fn starts(&self) -> Time {
        self.origin + self.periods.length * self.period
    }

    pub(super) fn ends(&self) -> Time {
        self.starts() + self.periods.length
    }

    pub(super) fn length(&self) -> Span {
        self.periods.length
    }

    pub(super) fn advance(&mut self, now: Time) {
        self.period = now.since(self.origin).nanos() / self.periods.length.nanos().max(1);
    }
}

/// Returns a pseudo-random number for each number (SplitMix64; Steele, Lea and Flood 2014).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Number of periods in a block. Periods are compared within their block only.
const BLOCK: u64 = 4;
const USUAL: Span = Span::from_millis(237);
const SHORTEST: Span = Span::from_millis(50);
const LONGEST: Span = Span::from_millis(5000);
const MOST_MICROS: u64 = 10_000_000;
/// Minimum length of a period, in round trips.
const ROUND_TRIPS: u64 = 10;
const SETTLING: Span = Span::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_of_sampling_periods_is_symmetric_and_blocks_differ() {
        let periods = SamplingPeriods::random(Span::ZERO);
        let mut outer = 0;
        for block in 0..1000 {
            let on: Vec<bool> =
                (0..BLOCK).map(|index| periods.are_on(block * BLOCK + index)).collect();
            assert!(on[0] == on[3] && on[1] == on[2] && on[0] != on[1]);
            outer += u32::from(on[0]);
        }
        assert!((400..600).contains(&outer), "{outer}");
    }

    #[test]
    fn only_valid_sampling_periods_are_read_from_a_peer() {
        let periods = SamplingPeriods::random(Span::from_millis(40));
        assert_eq!(periods.length(), Span::from_millis(400));
        assert_eq!(SamplingPeriods::read(&periods.to_json()), Some(periods));
        let read = |text: &str| SamplingPeriods::read(&serde_json::from_str(text).unwrap());
        assert_eq!(read(r#"{"seed":1,"turn_us":3}"#), None);
        assert_eq!(read(r#"{"seed":1,"turn_us":18446744073709551615}"#), None);
        assert_eq!(read(r#"{"seed":-1,"turn_us":250000}"#), None);
        assert_eq!(read("true"), None);
    }
}
