//! noq as the carrier.

use super::steering::{Marked, drawn, steer};
use super::{
    Chunk, Connection, DatagramRefused, Lost, Receiving, Sending, Shards, Statistics, StreamError,
    Transport, Tuning, socket,
};
use crate::congestion::{Factory, Reading, Readings, UNKNOWN_RTT};
use bytes::Bytes;
use noq::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use noq::{
    AckFrequencyConfig, ConnectionError, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, PathId,
    ReadError, SendDatagramError, TokioRuntime, TransportConfig, VarInt, WriteError,
};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use units::{Bytes as Size, Span};

#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    #[error("UDP address {0} cannot be used: {1}")]
    Bind(SocketAddr, #[source] io::Error),
    #[error("the TLS settings do not do for QUIC: AES-128-GCM must be among the cipher suites")]
    Suite(#[from] NoInitialCipherSuite),
}

/// A connection over noq.
#[derive(Debug, Clone)]
pub struct QuicConnection {
    inner: noq::Connection,
    readings: Readings,
}

/// Makes connections from a socket of its own each, so that the far end's sockets share them out.
pub struct QuicClient {
    crypto: Arc<QuicClientConfig>,
    tuning: Tuning,
}

/// Accepts connections at one address, on as many sockets as there are shards.
pub struct QuicServer {
    endpoints: Vec<noq::Endpoint>,
    crypto: Arc<QuicServerConfig>,
    tuning: Tuning,
}

/// Someone who wants a connection and has shown nothing yet.
pub struct Knock {
    incoming: noq::Incoming,
    crypto: Arc<QuicServerConfig>,
    tuning: Tuning,
}

impl QuicClient {
    pub fn new(tls: rustls::ClientConfig, tuning: Tuning) -> Result<Self, QuicError> {
        Ok(Self { crypto: Arc::new(QuicClientConfig::try_from(tls)?), tuning })
    }
}

impl Transport for QuicClient {
    type Connection = QuicConnection;

    /// On the shard of whoever waits for it.
    async fn connect(
        &self,
        server: SocketAddr,
        name: &str,
        place: u8,
    ) -> Result<QuicConnection, Lost> {
        let readings = Readings::default();
        let failed = |error: &dyn fmt::Display| Lost::Failed(error.to_string());
        let local = match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = socket::bind(local, false, self.tuning.socket_buffer)
            .map_err(|error| failed(&error))?;
        let endpoint =
            noq::Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))
                .map_err(|error| failed(&error))?;
        let mut config = noq::ClientConfig::new(Arc::clone(&self.crypto) as _);
        config.transport_config(Arc::new(transport(&self.tuning, &readings)));
        config.initial_dst_cid_provider(Arc::new(move || drawn(place)));
        let connecting =
            endpoint.connect_with(config, server, name).map_err(|error| failed(&error))?;
        let made = tokio::time::timeout(self.tuning.handshake, connecting).await;
        let inner = made.map_err(|_| Lost::Silent)??;
        Ok(QuicConnection { inner, readings })
    }
}

impl QuicServer {
    pub fn bind(
        address: SocketAddr,
        tls: rustls::ServerConfig,
        tuning: Tuning,
        shards: &Shards,
    ) -> Result<Self, QuicError> {
        let crypto = Arc::new(QuicServerConfig::try_from(tls)?);
        let mut endpoints = Vec::new();
        let mut bound = address;
        for index in 0..shards.count() {
            let _shard = shards.handle(index).enter();
            let endpoint = socket::bind(bound, shards.count() > 1, tuning.socket_buffer)
                .and_then(|socket| {
                    let mut own = EndpointConfig::default();
                    // At most sixteen, by `Shards`.
                    let (socket_index, sockets) = (index as u8, shards.count() as u8);
                    if sockets > 1 {
                        let marked = Marked { socket: socket_index, sockets };
                        own.cid_generator(Arc::new(move || Box::new(marked)));
                        if index == 0 {
                            steer(&socket, sockets)?;
                        }
                    }
                    let mut config = noq::ServerConfig::with_crypto(Arc::clone(&crypto) as _);
                    config.transport_config(Arc::new(transport(&tuning, &Readings::default())));
                    config.max_incoming(WAITING).incoming_buffer_size_total(1 << 20);
                    noq::Endpoint::new(own, Some(config), socket, Arc::new(TokioRuntime))
                })
                .map_err(|error| QuicError::Bind(bound, error))?;
            bound = endpoint.local_addr().map_err(|error| QuicError::Bind(bound, error))?;
            endpoints.push(endpoint);
        }
        Ok(Self { endpoints, crypto, tuning })
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.endpoints.first()?.local_addr().ok()
    }

