use crate::{UnitError, as_text};

/// A part of a whole, from 0 to 1: a probability, a loss rate, a threshold.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Share(f64);

impl Share {
    pub const ZERO: Self = Self(0.0);
    pub const ONE: Self = Self(1.0);

    /// `None` outside 0..=1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    pub fn from_percent(percent: f64) -> Option<Self> {
        Self::new(percent / 100.0)
    }

    pub const fn fraction(self) -> f64 {
        self.0
    }

    pub fn percent(self) -> f64 {
        self.0 * 100.0
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0.0
    }
}

impl std::str::FromStr for Share {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let trimmed = text.trim();
        let (number, scale) = match trimmed.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (trimmed, 1.0),
        };
        let value: f64 = number.parse().map_err(|_| UnitError::NotANumber {
            text: text.to_owned(),
            quantity: QUANTITY,
            example: "1% or 0.01",
        })?;
        if scale == 1.0 && value == 1.0 {
            return Err(UnitError::OneOrAll { text: text.to_owned() });
        }
        Self::new(value / scale).ok_or_else(|| UnitError::OutOfRange {
            text: text.to_owned(),
            quantity: QUANTITY,
            range: "from 0% to 100% (a bare number is a part of 1: 0.01 is 1%)",
        })
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Ten significant decimals hide the rounding of `/ 100`; trailing zeros are removed then.
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
        assert_eq!("0.01".parse::<Share>().unwrap().to_string(), "1%");
        assert_eq!("0.1%".parse::<Share>().unwrap().to_string(), "0.1%");
        assert_eq!("0%".parse::<Share>().unwrap().to_string(), "0%");
        for text in ["1", "1.0", " 1 "] {
            let message = text.parse::<Share>().unwrap_err().to_string();
            assert!(message.ends_with("write 1% or 100%"), "{message}");
        }
        for text in ["140%", "1.4", "-1%", "NaN", "inf%"] {
            assert!(text.parse::<Share>().unwrap_err().to_string().contains("share"), "{text}");
        }
    }
}
