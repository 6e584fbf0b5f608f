//! Compares two states of a system, each measured in several runs.
//!
//! Runs differ by more than their repeats do: the machine boots anew, memory lies elsewhere, other
//! programs share the host. The repeats of one run show nothing of that, so a test over repeats
//! finds a difference between two runs of the same state far too often (Kalibera & Jones, "Rigorous
//! Benchmarking in Reasonable Time", ISMM 2013). Therefore a run counts as one sample, its median.
//! The variance between these contains both: that between the runs and that within each.

use statrs::distribution::{ContinuousCDF, StudentsT};
use units::Share;

use crate::StatsError;
use crate::error::positive;
use crate::family::LEVEL;
use crate::ratio::{Direction, RatioVerdict, judge};
use crate::spread::mean;
use crate::summary::Estimate;

/// Compares the medians of runs by the ratio of their geometric means, with Welch's interval and
/// test (Biometrika 34, 1947) of the logarithms. A state with a single run has neither, because
/// nothing is known about the variance between its runs.
pub fn compare_runs(
    a: &[f64],
    b: &[f64],
    direction: Direction,
    threshold: Share,
) -> Result<RatioVerdict, StatsError> {
    let (a, b) = (logarithms(a)?, logarithms(b)?);
    let difference = mean(&a) - mean(&b);
    let welch = Welch::of(&a, &b);
    let ends = |half: f64| ((difference - half).exp(), (difference + half).exp());
    let ci95 = welch.as_ref().map(|welch| ends(welch.half_width(1.0 - LEVEL)));
    let ratio = Estimate {
        median: difference.exp(),
        ci95,
        coverage: ci95.map(|_| 1.0 - LEVEL),
        range: None,
        n: a.len().min(b.len()),
    };
    let p = welch.map(|welch| welch.p(difference));
    let different = p.is_some_and(|p| p <= LEVEL);
    let verdict = judge(ratio.median, different, ratio.ci95, direction, threshold);
    Ok(RatioVerdict { ratio, p, verdict, direction, threshold })
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
        // Runs in virtual time may be equal to the last bit.
        let freedom = if parts > 0.0 { (of_a + of_b).powi(2) / parts } else { 1.0 };
        Some(Self { error: (of_a + of_b).sqrt(), freedom })
    }

    fn half_width(&self, level: f64) -> f64 {
        let student = StudentsT::new(0.0, 1.0, self.freedom);
        student.map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + level / 2.0) * self.error)
    }

    fn p(&self, difference: f64) -> f64 {
        if difference == 0.0 {
            return 1.0;
        }
        let student = StudentsT::new(0.0, 1.0, self.freedom);
        student.map_or(1.0, |t| 2.0 * t.cdf(-(difference / self.error).abs()))
    }
}

/// `None` for a single value.
fn variance_of_mean(values: &[f64]) -> Option<f64> {
    let n = values.len();
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (n > 1).then(|| squares / (n - 1) as f64 / n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio::Verdict;

    fn compared(a: &[f64], b: &[f64]) -> RatioVerdict {
        let threshold = Share::from_percent(3.0).unwrap();
        compare_runs(a, b, Direction::HigherIsBetter, threshold).unwrap()
    }

    /// Logarithms 0, 2 against 4, 6: the difference is 4, its error the square root of 2, with two
    /// degrees of freedom. Student's t is 4.3027 there, and p is 0.1056 for 4 / 1.4142.
    #[test]
    fn welchs_test_by_hand() {
        let of = |values: [f64; 2]| values.map(f64::exp);
        let found = compared(&of([4.0, 6.0]), &of([0.0, 2.0]));
        let (low, high) = found.ratio.ci95.unwrap();
        assert!((low.ln() - (4.0 - 4.3027 * 2_f64.sqrt())).abs() < 1e-3, "{low}");
        assert!((high.ln() - (4.0 + 4.3027 * 2_f64.sqrt())).abs() < 1e-3, "{high}");
        assert!((found.p.unwrap() - 0.1056).abs() < 1e-3, "{found:?}");
        assert_eq!(found.verdict, Verdict::Inconclusive);
    }

    #[test]
    fn one_run_of_a_state_decides_nothing() {
        let found = compared(&[200.0], &[100.0, 101.0, 99.0]);
        assert_eq!((found.p, found.ratio.ci95), (None, None));
        assert_eq!(found.verdict, Verdict::Inconclusive);
        assert!((found.ratio.median - 2.0).abs() < 1e-3);
    }

    #[test]
    fn equal_runs_of_virtual_time_are_the_same() {
        let found = compared(&[5.0, 5.0], &[5.0, 5.0]);
        assert_eq!((found.p, found.verdict), (Some(1.0), Verdict::NoDifference));
        let found = compared(&[6.0, 6.0], &[5.0, 5.0]);
        assert_eq!(found.verdict, Verdict::Better);
        assert!(compare_runs(&[0.0], &[1.0], Direction::HigherIsBetter, Share::default()).is_err());
    }
}
