//! The users who own sockets, by sock_diag.

use crate::ProbeError;
use crate::tcp::{Diag, Ends, Filter};
use std::net::SocketAddr;

/// Returns the user who owns the TCP connection between these addresses on this machine; `None` if
/// there is no such connection.
pub fn of_tcp(local: SocketAddr, remote: SocketAddr) -> Result<Option<u32>, ProbeError> {
    let mut owner = None;
    let ends = Ends { local, remote, interface: 0, cookie: 0 };
    Diag::of_addresses().one(ends, |socket| owner = Some(socket.uid()))?;
    Ok(owner)
}

/// Returns the users who own UDP sockets with this local port, on any address.
pub fn of_udp(port: u16) -> Result<Vec<u32>, ProbeError> {
    let mut owners = Vec::new();
    let filter = Filter::all().local_port(port);
    Diag::of_udp_addresses().each(&filter, |socket| owners.push(socket.uid()))?;
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn sockets_belong_to_the_user_who_made_them() {
        let user = rustix::process::geteuid().as_raw();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        assert_eq!(of_udp(port(&udp)).unwrap(), [user]);
        match UdpSocket::bind("[::]:0") {
            Ok(dual) => assert_eq!(of_udp(port(&dual)).unwrap(), [user]),
            Err(_) => testing::skip_part(testing::Need::Ipv6),
        }
        // Port 1 belongs to tcpmux, which no program uses. A port that this test frees could be
        // taken by another program.
        assert_eq!(of_udp(1).unwrap(), [0; 0]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        assert_eq!(of_tcp(local, remote).unwrap(), Some(user));
        assert_eq!(of_tcp(local, "127.0.0.1:1".parse().unwrap()).unwrap(), None);
    }
}
