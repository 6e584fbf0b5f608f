//! Requests and responses over a persistent TCP connection, netperf's TCP_RR.

use super::serve::Arrivals;
use super::start_barrier::{StartBarrier, Tally};
use super::timeouts::{PIECE, POLL_INTERVAL, Timeouts, TransferError};
use super::wire::Order;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

pub(super) fn respond(
    socket: &TcpStream,
    order: &Order,
    timeouts: Timeouts<'_>,
    arrivals: &Arrivals,
) {
    let mut buffer = vec![0; PIECE.min(order.request as usize)];
    let mut count = 0;
    let mut transact = || {
        timeouts.receive(socket, order.request, &mut buffer)?;
        timeouts.send_any(socket, order.response)
    };
    // The client closes the connection after the measurement, and reports failures on the control
    // connection.
    while transact().is_ok() {
        count += 1;
    }
    arrivals.add(count, count * order.request);
}

pub(super) fn request(
    socket: &TcpStream,
    order: &Order,
    timeouts: Timeouts<'_>,
    barrier: &StartBarrier,
) -> Result<Tally, TransferError> {
    let mut buffer = vec![0; PIECE];
    let mut transact = || {
        timeouts.send_any(socket, order.request)?;
        timeouts.receive(socket, order.response, &mut buffer)
    };
    // The first transaction is not counted, because the transaction may wait until the server's
    // thread runs.
    let (mut tally, until) = barrier.wait(transact(), timeouts)?;
    if order.depth > 1 {
        return pipelined(socket, order, timeouts, (tally, until));
    }
    let mut began = Instant::now();
    while began < until && !timeouts.is_over() {
        transact()?;
        began = tally.transact(began);
    }
    tally.bytes = tally.count * order.request;
    Ok(tally)
}

/// Keeps several requests in flight. Sends and receives without blocking: a server that waits until
/// its responses are read reads no more requests.
fn pipelined(
    socket: &TcpStream,
    order: &Order,
    timeouts: Timeouts<'_>,
    (mut tally, until): (Tally, Instant),
) -> Result<Tally, TransferError> {
    socket.set_nonblocking(true).map_err(TransferError::Failed)?;
    let request = vec![0; order.request as usize];
    let mut response = vec![0; PIECE];
    let mut under_way = VecDeque::with_capacity(order.depth as usize);
    // Bytes of the newest request that are still to be sent, and received bytes of the next
    // response.
    let (mut unsent, mut come) = (0, 0);
    let mut moved = Instant::now();
    let mut open = true;
    loop {
        while unsent > 0 || (open && under_way.len() < order.depth as usize) {
            if unsent == 0 {
                under_way.push_back(Instant::now());
                unsent = request.len();
            }
            match (&*socket).write(&request[request.len() - unsent..]) {
                Ok(count) => unsent -= count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(TransferError::of(error)),
            }
        }
        if under_way.is_empty() {
            break;
        }
        match (&*socket).read(&mut response) {
            Ok(0) => return Err(TransferError::Closed),
            Ok(count) => {
                come += count as u64;
                while come >= order.response
                    && let Some(began) = under_way.pop_front()
                {
                    come -= order.response;
                    moved = tally.transact(began);
                }
                open = moved < until && !timeouts.is_over();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(socket, unsent > 0);
                if timeouts.is_over() {
                    return Err(TransferError::Ended);
                }
                if moved.elapsed() >= timeouts.silence {
                    return Err(TransferError::Silent);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(TransferError::of(error)),
        }
    }
    tally.bytes = tally.count * order.request;
    Ok(tally)
}

fn wait(socket: &TcpStream, to_send: bool) {
    let flags = if to_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let turn = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    // Ignore errors: the next use of the socket reports them.
    let _ = poll(&mut [PollFd::new(socket, flags)], Some(&turn));
}
