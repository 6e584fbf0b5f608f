//! Ratios of values.

use crate::StatsError;
use crate::error::positive;
use crate::spread::mean;

/// Returns the n-th root of the product of positive values: a mean of ratios that does not depend
/// on the choice of the baseline (Fleming & Wallace, "How not to lie with statistics", CACM 29(3),
/// 1986).
pub fn geometric_mean(values: &[f64]) -> Result<f64, StatsError> {
    positive(values, "geometric mean")?;
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    Ok(mean(&logarithms).exp())
}

/// Returns `a / b`; 1 for equal values, also if both are zero or infinite.
pub(crate) fn quotient(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { a / b }
}
