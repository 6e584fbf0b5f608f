use crate::number::{Grammar, exact};
use crate::{Bytes, Span, UnitError, as_text};

/// A data rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// Creates a rate of `bits` bits per second. At rate 0, no packet is ever sent completely
    /// ([`Rate::time_for`]).
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// Creates a rate in units of 10^6 bits per second. An `mbit` above `u64::MAX` / 10^6 overflows
    /// 64 bits.
    pub const fn from_mbit(mbit: u64) -> Self {
        Self(mbit * 1_000_000)
    }

    /// Returns the exact rate, in bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the rate in units of 10^6 bits per second, with decimals.
    pub fn mbit_per_second(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns how long `size` takes at this rate, rounded to the nearest nanosecond; [`Span::MAX`]
    /// at rate 0.
    pub fn time_for(self, size: Bytes) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let bit_nanos = size.count() as u128 * 8 * 1_000_000_000;
        let nanos = (bit_nanos + self.0 as u128 / 2) / self.0 as u128;
        Span::from_nanos(nanos.min(u64::MAX as u128) as u64)
    }

    /// Returns the bytes that fit into `span`, rounded down. If `span` is a round-trip time, this
    /// is the bandwidth-delay product.
    pub fn bytes_in(self, span: Span) -> Bytes {
        let bytes = self.0 as u128 * span.nanos() as u128 / 8 / 1_000_000_000;
        Bytes::new(bytes.min(u64::MAX as u128) as u64)
    }
}

impl std::str::FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        GRAMMAR.parse(text).map(Self)
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&exact(
            self.0,
            &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)],
        ))
    }
}

as_text!(Rate, "a rate such as \"600mbit\"");

const GRAMMAR: Grammar = Grammar {
    quantity: "rate",
    example: "600mbit or 2.5gbit",
    known: "bit, kbit, mbit, gbit, tbit, B/s, KB/s, MB/s, GB/s",
    range: "at most 9000 tbit",
    units: &[
        ("bit", 1.0),
        ("bit/s", 1.0),
        ("bps", 1.0),
        ("kbit", 1e3),
        ("kbit/s", 1e3),
        ("kbps", 1e3),
        ("k", 1e3),
        ("mbit", 1e6),
        ("mbit/s", 1e6),
        ("mbps", 1e6),
        ("m", 1e6),
        ("gbit", 1e9),
        ("gbit/s", 1e9),
        ("gbps", 1e9),
        ("g", 1e9),
        ("tbit", 1e12),
        ("tbit/s", 1e12),
        ("b/s", 8.0),
        ("kb/s", 8e3),
        ("mb/s", 8e6),
        ("gb/s", 8e9),
    ],
    bare: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_in_common_notations() {
        for (text, bits) in [
            ("600mbit", 600_000_000),
            ("2.5gbit", 2_500_000_000),
            ("64 kbit", 64_000),
            ("10MB/s", 80_000_000),
            ("1_000bit", 1000),
            ("100M", 100_000_000),
            ("0", 0),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().bits_per_second(), bits, "{text}");
        }
    }

    #[test]
    fn the_error_of_a_malformed_rate_shows_a_valid_rate() {
        let message = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        assert_eq!(message("600"), "`600` has no unit: a rate is written like 600mbit or 2.5gbit");
        assert!(message("600mbut").contains("`mbut` in `600mbut` is not a unit of a rate"));
        assert!(message("-3mbit").contains("is not a rate"));
        assert!(message("99999999tbit").contains("out of range"));
    }

    #[test]
    fn serialisation_time_is_exact() {
        let rate = Rate::from_mbit(600);
        assert_eq!(rate.time_for(Bytes::new(1514)).nanos(), 20_187);
        assert_eq!(rate.bytes_in(Span::from_millis(20)), Bytes::new(1_500_000));
        assert_eq!(Rate::default().time_for(Bytes::new(1)), Span::MAX);
    }
}
