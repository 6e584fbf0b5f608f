use super::sessions::Sessions;
use super::sockets::{Sockets, datagram_socket};
use crate::observe::echo;
use crate::options::ServerOptions;
use crate::udp::is_hello;
use std::io;
use std::net::{SocketAddr, UdpSocket};

#[derive(Debug)]
pub(super) struct DatagramBuffer(Vec<u8>);

impl DatagramBuffer {
    pub(super) fn new() -> Self {
        Self(vec![0; LONGEST])
    }
}

/// Reads the datagrams at the server's port that belong to no stream. Echoes latency probes, and
/// opens a stream for a hello if a session waits for a stream. Ignores all other datagrams.
pub(super) fn answer(
    sockets: &Sockets,
    options: &ServerOptions,
    sessions: &Sessions,
    buffer: &mut DatagramBuffer,
) {
    for _ in 0..BATCH {
        let Ok((length, from)) = sockets.datagrams.recv_from(&mut buffer.0) else { return };
        handle(&buffer.0[..length], from, sockets, options, sessions);
    }
}

fn handle(
    bytes: &[u8],
    from: SocketAddr,
    sockets: &Sockets,
    options: &ServerOptions,
    sessions: &Sessions,
) {
    if let Some(back) = echo::respond(bytes, |token| sessions.knows_token(token, from)) {
        // A probe that cannot be sent back counts as lost at the client.
        let _ = sockets.datagrams.send_to(back, from);
        return;
    }
    if is_hello(bytes).is_none() {
        return;
    }
    let Some(local) = sessions.expects_datagrams(from) else { return };
    match stream(local, from, options) {
        Ok((socket, misdelivered)) => {
            sessions.deliver_datagrams(from, socket, bytes.to_vec());
            for (bytes, from) in misdelivered {
                handle(&bytes, from, sockets, options, sessions);
            }
        }
        Err(error) => sessions.report_no_room_for_datagrams(from, error),
    }
}

/// A datagram that reached the wrong socket, and its sender.
type Misdelivered = (Vec<u8>, SocketAddr);

/// Opens the socket for the datagrams of a stream. Between `bind` and `connect` this socket also
/// receives datagrams that other clients send to the port; this function reads these datagrams and
/// returns them with their senders. `from` itself can only have repeated its hello, because it
/// waits for a reply.
fn stream(
    local: SocketAddr,
    from: SocketAddr,
    options: &ServerOptions,
) -> io::Result<(UdpSocket, Vec<Misdelivered>)> {
    let socket = datagram_socket(local, options)?;
    socket.connect(from)?;
    let mut misdelivered = Vec::new();
    let mut bytes = vec![0; LONGEST];
    while misdelivered.len() < BATCH {
        // `recv_from` returns each datagram's sender, even on a connected socket.
        let Ok((length, sender)) = socket.recv_from(&mut bytes) else { break };
        if sender != from {
            misdelivered.push((bytes[..length].to_vec(), sender));
        }
    }
    Ok((socket, misdelivered))
}

/// Probes and hellos are short; a longer datagram is no probe and no hello.
const LONGEST: usize = 2048;
/// Maximum number of datagrams read per call, so that connections are served in between.
const BATCH: usize = 64;
