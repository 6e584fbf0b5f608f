//! Tests on simulated experiments that intervals cover the known true value as often as they state.

#![allow(clippy::unwrap_used)]

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stats::table::{Pair, judged};
use stats::{Direction, Row, default_threshold, estimate, successive};

const RUNS: usize = 2_000;

/// A distribution and its median.
struct Population {
    name: &'static str,
    draw: fn(&mut Pcg64Mcg) -> f64,
    median: f64,
    /// Whether the distribution has no ties, so that intervals cover its median exactly as often as
    /// they state.
    continuous: bool,
}

fn exponential(draw: &mut Pcg64Mcg) -> f64 {
    -(1.0 - draw.random::<f64>()).ln()
}

/// Draws from two modes, of which the lower mode holds 60 % of the samples.
fn bimodal(draw: &mut Pcg64Mcg) -> f64 {
    let within: f64 = draw.random();
    if draw.random_bool(0.6) { within } else { 10.0 + within }
}

fn cauchy(draw: &mut Pcg64Mcg) -> f64 {
    (std::f64::consts::PI * (draw.random::<f64>() - 0.5)).tan()
}

/// Draws values of which most are equal.
fn tied(draw: &mut Pcg64Mcg) -> f64 {
    [3.0, 3.0, 3.0, 4.0, 5.0][draw.random_range(0..5)]
}

/// Draws the number of successes of 8 trials.
fn counts(draw: &mut Pcg64Mcg) -> f64 {
    (0..8).filter(|_| draw.random_bool(0.5)).count() as f64
}

const POPULATIONS: [Population; 5] = [
    Population {
        name: "exponential",
        draw: exponential,
        median: std::f64::consts::LN_2,
        continuous: true,
    },
    Population { name: "bimodal", draw: bimodal, median: 0.5 / 0.6, continuous: true },
    Population { name: "cauchy", draw: cauchy, median: 0.0, continuous: true },
    Population { name: "tied", draw: tied, median: 3.0, continuous: false },
    Population { name: "counts", draw: counts, median: 4.0, continuous: false },
];

/// Returns four standard deviations of a share over all runs.
fn noise(share: f64) -> f64 {
    4.0 * (share * (1.0 - share) / RUNS as f64).sqrt()
}

#[test]
fn intervals_of_cells_cover_the_median_as_often_as_stated() {
    let mut draw = Pcg64Mcg::seed_from_u64(1);
    for population in &POPULATIONS {
        for n in 2..=30 {
            let (mut covered, mut stated) = (0, None);
            for _ in 0..RUNS {
                let samples: Vec<f64> = (0..n).map(|_| (population.draw)(&mut draw)).collect();
                let estimate = estimate(&samples).unwrap();
                stated = estimate.coverage;
                let Some((low, high)) = estimate.ci95 else {
                    assert!(n < 6 && estimate.range.is_some() && stated.is_none(), "{n}");
                    continue;
                };
                covered += usize::from(low <= population.median && population.median <= high);
            }
            let Some(stated) = stated else { continue };
            let found = covered as f64 / RUNS as f64;
            let name = population.name;
            assert!(stated >= 0.95, "{name}, n = {n}: {stated}");
            assert!(found >= stated - noise(stated), "{name}, n = {n}: {found} of {stated}");
            if population.continuous {
                assert!(found <= stated + noise(stated), "{name}, n = {n}: {found} of {stated}");
            }
        }
    }
}

#[test]
fn intervals_of_ratios_cover_the_truth_as_often_as_stated() {
    let mut draw = Pcg64Mcg::seed_from_u64(2);
    for n in 2..=30 {
        let (mut covered, mut stated) = (0, None);
        for _ in 0..RUNS {
            let mut noisy = || 100.0 * (draw.random::<f64>() - draw.random::<f64>()).exp();
            let pairs: Vec<Option<Pair>> =
                (0..n).map(|_| Some((Some(1.5 * noisy()), Some(noisy())))).collect();
            let row = Row::new(&pairs, Direction::HigherIsBetter, default_threshold(), 0).unwrap();
            let compared = judged(&[row]).unwrap()[0];
            stated = compared.ratio.coverage;
            let Some((low, high)) = compared.ratio.ci95 else {
                assert!(n < 6, "{n}");
                continue;
            };
            covered += usize::from(low <= 1.5 && 1.5 <= high);
        }
        let Some(stated) = stated else { continue };
        let found = covered as f64 / RUNS as f64;
        assert!((found - stated).abs() <= noise(stated), "n = {n}: {found} of {stated}");
    }
}

/// Draws standard normal values, each correlated with the previous value.
fn correlated(draw: &mut Pcg64Mcg, correlation: f64, count: usize) -> Vec<f64> {
    let mut normal = || {
        let (a, b): (f64, f64) = (draw.random(), draw.random());
        (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    };
    let mut value = normal();
    let fresh = (1.0 - correlation * correlation).sqrt();
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(value);
        value = correlation * value + fresh * normal();
    }
    values
}

/// The documentation states this share.
#[test]
fn at_a_correlation_of_0_6_six_repeats_cover_the_median_in_79_percent() {
    let mut draw = Pcg64Mcg::seed_from_u64(5);
    let runs = 10 * RUNS;
    let covered = (0..runs).filter(|_| {
        let (low, high) = estimate(&correlated(&mut draw, 0.6, 6)).unwrap().ci95.unwrap();
        low <= 0.0 && 0.0 <= high
    });
    let share = covered.count() as f64 / runs as f64;
    assert!((share - 0.79).abs() < 0.02, "{share}");
}

#[test]
fn independent_repeats_seldom_seem_correlated() {
    for (series, repeats) in [(1, 6), (1, 30), (12, 6), (5, 12)] {
        let mut draw = Pcg64Mcg::seed_from_u64(6);
        let runs = 200;
        let shown = (0..runs).filter(|_| {
            let all: Vec<Vec<f64>> =
                (0..series).map(|_| correlated(&mut draw, 0.0, repeats)).collect();
            successive(&all).unwrap().is_shown()
        });
        let shown = shown.count();
        // Permit 5 % and three standard deviations of the count.
        assert!(shown <= 19, "{series} series of {repeats}: {shown} of {runs}");
    }
}

#[test]
fn correlated_repeats_are_found_and_their_correlation_is_estimated() {
    for (series, repeats, correlation) in [(1, 40, 0.6), (20, 6, 0.6), (20, 7, 0.8), (10, 12, 0.4)]
    {
        let mut draw = Pcg64Mcg::seed_from_u64(7);
        let runs = 50;
        let found: Vec<_> = (0..runs)
            .map(|_| {
                let all: Vec<Vec<f64>> =
                    (0..series).map(|_| correlated(&mut draw, correlation, repeats)).collect();
                successive(&all).unwrap()
            })
            .collect();
        let shown = found.iter().filter(|found| found.is_shown()).count();
        let mean = found.iter().map(|found| found.estimate).sum::<f64>() / runs as f64;
        assert!(shown * 10 >= runs * 8, "{series} series of {repeats}: {shown} of {runs}");
        assert!((mean - correlation).abs() < 0.2, "{series} series of {repeats}: {mean}");
    }
}

#[test]
fn few_or_equal_repeats_have_no_correlation() {
    assert_eq!(successive(&[vec![1.0, 2.0, 3.0, 4.0, 5.0], vec![2.0; 9]]), None);
    assert_eq!(successive(&[]), None);
    assert!(successive(&[vec![1.0, 2.0, 3.0, 4.0, 5.0, f64::INFINITY]]).is_some());
}
