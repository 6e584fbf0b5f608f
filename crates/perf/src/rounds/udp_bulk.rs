//! Sends datagrams as fast as the socket takes them, as netperf's UDP_STREAM.

use super::serve::Arrivals;
use super::start_barrier::{StartBarrier, Tally};
use super::timeouts::{POLL_INTERVAL, Timeouts, TransferError, is_transient};
use super::udp_hello;
use super::udp_rr::LONGEST_DATAGRAM;
use super::wire::Order;
use crate::control::Cookie;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// The server's side: counts the received datagrams, including datagrams in flight at the end.
pub(super) fn receive(
    socket: &UdpSocket,
    cookie: &Cookie,
    timeouts: Timeouts<'_>,
    arrivals: &Arrivals,
) {
    if udp_hello::accept(socket, cookie, timeouts).is_err() {
        return;
    }
    let mut datagram = vec![0; LONGEST_DATAGRAM];
    let (mut count, mut bytes, mut first, mut last) = (0, 0, None, None);
    let mut over_since = None;
    loop {
        if timeouts.is_over() {
            let since = *over_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LONGEST_TAIL {
                break;
            }
        }
        match socket.recv(&mut datagram) {
            Ok(length) if udp_hello::answer_again(socket, cookie, &datagram[..length]) => {}
            Ok(length) => {
                let now = Instant::now();
                timeouts.note();
                first.get_or_insert(now);
                last = Some(now);
                count += 1;
                bytes += length as u64;
            }
            // No datagram arrived during a whole wait.
            Err(error) if is_transient(&error) && over_since.is_some() => break,
            Err(_) => {}
        }
    }
    arrivals.add(count, bytes);
    if let (Some(first), Some(last)) = (first, last) {
        arrivals.span(first, last);
    }
}

/// The client's side: sends datagrams until the time is over.
pub(super) fn send(
    socket: &UdpSocket,
    cookie: &Cookie,
    order: &Order,
    timeouts: Timeouts<'_>,
    barrier: &StartBarrier,
) -> Result<Tally, TransferError> {
    let prepared = udp_hello::connect(socket, cookie, timeouts).and_then(|()| {
        socket.set_write_timeout(Some(POLL_INTERVAL)).map_err(TransferError::Failed)
    });
    let message = vec![0; order.request as usize];
    let (mut tally, until) = barrier.wait(prepared, timeouts)?;
    while tally.ended < until && !timeouts.is_over() {
        match socket.send(&message) {
            Ok(_) => tally.send(order.request),
            Err(error) if is_transient(&error) => tally.ended = Instant::now(),
            Err(error) => return Err(TransferError::of(error)),
        }
    }
    tally.ended = Instant::now();
    Ok(tally)
}

/// Maximum time after a measurement's end during which datagrams still count.
const LONGEST_TAIL: Duration = Duration::from_secs(2);
