//! Reliability of the mean of repeated measurements: its confidence interval by Student's t, and
//! the width of the interval that the user asked for.
//!
//! The two numbers have netperf's meaning. `-I 99,5` asks for a 99 % confidence interval whose
//! whole width is 5 % of the mean, that is ±2.5 % (netperf prints "+/-2.5% @ 99% conf."). As in
//! netperf, the measurement ends as soon as the interval is narrow enough. This rule makes the true
//! confidence slightly lower than stated; at least three repeats keep the difference small.

use super::RoundsError;
use stats::MeanEstimate;
use std::fmt;
use std::str::FromStr;
use units::Share;

/// Required confidence of the mean, written `99,5` (level and width in percent).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// Probability that the true mean is within the interval.
    pub level: Share,
    /// Width of the whole interval, relative to the mean: 5 % is ±2.5 %.
    pub width: Share,
}

impl Confidence {
    /// Returns netperf's default level and the most common width.
    pub fn usual() -> Self {
        let share = |percent| Share::from_percent(percent).unwrap_or(Share::ONE);
        Self { level: share(99.0), width: share(5.0) }
    }

    pub fn is_met_by(&self, estimate: &MeanEstimate) -> bool {
        estimate.relative_half_width().is_some_and(|half| half <= self.width.fraction() / 2.0)
    }
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

    fn level(percent: f64) -> Share {
        Share::from_percent(percent).unwrap()
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 5e-4 * expected.abs()
    }

    #[test]
    fn the_confidence_interval_of_three_repeats_matches_a_hand_calculation() {
        // Mean 100, deviation 1: 9.9248 / √3 = 5.730.
        let estimate = MeanEstimate::of(&[99.0, 100.0, 101.0], level(99.0)).unwrap();
        assert_eq!((estimate.mean, estimate.deviation), (100.0, Some(1.0)));
        assert!(near(estimate.half_width.unwrap(), 5.730));
        let asked = |width| Confidence { level: level(99.0), width: level(width) };
        assert!(!asked(11.4).is_met_by(&estimate), "±5.7 % is less than ±5.73 %");
        assert!(asked(11.5).is_met_by(&estimate));
    }

    #[test]
    fn a_single_repeat_never_reaches_the_confidence_but_equal_repeats_do() {
        let one = MeanEstimate::of(&[5.0], level(99.0)).unwrap();
        assert_eq!(one.half_width, None);
        assert!(!Confidence::usual().is_met_by(&one));
        let equal = MeanEstimate::of(&[5.0; 3], level(99.0)).unwrap();
        assert!(Confidence::usual().is_met_by(&equal));
        let nothing = MeanEstimate::of(&[0.0; 3], level(99.0)).unwrap();
        assert!(!Confidence::usual().is_met_by(&nothing));
        assert_eq!(MeanEstimate::of(&[], level(99.0)), None);
        assert_eq!(MeanEstimate::of(&[f64::NAN, 1.0], level(99.0)), None);
    }

    #[test]
    fn the_confidence_option_parses_as_in_netperf() {
        let read: Confidence = "99,5".parse().unwrap();
        assert_eq!(read, Confidence::usual());
        assert_eq!(read.to_string(), "±2.5 % at 99 %");
        for wrong in ["99", "99,0", "0,5", "99,5,3", "101,5", "99,-5", "5,99", "a,b", "100,5"] {
            assert!(wrong.parse::<Confidence>().is_err(), "{wrong}");
        }
    }
}
