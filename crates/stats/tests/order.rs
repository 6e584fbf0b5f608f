//! Interleaving plans are balanced, and equal for the same seed.

use proptest::prelude::*;
use stats::order::blocks;

proptest! {
    #[test]
    fn every_block_holds_every_cell_once(cells in 0usize..40, repeats in 0usize..20, seed: u64) {
        let plan = blocks(cells, repeats, seed);
        prop_assert_eq!(plan.len(), repeats);
        for mut block in plan {
            block.sort_unstable();
            prop_assert_eq!(block, (0..cells).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_order(cells in 0usize..40, repeats in 0usize..20, seed: u64) {
        prop_assert_eq!(blocks(cells, repeats, seed), blocks(cells, repeats, seed));
    }

    #[test]
    fn more_repeats_continue_the_same_order(cells in 0usize..20, repeats in 0usize..10, seed: u64) {
        let longer = blocks(cells, repeats + 3, seed);
        prop_assert_eq!(&longer[..repeats], &blocks(cells, repeats, seed)[..]);
    }
}

/// Over many blocks each cell comes first about as often as any other.
#[test]
fn each_cell_comes_first_in_a_block_equally_often() {
    let mut first = [0usize; 4];
    for block in blocks(4, 4000, 1) {
        first[block[0]] += 1;
    }
    // Each cell comes first about 1000 times, with a standard deviation of 27.
    assert!(first.iter().all(|count| (880..1120).contains(count)), "{first:?}");
}

#[test]
fn different_seeds_give_different_orders() {
    assert_ne!(blocks(8, 4, 1), blocks(8, 4, 2));
}
