//! The number of further blocks that would decide a row.

use units::Share;

use super::MOST_MORE;
use super::fit::Fit;
use crate::median_interval::{FEWEST, left_out};
use crate::summary::Estimate;

/// Returns the number of further blocks, if they have the same spread, the same location and the
/// same share of blocks on the other side of 1.
pub(super) fn blocks(
    known: &[f64],
    ratio: &Estimate,
    fit: Option<&Fit>,
    bound: Option<f64>,
    threshold: Share,
) -> Option<usize> {
    let n = known.len();
    let Some(fit) = fit else { return FEWEST.checked_sub(n).filter(|more| *more > 0) };
    let (distance, threshold) = (ratio.median.ln().abs(), threshold.fraction().ln_1p());
    let is_large = distance >= threshold;
    let room = if is_large { distance } else { threshold - distance };
    let errors = bound.unwrap_or(0.0).max(MEDIAN_ERRORS);
    let is_opposite =
        |value: &&f64| if ratio.median > 1.0 { **value <= 1.0 } else { **value >= 1.0 };
    let opposite = known.iter().filter(is_opposite).count();
    let decides = |blocks: &usize| {
        let half = errors * fit.deviation / (*blocks as f64).sqrt();
        // The exact interval leaves out the blocks on the other side of 1.
        let may_leave = || left_out(*blocks).unwrap_or(0) * n >= opposite * blocks;
        half <= room && (!is_large || may_leave())
    };
    (n + 1..=n + MOST_MORE).find(decides).map(|blocks| blocks - n)
}

/// Half the 95 % interval of the median of normal noise, in standard errors of the mean.
const MEDIAN_ERRORS: f64 = 1.96 * 1.2533;
