//! Estimates, intervals and verdicts: their limits, their symmetry and the input that they refuse.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stats::{
    Direction, StatsError, Verdict, binomial, compare_paired, compare_runs, default_threshold,
    estimate, geometric_mean, mann_whitney, median, quantile, signed_rank, summary,
};
use units::Share;

fn paired(pairs: &[(f64, f64)]) -> Vec<(Option<f64>, Option<f64>)> {
    pairs.iter().map(|(a, b)| (Some(*a), Some(*b))).collect()
}

fn compared(pairs: &[(f64, f64)], direction: Direction) -> stats::RatioVerdict {
    compare_paired(&paired(pairs), direction, default_threshold()).unwrap()
}

fn higher(pairs: &[(f64, f64)]) -> stats::RatioVerdict {
    compared(pairs, Direction::HigherIsBetter)
}

#[test]
fn fewer_than_six_samples_have_a_range_and_settle_nothing() {
    let one = estimate(&[57.1]).unwrap();
    assert_eq!((one.median, one.ci95, one.range, one.n), (57.1, None, None, 1));
    let five = estimate(&[3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
    assert_eq!((five.ci95, five.coverage, five.range), (None, None, Some((1.0, 5.0))));
    let large = higher(&[(57.1, 5.8), (56.2, 5.9), (58.3, 5.7), (57.0, 5.8), (57.2, 5.8)]);
    assert_eq!((large.ratio.ci95, large.verdict), (None, Verdict::Inconclusive));
}

#[test]
fn six_pairs_that_all_lean_one_way_decide() {
    let pairs = [(57.1, 5.8), (56.2, 5.9), (58.3, 5.7), (57.0, 5.8), (57.2, 5.8), (57.5, 5.8)];
    let large = higher(&pairs);
    assert_eq!(large.verdict, Verdict::Better);
    assert!((large.p.unwrap() - 0.03125).abs() < 1e-12);
    assert!((large.ratio.coverage.unwrap() - 0.96875).abs() < 1e-12);
    assert_eq!(compared(&pairs, Direction::LowerIsBetter).verdict, Verdict::Worse);
    let mut one_against = pairs;
    one_against[0] = (5.0, 5.8);
    assert_eq!(higher(&one_against).verdict, Verdict::Inconclusive);
}

#[test]
fn equal_samples_have_an_interval_of_one_point() {
    assert_eq!(estimate(&[4.0; 6]).unwrap().ci95, Some((4.0, 4.0)));
    let equal = higher(&[(3.0, 3.0); 6]);
    assert_eq!((equal.verdict, equal.ratio.ci95), (Verdict::NoDifference, Some((1.0, 1.0))));
    assert_eq!(higher(&[(6.0, 3.0); 6]).verdict, Verdict::Better);
}

#[test]
fn zero_and_failed_repeats_rank_worst() {
    let (some, none) = (Some(10.0), None);
    let direction = Direction::HigherIsBetter;
    let of = |pairs: &[(Option<f64>, Option<f64>)]| {
        compare_paired(pairs, direction, default_threshold()).unwrap()
    };
    for worst in [Some(0.0), none] {
        let always = of(&[(worst, some); 6]);
        assert_eq!((always.ratio.median, always.verdict), (0.0, Verdict::Worse));
        let never = of(&[(some, worst); 6]);
        assert_eq!((never.ratio.median, never.verdict), (f64::INFINITY, Verdict::Better));
        assert_eq!(of(&[(worst, none), (some, some)]).ratio.median, 1.0);
    }
    // Without the two failures, system a would be better.
    let mut pairs = [(Some(20.0), some); 8];
    pairs[..2].fill((none, some));
    assert_eq!(of(&pairs).verdict, Verdict::Inconclusive);
    // A failed repeat has no short completion time.
    let slow = compare_paired(&[(none, some); 6], Direction::LowerIsBetter, default_threshold());
    let slow = slow.unwrap();
    assert_eq!((slow.ratio.median, slow.verdict), (f64::INFINITY, Verdict::Worse));
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
    let unpaired = compare_runs(&a, &b, direction, default_threshold()).unwrap();
    assert_eq!(unpaired.verdict, Verdict::Inconclusive);
    let tenfold: Vec<f64> = a.iter().map(|value| value * 10.0).collect();
    let unpaired = compare_runs(&tenfold, &b, direction, default_threshold()).unwrap();
    assert_eq!(unpaired.verdict, Verdict::Better);
}

#[test]
fn nonfinite_negative_and_missing_samples_are_refused() {
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
        refused(estimate(&set).unwrap_err());
        refused(geometric_mean(&set).unwrap_err());
        refused(mann_whitney::mann_whitney(&set, &[1.0]).unwrap_err());
        refused(mann_whitney::mann_whitney(&[1.0], &set).unwrap_err());
        refused(signed_rank::signed_rank(&set).unwrap_err());
        refused(signed_rank::hodges_lehmann(&set).unwrap_err());
        refused(compare_runs(&[1.0], &set, direction, threshold).unwrap_err());
        refused(compare_paired(&paired(&[(1.0, wrong)]), direction, threshold).unwrap_err());
    }
    let negative = |error: StatsError| {
        assert!(matches!(error, StatsError::Negative { index: 1, .. }), "{error}");
    };
    negative(compare_paired(&paired(&[(1.0, -3.0)]), direction, threshold).unwrap_err());
    for wrong in [0.0, -3.0] {
        let error = geometric_mean(&[1.0, wrong]).unwrap_err();
        assert!(matches!(error, StatsError::NotPositive { index: 1, .. }), "{error}");
        let error = compare_runs(&[1.0], &[1.0, wrong], direction, threshold).unwrap_err();
        assert!(matches!(error, StatsError::NotPositive { index: 1, .. }), "{error}");
    }
    let empty = |error: StatsError| assert!(matches!(error, StatsError::Empty { .. }), "{error}");
    empty(median(&[]).unwrap_err());
    empty(estimate(&[]).unwrap_err());
    empty(compare_paired(&[], direction, threshold).unwrap_err());
    empty(binomial::wilson(0, 0, threshold).unwrap_err());
    assert!(binomial::clopper_pearson(2, 1, threshold).is_err());
    assert!(binomial::clopper_pearson(1, 2, Share::ONE).is_err());
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
        pairs in prop::collection::vec((positive(), positive()), 1..12),
    ) {
        let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let (one, other) = (higher(&pairs), higher(&swapped));
        let opposite = match one.verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            same => same,
        };
        // The median of an even number of pairs is the mean of two ratios, which is not symmetric.
        if pairs.len() % 2 == 1 {
            prop_assert_eq!(other.verdict, opposite);
        }
        prop_assert_eq!(one.p, other.p);
    }

    #[test]
    fn no_result_is_nan_or_infinite(
        samples in prop::collection::vec(prop::num::f64::NORMAL, 1..20),
    ) {
        let one = estimate(&samples).unwrap();
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
}
