//! Reliability of the mean of repeated measurements: the interval around it by Student's t, and the
//! width that the user asked for.
//!
//! The two numbers have netperf's meaning: `-I 99,5` asks that the interval in which the true mean
//! lies with 99 % confidence be 5 % of the mean *wide*, that is ±2.5 % (netperf prints "+/-2.5% @
//! 99% conf."). Like netperf, the measurement ends as soon as the interval is narrow enough. This
//! makes the true confidence slightly lower than stated; at least three repeats keep the difference
//! small.

use super::RoundsError;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::fmt;
use std::str::FromStr;
use units::Share;

/// Required confidence of the mean, written `99,5`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// Probability that the true mean is within the interval.
    pub level: Share,
    /// Width of the whole interval, relative to the mean: 5 % is ±2.5 %.
    pub width: Share,
}

/// The mean of several measurements, and its reliability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// Standard deviation of a single measurement, from the sample. `None` for a single
    /// measurement.
    pub deviation: Option<f64>,
    /// The interval is the mean ± this. `None` for a single measurement.
    pub half_width: Option<f64>,
    pub count: usize,
}

impl Confidence {
    /// netperf's default level, with the most common width.
    pub fn usual() -> Self {
        let share = |percent| Share::from_percent(percent).unwrap_or(Share::ONE);
        Self { level: share(99.0), width: share(5.0) }
    }

    pub fn is_met_by(&self, estimate: &Estimate) -> bool {
        estimate.relative_half_width().is_some_and(|half| half <= self.width.fraction() / 2.0)
    }
}

impl Estimate {
    /// `None` without values, and if a value is not finite.
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

    /// As a part of the mean: 0.025 is ±2.5 %. `None` if there is no interval or the mean is zero.
    pub fn relative_half_width(&self) -> Option<f64> {
        self.half_width.filter(|_| self.mean > 0.0).map(|half| half / self.mean)
    }
}

/// Student's t for an interval that excludes equal parts on both sides.
fn two_sided(level: Share, freedom: usize) -> Option<f64> {
    let student = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    let t = student.inverse_cdf(0.5 + level.fraction() / 2.0);
    t.is_finite().then_some(t)
}

impl FromStr for Confidence {
    type Err = RoundsError;

    fn from_str(text: &str) -> Result<Self, RoundsError> {
        let refused = || RoundsError::Confidence { text: text.to_owned() };
        let (level, width) = text.split_once(',').ok_or_else(refused)?;
        let percent = |text: &str| {
            let number = text.trim().trim_end_matches('%').parse().ok()?;
            Share::from_percent(number).filter(|share| !share.is_zero())
        };
        let (level, width) = percent(level).zip(percent(width)).ok_or_else(refused)?;
        let sensible = level.percent() >= LEAST_LEVEL && level.percent() <= MOST_LEVEL;
        sensible.then_some(Self { level, width }).ok_or_else(refused)
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "±{} % at {} %", self.width.percent() / 2.0, self.level.percent())
    }
}

const LEAST_LEVEL: f64 = 50.0;
const MOST_LEVEL: f64 = 99.99;

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

    /// NIST/SEMATECH, e-Handbook of Statistical Methods, 1.3.5.2: ZARR13.DAT, 195 values of mean
    /// 9.261460 and deviation 0.022789, gives 9.258242 to 9.264679 at 95 %.
    #[test]
    fn the_handbooks_example() {
        let t = two_sided(level(95.0), 194).unwrap();
        let half = t * 0.022_789 / 195_f64.sqrt();
        assert!(near(9.261_460 - half, 9.258_242) && near(9.261_460 + half, 9.264_679));
        assert!((half - 0.003_218_7).abs() < 1e-6, "{half}");
    }

    #[test]
    fn three_repeats_match_a_hand_calculation() {
        // Mean 100, deviation 1: 9.9248 / √3 = 5.730.
        let estimate = Estimate::of(&[99.0, 100.0, 101.0], level(99.0)).unwrap();
        assert_eq!((estimate.mean, estimate.deviation), (100.0, Some(1.0)));
        assert!(near(estimate.half_width.unwrap(), 5.730));
        let asked = |width| Confidence { level: level(99.0), width: level(width) };
        assert!(!asked(11.4).is_met_by(&estimate), "±5.7 % is less than ±5.73 %");
        assert!(asked(11.5).is_met_by(&estimate));
    }

    #[test]
    fn one_measurement_never_suffices_and_equal_ones_do() {
        let one = Estimate::of(&[5.0], level(99.0)).unwrap();
        assert_eq!(one.half_width, None);
        assert!(!Confidence::usual().is_met_by(&one));
        let equal = Estimate::of(&[5.0; 3], level(99.0)).unwrap();
        assert!(Confidence::usual().is_met_by(&equal));
        let nothing = Estimate::of(&[0.0; 3], level(99.0)).unwrap();
        assert!(!Confidence::usual().is_met_by(&nothing));
        assert_eq!(Estimate::of(&[], level(99.0)), None);
        assert_eq!(Estimate::of(&[f64::NAN, 1.0], level(99.0)), None);
    }

    #[test]
    fn confidence_is_written_as_in_netperf() {
        let read: Confidence = "99,5".parse().unwrap();
        assert_eq!(read, Confidence::usual());
        assert_eq!(read.to_string(), "±2.5 % at 99 %");
        for wrong in ["99", "99,0", "0,5", "99,5,3", "101,5", "99,-5", "5,99", "a,b", "100,5"] {
            assert!(wrong.parse::<Confidence>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn more_repeats_of_the_same_spread_narrow_the_interval(values in prop::collection::vec(1.0..1e6, 2..20)) {
            let twice: Vec<f64> = values.iter().chain(&values).copied().collect();
            let once = Estimate::of(&values, level(95.0)).unwrap();
            let twice = Estimate::of(&twice, level(95.0)).unwrap();
            prop_assert!(twice.half_width.unwrap() <= once.half_width.unwrap());
            prop_assert!((twice.mean - once.mean).abs() <= 1e-9 * once.mean);
        }

        #[test]
        fn scaling_does_not_change_relative_figures(values in prop::collection::vec(1.0..1e6, 2..20), by in 0.01..100.0) {
            let scaled: Vec<f64> = values.iter().map(|value| value * by).collect();
            let a = Estimate::of(&values, level(99.0)).unwrap().relative_half_width().unwrap();
            let b = Estimate::of(&scaled, level(99.0)).unwrap().relative_half_width().unwrap();
            prop_assert!((a - b).abs() <= 1e-9 + 1e-6 * a);
        }
    }
}
