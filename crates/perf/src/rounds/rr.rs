//! Requests and responses over one standing TCP connection, netperf's TCP_RR.

use super::patience::{PIECE, Patience};
use super::serve::Arrivals;
use super::wire::Order;
use std::net::TcpStream;

/// The server's end.
pub(super) fn answer(
    socket: &TcpStream,
    order: &Order,
    patience: Patience<'_>,
    arrivals: &Arrivals,
) {
    let mut buffer = vec![0; PIECE];
    let mut count = 0;
    let mut transact = || {
        patience.receive(socket, order.request, &mut buffer)?;
        patience.send_any(socket, order.response)
    };
    // The client hangs up when it has measured, and tells on the control connection what went wrong.
    while transact().is_ok() {
        count += 1;
    }
    arrivals.add(count, count * order.request);
}
