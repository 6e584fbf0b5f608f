use std::fmt;
use std::str::FromStr;

use units::{Bytes, Rate};

use crate::GenError;

/// A number of events per second: packets, or new flows.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Frequency(f64);

impl Frequency {
    pub const ZERO: Self = Self(0.0);

    /// Creates a frequency; negative numbers and NaN become zero.
    pub fn per_second(events: f64) -> Self {
        Self(if events.is_finite() { events.max(0.0) } else { 0.0 })
    }

    pub(crate) const fn of(events: f64) -> Self {
        Self(events)
    }

    pub const fn events(self) -> f64 {
        self.0
    }

    pub fn times(self, factor: f64) -> Self {
        Self::per_second(self.0 * factor)
    }

    /// Returns this frequency divided by `whole`; zero if both frequencies are zero.
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

/// A load as users write it: packets per second, or bits per second on the line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    Packets(Frequency),
    /// Bits per second on the line, including Ethernet's preamble and the gap between frames.
    Bits(Rate),
}

impl Load {
    /// Returns the packet rate of the load if each packet takes `size` bytes on the line.
    pub fn packets(self, size: Bytes) -> Frequency {
        match self {
            Self::Packets(packets) => packets,
            Self::Bits(rate) => {
                let bits = size.count().max(1) as f64 * 8.0;
                Frequency::per_second(rate.bits_per_second() as f64 / bits)
            }
        }
    }
}

impl FromStr for Load {
    type Err = GenError;

    fn from_str(text: &str) -> Result<Self, GenError> {
        if let Ok(packets) = text.parse() {
            return Ok(Self::Packets(packets));
        }
        text.replace(' ', "").parse().map(Self::Bits).map_err(|_| {
            GenError::Usage(format!(
                "`{}` is not a load: write packets a second as 12345, 500k or 1.2mpps, or bits a \
                 second as 100mbit, 2.5gbit or 10Gbit/s",
                units::foreign(text)
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_parses_as_packets_or_line_bits_per_second() {
        // A frame of 64 bytes takes 84 bytes on the line.
        let of =
            |text: &str| text.parse::<Load>().unwrap().packets(Bytes::new(84)).events().round();
        for (text, packets) in [
            ("12345", 12_345.0),
            ("500k", 500_000.0),
            ("1.2mpps", 1_200_000.0),
            ("100mbit", 148_810.0),
            ("100 Mbit/s", 148_810.0),
            ("1gbit", 1_488_095.0),
            ("1Gbps", 1_488_095.0),
            ("2.5gbit", 3_720_238.0),
            ("672bit", 1.0),
        ] {
            assert_eq!(of(text), packets, "{text}");
        }
        for text in ["", "fast", "100mbut", "-1mbit", "1mb it s"] {
            let error = text.parse::<Load>().unwrap_err().to_string();
            assert!(error.contains("is not a load") && error.contains("100mbit"), "{error}");
        }
    }
}
