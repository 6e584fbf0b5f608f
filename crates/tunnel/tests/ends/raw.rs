//! A peer that consists of the QUIC engine alone, without Weir's endpoint. The peer can ignore
//! credit, stay silent, or abandon a handshake.

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, StreamId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tunnel::identity::{Identity, ServerTrust};

pub struct RawPeer {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub connection: Connection,
    pub events: Vec<Event>,
    /// Streams that a test keeps open.
    pub streams: Vec<StreamId>,
    server: SocketAddr,
    pub bytes_sent: usize,
    pub bytes_received: usize,
}

impl RawPeer {
    /// Creates a peer, which sends nothing before a test drives it.
    pub async fn new(from: IpAddr, own: &Identity, server: &Identity, at: SocketAddr) -> Self {
        let trust = ServerTrust::Pins(vec![server.pin()]);
        let tls = tunnel::identity::client_config(own, &trust).unwrap();
        let crypto = Arc::new(QuicClientConfig::try_from(tls).unwrap());
        let config = quinn_proto::ClientConfig::new(crypto);
        let mut endpoint = Endpoint::new(Arc::default(), None, true, None);
        let (handle, connection) =
            endpoint.connect(Instant::now(), config, at, trust.server_name()).unwrap();
        let socket = UdpSocket::bind((from, 0)).await.unwrap();
        Self {
            socket,
            endpoint,
            handle,
            connection,
            events: Vec::new(),
            streams: Vec::new(),
            server: at,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }

    /// Completes the handshake. Panics if the handshake fails.
    pub async fn connected(mut self) -> Self {
        let patience = Duration::from_secs(60);
        self.drive_until(patience, |peer| peer.is_connected().then_some(())).await.unwrap();
        self
    }

    pub fn is_connected(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Connected))
    }

    /// Returns the reason for the loss of the connection; `None` for a live connection.
    pub fn lost(&self) -> Option<String> {
        self.events.iter().find_map(|event| match event {
            Event::ConnectionLost { reason } => Some(reason.to_string()),
            _ => None,
        })
    }

    pub fn open(&mut self) -> Option<StreamId> {
        self.connection.streams().open(Dir::Bi)
    }

    /// Sends and receives until `found` returns a result or `patience` has passed.
    pub async fn drive_until<T>(
        &mut self,
        patience: Duration,
        mut found: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let end = Instant::now() + patience;
        loop {
            self.send().await;
            while let Some(event) = self.connection.poll() {
                self.events.push(event);
            }
            if let Some(found) = found(self) {
                self.send().await;
                return Some(found);
            }
            if Instant::now() >= end {
                return None;
            }
            let due = self.connection.poll_timeout().unwrap_or(end).min(end);
            let mut buffer = [0; 2048];
            tokio::select! {
                received = self.socket.recv_from(&mut buffer) => {
                    // Ignore ICMP errors for earlier packets.
                    if let Ok((count, _)) = received {
                        self.bytes_received += count;
                        self.take(&buffer[..count]);
                    }
                }
                () = tokio::time::sleep_until(due.into()) => {
                    self.connection.handle_timeout(Instant::now());
                }
            }
        }
    }

    pub async fn drive(&mut self, span: Duration) {
        self.drive_until(span, |_| None::<()>).await;
    }

    /// Sends at most one datagram. Returns `false` if the engine has no datagram to send.
    pub async fn send_one(&mut self) -> bool {
        let mut buffer = Vec::new();
        let Some(transmit) = self.connection.poll_transmit(Instant::now(), 1, &mut buffer) else {
            return false;
        };
        if self.socket.send_to(&buffer[..transmit.size], self.server).await.is_ok() {
            self.bytes_sent += transmit.size;
        }
        true
    }

    async fn send(&mut self) {
        while self.send_one().await {}
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
    }

    fn take(&mut self, datagram: &[u8]) {
        let (now, datagram) = (Instant::now(), BytesMut::from(datagram));
        let mut response = Vec::new();
        let event = self.endpoint.handle(now, self.server, None, None, datagram, &mut response);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    /// Receives one packet. Answers a Retry, which proves this peer's address, and ignores any
    /// other packet.
    pub async fn answer_retry(&mut self) {
        let mut buffer = [0; 2048];
        let received = self.socket.recv_from(&mut buffer);
        let Ok(Ok((count, _))) = tokio::time::timeout(RETRY_WITHIN, received).await else { return };
        // A Retry is the only packet with a long header and type 3.
        if buffer[0] >> 4 == 0b1111 {
            self.take(&buffer[..count]);
            self.send().await;
        }
    }

    /// Receives datagrams for the time `span`, and answers no datagram.
    pub async fn listen(&mut self, span: Duration) {
        let mut buffer = [0; 2048];
        let receive = async {
            loop {
                if let Ok((count, _)) = self.socket.recv_from(&mut buffer).await {
                    self.bytes_received += count;
                }
            }
        };
        let _ = tokio::time::timeout(span, receive).await;
    }
}

const RETRY_WITHIN: Duration = Duration::from_millis(200);
