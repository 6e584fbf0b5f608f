//! QUIC as the carrier: endpoints of [`quic`] on UDP sockets of this machine.

use super::driver::{Driven, Handle, Source, Until};
use super::formers;
use super::icmp::{AllReports, Reports};
use super::server_tls::ServerTls;
use super::steering::{MarkedIds, drawn, steer};
use super::{
    Connection, DatagramRefused, Lost, Receiving, SERVER_HAS_ENDED, Sending, Shards, Statistics,
    StreamError, Transport, Tuning, socket,
};
use crate::hand_over::HandedUdp;
use crate::identity::Secret;
use aws_lc_rs::{hkdf, hmac};
use bytes::Bytes;
use quic::{EndpointConfig, Incoming, Meter, Readable, Reading, Readings, Settings, StreamId};
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use units::{Bytes as Size, Span};

#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    #[error("UDP address {0} cannot be used: {1}{advice}", advice = advice(.1))]
    Bind(SocketAddr, #[source] io::Error),
    #[error("the TLS settings do not suit QUIC: AES-128-GCM must be among the cipher suites")]
    Suite(#[from] NoInitialCipherSuite),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": stop its owner (ss -ulpn), or choose another --listen-on",
        io::ErrorKind::AddrNotAvailable => ": see `ip address`, or choose another --listen-on",
        _ => "",
    }
}

/// A QUIC connection. The connection closes when the last clone and the last stream are dropped.
#[derive(Debug, Clone)]
pub struct QuicConnection {
    handle: Arc<Handle>,
    readings: Readings,
    /// At a client, the count of the network's reports about the port at the server's address.
    reports: Option<Reports>,
}

/// Creates each connection on its own socket, so that the server's sockets share the connections.
pub struct QuicClient {
    crypto: Arc<QuicClientConfig>,
    tuning: Tuning,
    meter: Arc<Meter>,
    reports: AllReports,
}

/// A server that accepts connections at one address, on one socket per shard.
pub struct QuicServer {
    sockets: Vec<ServerSocket>,
    crypto: Arc<ServerTls>,
    tuning: Tuning,
    /// The generation of this process among the processes that have had these sockets.
    generation: u8,
}

struct ServerSocket {
    driven: Driven,
    at: SocketAddr,
    /// A copy of the socket, for the process that takes over from this process.
    socket: UdpSocket,
    formers: Vec<(u8, UnixDatagram)>,
}

/// A peer that asks for a connection and has proved neither its identity nor its address yet.
///
/// The engine keeps the peer's datagrams, and counts the peer as waiting, until the endpoint
/// accepts or ignores the peer. Dropping the value therefore ignores the peer.
pub struct IncomingConnection {
    driven: Driven,
    incoming: Option<Incoming>,
    remote: SocketAddr,
    is_validated: bool,
    crypto: Arc<ServerTls>,
    patience: Duration,
}

#[derive(Debug)]
pub struct SendingHalf {
    handle: Arc<Handle>,
    stream: StreamId,
}

#[derive(Debug)]
pub struct ReceivingHalf {
    handle: Arc<Handle>,
    stream: StreamId,
}

impl QuicClient {
    pub fn new(
        tls: rustls::ClientConfig,
        tuning: Tuning,
        meter: &Arc<Meter>,
    ) -> Result<Self, QuicError> {
        let crypto = Arc::new(QuicClientConfig::try_from(tls)?);
        Ok(Self { crypto, tuning, meter: Arc::clone(meter), reports: AllReports::default() })
    }
}

impl Transport for QuicClient {
    type Connection = QuicConnection;

    /// Connects. The connection runs on the shard of the calling task.
    async fn connect(
        &self,
        server: SocketAddr,
        name: &str,
        place: u8,
    ) -> Result<QuicConnection, Lost> {
        let failed = |error: io::Error| Lost::Failed(error.to_string());
        let local = match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = socket::bind(local, false, self.tuning.socket_buffer).map_err(failed)?;
        let config = EndpointConfig::new(Arc::new(reset_key(&Secret::random())));
        let endpoint =
            quic::Endpoint::new(config, None, settings(&self.tuning, &self.meter), true, None);
        let reports = self.reports.about(server);
        let driven = Driven::of_client(socket, endpoint, Arc::clone(&reports)).map_err(failed)?;
        let crypto = Arc::clone(&self.crypto) as _;
        let begun =
            driven.begin(|endpoint, now| endpoint.connect(now, crypto, drawn(place), server, name));
        driven.close(None);
        let handle = begun.map_err(|error| Lost::Failed(error.to_string()))?;
        connected(handle, self.tuning.handshake, Some(reports)).await
    }
}

