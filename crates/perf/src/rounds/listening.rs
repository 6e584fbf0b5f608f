use super::Kind;
use super::patience::TURN;
use super::wire::Order;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

/// The ports a server opens for one measurement.
#[derive(Debug)]
pub(super) struct Doors {
    pub(super) listener: Option<TcpListener>,
    pub(super) datagrams: Vec<UdpSocket>,
    /// Whose short connections are let in.
    pub(super) peer: IpAddr,
}

impl Doors {
    pub(super) fn ports(&self) -> Vec<u16> {
        let listener = self.listener.iter().map(TcpListener::local_addr);
        let datagrams = self.datagrams.iter().map(UdpSocket::local_addr);
        listener.chain(datagrams).flatten().map(|address| address.port()).collect()
    }
}

/// On the address at which the client reached `control`. An error is told to the client.
pub(super) fn open_doors(control: &TcpStream, order: &Order) -> Result<Doors, String> {
    let ends = control.local_addr().and_then(|local| Ok((local, control.peer_addr()?)));
    let (local, peer) = ends.map_err(|error| error.to_string())?;
    let mut doors = Doors { listener: None, datagrams: Vec::new(), peer: peer.ip().to_canonical() };
    let count = if order.kind.is_udp() { order.connections } else { 1 };
    let address = |index: u32| {
        let port = match order.port {
            None => 0,
            Some(first) if first < LEAST_PORT => {
                return Err(format!("port {first}: from {LEAST_PORT} on can be asked for"));
            }
            Some(first) => u16::try_from(u32::from(first) + index)
                .map_err(|_| format!("{count} ports from {first} on: there are not so many"))?,
        };
        let mut address = local;
        address.set_port(port);
        Ok(address)
    };
    let failed = |address: SocketAddr, error: io::Error| format!("opening {address}: {error}");
    match order.kind {
        Kind::Rr | Kind::TcpStream => {}
        Kind::Crr => {
            let address = address(0)?;
            doors.listener = Some(listen(address).map_err(|e| failed(address, e))?);
        }
        Kind::UdpRr | Kind::UdpStream => {
            for index in 0..count {
                let address = address(index)?;
                doors.datagrams.push(datagrams(address).map_err(|e| failed(address, e))?);
            }
        }
    }
    Ok(doors)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // What it accepts inherits these (net/core/sock.c, sk_clone_lock).
    socket.set_tcp_nodelay(true)?;
    socket.set_read_timeout(Some(TURN))?;
    socket.set_write_timeout(Some(TURN))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    SockRef::from(&socket).set_read_timeout(Some(TURN))?;
    Ok(socket)
}

const LEAST_PORT: u16 = 1024;
const BACKLOG: i32 = 1024;
