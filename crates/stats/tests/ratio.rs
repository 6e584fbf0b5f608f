//! Estimates, intervals and verdicts: their limits, their symmetry and the input that they refuse.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stats::bootstrap::Bootstrap;
use stats::ratio::geometric_mean_of;
use stats::{
    Direction, StatsError, Verdict, binomial, compare_paired, compare_unpaired, default_threshold,
    estimate, geometric_mean, mann_whitney, median, quantile, signed_rank, summary,
};
use units::Share;

fn higher(pairs: &[(f64, f64)]) -> stats::RatioVerdict {
    compare_paired(pairs, Direction::HigherIsBetter, default_threshold(), 1).unwrap()
}

#[test]
fn one_sample_has_no_interval_and_settles_nothing() {
    let one = estimate(&[57.1], 1).unwrap();
    assert_eq!((one.median, one.ci95, one.n), (57.1, None, 1));
    let compared = higher(&[(10.0, 1.0)]);
    assert_eq!(compared.ratio.ci95, None);
    assert_eq!(compared.verdict, Verdict::Inconclusive);
}

#[test]
fn equal_samples_have_an_interval_of_one_point() {
    assert_eq!(estimate(&[4.0; 5], 1).unwrap().ci95, Some((4.0, 4.0)));
    let boot = Bootstrap::new(1);
    let mean = |x: &mut [f64]| x.iter().sum::<f64>() / x.len() as f64;
    assert_eq!(boot.bca(&[4.0; 5], mean).unwrap(), Some((4.0, 4.0)));
    let compared = higher(&[(3.0, 3.0); 5]);
    assert_eq!(compared.verdict, Verdict::NoDifference);
    assert_eq!(compared.ratio.ci95, Some((1.0, 1.0)));
    assert_eq!(higher(&[(6.0, 3.0); 5]).verdict, Verdict::Better);
}

#[test]
fn a_large_difference_shows_in_three_repeats() {
    let pairs = [(57.1, 5.8), (56.2, 5.9), (58.3, 5.7)];
    let compared = higher(&pairs);
    assert_eq!(compared.verdict, Verdict::Better);
    let (low, high) = compared.ratio.ci95.unwrap();
    assert!(low > 8.0 && low < compared.ratio.median && compared.ratio.median < high);
    let unpaired = compare_unpaired(
        &[57.1, 56.2, 58.3],
        &[5.8, 5.9, 5.7],
        Direction::LowerIsBetter,
        default_threshold(),
        1,
    )
    .unwrap();
    assert_eq!(unpaired.verdict, Verdict::Worse);
}

/// All three are above 1, but three of three happens by chance once in four.
#[test]
fn three_repeats_that_lean_one_way_settle_nothing() {
    assert_eq!(higher(&[(1.01, 1.0), (1.10, 1.0), (1.03, 1.0)]).verdict, Verdict::Inconclusive);
}

#[test]
fn pairs_cancel_a_shared_disturbance() {
    let mut draw = Pcg64Mcg::seed_from_u64(1);
    let pairs: Vec<(f64, f64)> = (0..20)
        .map(|_| {
            let machine: f64 = draw.random_range(50.0..150.0);
            (machine * draw.random_range(1.04..1.06), machine)
        })
        .collect();
    assert_eq!(higher(&pairs).verdict, Verdict::Better);
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let direction = Direction::HigherIsBetter;
    let unpaired = compare_unpaired(&a, &b, direction, default_threshold(), 1).unwrap();
    assert_eq!(unpaired.verdict, Verdict::Inconclusive);
}

