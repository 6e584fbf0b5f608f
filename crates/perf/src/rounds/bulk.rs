//! Messages over TCP as fast as they go, netperf's TCP_STREAM.

use super::heat::{StartLine, Tally};
use super::patience::{Broken, Patience};
use super::serve::Arrivals;
use super::wire::Order;
use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

/// The server's end: counts the received bytes.
pub(super) fn drain(socket: &TcpStream, patience: Patience<'_>, arrivals: &Arrivals) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count) = patience.repeat(|| (&*socket).read(&mut buffer)) {
        let now = Instant::now();
        arrivals.add(0, count as u64);
        arrivals.span(now, now);
    }
}

/// The client's end: one write per message.
pub(super) fn pour(
    socket: &TcpStream,
    order: &Order,
    patience: Patience<'_>,
    line: &StartLine,
) -> Result<Tally, Broken> {
    let message = vec![0; order.request as usize];
    let (mut tally, until) = line.cross(Ok(()), patience)?;
    while tally.ended < until && !patience.is_over() {
        patience.send(socket, &message)?;
        tally.send(order.request);
    }
    tally.ended = Instant::now();
    Ok(tally)
}

const BUFFER: usize = 128 * 1024;
