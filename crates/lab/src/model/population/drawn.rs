//! Paths drawn at random from wide ranges that no result was fitted to.
//!
//! A Latin hypercube: each quantity takes every n-th part of its range once, in a random order.
//! Rates are log-uniform from 2 to 100 Mbit/s, round trips from 5 to 200 ms, queues from a quarter
//! to four bandwidth-delay products. Half of the paths lose nothing of their own; the other paths
//! lose 0.01 to 2 % (log-uniform), three in ten of these paths in bursts.

use super::PathDraw;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub(super) fn paths(count: u32, seed: u64) -> Vec<PathDraw> {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ STREAM);
    let mut parts = || {
        let mut parts: Vec<u32> = (0..count).collect();
        parts.shuffle(&mut random);
        let mut place = |part: u32| (f64::from(part) + random.random::<f64>()) / f64::from(count);
        parts.into_iter().map(&mut place).collect::<Vec<f64>>()
    };
    let [rate, round_trip, loss, bursts, queue] = std::array::from_fn(|_| parts());
    (0..count as usize)
        .map(|path| {
            let lost = loss[path] < LOSSY;
            let share = log_uniform(0.0001, 0.02, loss[path] / LOSSY);
            PathDraw::new(
                log_uniform(2.0, 100.0, rate[path]),
                log_uniform(5.0, 200.0, round_trip[path]),
                if lost { share } else { 0.0 },
                bursts[path] < IN_BURSTS,
                log_uniform(0.25, 4.0, queue[path]),
            )
        })
        .collect()
}

fn log_uniform(least: f64, most: f64, place: f64) -> f64 {
    least * (most / least).powf(place)
}

const LOSSY: f64 = 0.5;
const IN_BURSTS: f64 = 0.3;
/// Stream number that separates these draws from the other draws of a run, which have the same
/// seed.
const STREAM: u64 = 0x706f_7075_6c61_7465;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_paths_and_other_seeds_draw_other_paths() {
        assert_eq!(paths(12, 7), paths(12, 7));
        assert_ne!(paths(12, 7), paths(12, 8));
        // A shorter population is not the start of a longer population, because the parts of the
        // ranges differ.
        assert_eq!(paths(5, 7).len(), 5);
    }

    #[test]
    fn drawn_paths_cover_their_ranges() {
        for seed in 0..50 {
            let paths = paths(12, seed);
            assert!(paths.iter().all(|path| (20..=1000).contains(&path.rate)));
            assert!(paths.iter().all(|path| (5..=200).contains(&path.round_trip)));
            assert_eq!(paths.iter().filter(|path| path.loss > 0).count(), 6);
            // Each twelfth of the rate's logarithmic range occurs once.
            let mut parts: Vec<usize> = paths
                .iter()
                .map(|path| {
                    let place = (f64::from(path.rate) / 20.0).ln() / 50f64.ln();
                    ((place * 12.0) as usize).min(11)
                })
                .collect();
            parts.sort_unstable();
            parts.dedup();
            // Rounding to 0.1 Mbit/s may move a slow path across an edge.
            assert!(parts.len() >= 10, "{parts:?}");
        }
    }
}
