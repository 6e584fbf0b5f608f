//! Bootstrap intervals (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993). The samples
//! are drawn again with replacement, thousands of times. The spread of the statistic over those
//! draws estimates its spread over repeated experiments. Samples must be independent of each other:
//! the repeats of a cell are, the ticks of one run are not.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF, Normal};
use units::Share;

use crate::StatsError;
use crate::error::{confidence, finite};
use crate::quantile::of_sorted;
use crate::spread::{mean, standard_deviation};

/// Resampling parameters. The default is 95 % confidence from 5000 draws. The same `seed` gives the
/// same interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    pub resamples: usize,
    pub confidence: Share,
    pub seed: u64,
}

impl Bootstrap {
    pub fn new(seed: u64) -> Self {
        Self { resamples: RESAMPLES, confidence: ninety_five(), seed }
    }

    pub fn with_confidence(self, confidence: Share) -> Self {
        Self { confidence, ..self }
    }

    /// Percentile interval (their §13.3): the middle part of the statistic's bootstrap
    /// distribution. `None` for one sample. A single point if all samples are equal.
    ///
    /// `statistic` gets a scratch copy that it may reorder.
    pub fn percentile(
        &self,
        samples: &[f64],
        statistic: impl Fn(&mut [f64]) -> f64,
    ) -> Result<Option<(f64, f64)>, StatsError> {
        let tail = (1.0 - confidence(self.confidence)?) / 2.0;
        finite(samples, "bootstrap interval")?;
        if samples.len() < 2 {
            return Ok(None);
        }
        let sorted = self.distribution(samples, statistic)?;
        let interval = (of_sorted(&sorted, tail), of_sorted(&sorted, 1.0 - tail));
        Ok(Some(interval))
    }

    /// Bias-corrected and accelerated interval (their §14.3). It is better than percentiles for
    /// smooth statistics such as means and variances. Prefer percentiles for the median, because
    /// the jackknife estimate of the acceleration is not consistent for it (their §11.6).
    pub fn bca(
        &self,
        samples: &[f64],
        statistic: impl Fn(&mut [f64]) -> f64,
    ) -> Result<Option<(f64, f64)>, StatsError> {
        let tail = (1.0 - confidence(self.confidence)?) / 2.0;
        finite(samples, "bootstrap interval")?;
        if samples.len() < 2 {
            return Ok(None);
        }
        let observed = statistic(&mut samples.to_vec());
        let sorted = self.distribution(samples, &statistic)?;
        let normal = Normal::standard();
        let bias = normal.inverse_cdf(share_below(&sorted, observed));
        let acceleration = acceleration(samples, &statistic);
        let end = |z: f64| {
            let shifted = bias + z;
            let z = bias + shifted / (1.0 - acceleration * shifted);
            of_sorted(&sorted, normal.cdf(z).clamp(0.0, 1.0))
        };
        let z = normal.inverse_cdf(tail);
        let (low, high) = (end(z), end(-z));
        Ok(Some((low.min(high), low.max(high))))
    }

    /// Standard deviation of the statistic over the draws (their §6.2). `None` for one sample.
    pub fn standard_error(
        &self,
        samples: &[f64],
        statistic: impl Fn(&mut [f64]) -> f64,
    ) -> Result<Option<f64>, StatsError> {
        finite(samples, "bootstrap standard error")?;
        if samples.len() < 2 {
            return Ok(None);
        }
        let drawn = self.distribution(samples, statistic)?;
        Ok(standard_deviation(&drawn, mean(&drawn)))
    }

    /// Percentile interval of a statistic of two independent sets, which are resampled separately.
    pub fn percentile_of_two(
        &self,
        a: &[f64],
        b: &[f64],
        statistic: impl Fn(&mut [f64], &mut [f64]) -> f64,
    ) -> Result<Option<(f64, f64)>, StatsError> {
        let tail = (1.0 - confidence(self.confidence)?) / 2.0;
        finite(a, "bootstrap interval")?;
        finite(b, "bootstrap interval")?;
        if a.len() < 2 || b.len() < 2 {
            return Ok(None);
        }
        let mut draw = Pcg64Mcg::seed_from_u64(self.seed);
        let (mut scratch_a, mut scratch_b) = (a.to_vec(), b.to_vec());
        let one = |_| {
            resample(a, &mut scratch_a, &mut draw);
            resample(b, &mut scratch_b, &mut draw);
            statistic(&mut scratch_a, &mut scratch_b)
        };
        let sorted = in_order((0..self.resamples.max(1)).map(one).collect())?;
        let interval = (of_sorted(&sorted, tail), of_sorted(&sorted, 1.0 - tail));
        Ok(Some(interval))
    }

    /// The statistic of every draw in ascending order.
    fn distribution(
        &self,
        samples: &[f64],
        statistic: impl Fn(&mut [f64]) -> f64,
    ) -> Result<Vec<f64>, StatsError> {
        let mut draw = Pcg64Mcg::seed_from_u64(self.seed);
        let mut scratch = samples.to_vec();
        let one = |_| {
            resample(samples, &mut scratch, &mut draw);
            statistic(&mut scratch)
        };
        in_order((0..self.resamples.max(1)).map(one).collect())
    }
}

fn resample(samples: &[f64], scratch: &mut [f64], draw: &mut Pcg64Mcg) {
    for slot in scratch {
        *slot = samples[draw.random_range(0..samples.len())];
    }
}

/// Refuses a statistic that overflows or divides by zero on some draw.
fn in_order(mut drawn: Vec<f64>) -> Result<Vec<f64>, StatsError> {
    finite(&drawn, "bootstrap statistic")?;
    drawn.sort_unstable_by(f64::total_cmp);
    Ok(drawn)
}

/// The share of draws below `observed`, with ties counted half. It is kept away from 0 and 1, where
/// the normal quantile is infinite.
fn share_below(sorted: &[f64], observed: f64) -> f64 {
    let below = sorted.partition_point(|x| *x < observed);
    let up_to = sorted.partition_point(|x| *x <= observed);
    let n = sorted.len() as f64;
    ((below + up_to) as f64 / 2.0).clamp(0.5, n - 0.5) / n
}

/// The acceleration from the skewness of the jackknife values (their equation 14.15). 0 if all are
/// equal.
fn acceleration(samples: &[f64], statistic: impl Fn(&mut [f64]) -> f64) -> f64 {
    let mut scratch = Vec::with_capacity(samples.len());
    let without = |i: usize| {
        scratch.clear();
        scratch.extend_from_slice(&samples[..i]);
        scratch.extend_from_slice(&samples[i + 1..]);
        statistic(&mut scratch)
    };
    let values: Vec<f64> = (0..samples.len()).map(without).collect();
    let centre = mean(&values);
    let (cubes, squares) = values.iter().fold((0.0, 0.0), |(cubes, squares), value| {
        let d = centre - value;
        (cubes + d * d * d, squares + d * d)
    });
    let acceleration = cubes / (6.0 * f64::powf(squares, 1.5));
    if acceleration.is_finite() { acceleration } else { 0.0 }
}

fn ninety_five() -> Share {
    Share::from_percent(95.0).unwrap_or_default()
}

/// With this many, the ends of a 95 % interval move by a few hundredths of its width between seeds.
const RESAMPLES: usize = 5000;
