use crate::number::{Grammar, exact};
use crate::{UnitError, as_text};

/// A length of time, in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// A span of length zero.
    pub const ZERO: Self = Self(0);
    /// Maximum span, about 584 years: the time to send at rate 0.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Creates a span of `micros` microseconds; saturates at [`Span::MAX`].
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Creates a span of `millis` milliseconds; saturates at [`Span::MAX`].
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Creates a span of `secs` seconds; saturates at [`Span::MAX`].
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Creates a span from seconds with decimals, rounded to the nearest nanosecond. A negative
    /// number or NaN gives zero; a number that is too large gives [`Span::MAX`].
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs.max(0.0) * 1e9).round() as u64)
    }

    /// Returns the exact length, in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the length in microseconds, with decimals.
    pub fn micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Returns the length in milliseconds, with decimals.
    pub fn millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the length in seconds, with decimals.
    pub fn secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the difference of two lengths; zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the sum of two lengths, at most [`Span::MAX`].
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Converts to the standard library's type, for sleeps and timeouts.
    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Self {
        Self(duration.as_nanos().min(u64::MAX as u128) as u64)
    }
}

impl std::ops::Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl std::ops::Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl std::ops::Mul<u64> for Span {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl std::ops::Div<u64> for Span {
    type Output = Self;
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl std::str::FromStr for Span {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        GRAMMAR.parse(text).map(Self)
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 {
            return f.pad("0s");
        }
        f.pad(&exact(self.0, &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)]))
    }
}

as_text!(Span, "a time such as \"20ms\"");

const GRAMMAR: Grammar = Grammar {
    quantity: "time",
    example: "20ms, 150us or 2s",
    known: "ns, us, ms, s, min, h",
    range: "at most 290 years",
    units: &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("usec", 1e3),
        ("ms", 1e6),
        ("msec", 1e6),
        ("s", 1e9),
        ("sec", 1e9),
        ("m", 60e9),
        ("min", 60e9),
        ("h", 3600e9),
    ],
    bare: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_parsed_and_printed() {
        for (text, nanos, printed) in [
            ("20ms", 20_000_000, "20ms"),
            ("0.5ms", 500_000, "500us"),
            ("1500us", 1_500_000, "1.5ms"),
            ("2min", 120_000_000_000, "120s"),
            ("0", 0, "0s"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.nanos(), span.to_string().as_str()), (nanos, printed));
        }
        assert!("20".parse::<Span>().unwrap_err().to_string().contains("no unit"));
    }
}
