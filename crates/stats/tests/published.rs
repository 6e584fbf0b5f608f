//! Checks the statistics against published worked examples.

#![allow(clippy::unwrap_used, clippy::approx_constant)]

use stats::outliers::{modified_z_scores, outliers};
use stats::{binomial, geometric_mean, median, quantile, signed_rank, summary};
use units::Share;

fn percent(value: f64) -> Share {
    Share::from_percent(value).unwrap()
}

#[track_caller]
fn close(got: f64, published: f64, tolerance: f64) {
    assert!((got - published).abs() <= tolerance, "{got}, published {published}");
}

#[track_caller]
fn close_ends(got: Option<(f64, f64)>, published: (f64, f64), tolerance: f64) {
    let (low, high) = got.expect("an interval");
    close(low, published.0, tolerance);
    close(high, published.1, tolerance);
}

/// Hyndman & Fan (1996), definition 7: the k-th order statistic is the quantile (k-1)/(n-1).
#[test]
fn quantiles_follow_definition_7() {
    let sample = [7.0, 1.0, 12.5, 3.0, 3.5, 20.0, 4.0];
    let mut sorted = sample;
    sorted.sort_by(f64::total_cmp);
    for (k, expected) in sorted.iter().enumerate() {
        let at = Share::new(k as f64 / 6.0).unwrap();
        close(quantile(&sample, at).unwrap(), *expected, 1e-12);
    }
    // R's manual page of `quantile`, whose default is this definition: quartiles of 1..10.
    let ten: Vec<f64> = (1..=10).map(f64::from).collect();
    for (at, expected) in [(25.0, 3.25), (50.0, 5.5), (75.0, 7.75), (90.0, 9.1)] {
        close(quantile(&ten, percent(at)).unwrap(), expected, 1e-12);
    }
}

/// Efron & Tibshirani (1993), table 2.1: survival of mice in days, treated and control.
const TREATED: [f64; 7] = [94.0, 197.0, 16.0, 38.0, 99.0, 141.0, 23.0];
const CONTROL: [f64; 9] = [52.0, 104.0, 146.0, 10.0, 51.0, 30.0, 40.0, 27.0, 46.0];

#[test]
fn the_summary_of_the_mouse_data_has_the_published_figures() {
    let treated = summary(&TREATED).unwrap();
    close(treated.mean, 86.86, 0.005);
    close(treated.sd.unwrap() / f64::sqrt(7.0), 25.24, 0.005);
    assert_eq!(treated.median, 94.0);
    let control = summary(&CONTROL).unwrap();
    close(control.mean, 56.22, 0.005);
    close(control.sd.unwrap() / 3.0, 14.14, 0.02);
    assert_eq!(median(&CONTROL).unwrap(), 46.0);
}

/// Hollander & Wolfe (1973), example 3.1 to 3.3: depression scores before and after a tranquilizer.
/// The estimate of 9 pairs is 0.46, the interval of 96.1 % 0.010 to 0.786.
#[test]
fn hodges_lehmann_matches_the_published_depression_data() {
    let before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
    let after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
    let differences: Vec<f64> = before.iter().zip(after).map(|(x, y)| x - y).collect();
    let mut located = signed_rank::hodges_lehmann(&differences).unwrap();
    close(located.estimate, 0.46, 1e-9);
    close_ends(located.interval(percent(96.0)).unwrap(), (0.010, 0.786), 1e-9);
    close_ends(located.interval(percent(95.0)).unwrap(), (0.010, 0.786), 1e-9);
}

/// Darwin's maize, crossed less self-fertilised, in eighths of an inch (Fisher, "The Design of
/// Experiments", 1935, table 3).
#[test]
fn hodges_lehmann_matches_the_published_values_for_darwins_maize() {
    let differences =
        [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0];
    let located = signed_rank::hodges_lehmann(&differences).unwrap();
    close(located.estimate, 25.0, 1e-12);
}

/// Fleming & Wallace (1986), table of five benchmarks on processors R, M and Z.
#[test]
fn geometric_means_match_the_published_normalised_benchmarks() {
    let r = [417.0, 83.0, 66.0, 39_449.0, 772.0];
    let m = [244.0, 70.0, 153.0, 33_527.0, 368.0];
    let z = [134.0, 70.0, 135.0, 66_000.0, 369.0];
    let over = |a: [f64; 5], b: [f64; 5]| {
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
        geometric_mean(&ratios).unwrap()
    };
    close(over(m, r), 0.86, 0.005);
    close(over(z, r), 0.84, 0.01);
    // The paper's point: the comparison of M with Z does not depend on the baseline.
    close(over(z, m), over(z, r) / over(m, r), 1e-12);
    close(over(r, m), 1.0 / over(m, r), 1e-12);
}

