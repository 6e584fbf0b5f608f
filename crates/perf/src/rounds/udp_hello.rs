//! The greeting that opens a measurement over UDP: the client sends the test's cookie until the
//! server sends it back. The server replies only to a sender that knows the cookie, so an attacker
//! cannot make the server send to third parties.

use super::timeouts::{Timeouts, TransferError};
use crate::control::Cookie;
use std::net::UdpSocket;
use std::time::Duration;

/// The server's side: waits for the client's greeting, then accepts datagrams from this client
/// only.
pub(super) fn accept(
    socket: &UdpSocket,
    cookie: &Cookie,
    timeouts: Timeouts<'_>,
) -> Result<(), TransferError> {
    let mut hello = [0; Cookie::LENGTH + 1];
    loop {
        let (length, from) = timeouts.wait_for(|| socket.recv_from(&mut hello))?;
        if hello[..length] == cookie.as_bytes()[..] {
            socket.connect(from).map_err(TransferError::Failed)?;
            let _ = socket.send(cookie.as_bytes());
            return Ok(());
        }
        if timeouts.is_over() {
            return Err(TransferError::Ended);
        }
    }
}

/// Replies again if this datagram repeats the client's greeting (the first reply was lost). Returns
/// true for a greeting.
pub(super) fn answer_again(socket: &UdpSocket, cookie: &Cookie, datagram: &[u8]) -> bool {
    let is_greeting = datagram == cookie.as_bytes();
    if is_greeting {
        let _ = socket.send(cookie.as_bytes());
    }
    is_greeting
}

/// The client's side, on a connected socket. Leaves the socket's read timeout at [`AGAIN`].
pub(super) fn connect(
    socket: &UdpSocket,
    cookie: &Cookie,
    timeouts: Timeouts<'_>,
) -> Result<(), TransferError> {
    socket.set_read_timeout(Some(REPEAT_INTERVAL)).map_err(TransferError::Failed)?;
    let mut answer = [0; Cookie::LENGTH + 1];
    timeouts.wait_for(|| {
        socket.send(cookie.as_bytes())?;
        loop {
            let length = socket.recv(&mut answer)?;
            if answer[..length] == cookie.as_bytes()[..] {
                return Ok(());
            }
        }
    })
}

const REPEAT_INTERVAL: Duration = Duration::from_millis(200);
