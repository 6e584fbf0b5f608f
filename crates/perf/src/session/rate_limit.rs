use std::collections::VecDeque;
use units::{Rate, Span, Time};

/// Limits the rate of all streams of a test together, averaged over a window so that a burst does
/// not end a test.
#[derive(Debug)]
pub(super) struct RateLimit {
    most: Rate,
    /// Time over which the rate is averaged; at least [`STEP`].
    window: Span,
    /// Bytes since the start, noted every half second.
    marks: VecDeque<(Time, u64)>,
}

impl RateLimit {
    pub(super) fn new(most: Rate, window: Span) -> Self {
        Self { most, window: window.max(STEP), marks: VecDeque::new() }
    }

    /// Returns the rate over the whole window if it exceeds the limit.
    pub(super) fn exceeded(&mut self, now: Time, bytes: u64) -> Option<Rate> {
        if let Some((last, _)) = self.marks.back()
            && now.since(*last) < STEP
        {
            return None;
        }
        self.marks.push_back((now, bytes));
        let (first, before) = *self.marks.front()?;
        let passed = now.since(first);
        if passed < self.window {
            return None;
        }
        self.marks.pop_front();
        let bits = bytes.saturating_sub(before) as f64 * 8.0 / passed.secs_f64();
        let rate = Rate::from_bits_per_second(bits as u64);
        (rate > self.most).then_some(rate)
    }
}

const STEP: Span = Span::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn run(limit: &mut RateLimit, from: u64, to: u64, bytes: impl Fn(u64) -> u64) -> Option<Rate> {
        (from..to)
            .find_map(|tenth| limit.exceeded(Time::from_nanos(tenth * 100_000_000), bytes(tenth)))
    }

    #[test]
    fn the_rate_limit_admits_a_burst_and_no_sustained_excess() {
        let most = Rate::from_bits_per_second(8_000_000);
        // The limit is a megabyte a second.
        let mut limit = RateLimit::new(most, Span::from_secs(5));
        assert_eq!(run(&mut limit, 0, 200, |tenth| tenth * 100_000), None);
        let mut limit = RateLimit::new(most, Span::from_secs(5));
        let burst = |tenth: u64| tenth * 50_000 + if tenth > 10 { 2_000_000 } else { 0 };
        assert_eq!(run(&mut limit, 0, 200, burst), None);
        let mut limit = RateLimit::new(most, Span::from_secs(5));
        let rate = run(&mut limit, 0, 200, |tenth| tenth * 200_000).unwrap();
        assert_eq!(rate.bits_per_second(), 16_000_000);
        assert!(limit.marks.len() <= 11);
        // A burst of 2 MB in a window of one second exceeds the limit.
        let mut limit = RateLimit::new(most, Span::from_secs(1));
        assert!(run(&mut limit, 0, 200, burst).is_some());
    }
}
