//! UDP through the tunnel: each datagram in one of QUIC's, never in a stream, and none waits for another.
//!
//! A flow is what one application sends to one target. It lives as long as the stream that opened it; its
//! datagrams bear its number. Some may be there before that stream is: a few of those wait for it.

mod door;
mod flows;

pub(crate) use door::UdpDoor;
pub(crate) use flows::{Flow, Flows};

use crate::frame::{self, Opening, Properties, Request};
use crate::inbound::Inbound;
use crate::session::Session;
use crate::target::Target;
use crate::transport::{Connection, DatagramRefused};
use bytes::{Bytes, BytesMut};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;

/// A socket to a flow's target.
pub(crate) async fn dial(address: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(address).await?;
    Ok(socket)
}

pub(crate) fn opening(target: Target, flow: u32) -> Opening {
    let properties = Properties { flow: Some(flow), ..Properties::default() };
    Opening { request: Request::Forward(target), properties }
}

/// Between a flow and its target, until the opener ends it or nothing was said for `idle`.
pub(crate) async fn carry<C: Connection>(
    session: &Arc<Session<C>>,
    mut flow: Flow<C>,
    socket: &UdpSocket,
    inbound: &mut Inbound<C>,
    idle: Duration,
) {
    let mut buffer = BytesMut::new();
    let ended = async {
        // Nothing is said in the stream itself.
        while inbound.fill().await.is_ok() && inbound.ready() > 0 {
            inbound.consume(inbound.ready());
        }
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            payload = flow.next() => {
                let Some(payload) = payload else { return };
                // A target that is not there says so by ICMP, now or with the next; others may follow.
                if socket.send(&payload).await.is_ok() {
                    session.counters.datagrams_in.one();
                }
            }
            received = receive(socket, &mut buffer) => {
                if let Ok(payload) = received {
                    send(session, flow.number(), &payload);
                }
            }
            () = &mut ended => return,
            () = tokio::time::sleep(idle) => return,
        }
    }
}

/// Refused where it does not fit: cut up it would not be what was said.
pub(crate) fn send<C: Connection>(session: &Session<C>, flow: u32, payload: &[u8]) {
    let counters = &session.counters;
    match session.connection.send_datagram(frame::datagram(flow, payload)) {
        Ok(()) => counters.datagrams_out.one(),
        Err(DatagramRefused::TooLarge) => counters.datagrams_oversize.one(),
        Err(DatagramRefused::Lost | DatagramRefused::Unsupported) => {
            counters.datagrams_dropped.one()
        }
    }
}

async fn receive(socket: &UdpSocket, buffer: &mut BytesMut) -> io::Result<Bytes> {
    socket.readable().await?;
    buffer.reserve(LARGEST);
    match socket.try_recv_buf(buffer) {
        Ok(_) => Ok(buffer.split().freeze()),
        Err(error) => {
            // What does not wait for anybody must not keep a thread busy either.
            if error.kind() != io::ErrorKind::WouldBlock {
                tokio::task::yield_now().await;
            }
            Err(error)
        }
    }
}

/// A UDP payload over IPv4 has at most 65,507 bytes.
const LARGEST: usize = 65_536;
