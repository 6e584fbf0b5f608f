use super::guests::Guests;
use super::listen::{Sockets, datagram_socket};
use crate::observe::echo;
use crate::options::ServerOptions;
use crate::udp::is_hello;
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// Room for one datagram.
#[derive(Debug)]
pub(super) struct Letter(Vec<u8>);

impl Letter {
    pub(super) fn new() -> Self {
        Self(vec![0; LONGEST])
    }
}

/// Reads what came to the port without belonging to a stream: probes are sent back, and who says hello
/// gets a stream if a session waits for one. Everything else is answered with silence.
pub(super) fn answer(
    sockets: &Sockets,
    options: &ServerOptions,
    guests: &Guests,
    letter: &mut Letter,
) {
    for _ in 0..AT_ONCE {
        let Ok((length, from)) = sockets.datagrams.recv_from(&mut letter.0) else { return };
        one(&letter.0[..length], from, sockets, options, guests);
    }
}

fn one(
    bytes: &[u8],
    from: SocketAddr,
    sockets: &Sockets,
    options: &ServerOptions,
    guests: &Guests,
) {
    if let Some(back) = echo::respond(bytes, |token| guests.knows_token(token, from)) {
        // A probe that cannot be sent back now counts as lost, as it should.
        let _ = sockets.datagrams.send_to(back, from);
        return;
    }
    if is_hello(bytes).is_none() {
        return;
    }
    let Some(local) = guests.expects_datagrams(from) else { return };
    match stream(local, from, options) {
        Ok((socket, astray)) => {
            guests.bring_datagrams(from, socket, bytes.to_vec());
            for (bytes, from) in astray {
                one(&bytes, from, sockets, options, guests);
            }
        }
        Err(error) => guests.has_no_room_for_datagrams(from, error),
    }
}

/// A datagram that came to a socket it was not meant for, and its sender.
type Astray = (Vec<u8>, SocketAddr);

/// A socket of its own for the datagrams of one stream. Between `bind` and `connect` it takes what
/// others send to the port: that is read out of it, and returned with its senders. Of `from` itself
/// nothing but another hello can have come, because it waits for an answer.
fn stream(
    local: SocketAddr,
    from: SocketAddr,
    options: &ServerOptions,
) -> io::Result<(UdpSocket, Vec<Astray>)> {
    let socket = datagram_socket(local, options)?;
    socket.connect(from)?;
    let mut astray = Vec::new();
    let mut bytes = vec![0; LONGEST];
    while astray.len() < AT_ONCE {
        // `recv_from` tells each datagram's own sender, even on a connected socket.
        let Ok((length, sender)) = socket.recv_from(&mut bytes) else { break };
        if sender != from {
            astray.push((bytes[..length].to_vec(), sender));
        }
    }
    Ok((socket, astray))
}

/// Probes and hellos are short; what is longer is neither.
const LONGEST: usize = 2048;
/// Read in one go, so that connections are seen to in between.
const AT_ONCE: usize = 64;
