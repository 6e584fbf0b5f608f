use crate::PerfError;
use crate::event::StreamFacts;
use crate::stream::{DataSocket, Opened};
use probe::tcp;
use socket2::SockRef;
use std::net::TcpStream;
use units::Bytes;

/// Reads the kernel's facts about a stream before the stream is used.
pub(super) fn of(opened: &Opened) -> Result<StreamFacts, PerfError> {
    let gone = |e| PerfError::system(format!("inspecting stream {}", opened.id), e);
    let (local, remote, socket) = match &opened.socket {
        DataSocket::Tcp(socket) => (socket.local_addr(), socket.peer_addr(), SockRef::from(socket)),
        DataSocket::Udp(socket) => (socket.local_addr(), socket.peer_addr(), SockRef::from(socket)),
    };
    let buffer = |size: std::io::Result<usize>| Bytes::new(size.unwrap_or_default() as u64);
    Ok(StreamFacts {
        id: opened.id,
        sends: opened.sends,
        local: plain(local.map_err(gone)?),
        remote: plain(remote.map_err(gone)?),
        congestion: connection(&opened.socket).and_then(|s| tcp::congestion_control_of(s).ok()),
        send_buffer: buffer(socket.send_buffer_size()),
        receive_buffer: buffer(socket.recv_buffer_size()),
    })
}

pub(super) fn connection(socket: &DataSocket) -> Option<&TcpStream> {
    match socket {
        DataSocket::Tcp(socket) => Some(socket),
        DataSocket::Udp(_) => None,
    }
}

/// Shows a mapped IPv4 address of a dual-stack socket as plain IPv4.
pub(crate) fn plain(mut address: std::net::SocketAddr) -> std::net::SocketAddr {
    address.set_ip(address.ip().to_canonical());
    address
}
