use crate::{UnitError, as_text};

/// A part of a whole, from 0 to 1: a probability, a loss rate, a threshold.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Share(f64);

impl Share {
    /// A share of 0%, none of the whole.
    pub const ZERO: Self = Self(0.0);
    /// A share of 100%, the whole.
    pub const ONE: Self = Self(1.0);

    /// Creates a share from a number from 0 to 1; `None` outside this range.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// Creates a share from a percentage; `None` outside 0..=100.
    pub fn from_percent(percent: f64) -> Option<Self> {
        Self::new(percent / 100.0)
    }

    /// Returns the share as a number from 0 to 1.
    pub const fn fraction(self) -> f64 {
        self.0
    }

    /// Returns the share as a number from 0 to 100.
    pub fn percent(self) -> f64 {
        self.0 * 100.0
    }

    /// Whether the share is exactly 0. A share that merely prints as 0% is not zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0.0
    }
}

impl std::str::FromStr for Share {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let trimmed = text.trim();
        let number = trimmed.strip_suffix('%').map_or(trimmed, str::trim_end);
        let value: f64 = number.parse().map_err(|_| UnitError::NotANumber {
            text: text.to_owned(),
            quantity: QUANTITY,
            example: "1%",
        })?;
        let is_percent = number.len() < trimmed.len();
        if !is_percent && value != 0.0 {
            return Err(bare(text, value));
        }
        Self::from_percent(value).ok_or_else(|| out_of_range(text))
    }
}

/// Returns the error for a bare number: tc-netem(8) reads `0.5` as half a percent, other programs
/// read it as a half.
fn bare(text: &str, value: f64) -> UnitError {
    let as_fraction = Share::new(value);
    match (Share::from_percent(value), as_fraction) {
        (Some(percent), Some(part)) => {
            UnitError::BareShare { text: text.to_owned(), choice: format!("{percent} or {part}") }
        }
        (Some(percent), None) => {
            UnitError::BareShare { text: text.to_owned(), choice: percent.to_string() }
        }
        (None, _) => out_of_range(text),
    }
}

fn out_of_range(text: &str) -> UnitError {
    UnitError::OutOfRange { text: text.to_owned(), quantity: QUANTITY, range: "from 0% to 100%" }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Print ten decimals, which hides the rounding error of the division by 100, and remove
        // trailing zeros.
        let percent = format!("{:.10}", self.percent());
        let percent = percent.trim_end_matches('0').trim_end_matches('.');
        f.pad(&format!("{percent}%"))
    }
}

as_text!(Share, "a share such as \"1%\"");

const QUANTITY: &str = "share";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_between_zero_and_one() {
        assert_eq!("1%".parse::<Share>().unwrap().fraction(), 0.01);
        assert_eq!("0.1%".parse::<Share>().unwrap().to_string(), "0.1%");
        for text in ["0%", "0", "0.0", " 0 "] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), "0%", "{text}");
        }
        for text in ["140%", "1.4", "-1%", "NaN", "inf%"] {
            assert!(text.parse::<Share>().unwrap_err().to_string().contains("share"), "{text}");
        }
    }
    #[test]
    fn a_bare_number_other_than_zero_is_refused_with_both_readings() {
        for (text, choice) in [
            ("1", "write 1% or 100%"),
            ("1.0", "write 1% or 100%"),
            (" 1 ", "write 1% or 100%"),
            ("0.5", "write 0.5% or 50%"),
            ("0.07", "write 0.07% or 7%"),
            (".002", "write 0.002% or 0.2%"),
            ("1e-3", "write 0.001% or 0.1%"),
            ("2", "write 2%"),
            ("1.5", "write 1.5%"),
        ] {
            let message = text.parse::<Share>().unwrap_err().to_string();
            assert!(message.ends_with(choice), "{text}: {message}");
        }
        for text in ["-0.5", "101", "NaN", "inf"] {
            let message = text.parse::<Share>().unwrap_err().to_string();
            assert!(message.ends_with("from 0% to 100%"), "{text}: {message}");
        }
    }
}
