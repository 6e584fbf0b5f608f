use crate::number::{Grammar, exact};
use crate::{UnitError, as_text};

/// A number of bytes. `KB` and `kB` are 1000, `KiB` is 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes: an empty queue, or an empty packet.
    pub const ZERO: Self = Self(0);

    /// Creates a size of `count` bytes.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// Creates a size in units of 1024 bytes. A `count` of 2^54 or more overflows 64 bits.
    pub const fn kib(count: u64) -> Self {
        Self(count * 1024)
    }

    /// Returns the size as a plain integer, in bytes.
    pub const fn count(self) -> u64 {
        self.0
    }

    /// Returns the difference in bytes; zero if `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::ops::Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::Sub for Bytes {
    type Output = Self;
    /// Saturates: a queue never holds less than zero bytes.
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl std::ops::SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, |a, b| a + b)
    }
}

impl std::str::FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        GRAMMAR.parse(text).map(Self)
    }
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimal = exact(self.0, &DECIMAL);
        let binary = exact(self.0, &BINARY);
        f.pad(if binary.len() < decimal.len() { &binary } else { &decimal })
    }
}

as_text!(Bytes, "a size such as \"256KiB\"");

const BINARY: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const DECIMAL: [(&str, u64); 4] =
    [("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000), ("B", 1)];

const GRAMMAR: Grammar = Grammar {
    quantity: "size",
    example: "256KiB, 640KB or 1500",
    known: "B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024)",
    range: "at most 9 EB",
    units: &[
        ("b", 1.0),
        ("byte", 1.0),
        ("bytes", 1.0),
        ("kb", 1e3),
        ("mb", 1e6),
        ("gb", 1e9),
        ("tb", 1e12),
        ("k", 1024.0),
        ("m", 1048576.0),
        ("g", 1073741824.0),
        ("kib", 1024.0),
        ("mib", 1048576.0),
        ("gib", 1073741824.0),
        ("tib", 1099511627776.0),
    ],
    bare: Some(1.0),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_print_in_the_shortest_exact_form() {
        for text in ["256KiB", "640KB", "8MB", "1.5KiB", "1514B", "900B", "1MiB", "0B"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        assert_eq!(Bytes::new(1500).to_string(), "1.5KB");
    }

    #[test]
    fn sums_and_differences_of_bytes_saturate() {
        assert_eq!(Bytes::new(3) - Bytes::new(5), Bytes::ZERO);
        assert_eq!(Bytes::new(u64::MAX) + Bytes::new(5), Bytes::new(u64::MAX));
    }
}
