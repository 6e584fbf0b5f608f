use serde::Serialize;
use std::fmt;
use units::Share;

/// The cost of sampling, as far as it can be determined.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ProbeCost {
    pub pairs: usize,
    /// True if the peer sampled in the same periods; otherwise the cost covers this side only.
    pub both_ends: bool,
    /// `None` if the pairs are too few.
    #[serde(flatten)]
    pub cost: Option<Cost>,
}

/// The cost in percent of the goodput without samples, with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    pub percent: f64,
    pub low_percent: f64,
    pub high_percent: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredPeriod {
    pub(super) number: u64,
    pub(super) samples: bool,
    pub(super) rate: f64,
}

impl ProbeCost {
    /// Computes the cost from the blocks in which all periods were measured.
    pub(super) fn of(periods: &[MeasuredPeriod], both_ends: bool) -> Self {
        let same_block = |a: &MeasuredPeriod, b: &MeasuredPeriod| {
            a.number / super::BLOCK == b.number / super::BLOCK
        };
        let ratios: Vec<f64> = periods.chunk_by(same_block).filter_map(log_ratio).collect();
        Self { pairs: ratios.len() * PAIRS, both_ends, cost: Cost::of(&ratios) }
    }
}

impl Cost {
    fn of(ratios: &[f64]) -> Option<Self> {
        if ratios.len() < LEAST_BLOCKS {
            return None;
        }
        let share = |percent| Share::from_percent(percent).unwrap_or_default();
        let found = stats::trimmed_mean(ratios, share(TRIMMED_PERCENT), share(95.0))?;
        let percent = |log: f64| -log.exp_m1() * 100.0;
        let cost = Self {
            percent: percent(found.mean),
            low_percent: percent(found.mean + found.half_width),
            high_percent: percent(found.mean - found.half_width),
        };
        [cost.percent, cost.low_percent, cost.high_percent]
            .iter()
            .all(|percent| percent.is_finite())
            .then_some(cost)
    }
}

/// `probing costs 0.30 % of goodput (95 % interval 0.10 to 0.50 %, 240 pairs)`
impl fmt::Display for ProbeCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.pairs;
        match self.cost {
            Some(Cost { percent, low_percent, high_percent }) => write!(
                f,
                "probing costs {percent:.2} % of goodput (95 % interval {low_percent:.2} to \
                 {high_percent:.2} %, {pairs} pairs)"
            )?,
            None => write!(
                f,
                "{pairs} pairs are too few to tell what probing costs: measure longer (--time)"
            )?,
        }
        if !self.both_ends {
            write!(f, "; this end's probes alone, as the far end takes none, or none in turns")?;
        }
        Ok(())
    }
}

/// Returns the logarithm of a block's goodput with samples divided by its goodput without samples.
/// `None` unless all periods of the block were measured.
fn log_ratio(block: &[MeasuredPeriod]) -> Option<f64> {
    let sum = |samples| {
        let rates =
            block.iter().filter(|period| period.samples == samples).map(|period| period.rate);
        rates.sum::<f64>()
    };
    let ratio = (sum(true) / sum(false)).ln();
    (block.len() as u64 == super::BLOCK && ratio.is_finite()).then_some(ratio)
}

/// Number of pairs of periods in a block.
const PAIRS: usize = 2;
/// Minimum number of blocks: with fewer blocks the confidence interval is meaningless.
const LEAST_BLOCKS: usize = 5;
const TRIMMED_PERCENT: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::super::SamplingPeriods;
    use super::*;
    use rand::{RngExt, SeedableRng};
    use units::Span;

    /// Computes the probe cost from simulated blocks of a host that drifts, is noisy, and stalls
    /// now and then. `cost` is the true cost.
    fn measured(seed: u64, blocks: u64, cost: f64) -> ProbeCost {
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let periods = SamplingPeriods { seed: seed as u32, length: Span::from_millis(237) };
        let mut drift = 0.0;
        let all: Vec<MeasuredPeriod> = (0..blocks * super::super::BLOCK)
            .map(|number| {
                drift += random.random_range(-0.01..0.01);
                let noise: f64 = (0..4).map(|_| random.random_range(-0.02..0.02)).sum();
                let pause = if random.random_bool(0.02) { -1.0 } else { 0.0 };
                let samples = periods.are_on(number);
                let effect = if samples { f64::ln(1.0 - cost) } else { 0.0 };
                MeasuredPeriod {
                    number,
                    samples,
                    rate: 6e9 * f64::exp(drift + noise + pause + effect),
                }
            })
            .collect();
        ProbeCost::of(&all, true)
    }

    /// Counts the runs, of 400, in which the confidence interval contains `cost`.
    fn hits(blocks: u64, cost: f64) -> usize {
        let reported = (0..400).map(|seed| measured(seed, blocks, cost).cost.unwrap());
        reported
            .filter(|reported| {
                reported.low_percent <= cost * 100.0 && cost * 100.0 <= reported.high_percent
            })
            .count()
    }

    #[test]
    fn the_confidence_interval_contains_the_true_cost_as_often_as_stated() {
        for (blocks, cost) in [(120, 0.005), (120, 0.0), (20, 0.02), (8, 0.0)] {
            let hits = hits(blocks, cost);
            assert!((365..=395).contains(&hits), "{hits} of 400 at {blocks} blocks");
        }
    }

    #[test]
    fn a_probe_cost_of_1_percent_is_distinguished_from_none() {
        let seen = |cost: f64| {
            let reported = (0..100).map(|seed| measured(seed, 500, cost).cost.unwrap());
            reported.filter(|reported| reported.low_percent > 0.0).count()
        };
        assert!(seen(0.01) >= 99 && seen(0.0) <= 7, "{} and {}", seen(0.01), seen(0.0));
    }

    #[test]
    fn blocks_with_a_gap_are_left_out_and_few_blocks_give_no_cost() {
        let period = |number| MeasuredPeriod { number, samples: number % 2 == 0, rate: 1.0 };
        let cost = ProbeCost::of(&[0, 1, 3, 4, 5, 6, 7, 8].map(period), false);
        assert_eq!((cost.pairs, cost.cost), (2, None));
        assert!(cost.to_string().contains("measure longer"), "{cost}");
        assert!(cost.to_string().contains("this end's probes alone"), "{cost}");
        assert_eq!(serde_json::to_value(cost).unwrap()["pairs"], 2);
        let silent = MeasuredPeriod { rate: 0.0, ..period(0) };
        assert_eq!(ProbeCost::of(&[silent; 4], true).pairs, 0);
        let known = measured(3, 60, 0.003);
        assert!(known.to_string().ends_with("120 pairs)"), "{known}");
        let document = serde_json::to_value(known).unwrap();
        assert!(document["high_percent"].as_f64() > document["percent"].as_f64());
    }
}
