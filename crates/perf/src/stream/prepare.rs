//! Sets the options of data sockets before their use.

use super::option;
use crate::options::{Protocol, TestOptions};
use probe::tcp;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::SockRef;
use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use units::{Bytes, Rate};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    #[error(
        "the kernel gives a {which} buffer of {actual} where --window asks for {wanted}: raise net.core.{limit}_max or ask for less"
    )]
    Window { which: &'static str, limit: &'static str, wanted: Bytes, actual: Bytes },
    #[error("{0}")]
    Congestion(#[from] tcp::Refused),
    #[error("a flow label needs IPv6: add -6")]
    FlowLabel,
    #[error("could not set {what} on a data socket: {source}")]
    Refused { what: &'static str, source: io::Error },
}

impl From<SocketError> for crate::PerfError {
    fn from(error: SocketError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Sets all options on a socket that is neither connected nor listening: the handshake agrees on
/// the window and the segment size. Connections inherit the options of their listener.
pub fn on_unconnected(
    socket: impl AsFd,
    options: &TestOptions,
    v6: bool,
) -> Result<(), SocketError> {
    let socket = socket.as_fd();
    buffers(&socket, options)?;
    if options.flow_label.is_some() {
        if !v6 {
            return Err(SocketError::FlowLabel);
        }
        option::set_flow_info_send(socket).map_err(refused("the flow label"))?;
    }
    if options.protocol == Protocol::Tcp {
        if let Some(mss) = options.mss {
            SockRef::from(&socket).set_tcp_mss(mss).map_err(refused("the segment size"))?;
        }
        if let Some(name) = &options.congestion {
            tcp::set_congestion_control(socket, name)?;
        }
    }
    on_connected(socket, options, v6)
}

/// Sets the options that can be set on an open connection. The function is for sockets accepted
/// from a listener that many tests share.
pub fn on_connected(socket: impl AsFd, options: &TestOptions, v6: bool) -> Result<(), SocketError> {
    let socket = socket.as_fd();
    if options.protocol == Protocol::Tcp && options.no_delay {
        let socket = SockRef::from(&socket);
        socket.set_tcp_nodelay(true).map_err(refused("--no-delay"))?;
    }
    if options.type_of_service != 0 {
        let service = options.type_of_service;
        let set = if v6 {
            // If the peer has a mapped IPv4 address, the kernel uses the IPv4 option.
            let _ = sockopt::set_ip_tos(socket, service);
            sockopt::set_ipv6_tclass(socket, service.into())
        } else {
            sockopt::set_ip_tos(socket, service)
        };
        set.map_err(refused("the type of service"))?;
    }
    if options.dont_fragment {
        let set = if v6 {
            let _ = sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO);
            sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)
        } else {
            sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)
        };
        set.map_err(refused("--dont-fragment"))?;
    }
    if let Some(rate) = options.kernel_rate.filter(|rate| *rate != Rate::default()) {
        let bytes = rate.bits_per_second() / 8;
        option::set_max_pacing_rate(socket, bytes).map_err(refused("the kernel's pacing rate"))?;
    }
    Ok(())
}

/// Returns the address with the flow label in it, as `connect` expects it.
pub fn flow_labelled(address: SocketAddr, options: &TestOptions) -> SocketAddr {
    match (address, options.flow_label) {
        (SocketAddr::V6(address), Some(label)) => SocketAddr::V6(SocketAddrV6::new(
            *address.ip(),
            address.port(),
            // The standard library passes the label on unchanged, and the kernel reads it in
            // network byte order (sin6_flowinfo, ipv6(7)).
            (label & 0xf_ffff).to_be(),
            address.scope_id(),
        )),
        (address, _) => address,
    }
}

