//! Addresses of this machine. These addresses have no special form, but services on them may trust
//! local clients.

use nix::ifaddrs::getifaddrs;
use std::net::IpAddr;

/// Whether the kernel would deliver packets for the address locally. If the kernel does not answer,
/// every address counts as local, so that only rules that list an address cover it.
pub(super) fn is_own(address: IpAddr) -> bool {
    let error = match probe::route::is_local(address) {
        Ok(own) => return own,
        Err(error) => error,
    };
    is_of_interface(address).unwrap_or_else(|| {
        tracing::warn!(%address, %error, "cannot determine whether this is a local address");
        true
    })
}

fn is_of_interface(address: IpAddr) -> Option<bool> {
    let own = |found: nix::ifaddrs::InterfaceAddress| {
        let found = found.address?;
        let v4 = found.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
        v4.or_else(|| found.as_sockaddr_in6().map(|found| IpAddr::V6(found.ip())))
    };
    Some(getifaddrs().ok()?.filter_map(own).any(|own| own == address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_and_the_interfaces_agree_on_own_and_foreign_addresses() {
        for (address, own) in [("127.0.0.1", true), ("192.0.2.1", false), ("2001:db8::1", false)] {
            let address = address.parse().unwrap();
            assert_eq!(is_own(address), own, "{address}");
            assert_eq!(is_of_interface(address), Some(own), "{address}");
        }
        assert!(is_own([127, 9, 9, 9].into()));
    }
}
