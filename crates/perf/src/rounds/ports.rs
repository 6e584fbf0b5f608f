use super::Kind;
use super::timeouts::POLL_INTERVAL;
use super::wire::Order;
use rand::RngExt;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::RangeInclusive;

#[derive(Debug)]
pub(super) struct BoundPorts {
    pub(super) listener: Option<TcpListener>,
    pub(super) datagrams: Vec<UdpSocket>,
    /// The client's address: short connections from other addresses are closed.
    pub(super) peer: IpAddr,
}

impl BoundPorts {
    pub(super) fn ports(&self) -> Vec<u16> {
        let listener = self.listener.iter().map(TcpListener::local_addr);
        let datagrams = self.datagrams.iter().map(UdpSocket::local_addr);
        listener.chain(datagrams).flatten().map(|address| address.port()).collect()
    }
}

/// Opens ports within `allowed` on the address at which the client reached `control`. An error text
/// is sent to the client.
pub(super) fn bind_ports(
    control: &TcpStream,
    order: &Order,
    allowed: Option<&RangeInclusive<u16>>,
) -> Result<BoundPorts, String> {
    let ends = control.local_addr().and_then(|local| Ok((local, control.peer_addr()?)));
    let (local, peer) = ends.map_err(|error| error.to_string())?;
    let mut bound =
        BoundPorts { listener: None, datagrams: Vec::new(), peer: peer.ip().to_canonical() };
    match order.kind {
        Kind::Rr | Kind::TcpStream => {}
        Kind::Crr => {
            let candidates = candidates(order.port, 0, allowed)?;
            bound.listener = Some(first_free(local, candidates, listen)?);
        }
        Kind::UdpRr | Kind::UdpStream => {
            for index in 0..order.connections {
                let candidates = candidates(order.port, index, allowed)?;
                bound.datagrams.push(first_free(local, candidates, datagrams)?);
            }
        }
    }
    Ok(bound)
}

/// Returns the ports to try for the socket at `index`. `wished`: the port that the client requests
/// for the first socket. Port 0 lets the kernel choose.
fn candidates(
    wished: Option<u16>,
    index: u32,
    allowed: Option<&RangeInclusive<u16>>,
) -> Result<Vec<u16>, String> {
    let Some(first) = wished else {
        let Some(allowed) = allowed else { return Ok(vec![0]) };
        // Start at a random port, so that sessions use different parts of the range.
        let mut ports: Vec<u16> = allowed.clone().collect();
        let start = rand::rng().random_range(0..ports.len().max(1));
        ports.rotate_left(start);
        return Ok(ports);
    };
    let (least, most) =
        allowed.map_or((LEAST_PORT, u16::MAX), |ports| (*ports.start(), *ports.end()));
    let port = u32::from(first) + index;
    match u16::try_from(port) {
        Ok(port) if (least..=most).contains(&port) => Ok(vec![port]),
        _ => Err(format!("port {port}: {least} to {most} are allowed")),
    }
}

fn first_free<T>(
    mut address: SocketAddr,
    ports: Vec<u16>,
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, String> {
    let mut refused = "no port may be opened".to_owned();
    for port in ports {
        address.set_port(port);
        match open(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => {
                refused = format!("opening {address}: {error}");
                if error.kind() != io::ErrorKind::AddrInUse {
                    break;
                }
            }
        }
    }
    Err(refused)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Accepted connections inherit these options (net/core/sock.c, sk_clone_lock).
    socket.set_tcp_nodelay(true)?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    socket.set_write_timeout(Some(POLL_INTERVAL))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    SockRef::from(&socket).set_read_timeout(Some(POLL_INTERVAL))?;
    Ok(socket)
}

const LEAST_PORT: u16 = 1024;
const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_ports_stay_within_the_allowed_range() {
        let range = 20_000..=20_009;
        let refused = |wished, index| candidates(Some(wished), index, Some(&range)).unwrap_err();
        assert_eq!(candidates(Some(20_000), 9, Some(&range)), Ok(vec![20_009]));
        assert_eq!(refused(20_000, 10), "port 20010: 20000 to 20009 are allowed");
        assert!(refused(19_999, 0).contains("port 19999"));
        let mut all = candidates(None, 3, Some(&range)).unwrap();
        all.sort_unstable();
        assert_eq!(all, range.collect::<Vec<_>>());
        assert_eq!(candidates(None, 3, None), Ok(vec![0]));
        assert_eq!(candidates(Some(1024), 0, None), Ok(vec![1024]));
        assert!(candidates(Some(1023), 0, None).is_err());
        assert!(candidates(Some(65_535), 1, None).is_err());
    }

    #[test]
    fn a_port_in_use_is_skipped() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let refused = first_free(address, vec![address.port()], listen).unwrap_err();
        assert!(refused.contains("in use"), "{refused}");
        assert!(first_free(address, vec![address.port(), 0], listen).is_ok());
    }
}
