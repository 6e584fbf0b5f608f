use crate::LinkError;
use units::Bytes;

/// The difference in bytes between a frame's size on the medium and its size from the MAC addresses
/// onwards. The overhead affects only the rate, never queues or statistics.
///
/// Written `0`, `ethernet` (+24: preamble and start delimiter 8, frame check sequence 4,
/// inter-frame gap 12), `ip` (-14: only the IP packet counts), or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Overhead(i32);

impl Overhead {
    /// The medium carries exactly the bytes from the MAC addresses onwards.
    pub const NONE: Self = Self(0);
    /// IEEE 802.3: 7 + 1 preamble and delimiter, 4 FCS, 12 inter-packet gap.
    pub const ETHERNET: Self = Self(24);
    /// Only the IP packet uses the rate: the 14 bytes of the Ethernet header do not count.
    pub const IP: Self = Self(-14);

    /// Creates an overhead of `bytes`, without a check of its bounds. A negative number makes
    /// frames smaller.
    pub const fn new(bytes: i32) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that the medium carries for a frame of `size`, at least one.
    #[inline]
    pub const fn on_the_medium(self, size: Bytes) -> Bytes {
        let bytes = size.count().saturating_add_signed(self.0 as i64);
        Bytes::new(if bytes == 0 { 1 } else { bytes })
    }
}

impl std::str::FromStr for Overhead {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        match text.trim() {
            "ethernet" => Ok(Self::ETHERNET),
            "ip" => Ok(Self::IP),
            other => other
                .parse()
                .ok()
                .filter(|bytes| KNOWN.contains(bytes))
                .map(Self)
                .ok_or_else(|| LinkError::UnknownForm {
                    what: "frame's overhead",
                    found: text.to_owned(),
                    hint: units::did_you_mean(other, ["ethernet", "ip"]),
                    known: "`0`, `ethernet` (+24), `ip` (-14) or a number of bytes from -22 to 10000 such as `-4` or `38`",
                }),
        }
    }
}

impl std::fmt::Display for Overhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::ETHERNET => f.pad("ethernet"),
            Self::IP => f.pad("ip"),
            Self(bytes) => f.pad(&bytes.to_string()),
        }
    }
}

units::as_text!(Overhead, "an overhead such as \"ethernet\"");

/// The valid overheads. The minimum removes an Ethernet header with two VLAN tags and leaves the IP
/// packet; with a smaller overhead, a link would be faster than its rate.
const KNOWN: std::ops::RangeInclusive<i32> = -22..=10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_at_least_one_byte_on_the_medium() {
        assert_eq!(Overhead::ETHERNET.on_the_medium(Bytes::new(1514)).count(), 1538);
        assert_eq!(Overhead::IP.on_the_medium(Bytes::new(1514)).count(), 1500);
        assert_eq!(Overhead::IP.on_the_medium(Bytes::new(14)).count(), 1);
        assert_eq!(Overhead::IP.on_the_medium(Bytes::new(3)).count(), 1);
    }

    #[test]
    fn an_overhead_prints_as_it_parses() {
        for text in ["0", "ethernet", "ip", "38", "-4"] {
            assert_eq!(text.parse::<Overhead>().unwrap().to_string(), text);
        }
        assert_eq!("+24".parse::<Overhead>().unwrap(), Overhead::ETHERNET);
        for text in ["-23", "10001", "-1000000"] {
            let message = text.parse::<Overhead>().unwrap_err().to_string();
            assert!(message.contains("from -22 to 10000"), "{message}");
        }
        let message = "ethernt".parse::<Overhead>().unwrap_err().to_string();
        assert!(message.contains("did you mean `ethernet`?"), "{message}");
    }
}
