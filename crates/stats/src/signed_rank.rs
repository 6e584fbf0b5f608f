//! The Hodges-Lehmann estimate and Tukey's interval of Wilcoxon's signed-rank test (Biometrics
//! Bulletin 1(6), 1945; Hollander & Wolfe, "Nonparametric Statistical Methods", §3.1-3.3), which
//! no dependency implements. Both are order statistics of the Walsh averages
//! `(d_i + d_j) / 2, i <= j`.
//!
//! Estimate and interval assume only that the differences lie symmetrically around the effect. The
//! estimate tolerates nearly a third of arbitrarily wrong differences.

use statrs::distribution::{ContinuousCDF, Normal};
use units::Share;

use crate::StatsError;
use crate::error::{confidence, finite};

/// The Hodges-Lehmann estimate, and Tukey's interval at any confidence.
#[derive(Debug, Clone, PartialEq)]
pub struct HodgesLehmann {
    /// The median of the Walsh averages, in the unit of the differences.
    pub estimate: f64,
    averages: Vec<f64>,
    n: usize,
}

/// Computes the Hodges-Lehmann estimate: the median of the Walsh averages.
pub fn hodges_lehmann(differences: &[f64]) -> Result<HodgesLehmann, StatsError> {
    finite(differences, "Hodges-Lehmann estimate")?;
    let n = differences.len();
    if n > LIMIT {
        return Err(StatsError::TooMany {
            what: "Hodges-Lehmann estimate",
            given: n,
            limit: LIMIT,
        });
    }
    let mut averages = Vec::with_capacity(n * (n + 1) / 2);
    for (i, first) in differences.iter().enumerate() {
        averages.extend(differences[i..].iter().map(|second| first / 2.0 + second / 2.0));
    }
    Ok(HodgesLehmann { estimate: crate::quantile::median_in_place(&mut averages), averages, n })
}

impl HodgesLehmann {
    /// Returns Tukey's interval: the range of effects that the test does not reject. The interval
    /// covers at least `level`; `None` for too few differences (95 % needs six differences, 99 %
    /// eight).
    pub fn interval(&mut self, level: Share) -> Result<Option<(f64, f64)>, StatsError> {
        let tail = (1.0 - confidence(level)?) / 2.0;
        let Some(rejected) = largest_rejected(tail, self.n) else {
            return Ok(None);
        };
        let last = self.averages.len() - 1;
        let mut at = |k: usize| *self.averages.select_nth_unstable_by(k, f64::total_cmp).1;
        let (low, high) = (at(rejected), at(last - rejected));
        Ok(Some((low, high)))
    }
}

/// Returns the largest `v` with `P(V <= v) <= tail`. `V` is the number of averages above the
/// supposed effect, so the interval leaves out `v` averages on each side. `None` if even `V = 0` is
/// too likely.
fn largest_rejected(tail: f64, n: usize) -> Option<usize> {
    if n > EXACT_LIMIT {
        let (mean, deviation) = moments(n);
        let z = Normal::standard().inverse_cdf(tail);
        // A tail of a confidence below 1 is 5e-17 or more, so this is far above zero.
        return Some((mean + z * deviation - 0.5) as usize);
    }
    // Allow for rounding: a tail such as (1 - 0.95) / 2 is an ulp off, and must not exclude a value
    // that just fits.
    let tail = tail * (1.0 + 1e-12);
    let mut up_to = 0.0;
    let fits = |p: &&f64| {
        up_to += **p;
        up_to <= tail
    };
    distribution(n).iter().take_while(fits).count().checked_sub(1)
}

fn moments(n: usize) -> (f64, f64) {
    let n = n as f64;
    let pairs = n * (n + 1.0);
    (pairs / 4.0, (pairs * (2.0 * n + 1.0) / 24.0).sqrt())
}

/// Returns P(V = v), where `V` is a sum that includes each rank with probability 1/2.
fn distribution(n: usize) -> Vec<f64> {
    let most = n * (n + 1) / 2;
    let mut p = vec![0.0; most + 1];
    p[0] = 1.0;
    let mut reached = 0;
    for rank in 1..=n {
        reached += rank;
        for v in (0..=reached).rev() {
            let with = if v >= rank { p[v - rank] } else { 0.0 };
            p[v] = (p[v] + with) / 2.0;
        }
    }
    p
}

/// Maximum number of differences for which the interval uses the exact distribution, which takes a
/// millisecond to compute. For more differences the normal approximation leaves out at most six
/// averages fewer on each side.
const EXACT_LIMIT: usize = 120;
/// Maximum number of differences. This number of differences has 8 million Walsh averages of 64 MB.
const LIMIT: usize = 4000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_exact_limit_an_interval_leaves_out_no_more_averages_than_the_exact_test() {
        for n in EXACT_LIMIT + 1..EXACT_LIMIT + 60 {
            for tail in [0.025, 0.005] {
                let exact = rejected_exactly(tail, n);
                let found = largest_rejected(tail, n).unwrap();
                assert!((exact - 6..=exact).contains(&found), "{n} {tail}: {found} of {exact}");
            }
        }
    }

    /// For this number of differences the normal approximation would leave out fewer averages.
    #[test]
    fn at_the_exact_limit_an_interval_leaves_out_as_many_averages_as_the_exact_test() {
        for tail in [0.025, 0.005] {
            let exact = rejected_exactly(tail, EXACT_LIMIT);
            assert_eq!(largest_rejected(tail, EXACT_LIMIT), Some(exact));
        }
    }

    fn rejected_exactly(tail: f64, n: usize) -> usize {
        let mut up_to = 0.0;
        let fits = |p: &f64| {
            up_to += p;
            up_to <= tail
        };
        distribution(n).into_iter().take_while(fits).count() - 1
    }

    /// The range of three differences misses the effect if all three differences lie on one side of
    /// the effect, as in 2 of 8 cases. So a confidence of 75 % has this interval, and a higher
    /// confidence has no interval.
    #[test]
    fn an_interval_whose_error_is_just_allowed_is_kept() {
        let of = |percent: f64| {
            let level = Share::from_percent(percent).unwrap();
            hodges_lehmann(&[1.0, 2.0, 4.0]).unwrap().interval(level).unwrap()
        };
        assert_eq!(of(75.0), Some((1.0, 4.0)));
        assert_eq!(of(75.1), None);
    }

    #[test]
    fn the_largest_number_of_differences_is_accepted_and_a_larger_number_is_refused() {
        assert_eq!(hodges_lehmann(&[1.0; LIMIT]).unwrap().estimate, 1.0);
        let refused = hodges_lehmann(&[1.0; LIMIT + 1]).unwrap_err();
        assert!(matches!(refused, StatsError::TooMany { given, .. } if given == LIMIT + 1));
    }
}
