//! Summarises one cell's samples in a few numbers.

use crate::StatsError;
use crate::error::finite;
use crate::median_interval::median_interval;
use crate::outliers::outliers;
use crate::quantile::{median_in_place, of_sorted};
use crate::spread::{mean, standard_deviation};

/// The estimate that a table shows for a cell: the median, with its interval from six samples on,
/// and with the range of fewer samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The middle sample, or the mean of the two middle samples. Infinite if these samples are
    /// infinite.
    pub median: f64,
    /// The interval that covers the median in at least 95 % of cases. `None` for fewer than six
    /// samples.
    pub ci95: Option<(f64, f64)>,
    /// The exact coverage of `ci95`.
    pub coverage: Option<f64>,
    /// The smallest and the largest sample, if there is no interval. `None` for a single sample.
    pub range: Option<(f64, f64)>,
    /// Number of samples, at least 1.
    pub n: usize,
}

/// Returns the median of a cell's repeats, with its interval.
pub fn estimate(samples: &[f64]) -> Result<Estimate, StatsError> {
    finite(samples, "estimate")?;
    Estimate::of(samples)
}

impl Estimate {
    /// Returns the estimate from at least one sample. Samples may be infinite, because ratios may
    /// be infinite.
    pub(crate) fn of(samples: &[f64]) -> Result<Self, StatsError> {
        let interval = median_interval(samples)?;
        let n = samples.len();
        let range = (interval.is_none() && n > 1).then(|| {
            let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let high = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (low, high)
        });
        Ok(Self {
            median: median_in_place(&mut samples.to_vec()),
            ci95: interval.map(|interval| (interval.low, interval.high)),
            coverage: interval.map(|interval| interval.coverage),
            range,
            n,
        })
    }
}

/// A description of the samples, with a warning if some samples lie far from the other samples. No
/// sample is left out.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// Number of samples, at least 1.
    pub n: usize,
    /// The middle sample, or the mean of the middle two.
    pub median: f64,
    /// The arithmetic mean of all samples, outliers included.
    pub mean: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// Standard deviation with n-1 in the denominator. `None` for a single sample.
    pub sd: Option<f64>,
    /// Indices of suspicious samples. See [`crate::outliers`].
    pub outliers: Vec<usize>,
}

impl Summary {
    /// Returns a warning about outliers; `None` without a reason for a warning. `shown` writes a
    /// sample. Small differences are no reason, however equal the other samples are. A single
    /// outlier is no reason, because it does not move the median.
    pub fn warning(&self, shown: impl Fn(f64) -> String) -> Option<String> {
        if self.max - self.min <= self.median.abs() * SMALL {
            return None;
        }
        let count = self.outliers.len();
        let [median, min, max] = [self.median, self.min, self.max].map(shown);
        (count > 1).then(|| {
            format!(
                "{count} of {} samples lie far from the rest (kept; median {median}, {min} to \
                 {max}): look for other load on the machine",
                self.n
            )
        })
    }
}

/// Maximum small difference, as a share of the median.
const SMALL: f64 = 0.03;

/// Summarises at least one sample, all finite.
pub fn summary(samples: &[f64]) -> Result<Summary, StatsError> {
    finite(samples, "summary")?;
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = of_sorted(&sorted, 0.5);
    let n = samples.len();
    let mean = mean(samples);
    Ok(Summary {
        n,
        median,
        mean,
        min: sorted[0],
        max: sorted[n - 1],
        sd: standard_deviation(samples, mean),
        outliers: outliers(samples)?,
    })
}