impl QuicServer {
    pub fn bind(
        address: SocketAddr,
        tls: rustls::ServerConfig,
        tuning: Tuning,
        meter: &Arc<Meter>,
        shards: &Shards,
    ) -> Result<Self, QuicError> {
        let mut sockets = Vec::new();
        let mut bound = address;
        // Bind once without SO_REUSEPORT first, which fails if another server has the port. The
        // sockets below set SO_REUSEPORT: with this option, the kernel would share the port with
        // another server of this user, which would get some of the clients.
        socket::bind(address, false, tuning.socket_buffer)
            .map_err(|error| QuicError::Bind(address, error))?;
        for index in 0..shards.count() {
            let socket = socket::bind(bound, shards.count() > 1, tuning.socket_buffer)
                .and_then(|socket| {
                    if shards.count() > 1 && index == 0 {
                        // `Shards` has at most sixteen threads.
                        steer(&socket, shards.count() as u8)?;
                    }
                    bound = socket.local_addr()?;
                    Ok(socket)
                })
                .map_err(|error| QuicError::Bind(bound, error))?;
            sockets.push((socket, Vec::new()));
        }
        Self::on(HandedUdp { generation: 0, sockets }, tls, tuning, meter, shards)
    }

    /// Accepts connections at the sockets that another process handed over, one per shard. Forwards
    /// packets of former connections to the processes that carry these connections.
    pub fn on(
        handed: HandedUdp,
        tls: rustls::ServerConfig,
        tuning: Tuning,
        meter: &Arc<Meter>,
        shards: &Shards,
    ) -> Result<Self, QuicError> {
        let HandedUdp { generation, sockets } = handed;
        let crypto = Arc::new(ServerTls::new(tls)?);
        let secret = tuning.secret.clone().unwrap_or_else(Secret::random);
        let mut all = Vec::new();
        let count = sockets.len() as u8;
        for (index, (socket, formers)) in sockets.into_iter().enumerate() {
            let at = socket.local_addr().unwrap_or_else(|_| (Ipv6Addr::UNSPECIFIED, 0).into());
            let _shard = shards.handle(index).enter();
            let start = || {
                let mut own = EndpointConfig::new(Arc::new(reset_key(&secret)));
                own.min_reset_interval(RESETS_APART);
                let marked = MarkedIds { socket: index as u8, sockets: count, generation };
                own.cid_generator(move || Box::new(marked));
                let mut config =
                    quic::ServerConfig::new(Arc::clone(&crypto) as _, token_key(&secret));
                config.max_incoming(WAITING).incoming_buffer_size_total(1 << 20);
                let settings = settings(&tuning, meter);
                let endpoint = quic::Endpoint::new(own, Some(config), settings, true, None);
                let forwards = cloned(&formers)?;
                let driven = Driven::of_server(socket.try_clone()?, endpoint, forwards)?;
                Ok(ServerSocket { driven, at, socket, formers })
            };
            all.push(start().map_err(|error| QuicError::Bind(at, error))?);
        }
        Ok(Self { sockets: all, crypto, tuning, generation })
    }

    /// Stops reading the sockets, and returns them for another process. From now on, the other
    /// process forwards the packets of this process's connections.
    pub fn hand_over(&self) -> io::Result<HandedUdp> {
        let (mut sockets, mut successors) = (Vec::new(), Vec::new());
        for one in &self.sockets {
            let (here, there) = UnixDatagram::pair()?;
            // The kernel may allow less than this size.
            let _ = socket2::SockRef::from(&there).set_send_buffer_size(FORWARDED);
            let mut formers = cloned(&one.formers)?;
            formers.retain(|(_, former)| formers::lives(former));
            formers.push((self.generation, there));
            // Limit the number of former processes that carry old connections.
            let beyond = formers.len().saturating_sub(MOST_FORMERS);
            formers.drain(..beyond);
            sockets.push((one.socket.try_clone()?, formers));
            successors.push(here);
        }
        // No step below may fail: after a failure, no process would read the sockets.
        for (one, here) in self.sockets.iter().zip(successors) {
            one.driven.receive_from(Source::Successor(here));
        }
        Ok(HandedUdp { generation: self.generation.wrapping_add(1), sockets })
    }