    /// The next that comes to this shard's socket; `None` once it is closed.
    pub async fn knock(&self, shard: usize) -> Option<Knock> {
        let incoming = self.endpoints.get(shard)?.accept().await?;
        Some(Knock { incoming, crypto: Arc::clone(&self.crypto), tuning: self.tuning.clone() })
    }

    pub fn close(&self, why: &str) {
        for endpoint in &self.endpoints {
            endpoint.close(CLOSED, why.as_bytes());
        }
    }

    /// Until the other ends know that their connections are closed, or cannot be told.
    pub async fn told(&self) {
        for endpoint in &self.endpoints {
            endpoint.wait_idle().await;
        }
    }
}

impl Knock {
    pub fn remote(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// The address has shown that it hears what is sent to it.
    pub fn is_validated(&self) -> bool {
        self.incoming.remote_address_validated()
    }

    /// Let it come again with a proof of its address (RFC 9000, 8.1.2).
    pub fn ask_for_proof(self) {
        if let Err(error) = self.incoming.retry() {
            error.into_incoming().refuse();
        }
    }

    pub fn ignore(self) {
        self.incoming.ignore();
    }

    pub async fn accept(self) -> Result<QuicConnection, Lost> {
        let readings = Readings::default();
        let mut config = noq::ServerConfig::with_crypto(self.crypto as _);
        config.transport_config(Arc::new(transport(&self.tuning, &readings)));
        let connecting = self.incoming.accept_with(Arc::new(config))?;
        let inner = tokio::time::timeout(self.tuning.handshake, connecting)
            .await
            .map_err(|_| Lost::Silent)??;
        Ok(QuicConnection { inner, readings })
    }
}

impl Connection for QuicConnection {
    type Sending = noq::SendStream;
    type Receiving = noq::UnorderedRecvStream;

    async fn open(&self) -> Result<(Self::Sending, Self::Receiving), Lost> {
        let (sending, receiving) = self.inner.open_bi().await?;
        Ok((sending, receiving.into_unordered()))
    }

    async fn accept(&self) -> Result<(Self::Sending, Self::Receiving), Lost> {
        let (sending, receiving) = self.inner.accept_bi().await?;
        Ok((sending, receiving.into_unordered()))
    }

    fn send_datagram(&self, datagram: Bytes) -> Result<(), DatagramRefused> {
        self.inner.send_datagram(datagram).map_err(|error| match error {
            SendDatagramError::TooLarge => DatagramRefused::TooLarge,
            SendDatagramError::ConnectionLost(_) => DatagramRefused::Lost,
            SendDatagramError::UnsupportedByPeer | SendDatagramError::Disabled => {
                DatagramRefused::Unsupported
            }
        })
    }

    async fn receive_datagrams(&self, out: &mut [Bytes]) -> Result<usize, Lost> {
        Ok(self.inner.read_many_datagrams(out).await?)
    }

    fn datagram_limit(&self) -> Option<usize> {
        self.inner.max_datagram_size()
    }

    fn closed(&self) -> impl Future<Output = Lost> + Send {
        let inner = self.inner.clone();
        async move { inner.closed().await.into() }
    }

    fn is_closed(&self) -> bool {
        self.inner.close_reason().is_some()
    }

    fn close(&self, why: &str) {
        self.inner.close(CLOSED, why.as_bytes());
    }

    fn remote(&self) -> SocketAddr {
        let path = self.inner.path(PathId::ZERO);
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        path.and_then(|path| path.remote_address().ok()).unwrap_or(unknown)
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let identity = self.inner.peer_identity();
        let chain = identity.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        chain.map(|chain| *chain).unwrap_or_default()
    }

    fn statistics(&self) -> Statistics {
        let all = self.inner.stats();
        let path = self.inner.path_stats(PathId::ZERO).unwrap_or_default();
        Statistics {
            rtt: Span::from(path.rtt),
            mtu: Size::new(path.current_mtu.into()),
            sent: Size::new(all.udp_tx.bytes),
            received: Size::new(all.udp_rx.bytes),
            packets_sent: all.udp_tx.datagrams,
            packets_received: all.udp_rx.datagrams,
            packets_lost: all.lost_packets,
            reading: self.readings.now(),
        }
    }

    fn reading(&self) -> Reading {
        self.readings.now()
    }

    fn rtt(&self) -> Duration {
        self.inner.rtt(PathId::ZERO).unwrap_or_default()
    }

    fn set_receive_window(&self, window: Size) {
        self.inner.set_receive_window(number(window.count()));
    }

