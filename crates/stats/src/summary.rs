//! Summarises one cell's samples in a few numbers.

use crate::StatsError;
use crate::bootstrap::Bootstrap;
use crate::error::finite;
use crate::outliers::outliers;
use crate::quantile::{median_in_place, of_sorted};
use crate::spread::{mean, median_absolute_deviation, standard_deviation};

/// The estimate that a table shows for a cell: `{"median", "ci95", "n"}`.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Estimate {
    pub median: f64,
    /// Percentile-bootstrap interval of the median. `None` for a single sample, which says nothing
    /// about its spread.
    ///
    /// An interval from a few samples covers less than its nominal confidence: five repeats reach
    /// 94 % at most, three 75 %. The verdicts of [`crate::ratio`] allow for that.
    pub ci95: Option<(f64, f64)>,
    pub n: usize,
}

/// Median and 95 % interval of a cell's repeats.
pub fn estimate(samples: &[f64], seed: u64) -> Result<Estimate, StatsError> {
    finite(samples, "estimate")?;
    Ok(Estimate {
        median: median_in_place(&mut samples.to_vec()),
        ci95: Bootstrap::new(seed).percentile(samples, median_in_place)?,
        n: samples.len(),
    })
}

/// A description of the samples, with a warning if some lie far from the rest. No sample is left
/// out.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    pub n: usize,
    pub median: f64,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    /// Standard deviation with n-1 in the denominator. `None` for a single sample.
    pub sd: Option<f64>,
    /// Median absolute deviation from the median, not scaled.
    pub mad: f64,
    pub p25: f64,
    pub p75: f64,
    /// Indices of suspicious samples. See [`crate::outliers`].
    pub outliers: Vec<usize>,
}

impl Summary {
    /// A sentence for the reader, if there is a reason for a warning.
    pub fn warning(&self) -> Option<String> {
        let count = self.outliers.len();
        (count > 0).then(|| {
            format!(
                "{count} of {} samples lie far from the rest (kept; median {:.4}, {:.4} to {:.4}): \
                 look for other load on the machine",
                self.n, self.median, self.min, self.max
            )
        })
    }
}

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
        mad: median_absolute_deviation(samples, median),
        p25: of_sorted(&sorted, 0.25),
        p75: of_sorted(&sorted, 0.75),
        outliers: outliers(samples)?,
    })
}
