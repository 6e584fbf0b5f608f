//! Parses a rate, or a share of the link's rate.

use std::str::FromStr;
use units::{Rate, Share};

/// A rate such as `5mbit`, or a share such as `50%` of another rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part {
    Rate(Rate),
    Share(Share),
}

impl Part {
    pub fn of(self, whole: Rate) -> Rate {
        match self {
            Self::Rate(rate) => rate,
            Self::Share(share) => {
                let bits = whole.bits_per_second() as f64 * share.fraction();
                Rate::from_bits_per_second(bits.round() as u64)
            }
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let part = match text.ends_with('%') {
            true => Self::Share(text.parse().map_err(|error| format!("{error}"))?),
            false => Self::Rate(text.parse().map_err(|error| {
                format!("{error}; a share of the link's rate is written like `50%`")
            })?),
        };
        match part {
            Self::Rate(rate) if rate.bits_per_second() == 0 => {
                Err(format!("`{text}` is no rate: it carries nothing"))
            }
            Self::Share(share) if share.is_zero() => {
                Err(format!("`{text}` of a rate carries nothing"))
            }
            part => Ok(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_of_a_rate_are_parsed() {
        let of = |text: &str| text.parse::<Part>().map(|part| part.of(Rate::from_mbit(40)));
        assert_eq!(of("25%"), Ok(Rate::from_mbit(10)));
        assert_eq!(of("5mbit"), Ok(Rate::from_mbit(5)));
        assert!(of("0%").unwrap_err().contains("carries nothing"));
        assert!(of("0mbit").unwrap_err().contains("carries nothing"));
        assert!(of("5").unwrap_err().contains("a share of the link's rate"));
    }
}
