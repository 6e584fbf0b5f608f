use crate::PerfError;
use crate::options::{Family, ServerOptions};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) listener: TcpListener,
    pub(super) datagrams: UdpSocket,
    pub(super) address: SocketAddr,
}

impl Sockets {
    pub(super) fn open(options: &ServerOptions) -> Result<Self, PerfError> {
        let mut refused = None;
        for address in addresses(options)? {
            match Self::open_at(address, options) {
                // On a kernel without IPv6, try the IPv4 address next.
                Err((error, _))
                    if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) =>
                {
                    refused = Some((error, address));
                }
                opened => return opened.map_err(|(error, at)| advice(error, at, options)),
            }
        }
        let (error, address) = refused.unwrap_or_else(|| {
            (Errno::AFNOSUPPORT.into(), SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), options.port))
        });
        Err(advice(error, address, options))
    }

    fn open_at(
        address: SocketAddr,
        options: &ServerOptions,
    ) -> Result<Self, (io::Error, SocketAddr)> {
        let mut tries = 0;
        loop {
            let listener = listen(address, options).map_err(|e| (e, address))?;
            let bound = listener.local_addr().map_err(|e| (e, address))?;
            match datagram_socket(bound, options) {
                // The kernel chose a port that is free for TCP but taken for UDP.
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && address.port() == 0
                        && tries < TRIES =>
                {
                    tries += 1;
                }
                Err(error) => return Err((error, bound)),
                Ok(datagrams) => return Ok(Self { listener, datagrams, address: bound }),
            }
        }
    }
}

/// Opens a UDP socket that shares its address with other sockets: a socket receives the hellos of
/// new clients, and each stream has a socket of its own.
pub(super) fn datagram_socket(
    address: SocketAddr,
    options: &ServerOptions,
) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    prepare(&socket, address, options)?;
    // A client sends its hello once, so other traffic must not fill the buffer and drop the hello.
    // The kernel caps the size at its limit.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn listen(address: SocketAddr, options: &ServerOptions) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    prepare(&socket, address, options)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn prepare(socket: &Socket, address: SocketAddr, options: &ServerOptions) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(options.family == Some(Family::V6))?;
    }
    if let Some(device) = &options.bind_device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    Ok(())
}

/// Returns the addresses to bind, in the order to try. Without a chosen family, the IPv6 wildcard
/// serves both families; a host without IPv6 uses the IPv4 wildcard.
fn addresses(options: &ServerOptions) -> Result<Vec<SocketAddr>, PerfError> {
    let at = |ip: IpAddr| SocketAddr::new(ip, options.port);
    let (v4, v6) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
    match (options.bind, options.family) {
        (Some(ip), None) => Ok(vec![at(ip)]),
        (Some(ip), Some(Family::V4)) if ip.is_ipv4() => Ok(vec![at(ip)]),
        (Some(ip), Some(Family::V6)) if ip.is_ipv6() => Ok(vec![at(ip)]),
        (Some(ip), Some(family)) => {
            let asked = if family == Family::V4 { "-4 asks for IPv4" } else { "-6 asks for IPv6" };
            Err(PerfError::Usage(format!("{asked}, and {ip} belongs to the other address family")))
        }
        (None, Some(Family::V4)) => Ok(vec![at(v4)]),
        (None, Some(Family::V6)) => Ok(vec![at(v6)]),
        (None, None) => Ok(vec![at(v6), at(v4)]),
    }
}

fn advice(error: io::Error, address: SocketAddr, options: &ServerOptions) -> PerfError {
    let (ip, port) = (address.ip(), address.port());
    let what = match (error.kind(), error.raw_os_error().map(Errno::from_raw_os_error)) {
        (io::ErrorKind::AddrInUse, _) => {
            format!(
                "port {port} is taken: stop the server that listens there, or choose another with --port"
            )
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            format!("{ip} is no address of this machine: see `ip address`, or leave --bind out")
        }
        (io::ErrorKind::PermissionDenied, _) => {
            format!("port {port} needs root: choose a port above 1023 with --port")
        }
        (io::ErrorKind::InvalidInput, _) if is_link_local(ip) => {
            format!("{ip} needs its interface: write --bind {ip}%eth0")
        }
        (_, Some(Errno::NODEV)) => match &options.bind_device {
            Some(device) => format!("there is no interface {device}: see `ip link`"),
            None => format!("listening at {address}"),
        },
        _ => format!("listening at {address}"),
    };
    PerfError::system(what, error)
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Maximum number of connections that the kernel queues until the server accepts them. somaxconn
/// may lower this number.
const BACKLOG: i32 = 1024;
const TRIES: u32 = 16;
const RECEIVE_BUFFER: usize = 1 << 20;