fn buffers(socket: &impl AsFd, options: &TestOptions) -> Result<(), SocketError> {
    let socket = SockRef::from(socket);
    let Some(wanted) = options.window else {
        if options.protocol == Protocol::Udp {
            // Use large buffers, because loss in a local queue must not count as loss on the path.
            // The kernel caps the size at its limit.
            let _ = socket.set_recv_buffer_size(UDP_ROOM);
            let _ = socket.set_send_buffer_size(UDP_ROOM);
        }
        return Ok(());
    };
    let count = usize::try_from(wanted.count()).unwrap_or(usize::MAX);
    socket.set_send_buffer_size(count).map_err(refused("the send buffer"))?;
    socket.set_recv_buffer_size(count).map_err(refused("the receive buffer"))?;
    // The kernel doubles the requested size for its own bookkeeping (socket(7)), and silently caps
    // it at its limit. Like iperf3, accept any size not below the request.
    let enough = |which, limit, actual: io::Result<usize>| {
        let actual = Bytes::new(actual.map_err(refused("a buffer"))? as u64);
        if actual < wanted {
            return Err(SocketError::Window { which, limit, wanted, actual });
        }
        Ok(())
    };
    enough("send", "wmem", socket.send_buffer_size())?;
    enough("receive", "rmem", socket.recv_buffer_size())
}

fn refused<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> SocketError {
    move |error| SocketError::Refused { what, source: error.into() }
}

const UDP_ROOM: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::net::Ipv6Addr;

    fn prepared(domain: Domain, options: &TestOptions) -> Result<Socket, SocketError> {
        let kind = match options.protocol {
            Protocol::Tcp => Type::STREAM,
            Protocol::Udp => Type::DGRAM,
        };
        let socket = Socket::new(domain, kind, None).unwrap();
        on_unconnected(&socket, options, domain == Domain::IPV6).map(|()| socket)
    }

    #[test]
    fn a_socket_has_the_requested_options() {
        let options = TestOptions {
            window: Some(Bytes::kib(64)),
            mss: Some(1200),
            no_delay: true,
            congestion: Some("reno".to_owned()),
            type_of_service: 0x20,
            dont_fragment: true,
            kernel_rate: Some(Rate::from_mbit(100_000)),
            ..TestOptions::default()
        };
        let socket = prepared(Domain::IPV4, &options).unwrap();
        assert!(socket.send_buffer_size().unwrap() >= 64 << 10);
        assert!(socket.recv_buffer_size().unwrap() >= 64 << 10);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(tcp::congestion_control_of(&socket).unwrap(), "reno");
        assert_eq!(socket.tos_v4().unwrap(), 0x20);
        assert_eq!(sockopt::ip_mtu_discover(&socket).unwrap(), Ipv4PathMtuDiscovery::DO);
        let pacing = tcp::of_socket(&socket).unwrap().max_pacing_rate;
        assert_eq!(pacing, Some(Rate::from_mbit(100_000)));
    }

    #[test]
    fn an_ipv6_socket_has_the_requested_traffic_class_and_flow_label() {
        let options = TestOptions {
            type_of_service: 0x40,
            flow_label: Some(0x12345),
            dont_fragment: true,
            ..TestOptions::default()
        };
        let Ok(socket) = Socket::new(Domain::IPV6, Type::STREAM, None) else {
            testing::skip(testing::Need::Ipv6);
            return;
        };
        on_unconnected(&socket, &options, true).unwrap();
        assert_eq!(sockopt::ipv6_tclass(&socket).unwrap(), 0x40);
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, 5201));
        let SocketAddr::V6(labelled) = flow_labelled(address, &options) else { unreachable!() };
        assert_eq!(labelled.flowinfo().to_ne_bytes(), [0, 1, 0x23, 0x45]);
    }

    #[test]
    fn impossible_options_are_refused_with_a_remedy() {
        let refused = |options| prepared(Domain::IPV4, &options).map(drop).unwrap_err().to_string();
        let window = Some(Bytes::new(1 << 30));
        let text = refused(TestOptions { window, ..TestOptions::default() });
        assert!(text.contains("raise net.core.wmem_max"), "{text}");
        let text = refused(TestOptions { flow_label: Some(1), ..TestOptions::default() });
        assert!(text.contains("-6"), "{text}");
        let congestion = Some("no-such-thing".to_owned());
        let text = refused(TestOptions { congestion, ..TestOptions::default() });
        assert!(text.contains("no-such-thing"), "{text}");
    }
}
