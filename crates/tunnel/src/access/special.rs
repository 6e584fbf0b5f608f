//! Special addresses: loopback, link-local, multicast, metadata services and similar ranges.

use super::own;
use ipnet::IpNet;
use std::fmt::{Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The reason why a rule must list an address explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Special {
    /// 0.0.0.0 and `::`, which Linux treats as loopback when connecting.
    Unspecified,
    Loopback,
    LinkLocal,
    /// The addresses at which clouds provide secrets to their guests.
    Metadata,
    Multicast,
    Broadcast,
    /// An IPv6 address that a gateway would translate into a special IPv4 address.
    Translated,
    /// An address of this machine, according to the kernel at the time of the check.
    Own,
}

/// Returns the reason for which a rule must list the address. Returns `None` if a rule for a name
/// or a wide prefix may cover the address.
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

/// Checks an address that this end would dial, including this machine's own addresses. Queries the
/// kernel on each call, because a machine's addresses change.
pub(super) fn of_target(address: IpAddr) -> Option<Special> {
    let address = address.to_canonical();
    if let Some(special) = special(address) {
        return Some(special);
    }
    if own::is_own(address) {
        return Some(Special::Own);
    }
    let IpAddr::V6(address) = address else { return None };
    let inside = embedded(address).any(|inside| own::is_own(inside.into()));
    inside.then_some(Special::Translated)
}

/// Whether a rule for this prefix lists the address explicitly, because the prefix lies within the
/// special range. Rules must write metadata, translated and own addresses in full.
pub(super) fn lists(prefix: IpNet, address: IpAddr, special: Special) -> bool {
    if !prefix.contains(&address) {
        return false;
    }
    let narrow = |v4: u8, v6: u8| prefix.prefix_len() >= if address.is_ipv4() { v4 } else { v6 };
    match special {
        Special::Unspecified | Special::Loopback => narrow(8, 128),
        Special::LinkLocal => narrow(16, 10),
        Special::Multicast => narrow(4, 8),
        Special::Metadata | Special::Broadcast | Special::Translated | Special::Own => {
            narrow(32, 128)
        }
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    match address.octets() {
        // RFC 1122, 3.2.1.3: these addresses mean "this host on this network".
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
    let inside = embedded(address).any(|inside| special(inside.into()).is_some());
    inside.then_some(Special::Translated)
}

/// Returns the IPv4 addresses that a gateway, a tunnel or an old IP stack may extract from this
/// address.
fn embedded(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let octets = address.octets();
    let at = |places: [usize; 4]| Some(Ipv4Addr::from(places.map(|place| octets[place])));
    let last = at([12, 13, 14, 15]);
    // An address that is read at the wrong position usually begins with 0, but no IPv4 network
    // does.
    let likely = |places| at(places).filter(|address| address.octets()[0] != 0);
    let found = match address.segments() {
        // NAT64 with the prefix of RFC 6052; SIIT's `::ffff:0:a.b.c.d` (RFC 2765, 2.1); the
        // compatible addresses of RFC 4291, 2.5.5.1.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0, 0, 0, 0, 0, 0, ..] => {
            [last, None, None, None]
        }
        // NAT64 with prefixes of 48, 56, 64 and 96 bits inside that of RFC 8215. RFC 6052, 2.2,
        // defines the position of the address for each length, around octet 8.
        [0x64, 0xff9b, 1, ..] => {
            [likely([6, 7, 9, 10]), likely([7, 9, 10, 11]), likely([9, 10, 11, 12]), last]
        }
        // 6to4, RFC 3056.
        [0x2002, ..] => [at([2, 3, 4, 5]), None, None, None],
        // Teredo, RFC 4380, 4: the server, and the client with every bit inverted.
        [0x2001, 0, ..] => {
            [at([4, 5, 6, 7]), last.map(|client| Ipv4Addr::from(!client.to_bits())), None, None]
        }
        // ISATAP, RFC 5214, 6.1: under any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [last, None, None, None],
        _ => [None; 4],
    };
    found.into_iter().flatten()
}

fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => METADATA_V4.contains(&address),
        IpAddr::V6(address) => METADATA_V6.contains(&address) || address.segments()[..2] == AMAZONS,
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
            Self::Own => "an address of the server itself",
        })
    }
}

const METADATA_V4: [Ipv4Addr; 6] = [
    // The metadata address of Amazon, Google, Microsoft, DigitalOcean, OpenStack and other clouds.
    Ipv4Addr::new(169, 254, 169, 254),
    // The address of Amazon's container services.
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    // The metadata address of Alibaba.
    Ipv4Addr::new(100, 100, 100, 200),
    // The metadata address of Oracle.
    Ipv4Addr::new(192, 0, 0, 192),
    // The address of Microsoft's host agent.
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 4] = [
    // The metadata address of Google.
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    // The metadata address of Oracle.
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    // The metadata address of Scaleway.
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    // The metadata address of OpenStack.
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];
/// The prefix fd00:ec2::/32, with instance metadata at `::254`, container credentials at `::23`,
/// and more.
const AMAZONS: [u16; 2] = [0xfd00, 0xec2];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_recognised_in_every_encoding() {
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
            ("::ffff:0:127.0.0.1", Some(Special::Translated)),
            ("64:ff9b:1:7f00:0:100::", Some(Special::Translated)),
            ("64:ff9b:1:7f:0:1::", Some(Special::Translated)),
            ("64:ff9b:1:aa:7f:0:100::", Some(Special::Translated)),
            ("64:ff9b:1:aaaa:bb:cccc:7f00:1", Some(Special::Translated)),
            ("64:ff9b:1:808:8:800:808:808", None),
            ("64:ff9b:1::8.8.8.8", None),
            ("2001:0:7f00:1:3:4:f7f7:f7f7", Some(Special::Translated)),
            ("2001:db8::200:5efe:127.0.0.1", Some(Special::Translated)),
            ("2001:db8::5efe:8.8.8.8", None),
            ("fd00:ec2::23", Some(Special::Metadata)),
            ("fd20:ce::254", Some(Special::Metadata)),
            ("fe80::a9fe:a9fe", Some(Special::Metadata)),
            ("2001:0:808:808:3:4:80ff:fffe", Some(Special::Translated)),
            ("10.0.0.1", None),
            ("192.168.1.1", None),
            ("fd00::1", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(special(address.parse().unwrap()), expected, "{address}");
        }
    }
}
