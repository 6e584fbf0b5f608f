//! Confidence intervals for a counted share, such as `lost` of `sent` packets.

use statrs::distribution::{Beta, ContinuousCDF};
use units::Share;

use crate::StatsError;
use crate::error::confidence;

/// Returns the exact interval of Clopper & Pearson (Biometrika 26, 1934), from quantiles of the
/// beta distribution. The interval covers at least `level`, usually more.
pub fn clopper_pearson(hits: u64, trials: u64, level: Share) -> Result<(Share, Share), StatsError> {
    counted(hits, trials)?;
    let tail = (1.0 - confidence(level)?) / 2.0;
    let (hits, misses) = (hits as f64, (trials - hits) as f64);
    let low = if hits > 0.0 { beta(hits, misses + 1.0)?.inverse_cdf(tail) } else { 0.0 };
    let high = if misses > 0.0 { beta(hits + 1.0, misses)?.inverse_cdf(1.0 - tail) } else { 1.0 };
    Ok((share(low), share(high)))
}

/// A measured loss and the configured loss.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LossCheck {
    /// Lost packets as a share of the sent packets.
    pub measured: Share,
    /// The configured loss, as the caller passed it.
    pub expected: Share,
    /// The loss rates that are consistent with the measured loss (99 %).
    pub interval: (Share, Share),
    /// Whether `interval` contains `expected`, its bounds included.
    pub inside: bool,
}

/// Checks whether independent losses at the rate `expected` explain `lost` of `sent`, by the 99 %
/// interval of Clopper & Pearson. A correct link fails at most once in a hundred checks.
pub fn loss_agrees(lost: u64, sent: u64, expected: Share) -> Result<LossCheck, StatsError> {
    let ninety_nine = Share::from_percent(99.0).unwrap_or_default();
    let interval = clopper_pearson(lost, sent, ninety_nine)?;
    Ok(LossCheck {
        measured: share(lost as f64 / sent as f64),
        expected,
        interval,
        inside: interval.0 <= expected && expected <= interval.1,
    })
}

fn beta(a: f64, b: f64) -> Result<Beta, StatsError> {
    Beta::new(a, b).map_err(|_| StatsError::OutOfRange {
        what: "a count",
        value: a.min(b),
        range: "above zero",
    })
}

fn counted(hits: u64, trials: u64) -> Result<(), StatsError> {
    if trials == 0 {
        return Err(StatsError::Empty { what: "binomial interval" });
    }
    if hits > trials {
        return Err(StatsError::OutOfRange {
            what: "the count",
            value: hits as f64,
            range: "between 0 and the number of trials",
        });
    }
    Ok(())
}

/// Clamps a value that rounding moved an ulp outside 0..=1.
fn share(value: f64) -> Share {
    Share::new(value.clamp(0.0, 1.0)).unwrap_or_default()
}