    /// Reads the sockets again, because no other process has taken them over.
    pub fn take_back(&self) {
        for one in &self.sockets {
            one.driven.receive_from(Source::Socket);
        }
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.sockets.first().map(|one| one.at)
    }

    /// Waits for the next peer at this shard's socket; `None` once the socket is closed.
    pub async fn incoming(&self, shard: usize) -> Option<IncomingConnection> {
        let driven = &self.sockets.get(shard)?.driven;
        let incoming = driven.incoming().await?;
        Some(IncomingConnection {
            driven: driven.clone(),
            remote: incoming.remote_address(),
            is_validated: incoming.remote_address_validated(),
            incoming: Some(incoming),
            crypto: Arc::clone(&self.crypto),
            patience: self.tuning.handshake,
        })
    }

    pub fn close(&self, why: &str) {
        for one in &self.sockets {
            one.driven.close(Some(why));
        }
    }

    /// Waits until each peer has been notified that its connection is closed, or does not answer.
    pub async fn notified(&self) {
        for one in &self.sockets {
            one.driven.idle().await;
        }
    }
}

impl Drop for QuicServer {
    fn drop(&mut self) {
        self.close(SERVER_HAS_ENDED);
    }
}

impl IncomingConnection {
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Whether the peer has proved that it receives packets at its address.
    pub fn is_validated(&self) -> bool {
        self.is_validated
    }

    /// Sends a Retry, which the peer must answer from its address (RFC 9000, 8.1.2).
    pub fn require_validation(mut self) {
        if let Some(incoming) = self.incoming.take() {
            self.driven.with(|endpoint| endpoint.retry(incoming));
        }
    }

    /// Tells the peer that this end accepts no connection (RFC 9000, 5.2.2).
    pub fn refuse(mut self) {
        if let Some(incoming) = self.incoming.take() {
            self.driven.with(|endpoint| endpoint.refuse(incoming));
        }
    }

    pub async fn accept(mut self) -> Result<QuicConnection, Lost> {
        let Some(incoming) = self.incoming.take() else { return Err(Lost::Here) };
        let (crypto, patience) = (Arc::clone(&self.crypto), self.patience);
        let begun = self.driven.begin(|endpoint, now| endpoint.accept(now, incoming, crypto));
        drop(self);
        let handle = begun.map_err(|error| match error {
            quic::RefusedError::Accept(lost) => lost,
            other => Lost::Failed(other.to_string()),
        })?;
        connected(handle, patience, None).await
    }
}

impl Drop for IncomingConnection {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            self.driven.with(|endpoint| endpoint.ignore(incoming));
        }
    }
}

/// Waits until both ends have proved their identity.
async fn connected(
    handle: Handle,
    patience: Duration,
    reports: Option<Reports>,
) -> Result<QuicConnection, Lost> {
    let ready = handle.wait(Until::Changed, |connection| match connection.lost() {
        Some(lost) => Some(Err(lost.clone())),
        None => connection.is_connected().then(|| Ok(connection.readings().clone())),
    });
    let readings = tokio::time::timeout(patience, ready).await.map_err(|_| Lost::Silent)???;
    Ok(QuicConnection { handle: Arc::new(handle.established()), readings, reports })
}

impl QuicConnection {
    fn halves(&self, stream: StreamId) -> (SendingHalf, ReceivingHalf) {
        let handle = Arc::clone(&self.handle);
        let receiving = ReceivingHalf { handle: Arc::clone(&handle), stream };
        (SendingHalf { handle, stream }, receiving)
    }
}

impl Connection for QuicConnection {
    type Sending = SendingHalf;
    type Receiving = ReceivingHalf;

    async fn open(&self) -> Result<(SendingHalf, ReceivingHalf), Lost> {
        let opened = self.handle.wait(Until::Changed, |connection| connection.open().transpose());
        Ok(self.halves(opened.await??))
    }

    async fn accept(&self) -> Result<(SendingHalf, ReceivingHalf), Lost> {
        let accepted =
            self.handle.wait(Until::Changed, |connection| connection.accept().transpose());
        Ok(self.halves(accepted.await??))
    }

