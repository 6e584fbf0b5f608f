//! Finds samples far from the other samples, for a warning to the reader. This module removes no
//! sample, because a slow sample is often the effect that the lab looks for.
//!
//! Modified z-score of Iglewicz & Hoaglin, "How to Detect and Handle Outliers" (ASQC, 1993):
//! `0.6745 (x - median) / MAD`, suspicious beyond 3.5. Both parts are medians, so outliers do not
//! hide each other as they do in mean and standard deviation.

use crate::StatsError;
use crate::error::finite;
use crate::quantile::median_in_place;
use crate::spread::median_absolute_deviation;

/// Returns the indices of the samples whose modified z-score is beyond ±3.5, in ascending order.
pub fn outliers(samples: &[f64]) -> Result<Vec<usize>, StatsError> {
    let scores = modified_z_scores(samples)?;
    let far = scores.iter().enumerate().filter(|(_, z)| z.abs() > SUSPICIOUS);
    Ok(far.map(|(index, _)| index).collect())
}

/// Returns the distance of each sample from the median, in robust standard deviations. All 0 for
/// equal samples.
pub fn modified_z_scores(samples: &[f64]) -> Result<Vec<f64>, StatsError> {
    finite(samples, "modified z-score")?;
    let middle = median_in_place(&mut samples.to_vec());
    let scale = robust_deviation(samples, middle);
    let score = |x: &f64| {
        if scale > 0.0 { (x - middle) / scale } else { 0.0 }
    };
    Ok(samples.iter().map(score).collect())
}

/// Returns MAD / 0.6745, which is the standard deviation of normal samples. If more than half of
/// the samples are equal, the MAD is 0, and the mean absolute deviation replaces it, as Iglewicz &
/// Hoaglin advise.
fn robust_deviation(samples: &[f64], middle: f64) -> f64 {
    let mad = median_absolute_deviation(samples, middle);
    if mad > 0.0 {
        return mad / NORMAL_MAD;
    }
    let n = samples.len() as f64;
    samples.iter().map(|x| (x - middle).abs() / n).sum::<f64>() / NORMAL_MEAN_DEVIATION
}

/// The bound recommended by Iglewicz & Hoaglin.
const SUSPICIOUS: f64 = 3.5;
/// MAD of a standard normal distribution: its third quartile.
const NORMAL_MAD: f64 = 0.6745;
/// Mean absolute deviation of a standard normal distribution, √(2/π).
const NORMAL_MEAN_DEVIATION: f64 = 0.797_884_560_802_865_4;
