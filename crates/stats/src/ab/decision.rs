use statrs::distribution::{ContinuousCDF, Normal};
use units::Share;

use super::Plan;
use super::decider::Kept;
use super::plan::MOST;
use crate::outliers::outliers;
use crate::quantile::median;
use crate::signed_rank::hodges_lehmann;
use crate::spread::median_absolute_deviation;
use crate::{Direction, StatsError, Verdict};

/// The verdict on a run, and the numbers behind it. Ratios are `change / base`.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Decision {
    /// The verdict: better or worse by `ci99`, the same by `ci95`, undecided otherwise.
    pub verdict: Verdict,
    /// Hodges-Lehmann estimate over the groups of four turns (fours).
    pub ratio: f64,
    /// The 95 % interval; `None` if too few groups of four turns are complete. Both intervals are
    /// valid for all looks of the run together.
    pub ci95: Option<(f64, f64)>,
    /// The 99 % interval; `None` if too few groups of four turns are complete.
    pub ci99: Option<(f64, f64)>,
    /// The number of pairs of turns in the complete fours: two per four.
    pub pairs: usize,
    /// Pairs of turns in the whole plan, rounded up to whole fours.
    pub planned_pairs: usize,
    /// Whether the run ended before the plan's end.
    pub early: bool,
    /// The smallest change that this number of pairs at this noise detects in 80 % of runs. `None`
    /// if too few groups of four turns are complete.
    pub detectable: Option<f64>,
    /// For an undecided run: the number of pairs that would decide in 80 % of runs if the change
    /// had no effect.
    pub pairs_needed: Option<usize>,
    /// Robust standard deviation of a single value, relative to the value.
    pub noise: f64,
    /// Number of outliers among the fours. The decision keeps all outliers.
    pub outliers: usize,
    /// Median of the base values in the complete fours, in the unit of the observations.
    pub base_median: f64,
    /// Median of the values with the change in the complete fours, in the unit of the observations.
    pub change_median: f64,
    /// The direction of the plan, which decides whether a higher ratio is better.
    pub direction: Direction,
    /// The smallest change that matters, from the plan.
    pub threshold: Share,
}

impl Decision {
    /// Decides at a look that may spend `part` of the error budget.
    pub(super) fn of(plan: &Plan, kept: &Kept, part: f64) -> Result<Self, StatsError> {
        let contrasts = &kept.contrasts;
        let mut located = hodges_lehmann(contrasts)?;
        let level = |error: f64| Share::new(1.0 - error * part).unwrap_or_default();
        let wide = located.interval(level(ERROR_99))?;
        let narrow = located.interval(level(ERROR_95))?;
        let ci99 = wide.map(|(low, high)| (ratio(low), ratio(high)));
        let middle = ratio(located.estimate);
        let ci95 = narrow.map(|(low, high)| (ratio(low), ratio(high)));
        let judged = |interval: Option<(f64, f64)>| {
            Verdict::of(middle, interval, plan.direction, plan.threshold)
        };
        let verdict = match (judged(ci99), judged(ci95)) {
            (decided @ (Verdict::Better | Verdict::Worse), _) => decided,
            (_, Verdict::Same) => Verdict::Same,
            _ => Verdict::Undecided,
        };
        let pairs = 2 * contrasts.len();
        let spread = wide.map(|ends| Spread::of(ends, ERROR_99 * part));
        let needed = narrow
            .and_then(|ends| Spread::of(ends, ERROR_95 * part).pairs_needed(pairs, plan.threshold));
        Ok(Self {
            verdict,
            ratio: middle,
            ci95,
            ci99,
            pairs,
            planned_pairs: 2 * plan.fours(),
            early: contrasts.len() < plan.fours(),
            detectable: spread.map(|spread| ratio(spread.distance(EIGHT_IN_TEN)) - 1.0),
            pairs_needed: needed.filter(|_| verdict == Verdict::Undecided),
            noise: median_absolute_deviation(contrasts, median(contrasts)?) / 0.6745,
            outliers: outliers(contrasts)?.len(),
            base_median: median(&kept.base)?,
            change_median: median(&kept.change)?,
            direction: plan.direction,
            threshold: plan.threshold,
        })
    }
}

