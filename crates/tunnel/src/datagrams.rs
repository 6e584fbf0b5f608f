//! UDP through the tunnel. Each datagram travels in one QUIC datagram and not in a stream, so that
//! no datagram waits for a lost datagram.
//!
//! A flow is the traffic of one application with one target. A stream opens the flow, and the flow
//! ends with its stream. The flow's datagrams carry its number. Datagrams may arrive before the
//! stream; the receiver queues a few of them until the stream arrives.

mod flows;
mod listener;

pub(crate) use flows::{BATCH, Flow, Flows};
pub(crate) use listener::{LocalFlows, ReturnPath, UdpListener};

use crate::access_log::End;
use crate::account::{Direction, TunnelMeter};
use crate::frame::{self, Opening, Properties, Request};
use crate::inbound::Inbound;
use crate::relay::RelayError;
use crate::session::Session;
use crate::target::Target;
use crate::transport::{Connection, DatagramRefused, set_receive_buffer};
use bytes::{Bytes, BytesMut};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;

/// Opens a socket to the first of the target's addresses to which this machine has a route; the
/// machine may have no IPv6.
pub(crate) async fn dial(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match connected(*address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    set_receive_buffer(&socket, RECEIVE_BUFFER);
    socket.connect(address).await?;
    Ok(socket)
}

pub(crate) fn opening(target: Target, flow: u32) -> Opening {
    let properties = Properties { flow: Some(flow), ..Properties::default() };
    Opening { request: Request::Forward(target), properties }
}

/// Carries datagrams between a flow and its target, until the opener ends the flow or no datagram
/// has passed for `idle`.
pub(crate) async fn carry<C: Connection>(
    session: &Arc<Session<C>>,
    mut flow: Flow<C>,
    socket: &UdpSocket,
    inbound: &mut Inbound<C>,
    idle: Duration,
    meter: &TunnelMeter,
) {
    let mut buffer = BytesMut::new();
    let ended = async {
        // The stream itself carries no data, so wait for its end only.
        loop {
            match inbound.fill().await {
                Ok(()) if inbound.ready() == 0 => return End::Finished,
                Ok(()) => inbound.consume(inbound.ready()),
                Err(error) => return RelayError::from(error).end(),
            }
        }
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            payload = flow.next() => {
                let Some(payload) = payload else { return meter.end_as(End::Lost) };
                if !meter.admit_datagram(Direction::In, payload.len()) {
                    session.counters.datagrams_over_limit.increment();
                    continue;
                }
                // If the target is absent, an ICMP error makes this send or the next send fail.
                // Later sends may succeed.
                if socket.send(&payload).await.is_ok() {
                    session.counters.datagrams_in.increment();
                }
            }
            received = receive(socket, &mut buffer) => {
                if let Ok(payload) = received {
                    send(session, flow.number(), &payload, meter);
                }
            }
            end = &mut ended => return meter.end_as(end),
            () = tokio::time::sleep(idle) => return meter.end_as(End::Idle),
        }
    }
}

/// Sends a datagram. Refuses a datagram that is too large: a fragmented datagram would be lost more
/// often.
pub(crate) fn send<C: Connection>(
    session: &Session<C>,
    flow: u32,
    payload: &[u8],
    meter: &TunnelMeter,
) {
    let counters = &session.counters;
    if !meter.admit_datagram(Direction::Out, payload.len()) {
        return counters.datagrams_over_limit.increment();
    }
    match session.connection.send_datagram(frame::datagram(flow, payload)) {
        Ok(()) => counters.datagrams_out.increment(),
        Err(DatagramRefused::TooLarge) => counters.datagrams_oversize.increment(),
        Err(DatagramRefused::Lost | DatagramRefused::Unsupported) => {
            counters.datagrams_dropped.increment()
        }
    }
}

async fn receive(socket: &UdpSocket, buffer: &mut BytesMut) -> io::Result<Bytes> {
    socket.readable().await?;
    buffer.reserve(LARGEST);
    match socket.try_recv_buf(buffer) {
        Ok(_) => Ok(buffer.split().freeze()),
        Err(error) => {
            // Yield, because a loop of errors would never release the thread.
            if error.kind() != io::ErrorKind::WouldBlock {
                tokio::task::yield_now().await;
            }
            Err(error)
        }
    }
}

/// The size of the receive buffer of a socket to an application or a target. The kernel's default
/// holds less than 300 small datagrams, and drops the rest of a burst.
pub(crate) const RECEIVE_BUFFER: usize = 1 << 20;
/// A UDP payload over IPv4 has at most 65,507 bytes.
pub(crate) const LARGEST: usize = 65_536;
