//! Decides whether one cell is better than another, by the ratio `a / b` of their values.
//!
//! - **better / worse**: the sign test excludes a ratio of 1 and the ratio itself is at or beyond
//!   the practical threshold. In a table of several comparisons the test is adjusted for all of
//!   them ([`crate::family`]).
//! - **no difference**: the whole 95 % interval lies within the threshold, so any difference does
//!   not matter.
//! - **inconclusive**: anything else. More repeats are needed, or the difference is real but about
//!   as large as the threshold.
//!
//! Fewer than six pairs have no interval and stay inconclusive.
//!
//! Every repeat takes part. A repeat that failed, or in which nothing arrived, ranks worst: leaving
//! it out would flatter the system that failed. A ratio may therefore be 0 or infinite.

use units::Share;

use crate::StatsError;
use crate::error::{not_negative, positive};
use crate::family::{Adjusted, LEVEL};
use crate::median_interval::sign_test;
use crate::spread::mean;
use crate::summary::Estimate;

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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioVerdict {
    /// `a / b`: the median of the pairs' ratios. For runs it is the ratio of their geometric means,
    /// and `n` is the smaller of the two counts.
    pub ratio: Estimate,
    /// The p-value of the two-sided test that the ratio is 1, for this comparison alone. `None` if
    /// no test was possible.
    pub p: Option<f64>,
    /// For this comparison alone.
    pub verdict: Verdict,
    pub direction: Direction,
    pub threshold: Share,
}

impl RatioVerdict {
    /// The verdict in a table of comparisons.
    pub fn within(&self, table: &Adjusted) -> Verdict {
        judge(
            self.ratio.median,
            table.is_different(),
            self.ratio.ci95,
            self.direction,
            self.threshold,
        )
    }
}

/// 1 %. The emulated link itself is held to 0.5 % of its rate, so two equal cells may show ratios
/// up to 1 % apart. It is also the bound for the "costs nothing" claims that this lab was built to
/// check.
pub fn default_threshold() -> Share {
    Share::from_percent(1.0).unwrap_or_default()
}

/// Compares values that were measured alternately: each `(a, b)` is close in time, as
/// [`crate::order`] arranges. `None` is a repeat that failed.
pub fn compare_paired(
    pairs: &[(Option<f64>, Option<f64>)],
    direction: Direction,
    threshold: Share,
) -> Result<RatioVerdict, StatsError> {
    if pairs.is_empty() {
        return Err(StatsError::Empty { what: "comparison" });
    }
    let measured: Vec<f64> = pairs.iter().flat_map(|(a, b)| [*a, *b]).flatten().collect();
    not_negative(&measured, "comparison")?;
    let failed = match direction {
        Direction::HigherIsBetter => 0.0,
        Direction::LowerIsBetter => f64::INFINITY,
    };
    let ratios: Vec<f64> =
        pairs.iter().map(|(a, b)| quotient(a.unwrap_or(failed), b.unwrap_or(failed))).collect();
    let ratio = Estimate::of(&ratios)?;
    let p = sign_test(&ratios, 1.0)?;
    let verdict = judge(ratio.median, p <= LEVEL, ratio.ci95, direction, threshold);
    Ok(RatioVerdict { ratio, p: Some(p), verdict, direction, threshold })
}

/// The n-th root of the product of positive values. A mean of ratios that does not depend on the
/// choice of the baseline (Fleming & Wallace, "How not to lie with statistics", CACM 29(3), 1986).
pub fn geometric_mean(values: &[f64]) -> Result<f64, StatsError> {
    positive(values, "geometric mean")?;
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    Ok(mean(&logarithms).exp())
}

/// Applies the rule at the top of this module. The threshold is symmetric for ratios: `t` and `1/t`
/// weigh the same. Swapping `a` and `b` swaps better and worse and changes nothing else.
pub(crate) fn judge(
    ratio: f64,
    different: bool,
    ci95: Option<(f64, f64)>,
    direction: Direction,
    threshold: Share,
) -> Verdict {
    let up = 1.0 + threshold.fraction();
    let down = 1.0 / up;
    let higher = match direction {
        Direction::HigherIsBetter => Verdict::Better,
        Direction::LowerIsBetter => Verdict::Worse,
    };
    let lower = match direction {
        Direction::HigherIsBetter => Verdict::Worse,
        Direction::LowerIsBetter => Verdict::Better,
    };
    if different && ratio >= up {
        higher
    } else if different && ratio <= down {
        lower
    } else if ci95.is_some_and(|(low, high)| low >= down && high <= up) {
        Verdict::NoDifference
    } else {
        Verdict::Inconclusive
    }
}

pub(crate) fn excludes_one((low, high): (f64, f64)) -> bool {
    low > 1.0 || high < 1.0
}

/// Equal values are equal, also if both are zero or infinite.
fn quotient(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { a / b }
}
