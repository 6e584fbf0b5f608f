//! Datagrams as fast as they go, netperf's UDP_STREAM.

use super::greeting;
use super::heat::{StartLine, Tally};
use super::patience::{Broken, Patience, TURN, is_transient};
use super::serve::Arrivals;
use super::udp_rr::LONGEST_DATAGRAM;
use super::wire::Order;
use crate::control::Cookie;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// The server's end: counts the received datagrams, including those in flight at the end.
pub(super) fn drain(
    socket: &UdpSocket,
    cookie: &Cookie,
    patience: Patience<'_>,
    arrivals: &Arrivals,
) {
    if greeting::welcome(socket, cookie, patience).is_err() {
        return;
    }
    let mut datagram = vec![0; LONGEST_DATAGRAM];
    let (mut count, mut bytes, mut first, mut last) = (0, 0, None, None);
    let mut over_since = None;
    loop {
        if patience.is_over() {
            let since = *over_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LONGEST_TAIL {
                break;
            }
        }
        match socket.recv(&mut datagram) {
            Ok(length) if greeting::again(socket, cookie, &datagram[..length]) => {}
            Ok(length) => {
                let now = Instant::now();
                first.get_or_insert(now);
                last = Some(now);
                count += 1;
                bytes += length as u64;
            }
            // Nothing more arrived in a whole turn.
            Err(error) if is_transient(&error) && over_since.is_some() => break,
            Err(_) => {}
        }
    }
    arrivals.add(count, bytes);
    if let (Some(first), Some(last)) = (first, last) {
        arrivals.span(first, last);
    }
}

/// The client's end.
pub(super) fn pour(
    socket: &UdpSocket,
    cookie: &Cookie,
    order: &Order,
    patience: Patience<'_>,
    line: &StartLine,
) -> Result<Tally, Broken> {
    let prepared = greeting::greet(socket, cookie, patience)
        .and_then(|()| socket.set_write_timeout(Some(TURN)).map_err(Broken::Failed));
    let message = vec![0; order.request as usize];
    let (mut tally, until) = line.cross(prepared, patience)?;
    while tally.ended < until && !patience.is_over() {
        match socket.send(&message) {
            Ok(_) => tally.send(order.request),
            Err(error) if is_transient(&error) => tally.ended = Instant::now(),
            Err(error) => return Err(Broken::of(error)),
        }
    }
    tally.ended = Instant::now();
    Ok(tally)
}

/// How long datagrams may follow a measurement's end.
const LONGEST_TAIL: Duration = Duration::from_secs(2);