/// Prints one line for a terminal.
impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let within = match self.verdict {
            Verdict::Same => format!(" within {}", self.threshold.to_string().replace('%', " %")),
            _ => String::new(),
        };
        let mark = self.verdict.mark();
        write!(f, "{mark} {}{within}: {:+.2} %", self.verdict, percent(self.ratio))?;
        if let Some((low, high)) = self.ci95 {
            let (low, high) = (percent(low), percent(high));
            write!(f, " (95 % interval {low:+.2} to {high:+.2} %)")?;
        }
        write!(f, " over {} pairs", self.pairs)?;
        if let Some(seen) = self.detectable {
            write!(f, "; smallest change that shows: {:.2} %", seen * 100.0)?;
        }
        match self.pairs_needed {
            Some(needed) if needed > MOST => {
                write!(f, "; more than {MOST} pairs would decide: make each turn longer")?;
            }
            Some(needed) => write!(f, "; about {needed} pairs would decide")?,
            None => {}
        }
        Ok(())
    }
}

/// The scatter of the estimate of the logarithm.
#[derive(Debug, Clone, Copy)]
struct Spread {
    deviation: f64,
    /// Distance from the estimate to a bound of the interval, in deviations.
    reach: f64,
}

impl Spread {
    fn of((low, high): (f64, f64), error: f64) -> Self {
        let reach = Normal::standard().inverse_cdf(1.0 - error / 2.0);
        Self { deviation: (high - low) / 2.0 / reach, reach }
    }

    /// Returns the distance from the true value at which the interval excludes a value with the
    /// probability of `beyond` normal deviations.
    fn distance(self, beyond: f64) -> f64 {
        (self.reach + beyond) * self.deviation
    }

    /// Returns the number of pairs that the threshold needs; `None` if the noise is already low
    /// enough. The deviation falls with the square root of the number of pairs.
    fn pairs_needed(self, pairs: usize, threshold: Share) -> Option<usize> {
        let short_by = self.distance(EIGHT_IN_TEN_ON_BOTH_SIDES) / threshold.fraction().ln_1p();
        let needed = pairs as f64 * short_by * short_by;
        (short_by > 1.0).then_some(2 * (needed / 2.0).ceil() as usize)
    }
}

/// Converts a logarithm to a ratio. The clamp keeps values that differ by hundreds of digits
/// finite.
fn ratio(log: f64) -> f64 {
    log.clamp(-700.0, 700.0).exp()
}

/// The share of runs with equal states that may give "better" or "worse".
const ERROR_99: f64 = 0.01;
/// The share of runs with a change beyond the threshold that may give "the same".
const ERROR_95: f64 = 0.05;
/// Normal quantiles of 0.8 and 0.9.
const EIGHT_IN_TEN: f64 = 0.841_621;
const EIGHT_IN_TEN_ON_BOTH_SIDES: f64 = 1.281_552;

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(verdict: Verdict, ratio: f64) -> Decision {
        Decision {
            verdict,
            ratio,
            ci95: Some((ratio - 0.01, ratio + 0.01)),
            ci99: None,
            pairs: 74,
            planned_pairs: 300,
            early: true,
            detectable: None,
            pairs_needed: None,
            noise: 0.02,
            outliers: 0,
            base_median: 1.0,
            change_median: ratio,
            direction: Direction::HigherIsBetter,
            threshold: Share::from_percent(1.0).unwrap(),
        }
    }

    #[test]
    fn a_decision_is_one_line_in_percent() {
        assert_eq!(
            decision(Verdict::Worse, 0.97).to_string(),
            "▼ worse: -3.00 % (95 % interval -4.00 to -2.00 %) over 74 pairs"
        );
        let same = Decision { detectable: Some(0.008), ..decision(Verdict::Same, 1.002) };
        assert_eq!(
            same.to_string(),
            "= the same within 1 %: +0.20 % (95 % interval -0.80 to +1.20 %) over 74 pairs; \
             smallest change that shows: 0.80 %"
        );
        let open =
            Decision { ci95: None, pairs_needed: Some(640), ..decision(Verdict::Undecided, 1.5) };
        assert_eq!(
            open.to_string(),
            "? undecided: +50.00 % over 74 pairs; about 640 pairs would decide"
        );
    }
}
