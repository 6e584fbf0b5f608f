//! The mean of repeated measurements, and the interval around it by Student's t.

use statrs::distribution::{ContinuousCDF, StudentsT};
use units::Share;

/// The mean of several measurements, and its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanEstimate {
    /// The arithmetic mean, in the unit of the measurements.
    pub mean: f64,
    /// Standard deviation of a single measurement, from the sample. `None` for a single
    /// measurement.
    pub deviation: Option<f64>,
    /// Half of the interval around the mean. `None` for a single measurement.
    pub half_width: Option<f64>,
    /// Number of measurements, at least 1.
    pub count: usize,
}

impl MeanEstimate {
    /// Estimates the mean. `None` without values, and if a value is not finite.
    pub fn of(values: &[f64], level: Share) -> Option<Self> {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        if !mean.is_finite() {
            return None;
        }
        if count == 1 {
            return Some(Self { mean, deviation: None, half_width: None, count });
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        let half_width = two_sided(level, count - 1).map(|t| t * deviation / (count as f64).sqrt());
        Some(Self { mean, deviation: Some(deviation), half_width, count })
    }

    /// Returns the half width as a part of the mean: 0.025 is ±2.5 %. `None` if there is no
    /// interval or the mean is zero.
    pub fn relative_half_width(&self) -> Option<f64> {
        self.half_width.filter(|_| self.mean > 0.0).map(|half| half / self.mean)
    }
}

/// Returns Student's t for a two-sided interval with equal tails.
fn two_sided(level: Share, freedom: usize) -> Option<f64> {
    let student = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    let t = student.inverse_cdf(0.5 + level.fraction() / 2.0);
    t.is_finite().then_some(t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level(percent: f64) -> Share {
        Share::from_percent(percent).unwrap()
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 5e-4 * expected.abs()
    }

    #[test]
    fn students_t_matches_the_tables() {
        for (percent, freedom, expected) in [
            (99.0, 2, 9.9248),
            (99.0, 29, 2.7564),
            (95.0, 2, 4.3027),
            (95.0, 9, 2.2622),
            (99.0, 1, 63.657),
            (90.0, 4, 2.1318),
        ] {
            let t = two_sided(level(percent), freedom).unwrap();
            assert!(near(t, expected), "{percent} % of {freedom}: {t} and not {expected}");
        }
    }

    #[test]
    fn four_values_have_the_interval_of_the_textbook() {
        let found = MeanEstimate::of(&[1.0, 2.0, 3.0, 4.0], level(95.0)).unwrap();
        assert!(near(found.deviation.unwrap(), 1.290_99), "{found:?}");
        assert!(near(found.half_width.unwrap(), 2.054_26), "{found:?}");
    }

    /// NIST/SEMATECH, e-Handbook of Statistical Methods, 1.3.5.2: ZARR13.DAT, 195 values of mean
    /// 9.261460 and deviation 0.022789, gives 9.258242 to 9.264679 at 95 %.
    #[test]
    fn the_interval_matches_the_handbooks_example() {
        let t = two_sided(level(95.0), 194).unwrap();
        let half = t * 0.022_789 / 195_f64.sqrt();
        assert!(near(9.261_460 - half, 9.258_242) && near(9.261_460 + half, 9.264_679));
        assert!((half - 0.003_218_7).abs() < 1e-6, "{half}");
    }

    proptest! {
        #[test]
        fn more_repeats_of_the_same_spread_narrow_the_interval(values in prop::collection::vec(1.0..1e6, 2..20)) {
            let twice: Vec<f64> = values.iter().chain(&values).copied().collect();
            let once = MeanEstimate::of(&values, level(95.0)).unwrap();
            let twice = MeanEstimate::of(&twice, level(95.0)).unwrap();
            prop_assert!(twice.half_width.unwrap() <= once.half_width.unwrap());
            prop_assert!((twice.mean - once.mean).abs() <= 1e-9 * once.mean);
        }

        #[test]
        fn scaling_does_not_change_the_relative_half_width(values in prop::collection::vec(1.0..1e6, 2..20), by in 0.01..100.0) {
            let scaled: Vec<f64> = values.iter().map(|value| value * by).collect();
            let a = MeanEstimate::of(&values, level(99.0)).unwrap().relative_half_width().unwrap();
            let b = MeanEstimate::of(&scaled, level(99.0)).unwrap().relative_half_width().unwrap();
            prop_assert!((a - b).abs() <= 1e-9 + 1e-6 * a);
        }
    }

    #[test]
    fn a_mean_of_zero_has_no_relative_interval() {
        let of = |values: &[f64]| MeanEstimate::of(values, level(95.0)).unwrap();
        assert_eq!(of(&[-1.0, 1.0]).relative_half_width(), None);
        let single = of(&[4.0]);
        assert_eq!((single.mean, single.deviation, single.half_width), (4.0, None, None));
        assert_eq!(single.relative_half_width(), None);
        assert_eq!(MeanEstimate::of(&[], level(95.0)), None);
    }
}
