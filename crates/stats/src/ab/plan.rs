use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Share;

use crate::{Direction, StatsError};

/// The state that a turn measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Without the change.
    Base,
    /// With the change.
    Change,
}

impl State {
    /// Returns the state's name in messages and files: `base` or `change`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Change => "change",
        }
    }

    /// Returns the other of the two states.
    pub const fn other(self) -> Self {
        match self {
            Self::Base => Self::Change,
            Self::Change => Self::Base,
        }
    }
}

/// The length of the run and the change to look for.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// Whether higher or lower values are better.
    pub direction: Direction,
    /// The smallest change that matters.
    pub threshold: Share,
    /// Maximum number of pairs of turns, without the warm-up. An odd number is rounded up, because
    /// turns run in fours.
    pub pairs: usize,
    /// Turns at the start whose values are discarded.
    pub warm_up: usize,
    /// Whether an early look may end the run.
    pub early_stop: bool,
    /// The seed of the coins that decide the order in each four.
    pub seed: u64,
}

impl Plan {
    /// Creates a plan of 300 pairs after a warm-up of 8 turns, with a threshold of 1 %, and an
    /// early end once the verdict is clear.
    pub fn new(direction: Direction, seed: u64) -> Self {
        Self {
            direction,
            threshold: default_threshold(),
            pairs: 300,
            warm_up: 8,
            early_stop: true,
            seed,
        }
    }

    /// Returns the maximum number of turns, including the warm-up.
    pub fn turns(&self) -> usize {
        self.warm_up + 4 * self.fours()
    }

    pub(super) fn fours(&self) -> usize {
        self.pairs.div_ceil(2)
    }

    pub(super) fn check(&self) -> Result<(), StatsError> {
        if !(FEWEST..=MOST).contains(&self.pairs) {
            return Err(StatsError::OutOfRange {
                what: "the number of pairs",
                value: self.pairs as f64,
                range: "from 20 (fewer cannot give a 99% interval) to 8000",
            });
        }
        if self.warm_up > MOST {
            return Err(StatsError::OutOfRange {
                what: "the number of warm-up turns",
                value: self.warm_up as f64,
                range: "from 0 to 8000",
            });
        }
        if self.threshold.is_zero() || self.threshold > most_threshold() {
            return Err(StatsError::OutOfRange {
                what: "the practical threshold",
                value: self.threshold.fraction(),
                range: "above 0% and at most 50%",
            });
        }
        Ok(())
    }

    /// Draws the state that begins and ends each four.
    pub(super) fn outer_states(&self) -> Vec<State> {
        let mut coin = Pcg64Mcg::seed_from_u64(self.seed);
        let mut toss = || {
            if coin.random::<bool>() { State::Base } else { State::Change }
        };
        (0..self.fours()).map(|_| toss()).collect()
    }

    /// Returns the number of fours before each look, and the part of the error budget that the look
    /// spends.
    pub(super) fn looks(&self) -> Vec<(usize, f64)> {
        let fours = self.fours();
        if !self.early_stop {
            return vec![(fours, 1.0)];
        }
        let quarters = 1..=SPENDING.len();
        let at = |quarter: usize| fours * quarter / SPENDING.len();
        quarters.zip(SPENDING).map(|(quarter, part)| (at(quarter), part)).collect()
    }
}

/// Returns 1 %. The link keeps its rate to 0.5 %, so two equal cells over the emulated link may
/// differ by 1 %.
fn default_threshold() -> Share {
    Share::from_percent(1.0).unwrap_or_default()
}

fn most_threshold() -> Share {
    Share::from_percent(50.0).unwrap_or_default()
}

/// The part of the error budget of each look. The parts sum to 1.
const SPENDING: [f64; 4] = [0.02, 0.08, 0.20, 0.70];
/// Minimum number of pairs, ten fours: with fewer than nine fours the signed-rank interval does not
/// reach the last look's 99.3 %.
const FEWEST: usize = 20;
/// Maximum number of pairs: the Hodges-Lehmann estimate takes no more fours.
pub(super) const MOST: usize = 8000;

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of the error are those that the module names: 2, 8, 20 and 70 %.
    #[test]
    fn four_looks_at_the_quarters_of_the_plan_spend_the_whole_error() {
        let plan = Plan::new(Direction::HigherIsBetter, 1);
        assert_eq!(plan.looks(), [(37, 0.02), (75, 0.08), (112, 0.2), (150, 0.7)]);
        let short = Plan { pairs: 21, ..plan };
        assert_eq!((short.fours(), short.turns()), (11, 8 + 44));
        assert_eq!(short.looks().iter().map(|(at, _)| *at).collect::<Vec<_>>(), [2, 5, 8, 11]);
        let spent: f64 = short.looks().iter().map(|(_, part)| part).sum();
        assert!((spent - 1.0).abs() < 1e-12);
        assert_eq!(Plan { early_stop: false, ..plan }.looks(), [(150, 1.0)]);
    }

    #[test]
    fn other_swaps_the_states_base_and_change() {
        assert_eq!([State::Base, State::Change].map(State::name), ["base", "change"]);
        assert_eq!([State::Base, State::Change].map(State::other), [State::Change, State::Base]);
    }
}
