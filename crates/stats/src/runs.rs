//! Compares two versions of a system (states), each measured in several runs.
//!
//! Runs differ by more than the repeats of a run differ: the machine boots anew, the memory layout
//! changes, and other programs share the host. The repeats of one run share these conditions. A
//! test over repeats therefore finds a difference between two runs of the same state far too often
//! (Kalibera & Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013). Therefore a run
//! counts as one sample, its median. The variance of the medians contains the variance between runs
//! and the variance within runs.

use statrs::distribution::{ContinuousCDF, StudentsT};
use units::Share;

use crate::StatsError;
use crate::error::positive;
use crate::spread::mean;
use crate::summary::Estimate;
use crate::verdict::{Direction, Verdict};

/// A comparison of runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunsCompared {
    /// `a / b`: the ratio of the geometric means of the medians. `n` is the smaller number of runs.
    pub ratio: Estimate,
    /// The verdict on `a`. Undecided if a state has a single run, because the ratio has no
    /// interval.
    pub verdict: Verdict,
}

/// Compares the medians of runs by the ratio of their geometric means, with Welch's interval
/// (Biometrika 34, 1947) of the logarithms. `rows` is the number of such comparisons in the table:
/// by Bonferroni's bound, all their intervals together hold in 95 % of cases. A state with a single
/// run has no interval, because the variance between its runs is unknown.
pub fn compare_runs(
    a: &[f64],
    b: &[f64],
    direction: Direction,
    threshold: Share,
    rows: usize,
) -> Result<RunsCompared, StatsError> {
    let (a, b) = (logarithms(a)?, logarithms(b)?);
    let difference = mean(&a) - mean(&b);
    let welch = Welch::of(&a, &b);
    let ends = |half: f64| ((difference - half).exp(), (difference + half).exp());
    let level = 1.0 - LEVEL / rows.max(1) as f64;
    let ci95 = welch.map(|welch| ends(welch.half_width(level)));
    let ratio = Estimate {
        median: difference.exp(),
        ci95,
        coverage: ci95.map(|_| 1.0 - LEVEL),
        range: None,
        n: a.len().min(b.len()),
    };
    let verdict = Verdict::of(ratio.median, ratio.ci95, direction, threshold);
    Ok(RunsCompared { ratio, verdict })
}

fn logarithms(medians: &[f64]) -> Result<Vec<f64>, StatsError> {
    positive(medians, "comparison of runs")?;
    Ok(medians.iter().map(|median| median.ln()).collect())
}

/// The standard error of a difference of means, and its degrees of freedom.
#[derive(Debug)]
struct Welch {
    error: f64,
    freedom: f64,
}

impl Welch {
    fn of(a: &[f64], b: &[f64]) -> Option<Self> {
        let (of_a, of_b) = (variance_of_mean(a)?, variance_of_mean(b)?);
        let parts = of_a.powi(2) / (a.len() - 1) as f64 + of_b.powi(2) / (b.len() - 1) as f64;
        // Runs in virtual time may be equal to the last bit, with a variance of 0.
        let freedom = if parts > 0.0 { (of_a + of_b).powi(2) / parts } else { 1.0 };
        Some(Self { error: (of_a + of_b).sqrt(), freedom })
    }

    fn half_width(&self, level: f64) -> f64 {
        let student = StudentsT::new(0.0, 1.0, self.freedom);
        student.map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + level / 2.0) * self.error)
    }
}

/// Returns the variance of the mean of the values; `None` for a single value.
fn variance_of_mean(values: &[f64]) -> Option<f64> {
    let n = values.len();
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (n > 1).then(|| squares / (n - 1) as f64 / n as f64)
}

const LEVEL: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(a: &[f64], b: &[f64]) -> RunsCompared {
        let threshold = Share::from_percent(3.0).unwrap();
        compare_runs(a, b, Direction::HigherIsBetter, threshold, 1).unwrap()
    }

    /// With the logarithms 0, 2 against 4, 6, the difference is 4, its error the square root of 2,
    /// and there are two degrees of freedom, for which Student's t is 4.3027.
    #[test]
    fn welchs_interval_matches_a_computation_by_hand() {
        let of = |values: [f64; 2]| values.map(f64::exp);
        let found = compared(&of([4.0, 6.0]), &of([0.0, 2.0]));
        let (low, high) = found.ratio.ci95.unwrap();
        assert!((low.ln() - (4.0 - 4.3027 * 2_f64.sqrt())).abs() < 1e-3, "{low}");
        assert!((high.ln() - (4.0 + 4.3027 * 2_f64.sqrt())).abs() < 1e-3, "{high}");
        assert_eq!(found.verdict, Verdict::Undecided);
    }

    #[test]
    fn a_state_with_one_run_gives_no_verdict() {
        let found = compared(&[200.0], &[100.0, 101.0, 99.0]);
        assert_eq!((found.verdict, found.ratio.ci95), (Verdict::Undecided, None));
        assert!((found.ratio.median - 2.0).abs() < 1e-3);
    }

    #[test]
    fn equal_runs_of_virtual_time_have_the_verdict_same() {
        let found = compared(&[5.0, 5.0], &[5.0, 5.0]);
        assert_eq!(found.verdict, Verdict::Same);
        let found = compared(&[6.0, 6.0], &[5.0, 5.0]);
        assert_eq!(found.verdict, Verdict::Better);
        let direction = Direction::HigherIsBetter;
        assert!(compare_runs(&[0.0], &[1.0], direction, Share::default(), 1).is_err());
    }

    /// Student's t for two degrees of freedom is 4.3027 at 95 % and 6.2053 at 97.5 %.
    #[test]
    fn two_rows_widen_each_interval() {
        let of = |rows| {
            let medians = [[4.0, 6.0], [0.0, 2.0]].map(|logs| logs.map(f64::exp));
            let direction = Direction::HigherIsBetter;
            let threshold = Share::default();
            let found = compare_runs(&medians[0], &medians[1], direction, threshold, rows).unwrap();
            let (low, high) = found.ratio.ci95.unwrap();
            (high.ln() - low.ln()) / 2.0
        };
        assert!((of(2) / of(1) - 6.2053 / 4.3027).abs() < 1e-3);
    }

    /// R's manual page of `t.test`: 1 to 10 against 7 to 20 has the 95 % interval -11.052802 to
    /// -4.947198, with 21.982 degrees of freedom.
    #[test]
    fn states_with_unequal_numbers_of_runs_have_the_interval_of_r() {
        let side = |values: std::ops::RangeInclusive<i32>| -> Vec<f64> {
            values.map(|log| f64::from(log).exp()).collect()
        };
        let found = compared(&side(1..=10), &side(7..=20));
        let (low, high) = found.ratio.ci95.unwrap();
        assert!((low.ln() + 11.052_802).abs() < 1e-5, "{}", low.ln());
        assert!((high.ln() + 4.947_198).abs() < 1e-5, "{}", high.ln());
        assert_eq!((found.verdict, found.ratio.n), (Verdict::Worse, 10));
        assert_eq!((found.ratio.coverage, found.ratio.range), (Some(0.95), None));
    }
}
