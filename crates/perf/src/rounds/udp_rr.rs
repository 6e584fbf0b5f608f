//! Requests and responses as datagrams, netperf's UDP_RR. After a lost datagram netperf waits
//! for ever; this test counts the loss and sends the next request.
//!
//! A request begins with its number in eight bytes, which are cut to the length of a shorter
//! request. The response repeats the number, so that the client recognises a late response.

use super::serve::Arrivals;
use super::start_barrier::{StartBarrier, Tally};
use super::timeouts::{Timeouts, TransferError, is_transient};
use super::udp_hello;
use super::wire::Order;
use crate::control::Cookie;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// The server's side: responds to each request.
pub(super) fn respond(
    socket: &UdpSocket,
    cookie: &Cookie,
    order: &Order,
    timeouts: Timeouts<'_>,
    arrivals: &Arrivals,
) {
    if udp_hello::accept(socket, cookie, timeouts).is_err() {
        return;
    }
    let mut request = vec![0; LONGEST_DATAGRAM];
    let mut response = vec![0; order.response as usize];
    let mut count = 0;
    let mut bytes = 0;
    while !timeouts.is_over() {
        let Ok(length) = socket.recv(&mut request) else { continue };
        if udp_hello::answer_again(socket, cookie, &request[..length]) {
            continue;
        }
        timeouts.note();
        let numbered = NUMBER.min(length).min(response.len());
        response[..numbered].copy_from_slice(&request[..numbered]);
        // A response that does not fit in the socket buffer is lost.
        if socket.send(&response).is_ok() {
            count += 1;
            bytes += length as u64;
        }
    }
    arrivals.add(count, bytes);
}

/// The client's side. A request without a response after `loss_timeout` counts as lost.
pub(super) fn request(
    socket: &UdpSocket,
    cookie: &Cookie,
    order: &Order,
    loss_timeout: Duration,
    timeouts: Timeouts<'_>,
    barrier: &StartBarrier,
) -> Result<Tally, TransferError> {
    let prepared = udp_hello::connect(socket, cookie, timeouts)
        .and_then(|()| socket.set_read_timeout(Some(loss_timeout)).map_err(TransferError::Failed));
    let (mut tally, until) = barrier.wait(prepared, timeouts)?;
    let mut requester = Requester {
        socket,
        cookie,
        number: 0,
        request: vec![0; order.request as usize],
        response: vec![0; LONGEST_DATAGRAM],
        expected: order.response as usize,
        loss_timeout,
    };
    let mut began = Instant::now();
    let mut answered = began;
    while began < until && !timeouts.is_over() {
        if requester.transact(began, &mut tally)? {
            began = tally.transact(began);
            answered = began;
        } else {
            tally.lost += 1;
            began = Instant::now();
            if answered.elapsed() >= timeouts.silence {
                return Err(TransferError::Silent);
            }
        }
    }
    tally.bytes = requester.number * order.request;
    Ok(tally)
}

struct Requester<'a> {
    socket: &'a UdpSocket,
    cookie: &'a Cookie,
    number: u64,
    request: Vec<u8>,
    response: Vec<u8>,
    expected: usize,
    loss_timeout: Duration,
}

impl Requester<'_> {
    /// Makes a transaction; returns true if the response arrived in time.
    fn transact(&mut self, began: Instant, tally: &mut Tally) -> Result<bool, TransferError> {
        self.number += 1;
        let numbered = NUMBER.min(self.request.len());
        self.request[..numbered].copy_from_slice(&self.number.to_le_bytes()[..numbered]);
        let compared = numbered.min(self.expected);
        match self.socket.send(&self.request) {
            Ok(_) => {}
            Err(error) if is_transient(&error) => return Ok(false),
            Err(error) => return Err(TransferError::of(error)),
        }
        loop {
            match self.socket.recv(&mut self.response) {
                Ok(length)
                    if length == self.expected
                        && self.response[..compared] == self.request[..compared] =>
                {
                    return Ok(true);
                }
                // The reply to a repeated greeting.
                Ok(length) if self.response[..length] == self.cookie.as_bytes()[..] => {}
                Ok(_) => tally.late += 1,
                Err(error) if is_transient(&error) => return Ok(false),
                Err(error) => return Err(TransferError::of(error)),
            }
            if began.elapsed() >= self.loss_timeout {
                return Ok(false);
            }
        }
    }
}

/// Length of a request's number, in bytes.
const NUMBER: usize = 8;
pub(super) const LONGEST_DATAGRAM: usize = 65_536;
