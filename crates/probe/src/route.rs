//! The kernel's routing decision for an address, by rtnetlink.

use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::{ProbeError, netlink};

/// Whether this machine itself receives packets sent to the address: an interface's own address, a
/// broadcast or anycast address of a connected network, or an address with a `local` route.
pub fn is_local(address: IpAddr) -> Result<bool, ProbeError> {
    match ask(address) {
        Ok(Some(RouteNetlinkMessage::NewRoute(route))) => Ok(is_taken_here(&route.header)),
        Ok(_) => Err(ProbeError::NotSupported {
            feature: "routes to one address (RTM_GETROUTE)",
            hint: "Linux itself does; a sandbox between may not",
        }),
        Err(ProbeError::Kernel { source, .. })
            if matches!(source.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Asks the kernel for the route to an address.
pub(crate) fn ask(address: IpAddr) -> Result<Option<RouteNetlinkMessage>, ProbeError> {
    let address = address.to_canonical();
    let mut request = RouteMessage::default();
    (request.header.address_family, request.header.destination_prefix_length) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    request.attributes.push(RouteAttribute::Destination(RouteAddress::from(address)));
    let request = RouteNetlinkMessage::GetRoute(request);
    netlink::ask(NETLINK_ROUTE, "a route (RTM_GETROUTE)", request)
}

fn is_taken_here(header: &RouteHeader) -> bool {
    matches!(header.kind, RouteType::Local | RouteType::Broadcast | RouteType::Anycast)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local_and_a_documentation_address_is_not() {
        for (address, local) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
        ] {
            assert_eq!(is_local(address.parse().unwrap()).unwrap(), local, "{address}");
        }
    }
}
