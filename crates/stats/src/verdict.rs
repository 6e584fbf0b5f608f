//! The verdict on a ratio `a / b` of two systems. The interval alone decides:
//!
//! - **better, worse**: the interval excludes 1, and the ratio itself is at or beyond the
//!   threshold, the smallest difference that matters.
//! - **the same**: the whole interval lies within the threshold. A smaller real difference does not
//!   matter.
//! - **undecided**: anything else, and a ratio without an interval.
//!
//! An interval that covers the ratio in 95 % of cases therefore gives a wrong verdict in at most
//! 5 % of cases: better or worse where the systems are equal, or the same where they differ by more
//! than the threshold.

use units::Share;

/// Which of two values is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// For throughput, requests per second and fairness.
    HigherIsBetter,
    /// For latency, CPU, loss and queue.
    LowerIsBetter,
}

/// The verdict on `a`, compared with `b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The interval excludes 1, and `a` is better by the threshold or more.
    Better,
    /// The interval excludes 1, and `a` is worse by the threshold or more.
    Worse,
    /// The whole interval lies within the threshold around 1: the difference of `a` and `b` is too
    /// small to matter.
    Same,
    /// Undecided. Older files have the name `inconclusive`; unknown names also read as undecided.
    #[serde(other)]
    Undecided,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Same => "the same",
            other => other.word(),
        })
    }
}

impl Verdict {
    /// Returns the verdict's name in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Undecided => "undecided",
        }
    }

    /// Returns the verdict as one character for a table.
    pub const fn mark(self) -> char {
        match self {
            Self::Better => '▲',
            Self::Worse => '▼',
            Self::Same => '=',
            Self::Undecided => '?',
        }
    }

    /// Applies the rule at the top of this module. The threshold is symmetric for ratios: `1 + t`
    /// and `1 / (1 + t)` weigh the same. Swapping `a` and `b` only swaps better and worse.
    pub fn of(
        ratio: f64,
        interval: Option<(f64, f64)>,
        direction: Direction,
        threshold: Share,
    ) -> Self {
        let Some((low, high)) = interval else { return Self::Undecided };
        let up = 1.0 + threshold.fraction();
        let down = 1.0 / up;
        let (higher, lower) = match direction {
            Direction::HigherIsBetter => (Self::Better, Self::Worse),
            Direction::LowerIsBetter => (Self::Worse, Self::Better),
        };
        if low > 1.0 && ratio >= up {
            higher
        } else if high < 1.0 && ratio <= down {
            lower
        } else if low >= down && high <= up {
            Self::Same
        } else {
            Self::Undecided
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(ratio: f64, low: f64, high: f64) -> Verdict {
        let threshold = Share::from_percent(5.0).unwrap();
        Verdict::of(ratio, Some((low, high)), Direction::HigherIsBetter, threshold)
    }

    #[test]
    fn the_interval_and_the_threshold_decide_the_verdict() {
        assert_eq!(of(1.2, 1.1, 1.3), Verdict::Better);
        assert_eq!(of(0.8, 0.7, 0.9), Verdict::Worse);
        assert_eq!(of(1.01, 0.97, 1.04), Verdict::Same);
        // The difference is real, but too small to matter.
        assert_eq!(of(1.02, 1.01, 1.04), Verdict::Same);
        assert_eq!(of(1.02, 1.01, 1.08), Verdict::Undecided);
        assert_eq!(of(1.2, 0.9, 1.5), Verdict::Undecided);
        assert_eq!(of(0.0, 0.0, 0.0), Verdict::Worse);
        assert_eq!(of(f64::INFINITY, 2.0, f64::INFINITY), Verdict::Better);
        let none = Verdict::of(9.0, None, Direction::LowerIsBetter, Share::default());
        assert_eq!(none, Verdict::Undecided);
    }

    proptest! {
        #[test]
        fn verdict_and_interval_never_contradict(
            log in -8.0..8.0f64, below in 0.0..3.0f64, above in 0.0..3.0f64,
            percent in 0.0..50.0f64, higher: bool,
        ) {
            let (ratio, low, high) = (log.exp(), (log - below).exp(), (log + above).exp());
            let threshold = Share::from_percent(percent).unwrap();
            let direction = match higher {
                true => Direction::HigherIsBetter,
                false => Direction::LowerIsBetter,
            };
            let verdict = Verdict::of(ratio, Some((low, high)), direction, threshold);
            let excludes_one = low > 1.0 || high < 1.0;
            match verdict {
                Verdict::Better | Verdict::Worse => {
                    prop_assert!(excludes_one);
                    prop_assert_eq!((ratio > 1.0) == higher, verdict == Verdict::Better);
                }
                Verdict::Same => {
                    prop_assert!(high <= 1.0 + threshold.fraction());
                    prop_assert!(low >= 1.0 / (1.0 + threshold.fraction()));
                }
                Verdict::Undecided => prop_assert!(!excludes_one || ratio.max(1.0 / ratio) < 2.0),
            }
            let swapped = Verdict::of(1.0 / ratio, Some((1.0 / high, 1.0 / low)), direction, threshold);
            let opposite = match verdict {
                Verdict::Better => Verdict::Worse,
                Verdict::Worse => Verdict::Better,
                other => other,
            };
            // Exclude ends so near the threshold that rounding may move them across.
            let near = |end: f64| (end.ln().abs() - threshold.fraction().ln_1p()).abs() < 1e-9;
            prop_assert!(swapped == opposite || [ratio, low, high].into_iter().any(near));
        }
    }

    #[test]
    fn each_verdict_has_a_mark_and_words() {
        let all = [Verdict::Better, Verdict::Worse, Verdict::Same, Verdict::Undecided];
        assert_eq!(all.map(Verdict::mark), ['▲', '▼', '=', '?']);
        assert_eq!(all.map(Verdict::word), ["better", "worse", "same", "undecided"]);
        let told = all.map(|verdict| format!("{verdict:9}|"));
        assert_eq!(told, ["better   |", "worse    |", "the same |", "undecided|"]);
    }
}
