//! Greeting that opens a measurement over UDP: the client sends the test's cookie until the server
//! sends it back. The server answers no other sender, so it cannot be made to send to third
//! parties.

use super::patience::{Broken, Patience};
use crate::control::Cookie;
use std::net::UdpSocket;
use std::time::Duration;

/// The server's side: waits for the client, and then accepts datagrams from it only.
pub(super) fn welcome(
    socket: &UdpSocket,
    cookie: &Cookie,
    patience: Patience<'_>,
) -> Result<(), Broken> {
    let mut hello = [0; Cookie::LENGTH + 1];
    loop {
        let (length, from) = patience.wait_for(|| socket.recv_from(&mut hello))?;
        if hello[..length] == cookie.as_bytes()[..] {
            socket.connect(from).map_err(Broken::Failed)?;
            let _ = socket.send(cookie.as_bytes());
            return Ok(());
        }
        if patience.is_over() {
            return Err(Broken::Over);
        }
    }
}

/// True if this datagram repeats the client's greeting, because the answer was lost.
pub(super) fn again(socket: &UdpSocket, cookie: &Cookie, datagram: &[u8]) -> bool {
    let is_greeting = datagram == cookie.as_bytes();
    if is_greeting {
        let _ = socket.send(cookie.as_bytes());
    }
    is_greeting
}

/// The client's side, on a connected socket; its read timeout is left at [`AGAIN`].
pub(super) fn greet(
    socket: &UdpSocket,
    cookie: &Cookie,
    patience: Patience<'_>,
) -> Result<(), Broken> {
    socket.set_read_timeout(Some(AGAIN)).map_err(Broken::Failed)?;
    let mut answer = [0; Cookie::LENGTH + 1];
    patience.wait_for(|| {
        socket.send(cookie.as_bytes())?;
        loop {
            let length = socket.recv(&mut answer)?;
            if answer[..length] == cookie.as_bytes()[..] {
                return Ok(());
            }
        }
    })
}

const AGAIN: Duration = Duration::from_millis(200);
