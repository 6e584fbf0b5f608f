//! Addresses that mean more than a host somewhere.

use ipnet::IpNet;
use std::fmt::{Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address must be listed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Special {
    /// 0.0.0.0 and `::`, to which Linux connects as to loopback.
    Unspecified,
    Loopback,
    LinkLocal,
    /// Where clouds hand their guests secrets.
    Metadata,
    Multicast,
    Broadcast,
    /// An IPv6 address that a gateway would turn into one of these.
    Translated,
}

/// `None` for all that a rule may cover with a name or a wide prefix.
pub fn special(address: IpAddr) -> Option<Special> {
    let address = address.to_canonical();
    if is_metadata(address) {
        return Some(Special::Metadata);
    }
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// Whether a rule for this prefix lists the address, rather than covering it by chance: it lies within
/// the special range. Metadata and translated addresses have to be written out.
pub(super) fn lists(prefix: IpNet, address: IpAddr, special: Special) -> bool {
    if !prefix.contains(&address) {
        return false;
    }
    let narrow = |v4: u8, v6: u8| prefix.prefix_len() >= if address.is_ipv4() { v4 } else { v6 };
    match special {
        Special::Unspecified | Special::Loopback => narrow(8, 128),
        Special::LinkLocal => narrow(16, 10),
        Special::Multicast => narrow(4, 8),
        Special::Metadata | Special::Broadcast | Special::Translated => narrow(32, 128),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    match address.octets() {
        // RFC 1122, 3.2.1.3: "this host on this network".
        [0, ..] => Some(Special::Unspecified),
        [127, ..] => Some(Special::Loopback),
        [169, 254, ..] => Some(Special::LinkLocal),
        [224..=239, ..] => Some(Special::Multicast),
        [240..=255, ..] => Some(Special::Broadcast),
        _ => None,
    }
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    if address.is_unspecified() {
        return Some(Special::Unspecified);
    }
    if address.is_loopback() {
        return Some(Special::Loopback);
    }
    if address.is_unicast_link_local() {
        return Some(Special::LinkLocal);
    }
    if address.is_multicast() {
        return Some(Special::Multicast);
    }
    let [a, b, c, d, e, f, g, h] = address.segments();
    let embedded = match [a, b, c, d, e, f] {
        // NAT64, RFC 6052 and RFC 8215; the compatible addresses of RFC 4291, 2.5.5.1.
        [0x64, 0xff9b, 0, 0, 0, 0] | [0x64, 0xff9b, 1, ..] | [0, 0, 0, 0, 0, 0] => (g, h),
        // 6to4, RFC 3056.
        [0x2002, ..] => (b, c),
        // Teredo, RFC 4380: the client's address with every bit turned.
        [0x2001, 0, ..] => (!g, !h),
        _ => return None,
    };
    let ([w, x], [y, z]) = (embedded.0.to_be_bytes(), embedded.1.to_be_bytes());
    let embedded = Ipv4Addr::new(w, x, y, z);
    special(embedded.into()).map(|_| Special::Translated)
}

fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => METADATA_V4.contains(&address),
        IpAddr::V6(address) => METADATA_V6.contains(&address),
    }
}

impl Display for Special {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "which means this machine",
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud's metadata service",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "a broadcast or reserved address",
            Self::Translated => "which stands for such an IPv4 address",
        })
    }
}

const METADATA_V4: [Ipv4Addr; 5] = [
    // Amazon, Google, Microsoft, DigitalOcean, OpenStack and others.
    Ipv4Addr::new(169, 254, 169, 254),
    // Amazon's containers.
    Ipv4Addr::new(169, 254, 170, 2),
    // Alibaba.
    Ipv4Addr::new(100, 100, 100, 200),
    // Oracle.
    Ipv4Addr::new(192, 0, 0, 192),
    // Microsoft's host agent.
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    // Amazon.
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    // Google.
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_special_is_known_in_every_disguise() {
        for (address, expected) in [
            ("127.8.9.1", Some(Special::Loopback)),
            ("::ffff:127.0.0.1", Some(Special::Loopback)),
            ("::1", Some(Special::Loopback)),
            ("0.0.0.0", Some(Special::Unspecified)),
            ("::", Some(Special::Unspecified)),
            ("169.254.1.1", Some(Special::LinkLocal)),
            ("fe80::1", Some(Special::LinkLocal)),
            ("169.254.169.254", Some(Special::Metadata)),
            ("::ffff:169.254.169.254", Some(Special::Metadata)),
            ("fd00:ec2::254", Some(Special::Metadata)),
            ("100.100.100.200", Some(Special::Metadata)),
            ("239.0.0.1", Some(Special::Multicast)),
            ("ff02::1", Some(Special::Multicast)),
            ("255.255.255.255", Some(Special::Broadcast)),
            ("64:ff9b::7f00:1", Some(Special::Translated)),
            ("64:ff9b::169.254.169.254", Some(Special::Translated)),
            ("64:ff9b::8.8.8.8", None),
            ("2002:7f00:1::", Some(Special::Translated)),
            ("2002:808:808::", None),
            ("::127.0.0.1", Some(Special::Translated)),
            ("2001:0:1:2:3:4:80ff:fffe", Some(Special::Translated)),
            ("10.0.0.1", None),
            ("192.168.1.1", None),
            ("fd00::1", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(special(address.parse().unwrap()), expected, "{address}");
        }
    }
}
