//! Tests estimates and intervals at their limits, and the input that they refuse.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stats::{
    Direction, Row, StatsError, binomial, compare_runs, default_threshold, estimate,
    geometric_mean, median, quantile, signed_rank, summary,
};
use units::Share;

fn row(a: f64, b: f64) -> Result<Row, StatsError> {
    let pair = Some((Some(a), Some(b)));
    Row::new(&[None, pair], Direction::HigherIsBetter, default_threshold(), 0)
}

#[test]
fn fewer_than_six_samples_have_a_range() {
    let one = estimate(&[57.1]).unwrap();
    assert_eq!((one.median, one.ci95, one.range, one.n), (57.1, None, None, 1));
    let five = estimate(&[3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
    assert_eq!((five.ci95, five.coverage, five.range), (None, None, Some((1.0, 5.0))));
    assert_eq!(estimate(&[4.0; 6]).unwrap().ci95, Some((4.0, 4.0)));
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
        refused(signed_rank::hodges_lehmann(&set).unwrap_err());
        refused(compare_runs(&[1.0], &set, direction, threshold, 1).unwrap_err());
        refused(row(1.0, wrong).unwrap_err());
    }
    let negative = |error: StatsError| {
        assert!(matches!(error, StatsError::Negative { index: 1, .. }), "{error}");
    };
    negative(row(1.0, -3.0).unwrap_err());
    for wrong in [0.0, -3.0] {
        let error = geometric_mean(&[1.0, wrong]).unwrap_err();
        assert!(matches!(error, StatsError::NotPositive { index: 1, .. }), "{error}");
        let error = compare_runs(&[1.0], &[1.0, wrong], direction, threshold, 1).unwrap_err();
        assert!(matches!(error, StatsError::NotPositive { index: 1, .. }), "{error}");
    }
    let empty = |error: StatsError| assert!(matches!(error, StatsError::Empty { .. }), "{error}");
    empty(median(&[]).unwrap_err());
    empty(estimate(&[]).unwrap_err());
    empty(Row::new(&[None], direction, threshold, 0).unwrap_err());
    empty(binomial::clopper_pearson(0, 0, threshold).unwrap_err());
    assert!(binomial::clopper_pearson(2, 1, threshold).is_err());
    assert!(binomial::clopper_pearson(1, 2, Share::ONE).is_err());
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
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn finite_samples_give_finite_results(
        samples in prop::collection::vec(prop::num::f64::NORMAL, 1..20),
    ) {
        let one = estimate(&samples).unwrap();
        prop_assert!(one.median.is_finite());
        if let Some((low, high)) = one.ci95 {
            prop_assert!(low <= one.median && one.median <= high);
        }
        let all = summary(&samples).unwrap();
        prop_assert!(all.mean.is_finite() && all.min <= all.median && all.median <= all.max);
        prop_assert!(signed_rank::hodges_lehmann(&samples).unwrap().estimate.is_finite());
    }

    #[test]
    fn intervals_of_shares_contain_the_measured_share(trials in 1u64..100_000, part in 0.0..=1.0f64) {
        let hits = (trials as f64 * part) as u64;
        let measured = hits as f64 / trials as f64;
        for level in [50.0, 95.0, 99.0] {
            let level = Share::from_percent(level).unwrap();
            let (low, high) = binomial::clopper_pearson(hits, trials, level).unwrap();
            prop_assert!(low.fraction() <= measured && measured <= high.fraction());
        }
    }
}
