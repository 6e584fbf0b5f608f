use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The addresses that share their first bits, as `192.0.2.0/24`, `2001:db8::/32` or a single
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Returns the address in IPv6 form, with IPv4 as `::ffff:a.b.c.d`, and the number of
    /// significant bits.
    pub(crate) fn mapped(self) -> ([u8; 16], u32) {
        match self.address {
            IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), u32::from(self.bits) + 96),
            IpAddr::V6(address) => (address.octets(), self.bits.into()),
        }
    }

    pub(crate) fn from_mapped(octets: [u8; 16], bits: u32) -> Option<Self> {
        let address = Ipv6Addr::from(octets);
        let bits = u8::try_from(bits).ok().filter(|bits| *bits <= 128)?;
        Some(match address.to_ipv4_mapped() {
            Some(address) if bits >= 96 => Self { address: address.into(), bits: bits - 96 },
            _ => Self { address: address.into(), bits },
        })
    }

    /// Whether every address of `other` is in this prefix.
    pub fn covers(self, other: Self) -> bool {
        let ((mine, bits), (theirs, length)) = (self.mapped(), other.mapped());
        bits <= length && cut(mine.into(), bits) == cut(theirs.into(), bits)
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let wrong = |what: &str| {
            format!("`{text}` is no destination: {what}; write it as 192.0.2.0/24 or 2001:db8::/32")
        };
        let address: IpAddr =
            address.parse().map_err(|_| wrong(&format!("`{address}` is no address")))?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => longest,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= longest)
                .ok_or_else(|| wrong(&format!("there are 0 to {longest} bits")))?,
        };
        let prefix = Self { address, bits };
        let (octets, mapped_bits) = prefix.mapped();
        if cut(octets.into(), mapped_bits) != Ipv6Addr::from(octets) {
            return Err(wrong("it has bits behind the prefix"));
        }
        // For the kernel's sockets IPv4 is a part of IPv6, but a user who writes ::/0 usually
        // means IPv6 alone.
        if mapped_bits < 96 && cut(IPV4.into(), mapped_bits) == cut(octets.into(), mapped_bits) {
            return Err(wrong(
                "it contains all of IPv4, as ::ffff:0:0/96; leave it out for all addresses, or use 2000::/3 for IPv6",
            ));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = if self.address.is_ipv4() { 32 } else { 128 };
        match self.bits {
            bits if bits == longest => write!(f, "{}", self.address),
            bits => write!(f, "{}/{bits}", self.address),
        }
    }
}

/// Converts an address to the prefix of this single address.
impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }
}

fn cut(address: Ipv6Addr, bits: u32) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
    Ipv6Addr::from(u128::from(address) & mask)
}

/// The range of IPv4 in IPv6, with 96 bits (RFC 4291, 2.5.5.2).
const IPV4: [u8; 16] = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets();

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_invalid_prefix_is_reported() {
        for (text, message) in [
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.1/24", "behind the prefix"),
            ("ten/8", "`ten` is no address"),
            ("::/129", "0 to 128"),
            ("", "no address"),
            ("::/0", "all of IPv4"),
            ("::/80", "all of IPv4"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_shorter_prefix_covers_a_longer_prefix() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        assert!(prefix("10.0.0.0/8").covers(prefix("10.1.0.0/16")));
        assert!(!prefix("10.1.0.0/16").covers(prefix("10.0.0.0/8")));
        assert!(prefix("0.0.0.0/0").covers(prefix("192.0.2.1")));
        assert!(!prefix("0.0.0.0/0").covers(prefix("2001:db8::/32")));
        assert!(prefix("0.0.0.0/0").covers(prefix("::ffff:192.0.2.1")));
    }

    proptest! {
        #[test]
        fn a_prefix_prints_as_it_is_parsed(address: u128, bits in 0_u32..=128, four: bool) {
            let prefix = if four {
                let bits = bits / 4;
                let address = Ipv4Addr::from((address as u32) & u32::MAX.checked_shl(32 - bits).unwrap_or(0));
                Prefix { address: address.into(), bits: bits as u8 }
            } else {
                let bits = bits.max(1);
                Prefix { address: cut(Ipv6Addr::from(address | 1 << 127), bits).into(), bits: bits as u8 }
            };
            prop_assert_eq!(prefix.to_string().parse::<Prefix>().unwrap(), prefix);
            let (octets, length) = prefix.mapped();
            prop_assert_eq!(Prefix::from_mapped(octets, length), Some(prefix));
        }
    }
}
