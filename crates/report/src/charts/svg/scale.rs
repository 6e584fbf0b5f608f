//! Maps values to positions along an axis, and chooses the ticks.

use crate::number;

#[derive(Debug, Clone)]
pub(super) enum Scale {
    Linear {
        low: f64,
        high: f64,
    },
    Log {
        low: f64,
        high: f64,
    },
    /// Evenly spaced positions, the first and the last half a step from the edge.
    Steps(usize),
}

impl Scale {
    /// Chooses a scale that starts at zero, or a logarithmic scale if a linear scale would flatten
    /// small values.
    pub(super) fn for_magnitudes(values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let low = finite.clone().fold(f64::INFINITY, f64::min);
        let high = finite.fold(f64::NEG_INFINITY, f64::max);
        if low > 0.0 && high / low >= LOG_FROM_RATIO {
            Self::log(low, high)
        } else {
            Self::linear(low.min(0.0), high.max(0.0))
        }
    }

    /// Builds a linear scale whose ends are rounded outwards.
    pub(super) fn linear(low: f64, high: f64) -> Self {
        if !(low.is_finite() && high.is_finite()) || low >= high {
            let start = if low.is_finite() { low } else { 0.0 };
            return Self::Linear { low: start, high: start + 1.0 };
        }
        let step = step(high - low);
        Self::Linear { low: (low / step).floor() * step, high: (high / step).ceil() * step }
    }

    /// Builds a logarithmic scale whose ends are the next 1, 2 or 5.
    pub(super) fn log(low: f64, high: f64) -> Self {
        if !(low.is_finite() && high.is_finite()) || low <= 0.0 || high <= 0.0 {
            return Self::Log { low: 0.5, high: 2.0 };
        }
        let round = |value: f64, up: bool| {
            let decade = 10f64.powf(value.log10().floor());
            let parts = [1.0, 2.0, 5.0, 10.0].map(|part| part * decade);
            let slack = 1.0 + 1e-9;
            if up {
                parts.into_iter().find(|part| part * slack >= value).unwrap_or(parts[3])
            } else {
                parts.into_iter().rev().find(|part| *part <= value * slack).unwrap_or(parts[0])
            }
        };
        let (low, high) = (round(low, false), round(high, true));
        Self::Log { low, high: if high > low { high } else { low * 10.0 } }
    }

    pub(super) fn is_log(&self) -> bool {
        matches!(self, Self::Log { .. })
    }

    /// Returns the position of a value: 0 at the axis's start, 1 at its end. Clamps values outside.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Log { low, high } => {
                (value.max(f64::MIN_POSITIVE) / low).ln() / (high / low).ln()
            }
            Self::Steps(count) => (value + 0.5) / (*count).max(1) as f64,
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let values: Vec<f64> = match self {
            Self::Linear { low, high } => {
                let step = step(high - low);
                let count = ((high - low) / step).round() as i64;
                (0..=count.clamp(1, 20)).map(|index| low + index as f64 * step).collect()
            }
            Self::Log { low, high } => log_ticks(*low, *high),
            Self::Steps(_) => return Vec::new(),
        };
        values.into_iter().map(|value| (value, label(value))).collect()
    }
}

fn label(value: f64) -> String {
    // Ticks are round values, written without trailing zeros: 0.3 rather than 0.300.
    let rounded = (value * 1e6).round() / 1e6;
    let plain = format!("{}", rounded.abs());
    if value.abs() < 1000.0 && plain.len() <= 6 && (rounded != 0.0 || value == 0.0) {
        let sign = if rounded < 0.0 { "−" } else { "" };
        format!("{sign}{plain}")
    } else {
        number::format(value)
    }
}

fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let parts: &[f64] = if decades <= 3.1 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let skip = (decades / 8.0).ceil().max(1.0) as i32;
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let all = (first..=last)
        .filter(|exponent| (exponent - first) % skip == 0)
        .flat_map(|exponent| parts.iter().map(move |part| part * 10f64.powi(exponent)));
    all.filter(|value| (low * 0.999..=high * 1.001).contains(value)).collect()
}

fn step(range: f64) -> f64 {
    let rough = range / 5.0;
    let decade = 10f64.powf(rough.log10().floor());
    let part = [1.0, 2.0, 5.0, 10.0].into_iter().find(|part| part * decade >= rough * 0.999);
    part.unwrap_or(10.0) * decade
}

const LOG_FROM_RATIO: f64 = 25.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(&Scale::linear(0.0, 604.0)), ["0", "200", "400", "600", "800"]);
        assert_eq!(labels(&Scale::linear(0.0, 0.9)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(
            labels(&Scale::log(13.0, 560.0)),
            ["10", "20", "50", "100", "200", "500", "1,000"]
        );
        assert_eq!(labels(&Scale::log(0.9, 1.1)), ["0.5", "1", "2"]);
    }

    #[test]
    fn wide_magnitudes_are_logarithmic() {
        assert!(Scale::for_magnitudes([2.0, 600.0].into_iter()).is_log());
        assert!(!Scale::for_magnitudes([0.0, 600.0].into_iter()).is_log());
        assert!(!Scale::for_magnitudes(std::iter::empty()).is_log());
    }

    proptest! {
        #[test]
        fn every_value_lies_on_the_axis(a in -1e12f64..1e12, b in -1e12f64..1e12, value: f64) {
            let scales = [
                Scale::linear(a, b),
                Scale::log(a, b),
                Scale::for_magnitudes([a, b].into_iter()),
                Scale::Steps(3),
            ];
            for scale in scales {
                prop_assert!((0.0..=1.0).contains(&scale.place(value)));
                prop_assert!(scale.ticks().len() <= 40, "{scale:?}");
                for (tick, _) in scale.ticks() {
                    prop_assert!((0.0..=1.0).contains(&scale.place(tick)));
                }
            }
        }
    }
}