    fn send_datagram(&self, datagram: Bytes) -> Result<(), DatagramRefused> {
        let sent = self.handle.change(|connection| connection.send_datagram(datagram));
        sent.map_err(|_| DatagramRefused::Lost)?
    }

    async fn receive_datagrams(&self, out: &mut [Bytes]) -> Result<usize, Lost> {
        let receive = |connection: &mut quic::Connection| {
            let count = super::take_datagrams(out, || connection.receive_datagram());
            super::taken(count, connection.lost())
        };
        self.handle.wait(Until::Changed, receive).await?
    }

    fn datagram_limit(&self) -> Option<usize> {
        self.handle.with(quic::Connection::datagram_limit).ok().flatten()
    }

    fn closed(&self) -> impl Future<Output = Lost> + Send {
        let handle = Arc::clone(&self.handle);
        async move {
            let lost = handle.wait(Until::Changed, |connection| connection.lost().cloned()).await;
            lost.unwrap_or_else(|lost| lost)
        }
    }

    fn is_closed(&self) -> bool {
        self.handle.lost().is_some()
    }

    fn close(&self, why: &str) {
        // An error means that the endpoint has forgotten the connection, which is then closed.
        let _ = self.handle.change(|connection| connection.close(Instant::now(), why));
    }

    fn remote(&self) -> SocketAddr {
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        self.handle.with(|connection| connection.remote()).unwrap_or(unknown)
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let identity = self.handle.with(|connection| connection.session().peer_identity());
        let chain = identity.ok().flatten();
        let chain = chain.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        chain.map(|chain| *chain).unwrap_or_default()
    }

    fn statistics(&self) -> Statistics {
        let Ok(all) = self.handle.with(|connection| connection.statistics()) else {
            return Statistics { reading: self.readings.now(), ..Statistics::default() };
        };
        Statistics {
            rtt: Span::from(all.rtt),
            mtu: Size::new(all.mtu.into()),
            sent: Size::new(all.sent_bytes),
            received: Size::new(all.received_bytes),
            packets_sent: all.packets_sent,
            packets_received: all.packets_received,
            packets_lost: all.packets_lost,
            packets_late: all.packets_late,
            reading: all.reading,
        }
    }

    fn reading(&self) -> Reading {
        self.readings.now()
    }

    fn rtt(&self) -> Duration {
        self.handle.with(|connection| connection.rtt()).unwrap_or_default()
    }

    fn reports(&self) -> Option<watch::Receiver<u64>> {
        self.reports.as_ref().map(|reports| reports.subscribe())
    }

    fn probe(&self) {
        let _ = self.handle.change(quic::Connection::probe);
    }

    fn probe_after(&self, silence: Option<Duration>) {
        let _ = self.handle.change(|connection| connection.probe_after(silence));
    }

    fn unread(&self) -> Size {
        Size::new(self.handle.with(|connection| connection.unread()).unwrap_or(0))
    }

    fn held(&self) -> Size {
        Size::new(self.handle.with(|connection| connection.held()).unwrap_or(0))
    }

    fn compact(&self) {
        let _ = self.handle.with(quic::Connection::compact);
    }

    fn set_receive_window(&self, window: Size) {
        let _ = self.handle.change(|connection| connection.set_receive_window(window.count()));
    }

    fn set_stream_window(&self, window: Size) {
        let _ = self.handle.with(|connection| connection.set_stream_window(window.count()));
    }

    fn set_send_window(&self, window: Size) {
        let _ = self.handle.change(|connection| connection.set_send_window(window.count()));
    }
}

impl Sending for SendingHalf {
    fn number(&self) -> u64 {
        quinn_proto::VarInt::from(self.stream).into_inner()
    }

    async fn write(&mut self, mut bytes: Bytes) -> Result<(), StreamError> {
        let stream = self.stream;
        let written = self.handle.wait(Until::Writable(stream), |connection| {
            match connection.write(stream, &mut bytes) {
                Ok(()) => bytes.is_empty().then_some(Ok(())),
                Err(error) => Some(Err(error)),
            }
        });
        written.await?
    }

    fn finish(&mut self) {
        let _ = self.handle.change(|connection| connection.finish(self.stream));
    }

