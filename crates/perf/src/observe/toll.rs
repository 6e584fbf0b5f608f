//! The cost of sampling: within one test, samples are taken in some turns and not in others, and
//! the goodput of both kinds of turns is compared.
//!
//! Separate tests with and without samples differ by far more than the samples cost: each has
//! another connection, other buffers and another moment of the host. Within one connection all of
//! that is the same. Four turns make a block, with samples in its outer or its inner turns, at
//! random. Drift and periodic effects thus affect both kinds of turns alike.

mod meter;
mod statistic;

pub use statistic::{Cost, ProbeCost};

pub(super) use meter::Meter;

use serde_json::{Value, json};
use units::{Span, Time};

/// The turns in which samples are taken: the same at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    seed: u32,
    length: Span,
}

/// Settings of the end that compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weighing {
    /// Wait at the start of a turn, until the far end has turned too and the data of the previous
    /// turn has passed.
    pub settling: Span,
    /// The far end takes its turns, too.
    pub both_ends: bool,
}

/// An observer's position in its turns.
#[derive(Debug)]
pub(super) struct Place {
    turns: Turns,
    origin: Time,
    turn: u64,
}

impl Turns {
    /// Turns for a path with this round trip. The length is no multiple of the sampling period, so
    /// that over many turns the samples fall everywhere within them.
    pub fn random(round_trip: Span) -> Self {
        Self { seed: rand::random(), length: USUAL.max(round_trip * ROUND_TRIPS).min(LONGEST) }
    }

    /// True if samples are taken in this turn, counted from 0.
    pub fn are_on(&self, turn: u64) -> bool {
        let inner = matches!(turn % BLOCK, 1 | 2);
        let outer_first = mixed((u64::from(self.seed) << 32) | (turn / BLOCK)) & 1 == 0;
        inner != outer_first
    }

    pub fn length(&self) -> Span {
        self.length
    }

    /// Encoding for the far end.
    pub fn to_json(&self) -> Value {
        json!({ "seed": self.seed, "turn_us": self.length.nanos() / 1000 })
    }

    /// `None` if it is invalid.
    pub fn read(told: &Value) -> Option<Self> {
        let seed = u32::try_from(told.get("seed")?.as_u64()?).ok()?;
        let micros = told.get("turn_us")?.as_u64().filter(|micros| *micros <= MOST_MICROS)?;
        let length = Span::from_micros(micros);
        (length >= SHORTEST && length <= LONGEST).then_some(Self { seed, length })
    }
}

impl Weighing {
    pub fn of(round_trip: Span, both_ends: bool) -> Self {
        Self { settling: SETTLING + (round_trip * 2).min(LONGEST / 4), both_ends }
    }
}

impl Place {
    pub(super) fn begin(turns: Turns, now: Time) -> Self {
        Self { turns, origin: now, turn: 0 }
    }

    pub(super) fn looks(&self) -> bool {
        self.turns.are_on(self.turn)
    }

    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    pub(super) fn starts(&self) -> Time {
        self.origin + self.turns.length * self.turn
    }

    pub(super) fn ends(&self) -> Time {
        self.starts() + self.turns.length
    }

    pub(super) fn length(&self) -> Span {
        self.turns.length
    }

    /// Moves to the current turn.
    pub(super) fn go_on(&mut self, now: Time) {
        self.turn = now.since(self.origin).nanos() / self.turns.length.nanos().max(1);
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): it maps neighbouring numbers to unlike ones.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Turns that are compared with each other.
const BLOCK: u64 = 4;
const USUAL: Span = Span::from_millis(237);
const SHORTEST: Span = Span::from_millis(50);
const LONGEST: Span = Span::from_millis(5000);
const MOST_MICROS: u64 = 10_000_000;
/// A turn lasts at least this many round trips.
const ROUND_TRIPS: u64 = 10;
const SETTLING: Span = Span::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_symmetric_and_blocks_differ() {
        let turns = Turns::random(Span::ZERO);
        let mut outer = 0;
        for block in 0..1000 {
            let on: Vec<bool> =
                (0..BLOCK).map(|place| turns.are_on(block * BLOCK + place)).collect();
            assert!(on[0] == on[3] && on[1] == on[2] && on[0] != on[1]);
            outer += u32::from(on[0]);
        }
        assert!((400..600).contains(&outer), "{outer}");
    }

    #[test]
    fn the_far_end_reads_valid_turns_only() {
        let turns = Turns::random(Span::from_millis(40));
        assert_eq!(turns.length(), Span::from_millis(400));
        assert_eq!(Turns::read(&turns.to_json()), Some(turns));
        let read = |text: &str| Turns::read(&serde_json::from_str(text).unwrap());
        assert_eq!(read(r#"{"seed":1,"turn_us":3}"#), None);
        assert_eq!(read(r#"{"seed":1,"turn_us":18446744073709551615}"#), None);
        assert_eq!(read(r#"{"seed":-1,"turn_us":250000}"#), None);
        assert_eq!(read("true"), None);
    }
}