#[test]
fn json_matches_the_format_of_results_json() {
    let several = serde_json::to_value(estimate(&[4.0; 5], 1).unwrap()).unwrap();
    assert_eq!(several.to_string(), r#"{"median":4.0,"ci95":[4.0,4.0],"n":5}"#);
    let one = serde_json::to_value(estimate(&[4.0], 1).unwrap()).unwrap();
    assert_eq!(one.to_string(), r#"{"median":4.0,"ci95":null,"n":1}"#);
    let compared = serde_json::to_value(higher(&[(3.0, 3.0); 5])).unwrap();
    assert_eq!(compared["verdict"], "same");
    assert_eq!(compared["threshold"], "1%");
    assert_eq!(compared["direction"], "higher-is-better");
    assert_eq!(Verdict::NoDifference.to_string(), "no difference");
}

/// In 200 sets of 12, the 95 % interval of the median ratio contains the truth in about 190.
#[test]
fn the_interval_has_its_nominal_coverage() {
    let mut draw = Pcg64Mcg::seed_from_u64(2);
    let mut noisy = || 100.0 * (draw.random::<f64>() + draw.random::<f64>()).exp();
    let mut covered = 0;
    for seed in 0..200 {
        let pairs: Vec<(f64, f64)> = (0..12).map(|_| (1.5 * noisy(), noisy())).collect();
        let direction = Direction::HigherIsBetter;
        let compared = compare_paired(&pairs, direction, default_threshold(), seed).unwrap();
        let (low, high) = compared.ratio.ci95.unwrap();
        covered += (low <= 1.5 && 1.5 <= high) as usize;
    }
    assert!((182..=200).contains(&covered), "{covered} of 200");
}

/// Two equal systems at each number of repeats: better or worse in at most 5 of 100, plus chance.
#[test]
fn few_repeats_do_not_make_false_alarms() {
    let mut draw = Pcg64Mcg::seed_from_u64(3);
    let mut normal = || (0..12).map(|_| draw.random::<f64>()).sum::<f64>() - 6.0;
    for n in [2, 3, 5, 6, 7, 8, 10] {
        let mut alarms = 0;
        for seed in 0..300 {
            let mut noisy = || 100.0 * (0.05 * normal()).exp();
            let pairs: Vec<(f64, f64)> = (0..n).map(|_| (noisy(), noisy())).collect();
            let direction = Direction::HigherIsBetter;
            let compared = compare_paired(&pairs, direction, default_threshold(), seed).unwrap();
            alarms += matches!(compared.verdict, Verdict::Better | Verdict::Worse) as usize;
        }
        eprintln!("{n} pairs of equals: better or worse in {alarms} of 300");
        assert!(alarms <= 24, "{n} pairs: {alarms} of 300");
    }
}

#[test]
fn nonfinite_and_missing_samples_are_refused() {
    let threshold = default_threshold();
    let direction = Direction::HigherIsBetter;
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let set = [1.0, wrong];
        let refused = |error: StatsError| {
            assert!(matches!(error, StatsError::NotFinite { index: 1, .. }), "{error}");
        };
        refused(median(&set).unwrap_err());
        refused(quantile(&set, threshold).unwrap_err());
        refused(summary(&set).unwrap_err());
        refused(estimate(&set, 1).unwrap_err());
        refused(geometric_mean(&set).unwrap_err());
        refused(mann_whitney::mann_whitney(&set, &[1.0]).unwrap_err());
        refused(mann_whitney::mann_whitney(&[1.0], &set).unwrap_err());
        refused(signed_rank::signed_rank(&set).unwrap_err());
        refused(signed_rank::hodges_lehmann(&set).unwrap_err());
        refused(compare_unpaired(&[1.0], &set, direction, threshold, 1).unwrap_err());
        refused(compare_paired(&[(1.0, 1.0), (1.0, wrong)], direction, threshold, 1).unwrap_err());
    }
    for wrong in [0.0, -3.0] {
        let refused = |error: StatsError| {
            assert!(matches!(error, StatsError::NotPositive { index: 1, .. }), "{error}");
        };
        let set = [1.0, wrong];
        refused(geometric_mean(&set).unwrap_err());
        refused(geometric_mean_of(&set, 1).unwrap_err());
        refused(compare_unpaired(&[1.0], &set, direction, threshold, 1).unwrap_err());
        refused(compare_paired(&[(1.0, 1.0), (wrong, 1.0)], direction, threshold, 1).unwrap_err());
    }
    let empty = |error: StatsError| assert!(matches!(error, StatsError::Empty { .. }), "{error}");
    empty(median(&[]).unwrap_err());
    empty(estimate(&[], 1).unwrap_err());
    empty(compare_paired(&[], direction, threshold, 1).unwrap_err());
    empty(binomial::wilson(0, 0, threshold).unwrap_err());
    assert!(binomial::clopper_pearson(2, 1, threshold).is_err());
    assert!(binomial::clopper_pearson(1, 2, Share::ONE).is_err());
    assert!(compare_paired(&[(f64::MAX, f64::MIN_POSITIVE)], direction, threshold, 1).is_err());
}

#[test]
fn zero_is_a_measurement_where_no_ratio_is_taken() {
    let queue = estimate(&[0.0, 0.0, 1.0, 0.0, 0.0], 1).unwrap();
    assert_eq!(queue.median, 0.0);
}

/// A Gilbert chain of 10 000 packets: 1 % lost in bursts of 5. The interval for independent losses
/// rejects a correct link many times; the interval for bursts hardly ever does.
#[test]
fn bursts_widen_the_interval_of_a_loss() {
    let mut draw = Pcg64Mcg::seed_from_u64(5);
    let (burst, share) = (5.0, 0.01);
    let leave = 1.0 / burst;
    let enter = leave * share / (1.0 - share);
    let expected = Share::new(share).unwrap();
    let (mut independent, mut bursty) = (0, 0);
    for _ in 0..300 {
        let (mut bad, mut lost) = (false, 0);
        for _ in 0..10_000 {
            bad = if bad { !draw.random_bool(leave) } else { draw.random_bool(enter) };
            lost += bad as u64;
        }
        let one = binomial::loss_agrees(lost, 10_000, expected).unwrap();
        independent += one.inside as u32;
        let other = binomial::loss_agrees_in_bursts(lost, 10_000, expected, burst).unwrap();
        bursty += other.inside as u32;
    }
    assert!(independent < 270, "{independent} of 300");
    assert!(bursty >= 293, "{bursty} of 300");
}

#[test]
fn independent_losses_agree_99_times_in_100() {
    let mut draw = Pcg64Mcg::seed_from_u64(6);
    let expected = Share::from_percent(1.0).unwrap();
    let right = (0..500).filter(|_| {
        let lost = (0..5_000).filter(|_| draw.random_bool(0.01)).count() as u64;
        binomial::loss_agrees(lost, 5_000, expected).unwrap().inside
    });
    assert!(right.count() >= 490);
    assert!(!binomial::loss_agrees(100, 5_000, expected).unwrap().inside);
    assert!(!binomial::loss_agrees(0, 5_000, expected).unwrap().inside);
    assert!(binomial::loss_agrees(0, 5_000, Share::ZERO).unwrap().inside);
    // Bursts of chance length change nothing.
    let chance = 1.0 / (1.0 - 0.01);
    let one = binomial::loss_agrees(60, 5_000, expected).unwrap();
    let same = binomial::loss_agrees_in_bursts(60, 5_000, expected, chance).unwrap();
    assert!((one.interval.0.fraction() - same.interval.0.fraction()).abs() < 1e-9);
}

fn positive() -> impl Strategy<Value = f64> {
    (-300.0..300.0f64).prop_map(f64::exp2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn swapping_the_systems_swaps_the_verdict(
        pairs in prop::collection::vec((positive(), positive()), 1..12), seed: u64,
    ) {
        let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let direction = Direction::HigherIsBetter;
        let one = compare_paired(&pairs, direction, default_threshold(), seed).unwrap();
        let other = compare_paired(&swapped, direction, default_threshold(), seed).unwrap();
        let opposite = match one.verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            same => same,
        };
        // The median of an even number of pairs is the mean of two ratios, which is not symmetric.
        if pairs.len() % 2 == 1 {
            prop_assert_eq!(other.verdict, opposite);
        }
        prop_assert!((one.geometric_mean.mean.ln() + other.geometric_mean.mean.ln()).abs() < 1e-6);
    }

    #[test]
    fn no_result_is_nan_or_infinite(
        samples in prop::collection::vec(prop::num::f64::NORMAL, 1..20), seed: u64,
    ) {
        let one = estimate(&samples, seed).unwrap();
        prop_assert!(one.median.is_finite());
        if let Some((low, high)) = one.ci95 {
            prop_assert!(low <= one.median && one.median <= high);
        }
        let all = summary(&samples).unwrap();
        prop_assert!(all.mean.is_finite() && all.min <= all.median && all.median <= all.max);
        let test = mann_whitney::mann_whitney(&samples, &samples).unwrap();
        prop_assert!((0.0..=1.0).contains(&test.p));
        let test = signed_rank::signed_rank(&samples).unwrap();
        prop_assert!((0.0..=1.0).contains(&test.p));
    }

    #[test]
    fn intervals_of_shares_hold_the_measured_one(trials in 1u64..100_000, part in 0.0..=1.0f64) {
        let hits = (trials as f64 * part) as u64;
        let measured = hits as f64 / trials as f64;
        for level in [50.0, 95.0, 99.0] {
            let level = Share::from_percent(level).unwrap();
            let (low, high) = binomial::clopper_pearson(hits, trials, level).unwrap();
            prop_assert!(low.fraction() <= measured && measured <= high.fraction());
            let (low, high) = binomial::wilson(hits, trials, level).unwrap();
            prop_assert!(low.fraction() <= measured + 1e-12 && measured <= high.fraction() + 1e-12);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_interval(
        samples in prop::collection::vec(positive(), 1..20), seed: u64,
    ) {
        prop_assert_eq!(estimate(&samples, seed), estimate(&samples, seed));
    }
}
