use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Share;

use crate::stats::{Direction, StatsError, default_threshold};

/// What runs in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Without the change.
    Base,
    /// With the change.
    Change,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Change => "change",
        }
    }

    pub const fn other(self) -> Self {
        match self {
            Self::Base => Self::Change,
            Self::Change => Self::Base,
        }
    }
}

/// How long to alternate and what to look for.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    pub direction: Direction,
    /// The smallest change that matters.
    pub threshold: Share,
    /// Pairs of turns at most, without the warm-up; an odd number is rounded up, as fours are run.
    pub pairs: usize,
    /// Turns at the start that are measured and forgotten.
    pub warm_up: usize,
    /// Whether a look before the end may end the run.
    pub early_stop: bool,
    /// Decides the order in each four.
    pub seed: u64,
}

impl Plan {
    /// 300 pairs, after a warm-up of 8 turns, looking for 1 %, ending early where the answer is clear.
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

    /// Turns in all, the warm-up included: times the length of a turn, how long the run may take.
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

    /// Which state begins (and ends) each four.
    pub(super) fn outer_states(&self) -> Vec<State> {
        let mut coin = Pcg64Mcg::seed_from_u64(self.seed);
        let mut toss = || {
            if coin.random::<bool>() { State::Base } else { State::Change }
        };
        (0..self.fours()).map(|_| toss()).collect()
    }

    /// After how many fours each look comes, and which part of the error budget it spends.
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

fn most_threshold() -> Share {
    Share::from_percent(50.0).unwrap_or_default()
}

/// Parts of the error budget by look; they sum to 1.
const SPENDING: [f64; 4] = [0.02, 0.08, 0.20, 0.70];
/// Ten fours: the signed-rank interval of fewer than nine does not reach the last look's 99.3 %.
const FEWEST: usize = 20;
/// As many fours as the Hodges-Lehmann estimate takes.
const MOST: usize = 8000;
