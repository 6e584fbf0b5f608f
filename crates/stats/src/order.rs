//! The order in which the cells of a lab run: a machine that slows down or warms up over the hour
//! affects all cells alike, so its drift does not appear as a difference between cells.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// Returns `repeats` blocks, each of which contains every cell (`0..cells`) once, in a new random
/// order (Fisher-Yates). The n-th repeats of any two cells therefore form a pair close in time.
pub fn blocks(cells: usize, repeats: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut draw = Pcg64Mcg::seed_from_u64(seed);
    let block = |_| {
        let mut block: Vec<usize> = (0..cells).collect();
        block.shuffle(&mut draw);
        block
    };
    (0..repeats).map(block).collect()
}
