//! Deliberate stalls of the emulator. Stalls make frames late by a known amount, which shows how
//! much lateness a measurement tolerates.

use units::{Span, Time};

/// The emulator sleeps for `length` about every `every`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalls {
    pub length: Span,
    /// Mean time from the beginning of a stall to the beginning of the next stall.
    pub every: Span,
}

#[derive(Debug)]
pub(crate) struct StallClock {
    stalls: Stalls,
    count: u64,
    next: Time,
}

impl StallClock {
    pub(crate) fn new(stalls: Stalls, start: Time) -> Self {
        let mut clock = Self { stalls, count: 0, next: start };
        clock.advance(start);
        clock
    }

    pub(crate) fn due(&mut self, now: Time) -> Option<Span> {
        if now < self.next {
            return None;
        }
        self.advance(now);
        Some(self.stalls.length)
    }

    /// Sets the next stall after half to one and a half of the mean interval, so that stalls do not
    /// synchronise with a flow's round trips. The fractional parts of multiples of the golden ratio
    /// are spread evenly between 0 and 1 (Weyl).
    fn advance(&mut self, now: Time) {
        self.count += 1;
        let part = 0.5 + (self.count as f64 * GOLDEN).fract();
        self.next = now + Span::from_secs_f64(self.stalls.every.secs_f64() * part);
    }
}

const GOLDEN: f64 = 0.618_033_988_749_895;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_take_the_requested_share_of_the_time() {
        let stalls = Stalls { length: Span::from_millis(2), every: Span::from_millis(20) };
        let start = Time::default();
        let mut clock = StallClock::new(stalls, start);
        let mut stalled = Span::ZERO;
        for step in 0..100_000 {
            stalled =
                stalled + clock.due(start + Span::from_micros(step * 100)).unwrap_or_default();
        }
        let share = stalled.secs_f64() / 10.0;
        assert!((share - 0.1).abs() < 0.002, "{share}");
    }
}
