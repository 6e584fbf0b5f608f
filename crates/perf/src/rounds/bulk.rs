//! Sends messages over TCP as fast as the path permits, as netperf's TCP_STREAM.

use super::serve::Arrivals;
use super::start_barrier::{StartBarrier, Tally};
use super::timeouts::{Timeouts, TransferError};
use super::wire::Order;
use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

/// The server's side: counts the received bytes.
pub(super) fn receive(socket: &TcpStream, timeouts: Timeouts<'_>, arrivals: &Arrivals) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count) = timeouts.repeat(|| (&*socket).read(&mut buffer)) {
        let now = Instant::now();
        arrivals.add(0, count as u64);
        arrivals.span(now, now);
    }
}

/// The client's side: makes a write for each message.
pub(super) fn send(
    socket: &TcpStream,
    order: &Order,
    timeouts: Timeouts<'_>,
    barrier: &StartBarrier,
) -> Result<Tally, TransferError> {
    let message = vec![0; order.request as usize];
    let (mut tally, until) = barrier.wait(Ok(()), timeouts)?;
    while tally.ended < until && !timeouts.is_over() {
        timeouts.send(socket, &message)?;
        tally.send(order.request);
    }
    tally.ended = Instant::now();
    Ok(tally)
}

const BUFFER: usize = 128 * 1024;
