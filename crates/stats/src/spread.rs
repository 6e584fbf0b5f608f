//! Location and spread of samples.

use crate::quantile::median_in_place;

pub(crate) fn median_absolute_deviation(samples: &[f64], middle: f64) -> f64 {
    let mut distances: Vec<f64> = samples.iter().map(|x| (x - middle).abs()).collect();
    median_in_place(&mut distances)
}

/// Returns the mean. Divides before adding, to keep the sum of huge samples finite.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    let n = samples.len() as f64;
    samples.iter().map(|x| x / n).sum()
}

pub(crate) fn standard_deviation(samples: &[f64], mean: f64) -> Option<f64> {
    let n = samples.len();
    if n < 2 {
        return None;
    }
    // Scale by the largest distance, because a naive sum of squares overflows from 1e154 on.
    let largest = samples.iter().map(|x| (x - mean).abs()).fold(0.0, f64::max);
    if largest == 0.0 {
        return Some(0.0);
    }
    let squares: f64 = samples.iter().map(|x| ((x - mean) / largest).powi(2)).sum();
    Some(largest * (squares / (n - 1) as f64).sqrt())
}
