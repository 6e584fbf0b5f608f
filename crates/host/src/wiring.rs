//! Creates veth pairs, addresses and routes by netlink.

use crate::{HostError, Namespace};
use futures_util::stream::StreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMetric, RouteScope};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::future::Future;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// An address of an interface, with its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    pub prefix: u8,
}

/// A route to a network through `gateway`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub to: Address,
    pub gateway: IpAddr,
}

/// Creates a veth pair with one end in each namespace, both up, with the kernel's usual offloads.
pub fn connect(a: (&Namespace, &str), b: (&Namespace, &str), mtu: u32) -> Result<(), HostError> {
    let far = LinkMessageBuilder::<LinkUnspec>::new()
        .name(b.1)
        .mtu(mtu)
        .setns_by_fd(b.0.as_fd().as_raw_fd())
        .build();
    let pair =
        LinkVeth::new(a.1, b.1).set_info_data(InfoData::Veth(InfoVeth::Peer(far))).mtu(mtu).build();
    a.0.run(|| {
        netlink(
            format!("connecting {}:{} to {}:{}", a.0.name(), a.1, b.0.name(), b.1),
            |h| async move { h.link().add(pair).execute().await },
        )
    })?;
    bring_up(a.0, a.1)?;
    bring_up(b.0, b.1)
}

pub fn bring_up(namespace: &Namespace, interface: &str) -> Result<(), HostError> {
    namespace.run(|| bring_up_here(interface))
}

/// Adds an address without duplicate address detection, so that it is usable at once: no other host
/// is in the network.
pub fn add_address(
    namespace: &Namespace,
    interface: &str,
    address: Address,
) -> Result<(), HostError> {
    namespace.run(|| {
        let index = index_of(interface, namespace.name())?;
        netlink(format!("adding {} to {interface}", address.ip), |handle| async move {
            let mut request = handle.address().add(index, address.ip, address.prefix);
            let message = request.message_mut();
            message.header.flags |= AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            request.execute().await
        })
        .map_err(|error| match error {
            HostError::NotSupported { doing, .. } if address.ip.is_ipv6() => {
                let advice = "boot a kernel with IPv6, or use IPv4 addresses";
                HostError::NotSupported { feature: "IPv6", doing, advice }
            }
            // If IPv6 is disabled, the kernel returns the error for missing privileges
            // (addrconf_add_dev() of net/ipv6/addrconf.c).
            HostError::NotPermitted { doing } if address.ip.is_ipv6() && is_off(interface) => {
                let advice =
                    "set net.ipv6.conf.all.disable_ipv6=0 by sysctl, or use IPv4 addresses";
                HostError::NotSupported { feature: "IPv6 at this interface", doing, advice }
            }
            error => error,
        })
    })
}

/// Whether IPv6 is disabled at the interface, in the calling thread's namespace.
fn is_off(interface: &str) -> bool {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    std::fs::read_to_string(path).is_ok_and(|off| off.trim() == "1")
}

pub fn add_route(namespace: &Namespace, route: Route) -> Result<(), HostError> {
    namespace.run(|| {
        let doing = format!("adding a route to {}/{}", route.to.ip, route.to.prefix);
        let (ip, prefix) = (route.to.ip, route.to.prefix);
        let invalid = |e| {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("{e}"));
            HostError::io(doing.clone(), source)
        };
        let message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(ip, prefix)
            .map_err(invalid)?
            .gateway(route.gateway)
            .map_err(invalid)?
            .build();
        netlink(doing, |handle| async move { handle.route().add(message).execute().await })
    })
}

/// Adds a route to a neighbour. `segments`: the initial congestion window of connections over the
/// route (`initcwnd` of ip-route).
pub fn add_first_window(
    namespace: &Namespace,
    interface: &str,
    neighbour: IpAddr,
    segments: u32,
) -> Result<(), HostError> {
    namespace.run(|| {
        let index = index_of(interface, namespace.name())?;
        let doing = format!("setting the first window to {neighbour}");
        let whole = if neighbour.is_ipv4() { 32 } else { 128 };
        let invalid = |e| {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("{e}"));
            HostError::io(doing.clone(), source)
        };
        let mut message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(neighbour, whole)
            .map_err(invalid)?
            .output_interface(index)
            .scope(RouteScope::Link)
            .build();
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::InitCwnd(segments)]));
        netlink(doing, |handle| async move { handle.route().add(message).execute().await })
    })
}

/// Adds the hardware address of a neighbour to `namespace`, so that the host need not send an ARP
/// or neighbour discovery request, whose loss would cost a second.
pub fn add_neighbour(
    namespace: &Namespace,
    interface: &str,
    neighbour: IpAddr,
    hardware: [u8; 6],
) -> Result<(), HostError> {
    namespace.run(|| {
        let index = index_of(interface, namespace.name())?;
        netlink(format!("adding {neighbour} as a neighbour"), |handle| async move {
            let request = handle.neighbours().add(index, neighbour);
            request.link_layer_address(&hardware).execute().await
        })
    })
}

pub(crate) fn bring_up_here(interface: &str) -> Result<(), HostError> {
    let message = LinkMessageBuilder::<LinkUnspec>::new().name(interface).up().build();
    netlink(format!("bringing {interface} up"), |handle| async move {
        handle.link().set(message).execute().await
    })
}

pub(crate) fn index_of(interface: &str, namespace: &str) -> Result<u32, HostError> {
    nix::net::if_::if_nametoindex(interface).map_err(|_| HostError::NoSuchInterface {
        name: interface.to_owned(),
        namespace: namespace.to_owned(),
    })
}

/// Calls `talk` with a netlink socket in the calling thread's namespace.
pub(crate) fn netlink<F>(doing: String, talk: impl FnOnce(Handle) -> F) -> Result<(), HostError>
where
    F: Future<Output = Result<(), rtnetlink::Error>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|e| HostError::io(doing.clone(), e))?;
    runtime.block_on(async {
        let (connection, handle, unsolicited) =
            rtnetlink::new_connection().map_err(|e| HostError::io(doing.clone(), e))?;
        let connection = tokio::spawn(connection);
        let drain = tokio::spawn(unsolicited.for_each(|_| async {}));
        let outcome = talk(handle).await;
        connection.abort();
        drain.abort();
        outcome.map_err(|e| explain(doing, e))
    })
}

fn explain(doing: String, error: rtnetlink::Error) -> HostError {
    match error {
        rtnetlink::Error::NetlinkError(message) => match -message.raw_code() {
            libc::EOPNOTSUPP => {
                let advice = "load its module, for example by `modprobe veth`";
                HostError::NotSupported { feature: "interface of this type", doing, advice }
            }
            _ => HostError::io(doing, message.to_io()),
        },
        other => HostError::Io { doing, source: std::io::Error::other(other.to_string()) },
    }
}
