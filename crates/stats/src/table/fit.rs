//! Location and scale of a row. Stalls of the machine and bursts of loss halve single values, so
//! location and scale are robust: values beyond two robust deviations of the row's median are
//! clipped to this distance. The scale borrows variance from the table, as Smyth's moderated t does
//! (Statistical Applications in Genetics and Molecular Biology 3, 2004): the variance of six values
//! alone is so uncertain that the largest statistic of a table would be too large for a bound. In
//! simulations a trimmed mean and the Hodges-Lehmann estimate find fewer differences, because these
//! two estimates stay as large if one block is flipped.

use crate::quantile::median_in_place;

/// A row's values with their location and scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fit {
    pub(super) location: f64,
    /// The deviation of a single value.
    pub(super) deviation: f64,
    /// Each block with its value's distance from the location. The distances are inflated, because
    /// the location is estimated from the same values.
    residuals: Vec<(usize, f64)>,
    /// The variance that the table lends.
    lent: f64,
}

impl Fit {
    /// Fits at least two values. A row far quieter than its table borrows less: chance alone does
    /// not make six values of the table's noise so equal.
    pub(super) fn of(values: &[(usize, f64)], lent: f64) -> Self {
        let mut logs: Vec<f64> = values.iter().map(|(_, log)| *log).collect();
        let lent = lent.min(QUIET * variance(&logs));
        let (location, deviation) = located(&mut logs, &mut Vec::new(), lent);
        let n = values.len() as f64;
        let inflation = (n / (n - 1.0)).sqrt();
        let residuals =
            values.iter().map(|(block, log)| (*block, (log - location) * inflation)).collect();
        Self { location, deviation, residuals, lent }
    }

    /// Returns the standard error of the location.
    pub(super) fn error(&self) -> f64 {
        self.deviation / (self.residuals.len() as f64).sqrt()
    }

    /// Returns the statistic of the residuals after the blocks in which `flips` is true changed
    /// their sign.
    pub(super) fn flipped(&self, flips: &[bool], scratch: &mut Scratch) -> f64 {
        scratch.values.clear();
        let value = |(block, value): &(usize, f64)| if flips[*block] { -value } else { *value };
        scratch.values.extend(self.residuals.iter().map(value));
        let (location, deviation) = located(&mut scratch.values, &mut scratch.distances, self.lent);
        location.abs() * (self.residuals.len() as f64).sqrt() / deviation
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = usize> {
        self.residuals.iter().map(|(block, _)| *block)
    }
}

/// Buffers that all flips reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    values: Vec<f64>,
    distances: Vec<f64>,
}

/// Estimates the variance of normal noise, without the sixth of the values farthest from the
/// median. The median absolute deviation would be 0 for a row with two modes.
pub(super) fn robust_variance(values: &[f64]) -> f64 {
    let middle = median_in_place(&mut values.to_vec());
    let mut squares: Vec<f64> = values.iter().map(|value| (value - middle).powi(2)).collect();
    squares.sort_unstable_by(f64::total_cmp);
    let kept = &squares[..squares.len() - squares.len() / 6];
    CONSISTENT * kept.iter().sum::<f64>() / kept.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

/// Returns the mean of the clipped values, and the deviation of a value. Reorders the values.
fn located(values: &mut [f64], distances: &mut Vec<f64>, lent: f64) -> (f64, f64) {
    let own = (values.len() - 1) as f64;
    let moderated = |variance: f64| ((LENT * lent + own * variance) / (LENT + own)).sqrt();
    let middle = median_in_place(values);
    distances.clear();
    distances.extend(values.iter().map(|value| (value - middle).abs()));
    let robust = NORMAL_MAD * median_in_place(distances);
    let reach = CLIP * moderated(robust * robust);
    let clipped = |value: &f64| (value - middle).clamp(-reach, reach);
    let mean = values.iter().map(clipped).sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|v| (clipped(v) - mean).powi(2)).sum::<f64>() / own;
    (middle + mean, moderated(variance).max(LEAST))
}

/// The degrees of freedom of the variance that the table lends.
const LENT: f64 = 8.0;
/// Maximum variance that a row borrows, as a multiple of its own variance. One of 600 rows of six
/// normal values has a twentieth of the true variance or less.
const QUIET: f64 = 20.0;
/// The distance at which values are clipped, in robust deviations.
const CLIP: f64 = 2.0;
/// The standard deviation of normal noise over its median absolute deviation.
const NORMAL_MAD: f64 = 1.4826;
/// The variance of normal noise over the variance of the five sixths in the middle: 2.2 for six
/// values, 1.6 for 11, 2.04 for many.
const CONSISTENT: f64 = 2.0;
/// Minimum deviation: runs in virtual time may be equal to the last bit.
const LEAST: f64 = 1e-9;
