//! Quantiles of a sample by definition 7 of Hyndman & Fan, "Sample Quantiles in Statistical
//! Packages" (The American Statistician 50(4), 1996): linear between order statistics, `p(k) =
//! (k-1)/(n-1)`. R, NumPy and spreadsheets use this definition by default, so any of these programs
//! can check a table.

use units::Share;

use crate::StatsError;
use crate::error::finite;

/// Returns the value below which the share `at` of the samples lies.
pub fn quantile(samples: &[f64], at: Share) -> Result<f64, StatsError> {
    finite(samples, "quantile")?;
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(of_sorted(&sorted, at.fraction()))
}

/// Returns the middle sample, or the mean of the middle two if their number is even.
pub fn median(samples: &[f64]) -> Result<f64, StatsError> {
    finite(samples, "median")?;
    Ok(median_in_place(&mut samples.to_vec()))
}

/// Returns the quantile by definition 7, for at least one sample in ascending order.
pub(crate) fn of_sorted(sorted: &[f64], at: f64) -> f64 {
    let last = sorted.len() - 1;
    let position = at * last as f64;
    let below = (position.floor() as usize).min(last);
    let above = (below + 1).min(last);
    between(sorted[below], sorted[above], position - below as f64)
}

/// Returns the median of at least one sample, without a full sort.
pub(crate) fn median_in_place(samples: &mut [f64]) -> f64 {
    let middle = samples.len() / 2;
    let odd = samples.len() % 2 == 1;
    let (below, upper, _) = samples.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if odd {
        return upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    between(lower, upper, 0.5)
}

/// Interpolates between two samples. Weighs each sample before the sum, to keep the sum of two huge
/// samples finite.
fn between(low: f64, high: f64, part: f64) -> f64 {
    if low == high {
        return low;
    }
    low * (1.0 - part) + high * part
}
