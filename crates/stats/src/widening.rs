//! Widens a verdict's bootstrap interval, because the bootstrap promises too much for medians of
//! few samples. In simulation its 95 % intervals of a median err in 6 to 7 % of cases at 10 to 20
//! samples, and in 13 % at 7.
//!
//! From six samples on, the interval between two order statistics contains the median with an exact
//! probability, whatever the distribution. Below six, even the whole range covers only `1 -
//! 2^(1-n)`. There Student's t is used: it pays for small n with an assumption (normal logarithms)
//! instead of with false confidence.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use crate::StatsError;
use crate::spread::{mean, standard_deviation};

/// From this many samples on, their range covers the median in 95 % of cases (1 - 2^-5 = 96.9 %).
pub(crate) const ENOUGH: usize = 6;

/// The narrowest interval between order statistics that contains the median with at least this
/// confidence (David & Nagaraja, "Order Statistics", §7.1). `None` if even the range does not.
pub(crate) fn order_statistics(
    samples: &[f64],
    confidence: f64,
) -> Result<Option<(f64, f64)>, StatsError> {
    let n = samples.len();
    let too_many =
        |_| StatsError::TooMany { what: "interval of the median", given: n, limit: usize::MAX };
    let below = Binomial::new(0.5, n as u64).map_err(too_many)?;
    let tail = (1.0 - confidence) / 2.0 * (1.0 + 1e-12);
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
    let Some(left_out) = (rejected as usize).checked_sub(1) else {
        return Ok(None);
    };
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(Some((sorted[left_out], sorted[n - 1 - left_out])))
}

/// Student's interval of the mean. `None` for a single sample.
pub(crate) fn student(samples: &[f64], confidence: f64) -> Result<Option<(f64, f64)>, StatsError> {
    let centre = mean(samples);
    let Some(sd) = standard_deviation(samples, centre) else {
        return Ok(None);
    };
    let n = samples.len() as f64;
    let half = t_quantile(n - 1.0, confidence)? * sd / n.sqrt();
    Ok(Some((centre - half, centre + half)))
}

/// Welch's interval of `mean(a) - mean(b)`. `None` if either has a single sample.
pub(crate) fn welch(
    a: &[f64],
    b: &[f64],
    confidence: f64,
) -> Result<Option<(f64, f64)>, StatsError> {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (Some(sd_a), Some(sd_b)) = (standard_deviation(a, mean_a), standard_deviation(b, mean_b))
    else {
        return Ok(None);
    };
    let (n_a, n_b) = (a.len() as f64, b.len() as f64);
    let (var_a, var_b) = (sd_a * sd_a / n_a, sd_b * sd_b / n_b);
    let variance = var_a + var_b;
    let centre = mean_a - mean_b;
    if variance <= 0.0 {
        return Ok(Some((centre, centre)));
    }
    // Welch-Satterthwaite (Welch, Biometrika 34, 1947).
    let freedom = variance * variance / (var_a * var_a / (n_a - 1.0) + var_b * var_b / (n_b - 1.0));
    let half = t_quantile(freedom, confidence)? * variance.sqrt();
    Ok(Some((centre - half, centre + half)))
}

/// The smallest interval that contains both.
pub(crate) fn hull(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.min(b.0), a.1.max(b.1))
}

fn t_quantile(freedom: f64, confidence: f64) -> Result<f64, StatsError> {
    let student = StudentsT::new(0.0, 1.0, freedom).map_err(|_| StatsError::OutOfRange {
        what: "the degrees of freedom",
        value: freedom,
        range: "above zero",
    })?;
    Ok(student.inverse_cdf(0.5 + confidence / 2.0))
}
