//! Decides whether one cell is better than another, by the ratio `a / b` of their values.
//!
//! - **better / worse**: the 95 % interval of the ratio excludes 1 and the ratio itself is at or
//!   beyond the practical threshold.
//! - **no difference**: the whole interval lies within the threshold, so any difference does not
//!   matter.
//! - **inconclusive**: anything else. More repeats are needed, or the difference is real but about
//!   as large as the threshold.
//!
//! The interval is the bootstrap's. It is widened where the bootstrap is known to promise too much:
//! to the exact interval of the median between order statistics and, below six pairs (or six
//! samples on a side), to Student's t of the logarithms. A single pair has no interval and stays
//! inconclusive.

use units::Share;

use crate::StatsError;
use crate::bootstrap::Bootstrap;
use crate::error::positive;
use crate::quantile::median_in_place;
use crate::spread::mean;
use crate::summary::Estimate;
use crate::widening::{ENOUGH, hull, order_statistics, student, welch};

/// Which of two values is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Throughput, requests per second, fairness.
    HigherIsBetter,
    /// Latency, CPU, loss, queue.
    LowerIsBetter,
}

/// The result of comparing `a` with `b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Verdict {
    #[serde(rename = "better")]
    Better,
    #[serde(rename = "worse")]
    Worse,
    /// Written `same`, as in results.json.
    #[serde(rename = "same")]
    NoDifference,
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// A comparison of two cells and the figures that decided it.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RatioVerdict {
    /// `a / b`: the median of the pairs' ratios. For unpaired values it is the ratio of the
    /// medians, and `n` is the smaller of the two counts.
    pub ratio: Estimate,
    /// Geometric mean of the ratios, with its own `n` and interval.
    pub geometric_mean: GeometricMean,
    pub verdict: Verdict,
    pub direction: Direction,
    pub threshold: Share,
}

/// A mean of ratios that does not depend on the choice of the baseline (Fleming & Wallace, "How not
/// to lie with statistics", CACM 29(3), 1986).
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct GeometricMean {
    pub mean: f64,
    pub ci95: Option<(f64, f64)>,
    pub n: usize,
}

/// 1 %. The emulated link itself is held to 0.5 % of its rate, so two equal cells may show ratios
/// up to 1 % apart. It is also the bound for the "costs nothing" claims that this lab was built to
/// check.
pub fn default_threshold() -> Share {
    Share::from_percent(1.0).unwrap_or_default()
}

/// Compares values that were measured alternately: each `(a, b)` is close in time, as
/// [`crate::order`] arranges.
pub fn compare_paired(
    pairs: &[(f64, f64)],
    direction: Direction,
    threshold: Share,
    seed: u64,
) -> Result<RatioVerdict, StatsError> {
    let ratios = ratios(pairs)?;
    let boot = Bootstrap::new(seed);
    let logs = logarithms(&ratios);
    let level = boot.confidence.fraction();
    let few = ratios.len() < ENOUGH;
    let student = student(&logs, level)?.map(exp_both).filter(|_| few);
    let exact = order_statistics(&ratios, level)?;
    let median = Estimate {
        median: median_in_place(&mut ratios.clone()),
        ci95: widened(boot.percentile(&ratios, median_in_place)?, student.or(exact)),
        n: ratios.len(),
    };
    let of_logs = boot.bca(&logs, |logs| mean(logs))?.map(exp_both);
    let geometric_mean =
        GeometricMean { mean: mean(&logs).exp(), ci95: widened(of_logs, student), n: ratios.len() };
    Ok(RatioVerdict {
        ratio: median,
        geometric_mean,
        verdict: judge(median.median, median.ci95, direction, threshold),
        direction,
        threshold,
    })
}

