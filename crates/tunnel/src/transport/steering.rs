//! Steers each packet, among several sockets on one port, to the socket of its connection, whatever
//! the packet's source address. The kernel's default, a hash of the addresses, would lose clients
//! whose address changes.

use nix::libc::{sock_filter, sock_fprog};
use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};
use quic::{ConnectionId, ConnectionIdGenerator};
use rand::Rng;
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

/// Generates connection IDs whose first byte identifies the socket, and whose second byte names the
/// generation of the process ([`super::formers`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkedIds {
    pub(super) socket: u8,
    pub(super) sockets: u8,
    pub(super) generation: u8,
}

impl ConnectionIdGenerator for MarkedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; LENGTH];
        rand::rng().fill_bytes(&mut bytes);
        // Use only whole multiples of `sockets`, so that each socket is equally likely.
        let turns = u8::MAX / self.sockets;
        bytes[0] = bytes[0] % turns * self.sockets + self.socket;
        bytes[1] = self.generation;
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Returns the initial destination connection ID of a client, which the client uses until it
/// learns the server's ID. Consecutive values of `place` lead to different sockets of the server.
/// The remaining bytes are random (RFC 9000, 7.2).
pub(super) fn drawn(place: u8) -> ConnectionId {
    let mut bytes = [place; 2 * LENGTH];
    rand::rng().fill_bytes(&mut bytes[1..]);
    ConnectionId::new(&bytes)
}

/// Makes the kernel select, among all sockets on the port of `socket`, the one whose index the
/// connection ID gives. Sockets are indexed in the order in which they were bound.
pub(super) fn steer(socket: &UdpSocket, sockets: u8) -> io::Result<()> {
    let mut program = program(sockets);
    let len = program.len() as u16;
    // The kernel copies the program before setsockopt returns.
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    Ok(setsockopt(socket, AttachReusePortCbpf, &program)?)
}

/// Returns the BPF program that reads the connection ID. A long header has the ID after its version
/// and length, a short header after its first byte (RFC 9000, 17.2 and 17.3). A client uses one
/// random ID in all its packets until the client knows the server's ID (7.2). A packet too short
/// for an ID goes to the first socket.
fn program(sockets: u8) -> [sock_filter; 8] {
    let step = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    [
        step(LOAD_BYTE, 0, 0),
        step(JUMP_IF_SET, 3, 0x80),
        step(LOAD_BYTE, 0, 1),
        step(MODULO, 0, sockets.into()),
        step(RETURN, 0, 0),
        step(LOAD_BYTE, 0, 6),
        step(MODULO, 0, sockets.into()),
        step(RETURN, 0, 0),
    ]
}

/// Length of a server's connection IDs, in bytes.
pub(super) const LENGTH: usize = 8;
// Instruction codes of classic BPF (linux/bpf_common.h): BPF_LD|BPF_B|BPF_ABS,
// BPF_JMP|BPF_JSET|BPF_K, BPF_ALU|BPF_MOD|BPF_K, BPF_RET|BPF_A.
const LOAD_BYTE: u16 = 0x30;
const JUMP_IF_SET: u16 = 0x45;
const MODULO: u16 = 0x94;
const RETURN: u16 = 0x16;

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::net::SocketAddr;

    #[test]
    fn the_kernel_steers_packets_to_the_socket_in_their_connection_id() {
        let bind = |address: SocketAddr| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&address.into()).unwrap();
            UdpSocket::from(socket)
        };
        let first = bind("127.0.0.1:0".parse().unwrap());
        let address = first.local_addr().unwrap();
        let sockets = [first, bind(address), bind(address)];
        steer(&sockets[0], 3).unwrap();
        for socket in 0..3 {
            sockets[usize::from(socket)].set_nonblocking(false).unwrap();
            let mut ids = MarkedIds { socket, sockets: 3, generation: 0 };
            let of_places = [drawn(socket), drawn(socket + 3)].map(|id| (true, id));
            let marked = [false, true].map(|long| (long, ids.generate_cid()));
            for (long, id) in marked.into_iter().chain(of_places) {
                let length = id.len() as u8;
                let mut packet = if long { vec![0xc0, 0, 0, 0, 1, length] } else { vec![0x40] };
                packet.extend_from_slice(&id);
                packet.extend([0; 20]);
                // Each packet comes from another address.
                let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
                sender.send_to(&packet, address).unwrap();
                let mut got = [0; 100];
                let socket = &sockets[usize::from(socket)];
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                assert_eq!(socket.recv(&mut got).unwrap(), packet.len());
            }
        }
    }
}
