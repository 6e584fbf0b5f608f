//! The bound of a table: how large the largest statistic of all rows becomes if no row has a
//! difference. The residuals of the rows represent rows without a difference. A flip changes the
//! sign of all values of a block together, so that rows that share a system or a disturbance stay
//! dependent.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::fit::{Fit, Scratch};

/// Returns the bound in standard errors; `None` if fewer than two rows take part.
pub(super) fn bound(rows: &[&Fit]) -> Option<f64> {
    if rows.len() < 2 {
        return None;
    }
    let used = rows.iter().flat_map(|row| row.blocks()).max()? + 1;
    let mut present = vec![false; used];
    rows.iter().flat_map(|row| row.blocks()).for_each(|block| present[block] = true);
    let blocks: Vec<usize> = (0..used).filter(|block| present[*block]).collect();
    let mut scratch = Scratch::default();
    let mut largest: Vec<f64> = flips(&blocks, used)
        .map(|flips| rows.iter().map(|row| row.flipped(&flips, &mut scratch)).fold(0.0, f64::max))
        .collect();
    // Count the order without flips as one of the flips.
    let beyond = (((largest.len() + 1) as f64 * LEVEL) as usize).max(1);
    let place = largest.len().checked_sub(beyond)?;
    Some(*largest.select_nth_unstable_by(place, f64::total_cmp).1)
}

/// Returns all flips of some blocks, or a sample of the flips if the flips are many. Never flips
/// the first block, because flipping all other blocks gives the same statistic.
fn flips(blocks: &[usize], used: usize) -> Box<dyn Iterator<Item = Vec<bool>> + '_> {
    let others = blocks.len().saturating_sub(1);
    if others <= EXACT {
        return Box::new((1_u32..1 << others).map(move |pattern| {
            let mut flips = vec![false; used];
            let flipped = (0..others).filter(|bit| pattern & (1 << bit) != 0);
            flipped.for_each(|bit| flips[blocks[bit + 1]] = true);
            flips
        }));
    }
    let mut coin = Pcg64Mcg::seed_from_u64(SEED);
    let sampled = move |_| (0..used).map(|_| coin.random::<bool>()).collect();
    Box::new((1..SAMPLED).map(sampled))
}

/// The share of flips beyond the bound. A share of 5 % would make more than 5 % of the tables wrong
/// from nine blocks on, because residuals are a little less spread than the noise. Six blocks have
/// 32 flips, none of which is beyond the bound.
const LEVEL: f64 = 0.025;
/// Maximum number of blocks, besides the first block, for which all flips are used: 2^11 flips of
/// 12 blocks.
const EXACT: usize = 11;
const SAMPLED: usize = 2_048;
/// A fixed seed, so that the same blocks always give the same bound.
const SEED: u64 = 1;