/// Compares unpaired values by the ratio of their medians.
pub fn compare_unpaired(
    a: &[f64],
    b: &[f64],
    direction: Direction,
    threshold: Share,
    seed: u64,
) -> Result<RatioVerdict, StatsError> {
    positive(a, "comparison")?;
    positive(b, "comparison")?;
    let boot = Bootstrap::new(seed);
    let (logs_a, logs_b) = (logarithms(a), logarithms(b));
    let n = a.len().min(b.len());
    let few = n < ENOUGH;
    let level = boot.confidence.fraction();
    let welch = welch(&logs_a, &logs_b, level)?.map(exp_both).filter(|_| few);
    // Use logarithms throughout, so that ratios of huge to tiny values stay finite until the end.
    let of_medians =
        boot.percentile_of_two(a, b, |a, b| (median_in_place(a) / median_in_place(b)).ln())?;
    let ratio = Estimate {
        median: median_in_place(&mut a.to_vec()) / median_in_place(&mut b.to_vec()),
        ci95: widened(of_medians.map(exp_both), welch),
        n,
    };
    let of_means = boot.percentile_of_two(&logs_a, &logs_b, |a, b| mean(a) - mean(b))?;
    let geometric_mean = GeometricMean {
        mean: (mean(&logs_a) - mean(&logs_b)).exp(),
        ci95: widened(of_means.map(exp_both), welch),
        n,
    };
    positive(&[ratio.median], "comparison")?;
    Ok(RatioVerdict {
        ratio,
        geometric_mean,
        verdict: judge(ratio.median, ratio.ci95, direction, threshold),
        direction,
        threshold,
    })
}

/// The n-th root of the product of positive values.
pub fn geometric_mean(values: &[f64]) -> Result<f64, StatsError> {
    positive(values, "geometric mean")?;
    Ok(mean(&logarithms(values)).exp())
}

/// Geometric mean of ratios with its BCa interval, for example of two systems over the cells of a
/// sweep.
pub fn geometric_mean_of(ratios: &[f64], seed: u64) -> Result<GeometricMean, StatsError> {
    positive(ratios, "geometric mean")?;
    let logs = logarithms(ratios);
    let interval = Bootstrap::new(seed).bca(&logs, |logs| mean(logs))?;
    Ok(GeometricMean { mean: mean(&logs).exp(), ci95: interval.map(exp_both), n: ratios.len() })
}

/// Applies the rule at the top of this module. The threshold is symmetric for ratios: `t` and `1/t`
/// weigh the same. Swapping `a` and `b` swaps better and worse and changes nothing else.
pub fn judge(
    ratio: f64,
    interval: Option<(f64, f64)>,
    direction: Direction,
    threshold: Share,
) -> Verdict {
    let Some((low, high)) = interval else {
        return Verdict::Inconclusive;
    };
    let up = 1.0 + threshold.fraction();
    let down = 1.0 / up;
    if low > 1.0 && ratio >= up {
        match direction {
            Direction::HigherIsBetter => Verdict::Better,
            Direction::LowerIsBetter => Verdict::Worse,
        }
    } else if high < 1.0 && ratio <= down {
        match direction {
            Direction::HigherIsBetter => Verdict::Worse,
            Direction::LowerIsBetter => Verdict::Better,
        }
    } else if low >= down && high <= up {
        Verdict::NoDifference
    } else {
        Verdict::Inconclusive
    }
}

fn ratios(pairs: &[(f64, f64)]) -> Result<Vec<f64>, StatsError> {
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    positive(&a, "comparison")?;
    positive(&b, "comparison")?;
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    // The division itself may overflow or underflow.
    positive(&ratios, "comparison")?;
    Ok(ratios)
}

fn logarithms(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.ln()).collect()
}

fn exp_both((low, high): (f64, f64)) -> (f64, f64) {
    (low.exp(), high.exp())
}

/// Widens `interval`; without a bootstrap interval the result is `None`. Student's t of a few
/// extreme samples can overflow, and JSON has no infinity, so the ends are clamped.
fn widened(interval: Option<(f64, f64)>, to: Option<(f64, f64)>) -> Option<(f64, f64)> {
    let (low, high) = match (interval, to) {
        (Some(interval), Some(wider)) => hull(interval, wider),
        (interval, _) => interval?,
    };
    Some((low.max(0.0), high.min(f64::MAX)))
}
