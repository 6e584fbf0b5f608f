//! The path to an address: the route with its metrics, and neighbours that do not answer.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType,
};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::{ProbeError, netlink, route};

/// The kernel's route for packets to one address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// The interface's index.
    pub interface: Option<u32>,
    pub gateway: Option<IpAddr>,
    /// Whether the address is this machine's own.
    pub local: bool,
    pub blocked: bool,
    pub mtu: Option<u32>,
    /// Maximum receive window that this machine offers to the address, in bytes.
    pub window: Option<u32>,
    /// Maximum congestion window, in segments. The kernel ignores a limit that is not locked
    /// (ip-route(8)).
    pub congestion_window: Option<u32>,
    /// The initial congestion window of a new connection, in segments.
    pub initial_window: Option<u32>,
}

/// A next hop that does not answer ARP or neighbour discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentNeighbour {
    pub address: IpAddr,
    pub interface: u32,
    /// Whether the kernel has given up. If not, the kernel still sends requests.
    pub failed: bool,
}

pub fn to(address: IpAddr) -> Result<Option<Route>, ProbeError> {
    match route::ask(address) {
        Ok(Some(RouteNetlinkMessage::NewRoute(message))) => Ok(Some(Route::of(message))),
        Ok(_) => Ok(None),
        Err(ProbeError::Kernel { source, .. })
            if matches!(source.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) =>
        {
            Ok(None)
        }
        // The kernel reports a route of the type blackhole or prohibit by an error of this list
        // (fib_semantics.c).
        Err(ProbeError::Kernel { source, .. })
            if matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) =>
        {
            Ok(Some(Route { blocked: true, ..Route::default() }))
        }
        Err(error) => Err(error),
    }
}

/// Returns all neighbours in the states INCOMPLETE and FAILED.
pub fn silent_neighbours() -> Result<Vec<SilentNeighbour>, ProbeError> {
    let mut found = Vec::new();
    let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    netlink::dump(NETLINK_ROUTE, "neighbours (RTM_GETNEIGH)", request, |answer| {
        if let RouteNetlinkMessage::NewNeighbour(message) = answer {
            found.extend(SilentNeighbour::of(message));
        }
    })?;
    Ok(found)
}

impl Route {
    fn of(message: RouteMessage) -> Self {
        let kind = message.header.kind;
        let mut route = Self {
            local: matches!(kind, RouteType::Local),
            blocked: matches!(
                kind,
                RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit
            ),
            ..Self::default()
        };
        for attribute in message.attributes {
            match attribute {
                RouteAttribute::Oif(interface) => route.interface = Some(interface),
                RouteAttribute::Gateway(RouteAddress::Inet(ip)) => route.gateway = Some(ip.into()),
                RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => {
                    route.gateway = Some(ip.into());
                }
                RouteAttribute::Metrics(metrics) => route.add(&metrics),
                _ => {}
            }
        }
        route
    }

    fn add(&mut self, metrics: &[RouteMetric]) {
        let is_locked = metrics
            .iter()
            .any(|metric| matches!(metric, RouteMetric::Lock(bits) if bits & LOCK_OF_CWND != 0));
        for metric in metrics {
            match metric {
                RouteMetric::Mtu(mtu) => self.mtu = Some(*mtu),
                RouteMetric::InitCwnd(window) => self.initial_window = Some(*window),
                RouteMetric::Window(window) => self.window = Some(*window),
                RouteMetric::Cwnd(window) if is_locked => self.congestion_window = Some(*window),
                _ => {}
            }
        }
    }
}

impl SilentNeighbour {
    fn of(message: NeighbourMessage) -> Option<Self> {
        let failed = match message.header.state {
            NeighbourState::Failed => true,
            NeighbourState::Incomplete => false,
            _ => return None,
        };
        let address = message.attributes.into_iter().find_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(IpAddr::V4(ip)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(IpAddr::V6(ip)),
            _ => None,
        })?;
        Some(Self { address, interface: message.header.ifindex, failed })
    }
}

/// The bit of RTAX_CWND in RTAX_LOCK (include/uapi/linux/rtnetlink.h).
const LOCK_OF_CWND: u32 = 1 << 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_window_counts_only_if_it_is_locked() {
        let with = |metrics: &[RouteMetric]| {
            let mut route = Route::default();
            route.add(metrics);
            route.congestion_window
        };
        assert_eq!(with(&[RouteMetric::Cwnd(4)]), None);
        assert_eq!(with(&[RouteMetric::Lock(LOCK_OF_CWND), RouteMetric::Cwnd(4)]), Some(4));
    }

    #[test]
    fn the_route_to_a_loopback_address_is_local() {
        let route = to("127.0.0.1".parse().unwrap()).unwrap().unwrap();
        assert!(route.local && !route.blocked && route.gateway.is_none());
    }

    #[test]
    fn silent_neighbours_are_listed() {
        assert!(silent_neighbours().is_ok());
    }
}
