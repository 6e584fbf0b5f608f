//! The interval of a median between two order statistics, with its exact coverage (David &
//! Nagaraja, "Order Statistics", §7.1). It assumes only that the samples are independent and share
//! one distribution. Samples with ties or counts are covered at least as often. Samples that
//! resemble the one before them are covered less often ([`crate::correlation`]).
//!
//! The percentile bootstrap is no substitute for few samples: its "95 %" interval of a median
//! contains the truth in 50 % of cases at two samples, in 75 % at three and in 93.75 % at five.

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::StatsError;

/// Fewer samples have no 95 % interval of the median: the range of five covers it in 93.75 % of
/// cases, the range of six in 96.875 %.
pub const FEWEST: usize = 6;

/// An interval and the probability that intervals made in this way contain the median.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MedianInterval {
    pub low: f64,
    pub high: f64,
    pub coverage: f64,
}

/// The narrowest interval between order statistics, equally far from both ends, that covers the
/// median in at least 95 % of cases. `None` for fewer than [`FEWEST`] samples. Samples may be
/// infinite.
pub fn median_interval(samples: &[f64]) -> Result<Option<MedianInterval>, StatsError> {
    let n = samples.len();
    let tail = (1.0 - COVERAGE) / 2.0 * (1.0 + 1e-12);
    let below = halves(n)?;
    // Use a binary search, because walking through the counts of thousands of samples takes long.
    let (mut rejected, mut kept) = (0, n as u64);
    while rejected < kept {
        let middle = (rejected + kept) / 2;
        if below.cdf(middle) <= tail {
            rejected = middle + 1;
        } else {
            kept = middle;
        }
    }
    let Some(left_out) = rejected.checked_sub(1) else {
        return Ok(None);
    };
    let coverage = 1.0 - 2.0 * below.cdf(left_out);
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let left_out = left_out as usize;
    Ok(Some(MedianInterval { low: sorted[left_out], high: sorted[n - 1 - left_out], coverage }))
}

/// The p-value of the two-sided sign test that the median of the samples is `centre` (Dixon & Mood,
/// JASA 41, 1946). Samples equal to `centre` count against a difference, so that the test agrees
/// with the interval: p is at most 5 % exactly if the interval excludes `centre`.
pub fn sign_test(samples: &[f64], centre: f64) -> Result<f64, StatsError> {
    let up_to = samples.iter().filter(|sample| **sample <= centre).count();
    let from = samples.iter().filter(|sample| **sample >= centre).count();
    let below = halves(samples.len())?;
    Ok((2.0 * below.cdf(up_to.min(from) as u64)).min(1.0))
}

/// The smallest p-value that the sign test of this many samples can give.
pub fn smallest_p(samples: usize) -> f64 {
    2.0_f64.powi(1 - i32::try_from(samples.max(1)).unwrap_or(i32::MAX))
}

fn halves(n: usize) -> Result<Binomial, StatsError> {
    let too_many =
        |_| StatsError::TooMany { what: "interval of the median", given: n, limit: usize::MAX };
    Binomial::new(0.5, n as u64).map_err(too_many)
}

/// The coverage that every interval has at least.
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
    fn coverage_is_that_of_the_binomial_distribution() {
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

    #[test]
    fn the_sign_test_agrees_with_the_interval() {
        for n in FEWEST..40 {
            for small in 0..=n {
                let samples: Vec<f64> =
                    (0..n).map(|index| if index < small { 0.5 } else { 2.0 }).collect();
                let interval = median_interval(&samples).unwrap().unwrap();
                let excluded = interval.low > 1.0 || interval.high < 1.0;
                assert_eq!(sign_test(&samples, 1.0).unwrap() <= 0.05, excluded, "{small} of {n}");
            }
        }
        assert_eq!(sign_test(&[1.0; 9], 1.0).unwrap(), 1.0);
        assert!((sign_test(&[2.0; 6], 1.0).unwrap() - smallest_p(6)).abs() < 1e-12);
    }
}
