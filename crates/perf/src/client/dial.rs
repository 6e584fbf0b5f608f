use crate::PerfError;
use crate::control::ready;
use crate::event::Stop;
use crate::options::ClientOptions;
use rustix::event::PollFlags;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Opens the control connection to the first of `addresses` that accepts it. The remaining time is
/// divided among the remaining addresses, so that a silent address does not hide a live address.
pub(crate) fn control(
    options: &ClientOptions,
    addresses: &[SocketAddr],
    deadline: Instant,
    stop: &Stop,
) -> Result<TcpStream, PerfError> {
    let mut failed = None;
    for (index, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let outcome = socket(options, *address, Type::STREAM, None)
            .and_then(|socket| connect(socket, options, *address, Instant::now() + share, stop));
        match outcome {
            Ok(socket) => return Ok(socket.into()),
            Err(error @ (PerfError::Interrupted | PerfError::System { .. })) => return Err(error),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| PerfError::NoAddress {
        host: options.host.clone(),
        family: options.family,
        reason: None,
    }))
}

pub(crate) fn socket(
    options: &ClientOptions,
    remote: SocketAddr,
    kind: Type,
    port: Option<u16>,
) -> Result<Socket, PerfError> {
    let protocol = if kind == Type::STREAM { Protocol::TCP } else { Protocol::UDP };
    let socket = Socket::new(Domain::for_address(remote), kind, Some(protocol))
        .map_err(|e| unreachable_or(e, remote, "opening a socket"))?;
    socket.set_nonblocking(true).map_err(|e| PerfError::system("opening a socket", e))?;
    if let Some(device) = &options.bind_device {
        socket.bind_device(Some(device.as_bytes())).map_err(|e| {
            let advice = match Errno::from_io_error(&e) {
                Some(Errno::NODEV) => format!("there is no interface {device}: see `ip link`"),
                _ => format!("binding to the interface {device}"),
            };
            PerfError::system(advice, e)
        })?;
    }
    if kind == Type::STREAM && options.send_timeout.is_some() {
        socket
            .set_tcp_user_timeout(options.send_timeout)
            .map_err(|e| PerfError::system("setting the time limit of --snd-timeout", e))?;
    }
    if options.bind.is_some() || port.is_some() {
        if port.is_some() {
            // The connection of a previous test may still hold the port (TIME-WAIT).
            socket
                .set_reuse_address(true)
                .map_err(|e| PerfError::system("preparing a socket", e))?;
        }
        let any = if remote.is_ipv4() {
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::from(Ipv6Addr::UNSPECIFIED)
        };
        let local = local(options.bind.unwrap_or(any), port.unwrap_or(0), remote);
        socket.bind(&local.into()).map_err(|e| unbound(e, local))?;
    }
    Ok(socket)
}

/// Returns the local address to bind. A link-local address gets the scope of the interface to the
/// server; a device that the caller names (SO_BINDTODEVICE) takes precedence in the kernel.
fn local(ip: IpAddr, port: u16, remote: SocketAddr) -> SocketAddr {
    match (ip, remote) {
        (IpAddr::V6(ip), SocketAddr::V6(remote)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, remote.scope_id()).into()
        }
        _ => SocketAddr::new(ip, port),
    }
}

pub(crate) fn connect(
    socket: Socket,
    options: &ClientOptions,
    remote: SocketAddr,
    deadline: Instant,
    stop: &Stop,
) -> Result<Socket, PerfError> {
    let begun = Instant::now();
    match socket.connect(&remote.into()) {
        Ok(()) => return Ok(socket),
        Err(e) if Errno::from_io_error(&e) == Some(Errno::INPROGRESS) => {}
        Err(e) => return Err(failure(e, remote)),
    }
    loop {
        if stop.is_called() {
            return Err(PerfError::Interrupted);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let within = rounded(begun.elapsed().min(options.connect_timeout));
            return Err(PerfError::NoAnswer { peer: remote.to_string(), within });
        }
        if ready(socket.as_fd(), PollFlags::OUT, left.min(POLL_INTERVAL))? {
            let failed = socket.take_error().map_err(|e| PerfError::system("connecting", e))?;
            return failed.map_or(Ok(socket), |e| Err(failure(e, remote)));
        }
    }
}

fn failure(error: io::Error, remote: SocketAddr) -> PerfError {
    let peer = remote.to_string();
    let reason = match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED) => return PerfError::Refused { peer },
        // The kernel gave up before the client's timeout.
        Some(Errno::TIMEDOUT) => {
            "the kernel's own attempts went unanswered: the host is down, or a firewall drops what is sent there"
        }
        Some(Errno::HOSTUNREACH) => {
            "nothing forwards to it; the host is down, or a firewall on the way rejects it"
        }
        Some(Errno::NETUNREACH) => "this machine has no route there: see `ip route get`",
        Some(Errno::ACCESS | Errno::PERM) => "a firewall rejects it, here or on the way",
        Some(Errno::ADDRNOTAVAIL) => "no local address or port is left for it",
        Some(Errno::INVAL) => "the address needs an interface, as in fe80::1%eth0",
        _ => return PerfError::Unreachable { peer, reason: error },
    };
    PerfError::Unreachable { peer, reason: io::Error::new(error.kind(), reason) }
}

fn unreachable_or(error: io::Error, remote: SocketAddr, doing: &str) -> PerfError {
    if Errno::from_io_error(&error) != Some(Errno::AFNOSUPPORT) {
        return PerfError::system(doing, error);
    }
    let family = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
    let reason = io::Error::other(format!("this kernel has no {family}"));
    PerfError::Unreachable { peer: remote.to_string(), reason }
}

fn unbound(error: io::Error, local: SocketAddr) -> PerfError {
    let (ip, port) = (local.ip(), local.port());
    let what = match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            format!("{ip} of --bind is no address of this machine: see `ip address`")
        }
        io::ErrorKind::AddrInUse => format!("port {port} of --cport is taken: choose another"),
        io::ErrorKind::PermissionDenied => {
            format!("port {port} of --cport needs root: choose one above 1023")
        }
        io::ErrorKind::InvalidInput if is_link_local(ip) => {
            format!("{ip} of --bind needs its interface, as in {ip}%eth0")
        }
        _ => format!("binding to {local}"),
    };
    PerfError::system(what, error)
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Rounds to milliseconds, which gives the value that the user asked for: 1.0003 s is one second.
fn rounded(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from((time.as_micros() + 500) / 1000).unwrap_or(u64::MAX))
}

/// Maximum delay before the thread notices a call to stop.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_uses_the_interface_to_the_server() {
        let remote: SocketAddr = "[fe80::2%7]:5201".parse().unwrap();
        let of = |ip: &str| local(ip.parse().unwrap(), 9, remote).to_string();
        assert_eq!(of("fe80::1"), "[fe80::1%7]:9");
        assert_eq!(of("fd00::1"), "[fd00::1]:9");
        let error = unbound(Errno::INVAL.into(), "[fe80::1]:0".parse().unwrap()).to_string();
        assert!(error.starts_with("fe80::1 of --bind needs its interface, as in fe80::1%eth0"));
    }
}
