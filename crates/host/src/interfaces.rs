//! The interfaces of a namespace, and the kernel's own settings for them.

use crate::wiring::{index_of, netlink};
use crate::{HostError, Namespace, Sysctl, read_sysctl, write_sysctl};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use std::net::IpAddr;

/// Creates a namespace for the inner ends of links, which only carry packets of other hosts. In
/// this namespace the kernel sends no packets of its own, such as IPv6 solicitations.
pub fn silent_namespace(name: &str) -> Result<Namespace, HostError> {
    let namespace = Namespace::create(name)?;
    namespace.run(|| match read_sysctl(IPV6_SWITCH) {
        None => Ok(()),
        Some(_) => write_sysctl(&Sysctl { name: IPV6_SWITCH.to_owned(), value: "1".to_owned() }),
    })?;
    Ok(namespace)
}

pub fn has_interface(namespace: &Namespace, interface: &str) -> Result<bool, HostError> {
    namespace.run(|| Ok(if_nametoindex(interface).is_ok()))
}

/// Returns the interface's addresses, without the link-local addresses of IPv6, which every
/// interface has.
pub fn addresses(namespace: &Namespace, interface: &str) -> Result<Vec<IpAddr>, HostError> {
    namespace.run(|| {
        let all = getifaddrs()
            .map_err(|e| HostError::io(format!("asking for the addresses of {interface}"), e))?;
        Ok(all
            .filter(|entry| entry.interface_name == interface)
            .filter_map(|entry| entry.address)
            .filter_map(|address| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
                (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
                _ => None,
            })
            .filter(|ip| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()))
            .collect())
    })
}

/// Returns the hardware address, if the interface has one.
pub fn hardware_address(
    namespace: &Namespace,
    interface: &str,
) -> Result<Option<[u8; 6]>, HostError> {
    namespace.run(|| {
        let all = getifaddrs().map_err(|e| {
            HostError::io(format!("asking for the hardware address of {interface}"), e)
        })?;
        Ok(all
            .filter(|entry| entry.interface_name == interface)
            .find_map(|entry| entry.address?.as_link_addr()?.addr()))
    })
}

/// Removes an interface; removing an end of a veth pair also removes the other end.
pub fn remove_interface(namespace: &Namespace, interface: &str) -> Result<(), HostError> {
    namespace.run(|| {
        let index = index_of(interface, namespace.name())?;
        netlink(format!("removing {interface}"), |handle| async move {
            handle.link().del(index).execute().await
        })
    })
}

const IPV6_SWITCH: &str = "net.ipv6.conf.default.disable_ipv6";
