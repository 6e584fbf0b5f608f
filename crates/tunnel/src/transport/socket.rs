use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use units::Bytes;

/// Binds a UDP socket with large buffers. `shared` lets other sockets bind the same port.
pub(super) fn bind(address: SocketAddr, shared: bool, buffer: Bytes) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // Ignore an error: if IPv4 is disabled, no IPv4 packet can arrive.
        let _ = socket.set_only_v6(false);
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    enlarge(&socket, buffer);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Sets the size of a socket's receive buffer. Exceeds `net.core.rmem_max` if the process has the
/// right (`SO_RCVBUFFORCE`, socket(7)); otherwise this maximum limits the buffer.
pub(crate) fn set_receive_buffer(socket: &impl AsFd, bytes: usize) {
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        let _ = SockRef::from(socket).set_recv_buffer_size(bytes);
    }
}

/// Enlarges the buffers of a socket of the tunnel.
fn enlarge(socket: &Socket, buffer: Bytes) {
    let bytes = usize::try_from(buffer.count()).unwrap_or(usize::MAX).min(1 << 30);
    set_receive_buffer(socket, bytes);
    let _ = socket.set_send_buffer_size(bytes);
    // The kernel reports twice the requested size, to include its own overhead (socket(7),
    // SO_RCVBUF).
    let is = socket.recv_buffer_size().unwrap_or(0) / 2;
    if is < bytes {
        tracing::warn!(
            asked = %buffer, is = %Bytes::new(is as u64),
            "the kernel allows the tunnel a smaller socket buffer: raise net.core.rmem_max, or packets are lost in bursts"
        );
    }
}