    fn reset(&mut self, code: u32) {
        let _ = self.handle.change(|connection| connection.reset(self.stream, code));
    }

    async fn delivered(&mut self) -> Result<(), StreamError> {
        let stream = self.stream;
        let delivered = self.handle.wait(Until::Delivered(stream), |connection| {
            match connection.delivered(stream) {
                Ok(all) => all.then_some(Ok(())),
                Err(error) => Some(Err(error)),
            }
        });
        delivered.await?
    }
}

impl Drop for SendingHalf {
    fn drop(&mut self) {
        let until = [Until::Writable(self.stream), Until::Delivered(self.stream)];
        self.handle.end_half(&until, |connection| connection.drop_sending(self.stream));
    }
}

impl Receiving for ReceivingHalf {
    async fn read(
        &mut self,
        most: usize,
        out: &mut Vec<(u64, Bytes)>,
    ) -> Result<bool, StreamError> {
        let stream = self.stream;
        let read = self.handle.wait(Until::Readable(stream), |connection| {
            match connection.read(stream, most, out) {
                Ok(Readable::Later) => None,
                Ok(Readable::Some) => Some(Ok(true)),
                Ok(Readable::Ended) => Some(Ok(false)),
                Err(error) => Some(Err(error)),
            }
        });
        read.await?
    }

    fn consumed(&mut self, bytes: usize) {
        let consumed = self.handle.with(|connection| connection.consume(self.stream, bytes as u64));
        if consumed == Ok(true) {
            let _ = self.handle.change(|_| {});
        }
    }

    fn unread(&self) -> Size {
        let unread = self.handle.with(|connection| connection.unread_of(self.stream));
        Size::new(unread.unwrap_or(0))
    }

    fn stop(&mut self, code: u32) {
        let _ = self.handle.change(|connection| connection.stop(self.stream, code));
    }
}

impl Drop for ReceivingHalf {
    fn drop(&mut self) {
        let until = [Until::Readable(self.stream)];
        self.handle.end_half(&until, |connection| connection.stop(self.stream, 0));
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

impl fmt::Debug for IncomingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Knock").field("remote", &self.remote()).finish_non_exhaustive()
    }
}

fn settings(tuning: &Tuning, meter: &Arc<Meter>) -> Settings {
    Settings {
        congestion: tuning.congestion,
        keepalive: tuning.keepalive,
        // The session closes a silent connection earlier and notifies the peer. This timer closes
        // the connection without notice. The timer starts with the first unanswered packet (RFC
        // 9000, 10.1) and runs even while a host stalls. A short timer would thus close connections
        // whose path works.
        idle: tuning.keepalive * IDLE_KEEPALIVES,
        largest_packet: tuning.largest_packet,
        streams: tuning.streams,
        seed: rand::random(),
        epoch: boot(),
        meter: Arc::clone(meter),
    }
}

/// Returns the zero of the monotonic clock. The kernel's flows use the same zero, so that all tcpa
/// flows of this host, in the kernel and in tunnels, pause together.
fn boot() -> Instant {
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let up = Duration::try_from(up).unwrap_or_default();
    let now = Instant::now();
    now.checked_sub(up).unwrap_or(now)
}

fn cloned(formers: &[(u8, UnixDatagram)]) -> io::Result<Vec<(u8, UnixDatagram)>> {
    formers.iter().map(|(generation, socket)| Ok((*generation, socket.try_clone()?))).collect()
}

fn reset_key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.bytes())
}

/// Derives the key for address validation tokens, which clients return.
fn token_key(secret: &Secret) -> Arc<dyn quic::crypto::HandshakeTokenKey> {
    Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, b"weir-tunnel token").extract(secret.bytes()))
}

/// The idle timeout, in keepalives. If a host stalls for five keepalives, its connections survive.
const IDLE_KEEPALIVES: u32 = 6;
/// Size of the socket buffer for packets to a former process, in bytes.
const FORWARDED: usize = 8 << 20;
/// Maximum number of former processes whose connections continue.
const MOST_FORMERS: usize = 8;
/// Maximum number of handshakes queued per socket.
const WAITING: usize = 1024;
/// Minimum pause between two stateless resets, with which a restarted server notifies its former
/// clients: at most a thousand per second and socket.
const RESETS_APART: Duration = Duration::from_millis(1);