/// Newcombe (1998), table I: 95 % intervals by the exact method of Clopper & Pearson (method 5).
#[test]
fn binomial_intervals_match_the_values_of_newcombe() {
    let rows = [
        (81, 263, (0.2527, 0.3676)),
        (15, 148, (0.0578, 0.1617)),
        (0, 20, (0.0, 0.1684)),
        (1, 29, (0.0009, 0.1776)),
    ];
    let ends = |(low, high): (Share, Share)| Some((low.fraction(), high.fraction()));
    for (hits, trials, exact) in rows {
        let clopper_pearson = binomial::clopper_pearson(hits, trials, percent(95.0)).unwrap();
        close_ends(ends(clopper_pearson), exact, 5.1e-5);
    }
}

/// Tietjen & Moore (1972): mass-spectrometer readings of uranium. NIST's handbook (§1.3.5.17.1)
/// lists them with the one outlier that Grubbs' test finds, 245.57. The second set has ten values
/// with two outliers that hide each other from an ordinary z-score. Iglewicz & Hoaglin made the
/// modified z-score for this case.
#[test]
fn modified_z_scores_find_outliers() {
    let uranium = [199.31, 199.53, 200.19, 200.82, 201.92, 201.95, 202.18, 245.57];
    assert_eq!(outliers(&uranium).unwrap(), [7]);
    let masked = [2.1, 2.6, 2.4, 2.5, 2.3, 2.1, 2.3, 2.6, 8.2, 8.3];
    assert_eq!(outliers(&masked).unwrap(), [8, 9]);
    let warned = summary(&masked).unwrap();
    let warning = warned.warning(|sample| format!("{sample} s")).unwrap();
    assert!(warning.contains("2 of 10") && warning.contains("2.1 s to 8.3 s"), "{warning}");
    assert_eq!(warned.n, 10, "warned about, not removed");
    // Computed by hand: 0.6745 (8.3 - 2.45) / 0.15.
    close(modified_z_scores(&masked).unwrap()[9], 0.6745 * 5.85 / 0.15, 1e-9);
}

#[test]
fn equal_samples_have_no_outlier_and_a_mean_deviation_replaces_a_median_of_zero() {
    assert_eq!(modified_z_scores(&[7.0; 5]).unwrap(), [0.0; 5]);
    let scores = modified_z_scores(&[1.0, 1.0, 1.0, 1.0, 5.0]).unwrap();
    // 4 / (0.8 / sqrt(2 / pi)).
    close(scores[4], 3.989_422_804, 1e-6);
}

#[test]
fn the_deviation_needs_two_samples() {
    assert_eq!(summary(&[5.0]).unwrap().sd, None);
    close(summary(&[1.0, 3.0]).unwrap().sd.unwrap(), f64::sqrt(2.0), 1e-12);
}

#[test]
fn counts_and_confidences_at_their_limits_are_taken_or_refused() {
    let level = percent(95.0);
    assert_eq!(binomial::clopper_pearson(0, 3, level).unwrap().0, Share::ZERO);
    assert_eq!(binomial::clopper_pearson(3, 3, level).unwrap().1, Share::ONE);
    assert!(binomial::clopper_pearson(11, 10, level).is_err());
    for wrong in [Share::ZERO, Share::ONE] {
        assert!(binomial::clopper_pearson(1, 2, wrong).is_err());
    }
}

/// The median is 0 and the median absolute deviation 0.6745, so the scores are the values.
#[test]
fn an_outlier_lies_beyond_a_score_of_3_5() {
    assert_eq!(outliers(&[0.0, 0.6745, -0.6745, 3.5, -3.5]).unwrap(), [0; 0]);
    assert_eq!(outliers(&[0.0, 0.6745, -0.6745, 3.5, -3.6]).unwrap(), [4]);
}

#[test]
fn a_warning_needs_two_outliers_that_differ_by_more_than_3_percent() {
    let with = |far: &[f64]| {
        let mut samples = vec![100.0; 12];
        samples.extend(far);
        let found = summary(&samples).unwrap();
        assert_eq!(found.outliers.len(), far.len());
        found.warning(|sample| sample.to_string())
    };
    assert_eq!(with(&[103.0, 103.0]), None);
    assert_eq!(with(&[97.0, 97.0]), None);
    assert_eq!(with(&[150.0]), None);
    let told = with(&[104.0, 104.0]).unwrap();
    assert!(told.starts_with("2 of 14 samples") && told.contains("100 to 104"), "{told}");
}