    fn set_stream_window(&self, window: Size) {
        self.inner.set_stream_receive_window(number(window.count()));
    }

    fn set_send_window(&self, window: Size) {
        self.inner.set_send_window(window.count());
    }
}

impl Sending for noq::SendStream {
    async fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        Ok(self.write_chunk(bytes).await?)
    }

    fn finish(&mut self) {
        // It was finished or given up before.
        let _ = noq::SendStream::finish(self);
    }

    fn reset(&mut self, code: u32) {
        let _ = noq::SendStream::reset(self, code.into());
    }

    async fn delivered(&mut self) -> Result<(), StreamError> {
        match self.stopped().await {
            Ok(None) => Ok(()),
            Ok(Some(code)) => Err(StreamError::GivenUp(short(code))),
            Err(noq::StoppedError::ConnectionLost(error)) => Err(Lost::from(error).into()),
            Err(noq::StoppedError::ZeroRttRejected) => Err(Lost::Here.into()),
        }
    }
}

impl Receiving for noq::UnorderedRecvStream {
    type Chunk = noq::Chunk;

    async fn read(&mut self, most: usize, out: &mut Vec<noq::Chunk>) -> Result<bool, StreamError> {
        Ok(self.read_chunks(most, out).await?)
    }

    fn stop(&mut self, code: u32) {
        let _ = noq::UnorderedRecvStream::stop(self, code.into());
    }
}

impl Chunk for noq::Chunk {
    fn take(self) -> (u64, Bytes) {
        (self.offset, self.bytes)
    }
}

impl From<ConnectionError> for Lost {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::TimedOut => Self::Silent,
            ConnectionError::LocallyClosed => Self::Here,
            ConnectionError::ApplicationClosed(close) => {
                Self::ByPeer(String::from_utf8_lossy(&close.reason).into_owned())
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<WriteError> for StreamError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::GivenUp(short(code)),
            WriteError::ConnectionLost(error) => Self::Lost(error.into()),
            WriteError::ClosedStream | WriteError::ZeroRttRejected => Self::GivenUp(0),
        }
    }
}

impl From<ReadError> for StreamError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::GivenUp(short(code)),
            ReadError::ConnectionLost(error) => Self::Lost(error.into()),
            ReadError::ClosedStream | ReadError::ZeroRttRejected => Self::GivenUp(0),
        }
    }
}

impl fmt::Debug for QuicClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicClient").field("tuning", &self.tuning).finish_non_exhaustive()
    }
}

impl fmt::Debug for QuicServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicServer").field("at", &self.local_addr()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Knock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Knock").field("remote", &self.remote()).finish_non_exhaustive()
    }
}

fn transport(tuning: &Tuning, readings: &Readings) -> TransportConfig {
    let mut config = TransportConfig::default();
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(tuning.largest_packet);
    let mut acknowledge = AckFrequencyConfig::default();
    acknowledge
        .ack_eliciting_threshold(VarInt::from_u32(ACKNOWLEDGE_EVERY))
        .max_ack_delay(Some(ACKNOWLEDGE_WITHIN));
    // The session ends a silent connection a little sooner, with a word to the peer; this timer, without one. It
    // starts with the first packet that was not answered (RFC 9000, 10.1).
    let silence =
        IdleTimeout::try_from(tuning.keepalive * 3).unwrap_or(VarInt::from_u32(60_000).into());
    config
        .max_idle_timeout(Some(silence))
        .keep_alive_interval(Some(tuning.keepalive))
        .max_concurrent_bidi_streams(VarInt::from_u32(tuning.streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(number(tuning.first_window.count()))
        .receive_window(number(tuning.first_window.count()))
        .send_window(tuning.first_window.count())
        .datagram_receive_buffer_size(Some(1 << 20))
        .datagram_send_buffer_size(1 << 20)
        .mtu_discovery_config(Some(mtu))
        .ack_frequency_config(Some(acknowledge))
        .initial_rtt(UNKNOWN_RTT)
        .congestion_controller_factory(Arc::new(Factory::new(tuning.congestion, readings.clone())));
    config
}

fn number(count: u64) -> VarInt {
    VarInt::from_u64(count).unwrap_or(VarInt::MAX)
}

fn short(code: VarInt) -> u32 {
    u32::try_from(code.into_inner()).unwrap_or(u32::MAX)
}

const CLOSED: VarInt = VarInt::from_u32(0);
/// Handshakes of one socket that wait for their turn.
const WAITING: usize = 1024;
/// One acknowledgement for so many packets, where none is missing: each costs both ends as much as a packet.
const ACKNOWLEDGE_EVERY: u32 = 8;
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(2);
