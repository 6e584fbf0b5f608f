//! Tests whether two independent sets of samples come from one distribution: Mann & Whitney, "On a
//! Test of Whether one of Two Random Variables is Stochastically Larger than the Other" (Annals of
//! Mathematical Statistics 18, 1947).
//!
//! Ranks and the tie-corrected normal approximation come from `statrs` 0.19. This module computes
//! the exact p-value itself, because the p-value of `statrs` has two defects. If the first set is
//! not the larger set, `statrs` returns the complement (1.0 instead of 0.1 for 1 2 3 against 4 5
//! 6). `statrs` also walks through every combination, 10^10 of them for 5 against 300 samples.

use statrs::stats_tests::Alternative;
use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};

use crate::StatsError;
use crate::error::finite;

/// The result of [`mann_whitney`] for two sets `a` and `b`.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MannWhitney {
    /// The number of pairs `(a_i, b_j)` with the larger `a`. A tie counts half.
    pub u: f64,
    /// The two-sided p-value.
    pub p: f64,
    /// Whether `p` is exact. If not, `p` is the normal approximation, corrected for ties and
    /// continuity.
    pub exact: bool,
}

impl MannWhitney {
    /// Returns the probability that a sample of `a` is larger than a sample of `b`; 0.5 if neither
    /// tends to be larger.
    pub fn common_language_effect(&self, n_a: usize, n_b: usize) -> f64 {
        self.u / (n_a as f64 * n_b as f64)
    }
}

/// Tests two sets. The p-value is exact without ties while `n_a * n_b <= 2500`. Otherwise the
/// p-value is approximate, and in the tails at worst too large.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Result<MannWhitney, StatsError> {
    finite(a, "Mann-Whitney test")?;
    finite(b, "Mann-Whitney test")?;
    let given = a.len() + b.len();
    if given > LIMIT {
        return Err(StatsError::TooMany { what: "Mann-Whitney test", given, limit: LIMIT });
    }
    let method = MannWhitneyUMethod::AsymptoticInclContinuityCorrection;
    // The samples are finite and not empty, so `mannwhitneyu` returns no error.
    let (u, p) = mannwhitneyu(a, b, method, Alternative::TwoSided)
        .map_err(|_| StatsError::Empty { what: "Mann-Whitney test" })?;
    if has_ties(a, b) || a.len() * b.len() > EXACT_PAIRS {
        return Ok(MannWhitney { u, p, exact: false });
    }
    let p = exact_two_sided(u as usize, a.len(), b.len());
    Ok(MannWhitney { u, p, exact: true })
}

/// Returns the exact p-value for sets without ties, whose `u` is a whole number. Sums
/// probabilities, because counts would overflow.
fn exact_two_sided(u: usize, n_a: usize, n_b: usize) -> f64 {
    let extreme = u.min(n_a * n_b - u);
    let tail: f64 = distribution(n_a, n_b)[..=extreme].iter().sum();
    (2.0 * tail).min(1.0)
}

/// Returns P(U = u) if both sets have one distribution, by Mann & Whitney's recurrence. The largest
/// of all samples is either an `a`, larger than every `b`, or a `b`: `p(i, j, u) = i/(i+j) p(i-1,
/// j, u-j) + j/(i+j) p(i, j-1, u)`.
fn distribution(n_a: usize, n_b: usize) -> Vec<f64> {
    let most = n_a * n_b;
    let mut no_a = vec![0.0; most + 1];
    no_a[0] = 1.0;
    // rows[j] holds p(i, j, ·) for the current i.
    let mut rows = vec![no_a.clone(); n_b + 1];
    for i in 1..=n_a {
        let mut next = vec![no_a.clone()];
        for j in 1..=n_b {
            let (a_largest, b_largest) = (i as f64 / (i + j) as f64, j as f64 / (i + j) as f64);
            let fewer_a = &rows[j];
            let fewer_b = &next[j - 1];
            let p = |u: usize| {
                let beaten = if u >= j { fewer_a[u - j] } else { 0.0 };
                a_largest * beaten + b_largest * fewer_b[u]
            };
            let row: Vec<f64> = (0..=most).map(p).collect();
            next.push(row);
        }
        rows = next;
    }
    rows.swap_remove(n_b)
}

fn has_ties(a: &[f64], b: &[f64]) -> bool {
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    all.windows(2).any(|pair| pair[0] == pair[1])
}

/// Maximum number of pairs for the exact distribution, which then takes some 30 ms.
const EXACT_PAIRS: usize = 2500;
/// Maximum number of samples, because the ranks compare every sample with every other sample.
const LIMIT: usize = 20_000;
