use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::Duration;
use units::Span;

/// The latencies of many transactions, with a resolution of a thousandth of each value.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
    max: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencySummary {
    pub samples: u64,
    pub min: Span,
    pub mean: Span,
    pub deviation: Span,
    pub p50: Span,
    pub p90: Span,
    pub p99: Span,
    pub p999: Span,
    pub max: Span,
}

impl LatencySummary {
    /// Returns the JSON of the summary, in microseconds.
    pub(crate) fn micros(self) -> Value {
        let micros = Span::micros_f64;
        json!({
            "samples": self.samples,
            "min": micros(self.min),
            "mean": micros(self.mean),
            "deviation": micros(self.deviation),
            "p50": micros(self.p50),
            "p90": micros(self.p90),
            "p99": micros(self.p99),
            "p99.9": micros(self.p999),
            "max": micros(self.max),
        })
    }
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NANOS, DIGITS)
            .expect("the bounds are constants within the histogram's");
        Self { histogram, max: 0 }
    }
}

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
        self.max = self.max.max(nanos);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        // The two histograms have the same bounds, so every value fits.
        let _ = self.histogram.add(&other.histogram);
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the summary; `None` without samples.
    pub fn summary(&self) -> Option<LatencySummary> {
        // The upper bound of a bucket may exceed the largest value in the bucket.
        let span = |nanos: u64| Span::from_nanos(nanos.min(self.max));
        let at = |quantile| span(self.histogram.value_at_quantile(quantile));
        (self.count() > 0).then(|| LatencySummary {
            samples: self.count(),
            min: span(self.histogram.min()),
            mean: Span::from_nanos(self.histogram.mean() as u64),
            deviation: Span::from_nanos(self.histogram.stdev() as u64),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: Span::from_nanos(self.max),
        })
    }
}

/// Upper bound of the histogram, an hour: a longer latency counts as an hour, but `max` is exact.
const LONGEST_NANOS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_histogram_without_samples_has_no_summary() {
        assert_eq!(Latencies::default().summary(), None);
        let mut one = Latencies::default();
        one.add(Duration::from_secs(7200));
        assert_eq!(one.summary().unwrap().max, Span::from_secs(7200));
    }

    proptest! {
        #[test]
        fn merged_latency_histograms_equal_a_histogram_of_all_samples(
            a in prop::collection::vec(1_u64..10_000_000_000, 1..200),
            b in prop::collection::vec(1_u64..10_000_000_000, 1..200),
        ) {
            let of = |values: &[u64]| {
                let mut latencies = Latencies::default();
                values.iter().for_each(|nanos| latencies.add(Duration::from_nanos(*nanos)));
                latencies
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let mut all = [a, b].concat();
            let together = of(&all).summary().unwrap();
            let merged = merged.summary().unwrap();
            prop_assert_eq!(merged, together);
            all.sort_unstable();
            prop_assert_eq!(merged.max.nanos(), all[all.len() - 1]);
            let ranked = all[(all.len() - 1) / 2] as f64;
            prop_assert!((merged.p50.nanos() as f64 - ranked).abs() <= ranked * 0.002 + 1.0);
            prop_assert!(merged.min <= merged.p50 && merged.p50 <= merged.p90);
            prop_assert!(merged.p90 <= merged.p99 && merged.p99 <= merged.p999 && merged.p999 <= merged.max);
        }
    }
}
