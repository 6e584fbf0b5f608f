//! Confidence intervals for a counted share, such as `lost` of `sent` packets.

use statrs::distribution::{Beta, ContinuousCDF, Normal};
use units::Share;

use crate::StatsError;
use crate::error::confidence;

/// Returns the exact interval of Clopper & Pearson (Biometrika 26, 1934), from quantiles of the
/// beta distribution. The interval covers at least `level`, usually more.
pub fn clopper_pearson(hits: u64, trials: u64, level: Share) -> Result<(Share, Share), StatsError> {
    counted(hits, trials)?;
    clopper_pearson_of(hits as f64, trials as f64, level)
}

/// Returns Wilson's score interval (JASA 22, 1927), which is shorter than Clopper & Pearson's. The
/// coverage of this interval is `level` on average, but may be lower (Newcombe, Statistics in
/// Medicine 17, 1998).
pub fn wilson(hits: u64, trials: u64, level: Share) -> Result<(Share, Share), StatsError> {
    counted(hits, trials)?;
    let z = Normal::standard().inverse_cdf(0.5 + confidence(level)? / 2.0);
    let n = trials as f64;
    let p = hits as f64 / n;
    let z2 = z * z;
    let centre = 2.0 * n * p + z2;
    let half = z * (z2 + 4.0 * n * p * (1.0 - p)).sqrt();
    let whole = 2.0 * (n + z2);
    // At the limits the formula gives 0 and 1 except for rounding. Return 0 and 1 exactly.
    let low = if hits == 0 { 0.0 } else { (centre - half) / whole };
    let high = if hits == trials { 1.0 } else { (centre + half) / whole };
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
///
/// For losses in bursts use [`loss_agrees_in_bursts`].
pub fn loss_agrees(lost: u64, sent: u64, expected: Share) -> Result<LossCheck, StatsError> {
    counted(lost, sent)?;
    check(lost as f64, sent as f64, expected)
}

/// Checks the losses of a simple Gilbert process, which loses every packet in the bad state and no
/// packet in the good state, in bursts of `mean_burst` packets on average. The correlation from one
/// packet to the next is `r = 1 - 1/mean_burst/(1 - expected)`, and `sent` packets carry the
/// information of `sent (1-r)/(1+r)` independent packets. The approximation needs many bursts. For
/// Gilbert-Elliott processes that lose only some packets in the bad state, whose losses are less
/// correlated, the interval is too wide.
pub fn loss_agrees_in_bursts(
    lost: u64,
    sent: u64,
    expected: Share,
    mean_burst: f64,
) -> Result<LossCheck, StatsError> {
    counted(lost, sent)?;
    if !(1.0..f64::INFINITY).contains(&mean_burst) {
        return Err(StatsError::OutOfRange {
            what: "the mean burst",
            value: mean_burst,
            range: "from 1 packet up",
        });
    }
    let correlation = 1.0 - 1.0 / mean_burst / (1.0 - expected.fraction());
    // Treat bursts shorter than bursts of independent losses as independent losses, which is
    // cautious.
    let correlation = correlation.clamp(0.0, 1.0 - f64::EPSILON);
    let part = (1.0 - correlation) / (1.0 + correlation);
    check(lost as f64 * part, sent as f64 * part, expected)
}

fn check(lost: f64, sent: f64, expected: Share) -> Result<LossCheck, StatsError> {
    let ninety_nine = Share::from_percent(99.0).unwrap_or_default();
    let interval = clopper_pearson_of(lost, sent, ninety_nine)?;
    Ok(LossCheck {
        measured: share(lost / sent),
        expected,
        interval,
        inside: interval.0 <= expected && expected <= interval.1,
    })
}

/// Returns the interval of Clopper & Pearson for counts that need not be whole numbers.
fn clopper_pearson_of(hits: f64, trials: f64, level: Share) -> Result<(Share, Share), StatsError> {
    let tail = (1.0 - confidence(level)?) / 2.0;
    let misses = trials - hits;
    let low = if hits > 0.0 { beta(hits, misses + 1.0)?.inverse_cdf(tail) } else { 0.0 };
    let high = if misses > 0.0 { beta(hits + 1.0, misses)?.inverse_cdf(1.0 - tail) } else { 1.0 };
    Ok((share(low), share(high)))
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
