//! The interval of a median between two order statistics, with its exact coverage (David &
//! Nagaraja, "Order Statistics", §7.1). The interval assumes only that the samples are independent
//! and share one distribution. With ties or counts, the coverage is at least the stated coverage;
//! with samples that resemble the previous sample, the coverage is lower ([`crate::correlation`]).
//!
//! The percentile bootstrap is no replacement for few samples: its "95 %" interval contains the
//! median in 50 % of cases at two samples, in 75 % at three and in 93.75 % at five.

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::StatsError;

/// Minimum number of samples for a 95 % interval of the median: the range of five samples covers
/// the median in 93.75 % of cases, the range of six in 96.875 %.
pub const FEWEST: usize = 6;

/// An interval and the probability that intervals made in this way contain the median.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MedianInterval {
    /// Lower end, which is a sample.
    pub low: f64,
    /// Upper end, which is a sample. The number of samples above `high` equals the number of
    /// samples below `low`.
    pub high: f64,
    /// The exact probability that an interval made in this way contains the median: 0.95 or more.
    pub coverage: f64,
}

/// Returns the narrowest interval between order statistics, equally far from both ends of the
/// sorted samples, that covers the median in at least 95 % of cases. `None` for fewer than
/// [`FEWEST`] samples. Samples may be infinite.
pub fn median_interval(samples: &[f64]) -> Result<Option<MedianInterval>, StatsError> {
    let n = samples.len();
    let Some(left_out) = left_out(n) else {
        return Ok(None);
    };
    let coverage = 1.0 - 2.0 * halves(n)?.cdf(left_out as u64);
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(Some(MedianInterval { low: sorted[left_out], high: sorted[n - 1 - left_out], coverage }))
}

/// Returns the number of samples that the interval of `n` samples leaves out at either end; `None`
/// for fewer than [`FEWEST`].
pub(crate) fn left_out(n: usize) -> Option<usize> {
    let tail = (1.0 - COVERAGE) / 2.0;
    let below = halves(n).ok()?;
    // Use a binary search, because a linear search takes long for thousands of samples.
    let (mut rejected, mut kept) = (0, n as u64);
    while rejected < kept {
        let middle = (rejected + kept) / 2;
        if below.cdf(middle) <= tail {
            rejected = middle + 1;
        } else {
            kept = middle;
        }
    }
    rejected.checked_sub(1).map(|left_out| left_out as usize)
}

fn halves(n: usize) -> Result<Binomial, StatsError> {
    let too_many =
        |_| StatsError::TooMany { what: "interval of the median", given: n, limit: usize::MAX };
    Binomial::new(0.5, n as u64).map_err(too_many)
}

/// Minimum coverage of an interval.
const COVERAGE: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(n: usize) -> Option<MedianInterval> {
        let samples: Vec<f64> = (1..=n).map(|value| value as f64).collect();
        median_interval(&samples).unwrap()
    }

    /// David & Nagaraja's table of coverages, computed by hand from the binomial distribution.
    #[test]
    fn the_coverage_follows_the_binomial_distribution() {
        for n in 0..FEWEST {
            assert_eq!(of(n), None, "{n}");
        }
        let rows = [
            (6, 1.0, 6.0, 1.0 - 2.0 / 64.0),
            (8, 1.0, 8.0, 1.0 - 2.0 / 256.0),
            (9, 2.0, 8.0, 1.0 - 2.0 * 10.0 / 512.0),
            (12, 3.0, 10.0, 1.0 - 2.0 * 79.0 / 4096.0),
        ];
        for (n, low, high, coverage) in rows {
            let interval = of(n).unwrap();
            assert_eq!((interval.low, interval.high), (low, high), "{n}");
            assert!((interval.coverage - coverage).abs() < 1e-12, "{n}: {interval:?}");
        }
    }
}
