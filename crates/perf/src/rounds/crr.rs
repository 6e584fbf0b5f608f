//! A TCP connection for each request and its response, netperf's TCP_CRR.
//!
//! The server closes first, as an HTTP/1.0 server does, and the client waits for it: so the closed
//! connections linger (TIME-WAIT) at the server, where they do not use up the client's ports.

use super::patience::{PIECE, Patience, TURN, is_transient};
use super::serve::Arrivals;
use super::wire::Order;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::thread;

/// The server's end. Connections from others than `peer` are closed.
pub(super) fn answer(
    listener: &TcpListener,
    peer: IpAddr,
    order: &Order,
    patience: Patience<'_>,
    arrivals: &Arrivals,
) {
    let mut buffer = vec![0; PIECE];
    let mut count = 0;
    while !patience.is_over() {
        let socket = match listener.accept() {
            Ok((socket, from)) if from.ip().to_canonical() == peer => socket,
            Ok(_) => continue,
            Err(error) if is_transient(&error) => continue,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // Descriptors have run out, say: others may close theirs.
                tracing::warn!("accepting a connection: {error}");
                thread::sleep(TURN);
                continue;
            }
        };
        let served = patience
            .receive(&socket, order.request, &mut buffer)
            .and_then(|()| patience.send_any(&socket, order.response));
        count += u64::from(served.is_ok());
    }
    arrivals.add(count, count * order.request);
}
