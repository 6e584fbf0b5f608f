use crate::event::{Latency, LatencySource};
use hdrhistogram::Histogram;
use units::Span;

/// Histogram of the round-trip times in a phase of a test, and the number of lost probes.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    histogram: Histogram<u32>,
    max: Span,
    lost: u64,
}

impl Tally {
    pub(super) fn add(&mut self, round_trip: Span) {
        // `record` grows the histogram up to the value, so it accepts every value;
        // `saturating_record` would not grow the histogram.
        let _ = self.histogram.record((round_trip.nanos() / UNIT).clamp(1, LONGEST));
        self.max = self.max.max(round_trip);
    }

    pub(super) fn lose(&mut self, count: u64) {
        self.lost += count;
    }

    /// Takes back a loss: the reply arrived after the probe had counted as lost.
    pub(super) fn find(&mut self) {
        self.lost = self.lost.saturating_sub(1);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn clear(&mut self) {
        self.histogram.reset();
        (self.max, self.lost) = (Span::ZERO, 0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    pub(super) fn latency(&self, by: LatencySource) -> Option<Latency> {
        // The upper bound of a bucket may exceed the largest value in the bucket.
        let at = |quantile| {
            Span::from_nanos(self.histogram.value_at_quantile(quantile) * UNIT).min(self.max)
        };
        (!self.is_empty()).then(|| Latency {
            by,
            samples: self.histogram.len(),
            lost: self.lost,
            p50: at(0.5),
            p99: at(0.99),
            max: self.max,
        })
    }
}

impl Default for Tally {
    fn default() -> Self {
        let mut histogram = Histogram::new_with_bounds(1, 2, DIGITS)
            .expect("the bounds are constants within the histogram's");
        // Grow on demand: most paths never need the buckets up to a minute.
        histogram.auto(true);
        Self { histogram, max: Span::ZERO, lost: 0 }
    }
}

/// Resolution in nanoseconds, finer than two hosts can measure.
const UNIT: u64 = 100;
/// A minute, in units.
const LONGEST: u64 = 600_000_000;
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tally_without_replies_has_no_median() {
        let mut tally = Tally::default();
        tally.lose(3);
        assert_eq!(tally.latency(LatencySource::Ping), None);
        tally.add(Span::from_millis(20));
        let latency = tally.latency(LatencySource::Ping).unwrap();
        assert_eq!((latency.samples, latency.lost, latency.max), (1, 3, Span::from_millis(20)));
        tally.clear();
        assert!(tally.is_empty());
    }

    proptest! {
        #[test]
        fn latency_quantiles_are_ordered_and_close_to_the_exact_quantiles(mut nanos in proptest::collection::vec(0_u64..100_000_000_000, 1..300)) {
            let mut tally = Tally::default();
            nanos.iter().for_each(|nanos| tally.add(Span::from_nanos(*nanos)));
            nanos.sort_unstable();
            let latency = tally.latency(LatencySource::Echo).unwrap();
            prop_assert_eq!(latency.samples, nanos.len() as u64);
            prop_assert_eq!(latency.max.nanos(), *nanos.last().unwrap());
            prop_assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max);
            let median = nanos[(nanos.len() - 1) / 2].min(LONGEST * UNIT) as f64;
            prop_assert!((latency.p50.nanos() as f64 - median).abs() <= median * 0.002 + 200.0);
        }
    }
}
