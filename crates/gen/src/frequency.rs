use std::fmt;
use std::str::FromStr;

use crate::GenError;

/// Events a second: packets, or new flows.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Frequency(f64);

impl Frequency {
    pub const ZERO: Self = Self(0.0);

    /// Negative numbers and NaN become zero.
    pub fn per_second(events: f64) -> Self {
        Self(if events.is_finite() { events.max(0.0) } else { 0.0 })
    }

    /// For constants.
    pub(crate) const fn of(events: f64) -> Self {
        Self(events)
    }

    pub const fn events(self) -> f64 {
        self.0
    }

    pub fn times(self, factor: f64) -> Self {
        Self::per_second(self.0 * factor)
    }

    /// The part of another frequency that this one is; zero of zero is zero.
    pub fn share_of(self, whole: Self) -> f64 {
        if whole.0 > 0.0 { self.0 / whole.0 } else { 0.0 }
    }
}

impl FromStr for Frequency {
    type Err = GenError;

    fn from_str(text: &str) -> Result<Self, GenError> {
        let wrong = || {
            GenError::Usage(format!(
                "`{}` is not a rate of packets: write 12345, 500k, 1.2mpps or 80kpps",
                units::foreign(text)
            ))
        };
        let lower = text.trim().to_ascii_lowercase();
        let number = lower.strip_suffix("pps").unwrap_or(&lower).trim_end();
        let (digits, scale) = match number.chars().last() {
            Some('k') => (&number[..number.len() - 1], 1e3),
            Some('m') => (&number[..number.len() - 1], 1e6),
            Some('g') => (&number[..number.len() - 1], 1e9),
            _ => (number, 1.0),
        };
        let events: f64 = digits.trim().replace('_', "").parse().map_err(|_| wrong())?;
        if !events.is_finite() || !(0.0..=1e12).contains(&(events * scale)) {
            return Err(wrong());
        }
        Ok(Self(events * scale))
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            value if value >= 1e6 => (value / 1e6, "Mpps"),
            value if value >= 1e4 => (value / 1e3, "kpps"),
            value => (value, "pps"),
        };
        let decimals = match unit {
            "Mpps" => 3,
            "kpps" => 2,
            _ if value.fract() == 0.0 => 0,
            _ => 1,
        };
        f.pad(&format!("{value:.decimals$} {unit}"))
    }
}
