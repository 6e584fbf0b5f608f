use cc::Algorithm;
use std::fmt;
use std::str::FromStr;
use units::Rate;

/// The congestion control that a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// A congestion control of [`cc`], for example CUBIC or BBR.
    Algorithm(Algorithm),
    /// Sends at this rate regardless of loss, for users who own the capacity.
    Fixed(Rate),
}

/// The reason for which a text is not a [`Congestion`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CongestionError {
    /// The text is `fixed` without a rate.
    #[error(
        "congestion control 'fixed' needs a rate, as in 'fixed 100mbit': it ignores congestion, so the rate must be set"
    )]
    NoRate,
    /// The text after `fixed` is not a rate above 0. The value is the text as written.
    #[error("'{0}' is not a rate for congestion control 'fixed': write it as in 'fixed 100mbit'")]
    Rate(String),
    /// The text is not the name of an algorithm for tunnels, or a rate follows the name. The value
    /// is the text as written.
    #[error(
        "unknown congestion control '{0}' for the tunnel: choose one of {known} and 'fixed RATE'",
        known = algorithms().map(Algorithm::name).collect::<Vec<_>>().join(", ")
    )]
    Unknown(String),
}

impl Default for Congestion {
    fn default() -> Self {
        Self::Algorithm(Algorithm::TUNNEL_DEFAULT)
    }
}

impl FromStr for Congestion {
    type Err = CongestionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rate) = match text.trim().split_once(char::is_whitespace) {
            Some((name, rate)) => (name, Some(rate.trim())),
            None => (text.trim(), None),
        };
        match (name, rate) {
            ("fixed", None) => Err(CongestionError::NoRate),
            ("fixed", Some(text)) => match text.parse::<Rate>() {
                Ok(rate) if rate.bits_per_second() > 0 => Ok(Self::Fixed(rate)),
                _ => Err(CongestionError::Rate(text.to_owned())),
            },
            (name, None) => algorithms()
                .find(|algorithm| algorithm.name() == name)
                .map(Self::Algorithm)
                .ok_or_else(|| CongestionError::Unknown(text.to_owned())),
            (_, Some(_)) => Err(CongestionError::Unknown(text.to_owned())),
        }
    }
}

fn algorithms() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.iter().copied().filter(|algorithm| algorithm.is_for_tunnels())
}

units::from_text!(Congestion, "a text in quotes");

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm(algorithm) => write!(f, "{algorithm}"),
            Self::Fixed(rate) => write!(f, "fixed {rate}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_congestion_control_requires_a_rate() {
        assert_eq!("fixed".parse::<Congestion>(), Err(CongestionError::NoRate));
        for text in ["fixed 0mbit", "fixed fast", "fixed -1"] {
            assert!(matches!(text.parse::<Congestion>(), Err(CongestionError::Rate(_))), "{text}");
        }
        let fixed = "fixed 100mbit".parse::<Congestion>().unwrap();
        assert_eq!(fixed, Congestion::Fixed(Rate::from_mbit(100)));
        for text in algorithms().map(Algorithm::name).chain(["fixed 100mbit"]) {
            assert_eq!(text.parse::<Congestion>().unwrap().to_string(), text);
        }
        assert!("tcpa 5mbit".parse::<Congestion>().is_err());
        assert!("vegas".parse::<Congestion>().is_err());
    }
}
