//! Requests and responses as datagrams, netperf's UDP_RR, which waits forever for one that is lost:
//! here it is counted, and the next one sent.
//!
//! A request begins with its number, as much of its eight bytes as fit; the response repeats it, so that
//! one that comes too late is not taken for the next one's.

use super::greeting;
use super::patience::Patience;
use super::serve::Arrivals;
use super::wire::Order;
use crate::control::Cookie;
use std::net::UdpSocket;

/// The server's end.
pub(super) fn answer(
    socket: &UdpSocket,
    cookie: &Cookie,
    order: &Order,
    patience: Patience<'_>,
    arrivals: &Arrivals,
) {
    if greeting::welcome(socket, cookie, patience).is_err() {
        return;
    }
    let mut request = vec![0; LONGEST_DATAGRAM];
    let mut response = vec![0; order.response as usize];
    let mut count = 0;
    let mut bytes = 0;
    while !patience.is_over() {
        let Ok(length) = socket.recv(&mut request) else { continue };
        if greeting::again(socket, cookie, &request[..length]) {
            continue;
        }
        let numbered = NUMBER.min(length).min(response.len());
        response[..numbered].copy_from_slice(&request[..numbered]);
        // A full buffer is a loss like another.
        if socket.send(&response).is_ok() {
            count += 1;
            bytes += length as u64;
        }
    }
    arrivals.add(count, bytes);
}

/// Bytes of a request's number.
const NUMBER: usize = 8;
pub(super) const LONGEST_DATAGRAM: usize = 65_536;
