//! Draws runs with known true ratios.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stats::table::{Judged, Pair, judged};
use stats::{Direction, Row, default_threshold};

/// Measurement noise is multiplicative. Its standard deviation is 5 % unless the variant has
/// another value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Noise {
    LogNormal,
    /// Log-normal, 1 %.
    Quiet,
    /// Exponential, towards slow values.
    Skewed,
    /// Two speeds 10 % apart.
    Bimodal,
    /// Two speeds and nothing between them, so that many ratios are equal.
    TwoPoints,
    /// The spread differs from row to row by a factor of 2.2 (one standard deviation).
    Unequal,
    /// Three metrics with spreads of 2, 5 and 30 %.
    Metrics,
    /// Spreads of 0.1 and 30 % in turn, as of cells without and with losses.
    QuietAndLoud,
    /// Log-normal, and 5 % of the values halved.
    Stalls,
    /// Cauchy, which has no mean and no variance.
    Cauchy,
}

pub(crate) const ALL: [Noise; 9] = [
    Noise::LogNormal,
    Noise::Skewed,
    Noise::Bimodal,
    Noise::TwoPoints,
    Noise::Unequal,
    Noise::Metrics,
    Noise::QuietAndLoud,
    Noise::Stalls,
    Noise::Cauchy,
];

impl Noise {
    /// Returns the number of metrics, which is the number of kinds of rows.
    fn kinds(self) -> usize {
        if self == Self::Metrics { 3 } else { 1 }
    }

    fn of_row(self, row: usize, draw: &mut Pcg64Mcg) -> f64 {
        match self {
            Self::Unequal => 0.05 * (0.8 * normal(draw)).exp(),
            Self::Metrics => [0.02, 0.05, 0.30][row % 3],
            Self::QuietAndLoud => [0.001, 0.30][row % 2],
            Self::Quiet => 0.01,
            _ => 0.05,
        }
    }

    fn value(self, spread: f64, draw: &mut Pcg64Mcg) -> f64 {
        match self {
            Self::LogNormal | Self::Quiet | Self::Unequal | Self::Metrics | Self::QuietAndLoud => {
                spread * normal(draw)
            }
            Self::Skewed => spread * (1.0 - draw.random::<f64>()).ln(),
            Self::Bimodal => f64::from(u8::from(draw.random_bool(0.3))) * 0.1 + 0.02 * normal(draw),
            Self::TwoPoints => f64::from(u8::from(draw.random_bool(0.5))) * 0.1,
            Self::Stalls if draw.random_bool(0.05) => {
                spread * normal(draw) - std::f64::consts::LN_2
            }
            Self::Stalls => spread * normal(draw),
            // Clamp: a larger logarithm would overflow.
            Self::Cauchy => {
                let angle = std::f64::consts::PI * (draw.random::<f64>() - 0.5);
                (0.03 * angle.tan()).clamp(-50.0, 50.0)
            }
        }
    }
}

/// Draws a run in which row number `n` has the true ratio `effects[n]`. All values of a block share
/// a disturbance of 20 %. `of_system` is the spread of a disturbance that all values of one system
/// and block share.
pub(crate) fn run(
    noise: Noise,
    effects: &[f64],
    blocks: usize,
    of_system: f64,
    draw: &mut Pcg64Mcg,
) -> Vec<Row> {
    let shared: Vec<[f64; 3]> =
        (0..blocks).map(|_| [0.2, of_system, of_system].map(|by| by * normal(draw))).collect();
    let row = |(number, effect): (usize, &f64)| {
        let spread = noise.of_row(number, draw);
        let pairs: Vec<Option<Pair>> = shared
            .iter()
            .map(|[block, of_a, of_b]| {
                let mut value = |by: f64| (block + by + noise.value(spread, draw)).exp();
                let (a, b) = (value(*of_a), value(*of_b));
                Some((Some(a * effect), Some(b)))
            })
            .collect();
        let kind = number % noise.kinds();
        Row::new(&pairs, Direction::HigherIsBetter, default_threshold(), kind).unwrap()
    };
    effects.iter().enumerate().map(row).collect()
}

/// Draws runs and judges their tables.
pub(crate) fn tables(
    noise: Noise,
    effects: &[f64],
    blocks: usize,
    of_system: f64,
    runs: usize,
) -> Vec<Vec<Judged>> {
    let mut draw = Pcg64Mcg::seed_from_u64(1);
    (0..runs).map(|_| judged(&run(noise, effects, blocks, of_system, &mut draw)).unwrap()).collect()
}

fn normal(draw: &mut Pcg64Mcg) -> f64 {
    let (a, b): (f64, f64) = (draw.random(), draw.random());
    (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}
