//! Requests and responses as datagrams, netperf's UDP_RR. netperf waits forever for a lost
//! datagram; here it is counted, and the next one is sent.
//!
//! A request begins with its number, as much of its eight bytes as fit. The response repeats the
//! number, so that a late response is not taken for the next one.

use super::greeting;
use super::heat::{StartLine, Tally};
use super::patience::{Broken, Patience, is_transient};
use super::serve::Arrivals;
use super::wire::Order;
use crate::control::Cookie;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

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
        // A full buffer counts as loss.
        if socket.send(&response).is_ok() {
            count += 1;
            bytes += length as u64;
        }
    }
    arrivals.add(count, bytes);
}

/// The client's end. After `loss_timeout` without its response a request is lost.
pub(super) fn ask(
    socket: &UdpSocket,
    cookie: &Cookie,
    order: &Order,
    loss_timeout: Duration,
    patience: Patience<'_>,
    line: &StartLine,
) -> Result<Tally, Broken> {
    let prepared = greeting::greet(socket, cookie, patience)
        .and_then(|()| socket.set_read_timeout(Some(loss_timeout)).map_err(Broken::Failed));
    let (mut tally, until) = line.cross(prepared, patience)?;
    let mut asker = Asker {
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
    while began < until && !patience.is_over() {
        if asker.transact(began, &mut tally)? {
            began = tally.transact(began);
            answered = began;
        } else {
            tally.lost += 1;
            began = Instant::now();
            if answered.elapsed() >= patience.silence {
                return Err(Broken::Silent);
            }
        }
    }
    tally.bytes = asker.number * order.request;
    Ok(tally)
}

struct Asker<'a> {
    socket: &'a UdpSocket,
    cookie: &'a Cookie,
    number: u64,
    request: Vec<u8>,
    response: Vec<u8>,
    expected: usize,
    loss_timeout: Duration,
}

impl Asker<'_> {
    /// Returns whether the response came in time.
    fn transact(&mut self, began: Instant, tally: &mut Tally) -> Result<bool, Broken> {
        self.number += 1;
        let numbered = NUMBER.min(self.request.len());
        self.request[..numbered].copy_from_slice(&self.number.to_le_bytes()[..numbered]);
        let told = numbered.min(self.expected);
        match self.socket.send(&self.request) {
            Ok(_) => {}
            Err(error) if is_transient(&error) => return Ok(false),
            Err(error) => return Err(Broken::of(error)),
        }
        loop {
            match self.socket.recv(&mut self.response) {
                Ok(length)
                    if length == self.expected && self.response[..told] == self.request[..told] =>
                {
                    return Ok(true);
                }
                // The answer to a repeated greeting.
                Ok(length) if self.response[..length] == self.cookie.as_bytes()[..] => {}
                Ok(_) => tally.late += 1,
                Err(error) if is_transient(&error) => return Ok(false),
                Err(error) => return Err(Broken::of(error)),
            }
            if began.elapsed() >= self.loss_timeout {
                return Ok(false);
            }
        }
    }
}

/// Bytes of a request's number.
const NUMBER: usize = 8;
pub(super) const LONGEST_DATAGRAM: usize = 65_536;
