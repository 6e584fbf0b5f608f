//! Compares a measured number with the expected number.

/// A median and the bounds of its confidence interval, if known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Middle {
    /// The median.
    pub value: f64,
    /// The bounds of the median's confidence interval; `None` for an exact number and for too few
    /// runs.
    pub ends: Option<(f64, f64)>,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The difference is within the tolerance, and the interval's half width is within the
    /// tolerance.
    Within,
    /// The difference exceeds the tolerance.
    Off,
    /// The interval is wider than the tolerance or missing.
    Undecided,
}

/// The comparison of a measured number with the expected number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// The result of the comparison.
    pub verdict: Verdict,
    /// The ratio of the measured to the expected number, less one.
    pub difference: f64,
    /// Half the width of the difference's interval, from both numbers' intervals. `None` if the
    /// measured number has no interval.
    pub half_width: Option<f64>,
}

/// Compares both numbers. An expected number without an interval is exact.
pub(super) fn judge(expected: Middle, measured: Middle, tolerance: f64) -> Judgement {
    let difference = match (measured.value, expected.value) {
        (measured, expected) if measured == expected => 0.0,
        (measured, expected) => measured / expected - 1.0,
    };
    let (low, high) = expected.ends.unwrap_or((expected.value, expected.value));
    let half_width = measured.ends.map(|(from, to)| (to / low - from / high) / 2.0);
    let verdict = match half_width {
        Some(half) if half <= tolerance + ROUNDING => {
            if difference.abs() <= tolerance + ROUNDING {
                Verdict::Within
            } else {
                Verdict::Off
            }
        }
        _ => Verdict::Undecided,
    };
    Judgement { verdict, difference, half_width }
}

const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    fn middle(value: f64, half: f64) -> Middle {
        Middle { value, ends: Some((value - half, value + half)) }
    }

    #[test]
    fn a_wide_interval_leaves_the_judgement_undecided() {
        let exact = Middle { value: 100.0, ends: None };
        let verdict = |expected, measured| judge(expected, measured, 0.1).verdict;
        assert_eq!(verdict(exact, middle(105.0, 3.0)), Verdict::Within);
        assert_eq!(verdict(exact, middle(111.0, 3.0)), Verdict::Off);
        assert_eq!(verdict(exact, middle(100.0, 11.0)), Verdict::Undecided);
        assert_eq!(verdict(exact, middle(150.0, 11.0)), Verdict::Undecided);
        assert_eq!(verdict(middle(100.0, 11.0), middle(100.0, 0.0)), Verdict::Undecided);
        // The half width includes both intervals.
        assert_eq!(verdict(middle(100.0, 4.0), middle(100.0, 4.0)), Verdict::Within);
        assert_eq!(verdict(middle(100.0, 6.0), middle(100.0, 6.0)), Verdict::Undecided);
        assert_eq!(verdict(exact, Middle { value: 100.0, ends: None }), Verdict::Undecided);
    }

    #[test]
    fn the_difference_and_its_interval_are_relative_to_the_expected_number() {
        let judged = judge(middle(200.0, 0.0), middle(190.0, 2.0), 0.1);
        assert!((judged.difference + 0.05).abs() < 1e-12);
        assert!((judged.half_width.unwrap() - 0.01).abs() < 1e-12);
        let none = judge(middle(0.0, 0.0), middle(0.0, 0.0), 0.0);
        assert_eq!(none.difference, 0.0);
    }
}
