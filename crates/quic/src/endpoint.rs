//! Holds all connections of one socket. This module reads no clock and no socket: the driver passes
//! datagrams and the time to the endpoint, and sends the packets that the endpoint returns.

use crate::choice::Congestion;
use crate::connection::{Connection, Event, FIRST_STREAMS};
use crate::control::{Clock, Factory, Shared, UNKNOWN_RTT};
use crate::lost::Lost;
use crate::meter::Meter;
use crate::reading::Readings;
use crate::session::Observing;
use bytes::BytesMut;
use quinn_proto::crypto::{ClientConfig, ServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ConnectionEvent, ConnectionHandle, ConnectionId, DatagramEvent,
    EcnCodepoint, EndpointConfig, EndpointEvent, IdleTimeout, Incoming, MtuDiscoveryConfig,
    Transmit, TransportConfig, VarInt,
};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connection settings. Each endpoint has its own settings. Two endpoints negotiate the settings
/// that must be equal.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Congestion control of this end's sending direction.
    pub congestion: Congestion,
    /// Interval of keepalives to a silent peer.
    pub keepalive: Duration,
    /// Idle timeout: the maximum time for which the peer may be silent before the connection ends.
    pub idle: Duration,
    /// Maximum UDP payload, in bytes, for which the endpoint probes the path.
    pub largest_packet: u16,
    /// Maximum number of streams that a peer may have open at once in a connection.
    pub streams: u32,
    /// Seed for the random decisions of congestion control algorithms.
    pub seed: u64,
    /// The instant from which congestion control algorithms count time. tcpa flows with the same
    /// instant pause together.
    pub epoch: Instant,
    /// Counts the memory that peers make this endpoint hold. Several endpoints may share a meter.
    pub meter: Arc<Meter>,
}

/// Identifies one connection of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    slot: usize,
    serial: u64,
}

/// The opened and the accepted connections of one socket. The driver passes datagrams and the time
/// to the endpoint.
pub struct Endpoint {
    inner: quinn_proto::Endpoint,
    settings: Settings,
    server: Option<Arc<quinn_proto::ServerConfig>>,
    /// The connections, indexed by handle. The slot of an ended connection remains as `None`.
    connections: Vec<Option<(u64, Box<Connection>)>>,
    serial: u64,
    /// Connections that may have packets to send.
    ready: VecDeque<Key>,
    /// Connections that have received packets since their last [`Connection::pump`].
    received: VecDeque<Key>,
    timers: BTreeSet<(Instant, Key)>,
    deadlines: Vec<Option<Instant>>,
    events: VecDeque<(Key, Event)>,
    responses: VecDeque<(Transmit, Vec<u8>)>,
    responses_dropped: u64,
    incoming: VecDeque<Incoming>,
    /// Closed connections whose peers have been notified, oldest first.
    closed: VecDeque<Key>,
}

/// The reason for which a handshake could not begin.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum RefusedError {
    /// This end could not open a connection, for example to an invalid address. The value is the
    /// engine's reason.
    #[error("{0}")]
    Connect(String),
    /// The peer's connection could not be accepted. The value is [`Lost::Here`] if this endpoint
    /// accepts no connections.
    #[error("{0}")]
    Accept(Lost),
}

impl Endpoint {
    /// Creates an endpoint. `seed` determines connection IDs and packet numbers; without a seed,
    /// both come from the operating system's random numbers.
    pub fn new(
        config: EndpointConfig,
        server: Option<quinn_proto::ServerConfig>,
        settings: Settings,
        may_discover_mtu: bool,
        seed: Option<[u8; 32]>,
    ) -> Self {
        let server = server.map(Arc::new);
        let inner =
            quinn_proto::Endpoint::new(Arc::new(config), server.clone(), may_discover_mtu, seed);
        Self {
            inner,
            settings,
            server,
            connections: Vec::new(),
            serial: 0,
            ready: VecDeque::new(),
            received: VecDeque::new(),
            timers: BTreeSet::new(),
            deadlines: Vec::new(),
            events: VecDeque::new(),
            responses: VecDeque::new(),
            responses_dropped: 0,
            incoming: VecDeque::new(),
            closed: VecDeque::new(),
        }
    }

    /// Begins a handshake with `server` and returns the connection's key at once;
    /// [`Event::Connected`] or [`Event::Lost`] follows. `name` is the server's name for TLS, and
    /// `initial_id` the destination connection ID of the first packet.
    pub fn connect(
        &mut self,
        now: Instant,
        crypto: Arc<dyn ClientConfig>,
        initial_id: ConnectionId,
        server: SocketAddr,
        name: &str,
    ) -> Result<Key, RefusedError> {
        let (control, readings) = self.control(now);
        let observing = Observing { inner: crypto, control: control.clone() };
        let mut config = quinn_proto::ClientConfig::new(Arc::new(observing));
        config.initial_dst_cid_provider(Arc::new(move || initial_id));
        config.transport_config(Arc::new(transport(&self.settings, control.clone())));
        let (handle, inner) = self
            .inner
            .connect(now, config, server, name)
            .map_err(|error| RefusedError::Connect(error.to_string()))?;
        Ok(self.add(now, handle, inner, control, readings))
    }

    /// Takes the oldest connection request that awaits a decision.
    pub fn incoming(&mut self) -> Option<Incoming> {
        self.incoming.pop_front()
    }

    /// Answers the handshake of a peer and returns the connection's key at once;
    /// [`Event::Connected`] or [`Event::Lost`] follows.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        crypto: Arc<dyn ServerConfig>,
    ) -> Result<Key, RefusedError> {
        let (control, readings) = self.control(now);
        let Some(server) = &self.server else {
            self.inner.ignore(incoming);
            return Err(RefusedError::Accept(Lost::Here));
        };
        let mut config = quinn_proto::ServerConfig::clone(server);
        config.crypto = Arc::new(Observing { inner: crypto, control: control.clone() });
        config.transport_config(Arc::new(transport(&self.settings, control.clone())));
        let mut buffer = Vec::new();
        let is_proved = incoming.remote_address_validated();
        match self.inner.accept(incoming, now, &mut buffer, Some(Arc::new(config))) {
            Ok((handle, inner)) => {
                let key = self.add(now, handle, inner, control, readings);
                if let Some(connection) = self.get(key).filter(|_| !is_proved) {
                    connection.expect_proof();
                }
                Ok(key)
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(transmit, buffer);
                }
                Err(RefusedError::Accept(error.cause.into()))
            }
        }
    }

    /// Answers a connection request with a Retry, so that the peer proves its address (RFC 9000,
    /// section 8.1.2).
    pub fn retry(&mut self, incoming: Incoming) {
        let mut buffer = Vec::new();
        match self.inner.retry(incoming, &mut buffer) {
            Ok(transmit) => self.respond(transmit, buffer),
            Err(error) => self.inner.ignore(error.into_incoming()),
        }
    }

    /// Refuses a connection request with CONNECTION_REFUSED (RFC 9000, section 5.2.2).
    pub fn refuse(&mut self, incoming: Incoming) {
        let mut buffer = Vec::new();
        let transmit = self.inner.refuse(incoming, &mut buffer);
        self.respond(transmit, buffer);
    }

    /// Drops a connection request without sending an answer.
    pub fn ignore(&mut self, incoming: Incoming) {
        self.inner.ignore(incoming);
    }

    /// Refuses all new connections from now on.
    pub fn refuse_all(&mut self) {
        self.server = None;
        self.inner.set_server_config(None);
        for incoming in std::mem::take(&mut self.incoming) {
            self.inner.ignore(incoming);
        }
    }

    /// Handles a datagram that arrived at `arrived` and is processed at `now`.
    pub fn handle(
        &mut self,
        now: Instant,
        arrived: Instant,
        remote: SocketAddr,
        local: Option<IpAddr>,
        ecn: Option<EcnCodepoint>,
        datagram: BytesMut,
    ) {
        let mut buffer = Vec::new();
        match self.inner.handle(arrived, remote, local, ecn, datagram, &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if ecn == Some(EcnCodepoint::Ce)
                    && let Some(Some((_, connection))) = self.connections.get(handle.0)
                {
                    connection.on_marked();
                }
                self.handle_event(now, arrived, handle, event);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.incoming.push_back(incoming),
            Some(DatagramEvent::Response(transmit)) => self.respond(transmit, buffer),
            None => {}
        }
    }

    /// Queues the answer to a packet that belongs to no connection. Drops the answer if the queue
    /// is full, because the peer will send its packet again.
    fn respond(&mut self, transmit: Transmit, answer: Vec<u8>) {
        match self.responses.len() < MOST_RESPONSES {
            true => self.responses.push_back((transmit, answer)),
            false => self.responses_dropped += 1,
        }
    }

    fn handle_event(
        &mut self,
        now: Instant,
        arrived: Instant,
        handle: ConnectionHandle,
        event: ConnectionEvent,
    ) {
        let Some(Some((serial, connection))) = self.connections.get_mut(handle.0) else { return };
        let key = Key { slot: handle.0, serial: *serial };
        connection.arrived(now, arrived);
        connection.handle_event(event);
        connection.since_pumped += 1;
        match connection.since_pumped {
            1 => self.received.push_back(key),
            // Acknowledge in time: an acknowledgement reports at most 64 ranges of packets, and the
            // engine drops older ranges.
            PUMP_AFTER => {
                connection.pump(now);
                self.after(now, key);
                self.acknowledge(now, key);
                self.received.push_back(key);
            }
            _ => {}
        }
    }

    /// Finishes a batch of datagrams passed to [`Self::handle`].
    pub fn handled(&mut self, now: Instant) {
        while let Some(key) = self.received.pop_front() {
            if let Some(connection) = self.get(key) {
                connection.pump(now);
                self.after(now, key);
            }
        }
    }

    /// Returns the time at which [`Self::handle_timeouts`] must be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Handles all timeouts that are due at `now`.
    pub fn handle_timeouts(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            self.deadlines[key.slot] = None;
            if let Some(connection) = self.get(key) {
                connection.handle_timeout(now);
                connection.pump(now);
                self.after(now, key);
            }
        }
    }

    /// Writes the next packets to send, at most `segments` datagrams, into `out`, which must be
    /// empty. Returns `None` if nothing may leave before another event or the next timeout.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        segments: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some((transmit, response)) = self.responses.pop_front() {
            *out = response;
            return Some(transmit);
        }
        while let Some(key) = self.ready.front().copied() {
            self.ready.pop_front();
            let Some(connection) = self.get(key) else { continue };
            connection.is_ready = false;
            let transmit = connection.transmit(now, segments, out);
            if transmit.is_some() {
                // Connections send packets in turn.
                self.make_ready(key);
                return transmit;
            }
            self.after_transmit(key);
        }
        None
    }

    /// Takes the oldest event of any connection; `None` if no event is left.
    pub fn next_event(&mut self) -> Option<(Key, Event)> {
        self.events.pop_front()
    }

    /// Returns a connection. After a change of the connection, the caller must call
    /// [`Self::touch`].
    pub fn get(&mut self, key: Key) -> Option<&mut Connection> {
        match self.connections.get_mut(key.slot)? {
            Some((serial, connection)) if *serial == key.serial => Some(&mut **connection),
            _ => None,
        }
    }

    /// Records that the application has used a connection, which may now have packets to send and
    /// events.
    pub fn touch(&mut self, now: Instant, key: Key) {
        if self.get(key).is_some() {
            self.after(now, key);
        }
    }

    /// Returns the number of connections, including closed connections. The endpoint keeps a closed
    /// connection for three probe timeouts (RFC 9000, section 10.2), unless there are many closed
    /// connections.
    pub fn open_connections(&self) -> usize {
        self.inner.open_connections()
    }

    /// Returns the number of answers, such as Retries, that were dropped because the queue was
    /// full. These are answers to packets that belong to no connection.
    pub fn responses_dropped(&self) -> u64 {
        self.responses_dropped
    }

    /// Returns the meter of [`Settings::meter`], which counts the memory that peers make this
    /// endpoint hold.
    pub fn meter(&self) -> &Meter {
        &self.settings.meter
    }

    /// Returns the keys of all connections that the endpoint keeps, including closed connections.
    pub fn keys(&self) -> Vec<Key> {
        let connections = self.connections.iter().enumerate();
        let key = |(slot, connection): (usize, &Option<(u64, Box<Connection>)>)| {
            connection.as_ref().map(|(serial, _)| Key { slot, serial: *serial })
        };
        connections.filter_map(key).collect()
    }

    /// Acknowledges immediately all packets that have arrived.
    fn acknowledge(&mut self, now: Instant, key: Key) {
        let mut buffer = Vec::new();
        let Some(connection) = self.get(key) else { return };
        if let Some(transmit) = connection.transmit(now, 1, &mut buffer) {
            self.responses.push_back((transmit, buffer));
        }
    }

    /// Updates the bookkeeping of a connection after any event.
    fn after(&mut self, now: Instant, key: Key) {
        let Some(Some((_, connection))) = self.connections.get_mut(key.slot) else { return };
        while let Some(event) = connection.endpoint_event() {
            let handle = connection.handle;
            if let Some(answer) = self.inner.handle_event(handle, event) {
                connection.handle_event(answer);
            }
        }
        // Leave engine events that arise here to the next packet or timeout.
        let drained = connection.is_drained();
        if drained {
            connection.pump(now);
        }
        while let Some(event) = connection.next_event() {
            self.events.push_back((key, event));
        }
        if drained {
            self.connections[key.slot] = None;
            self.set_deadline(key, None);
        } else {
            self.make_ready(key);
        }
    }

    fn after_transmit(&mut self, key: Key) {
        let Some(connection) = self.get(key) else { return };
        let deadline = connection.deadline();
        let mut reported = VecDeque::new();
        while let Some(event) = connection.next_event() {
            reported.push_back((key, event));
        }
        let is_newly_closed = connection.is_newly_closed();
        self.events.append(&mut reported);
        self.set_deadline(key, deadline);
        if is_newly_closed {
            self.closed.push_back(key);
            self.forget_closed();
        }
    }

    /// Forgets the oldest closed connections beyond `MOST_CLOSED`. A closed connection is kept to
    /// answer packets that are still in flight, but a flood of handshakes must not fill the memory
    /// with closed connections.
    fn forget_closed(&mut self) {
        while self.closed.len() > MOST_CLOSED
            && let Some(key) = self.closed.pop_front()
        {
            let Some(handle) = self.get(key).map(|connection| connection.handle) else { continue };
            self.inner.handle_event(handle, EndpointEvent::drained());
            self.connections[key.slot] = None;
            self.set_deadline(key, None);
        }
    }

    fn make_ready(&mut self, key: Key) {
        if let Some(connection) = self.get(key)
            && !std::mem::replace(&mut connection.is_ready, true)
        {
            self.ready.push_back(key);
        }
    }

    fn set_deadline(&mut self, key: Key, deadline: Option<Instant>) {
        let before = std::mem::replace(&mut self.deadlines[key.slot], deadline);
        if before == deadline {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, key));
        }
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, key));
        }
    }

    fn control(&mut self, now: Instant) -> (Shared, Readings) {
        let readings = Readings::default();
        self.serial += 1;
        // Each connection gets a different seed, derived from the endpoint's seed.
        let seed = self.settings.seed.wrapping_add(self.serial.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let clock = Clock { epoch: self.settings.epoch, now };
        (Shared::new(self.settings.congestion, clock, seed, readings.clone()), readings)
    }

    fn add(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        inner: quinn_proto::Connection,
        control: Shared,
        readings: Readings,
    ) -> Key {
        let key = Key { slot: handle.0, serial: self.serial };
        if self.connections.len() <= key.slot {
            self.connections.resize_with(key.slot + 1, || None);
            self.deadlines.resize(key.slot + 1, None);
        }
        let connection = Connection::new(handle, inner, control, readings, &self.settings, now);
        self.connections[key.slot] = Some((key.serial, Box::new(connection)));
        if let Some(connection) = self.get(key) {
            connection.pump(now);
        }
        self.after(now, key);
        key
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn transport(settings: &Settings, control: Shared) -> TransportConfig {
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(settings.largest_packet).black_hole_cooldown(BLACK_HOLE_COOLDOWN);
    let mut acknowledge = AckFrequencyConfig::default();
    acknowledge
        .ack_eliciting_threshold(VarInt::from_u32(ACKNOWLEDGE_EVERY))
        .max_ack_delay(Some(ACKNOWLEDGE_WITHIN));
    let idle = IdleTimeout::try_from(settings.idle).unwrap_or(VarInt::from_u32(60_000).into());
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(settings.keepalive))
        .max_concurrent_bidi_streams(FIRST_STREAMS.min(settings.streams).into())
        // The only unidirectional stream is the control stream.
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        // The engine's flow control is off, because credit bounds the data ([`crate::credit`]).
        .stream_receive_window(VarInt::MAX)
        .receive_window(VarInt::MAX)
        .send_window(crate::FIRST_CREDIT)
        .datagram_receive_buffer_size(Some(1 << 20))
        .datagram_send_buffer_size(1 << 20)
        .mtu_discovery_config(Some(mtu))
        .ack_frequency_config(Some(acknowledge))
        .initial_rtt(UNKNOWN_RTT)
        .congestion_controller_factory(Arc::new(Factory::new(control)));
    config
}

/// Maximum number of closed connections that a socket keeps. A closed connection takes some 50 kB.
const MOST_CLOSED: usize = 64;
/// Maximum number of queued answers to packets that belong to no connection. A server that is short
/// of CPU time queues answers faster than it sends them. Older answers are useless, because their
/// peers have given up.
const MOST_RESPONSES: usize = 4096;
/// After this number of packets of one connection in one batch, the endpoint sends an
/// acknowledgement.
const PUMP_AFTER: u32 = 64;
/// The number of packets per acknowledgement of the peer if no packet is missing. An
/// acknowledgement costs both ends the CPU time of a packet.
const ACKNOWLEDGE_EVERY: u32 = 8;
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(2);
/// Time after which the engine probes again for a larger packet size. If one acknowledgement
/// reveals several bursts of loss, the engine assumes that the path carries smaller packets now;
/// random loss of 5 % causes this error every few seconds.
const BLACK_HOLE_COOLDOWN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::Plain;
    use std::net::Ipv4Addr;

    #[test]
    fn the_newest_answers_beyond_the_limit_of_the_queue_are_dropped_and_counted() {
        let now = Instant::now();
        let settings = Settings {
            congestion: "fixed 1gbit".parse().unwrap(),
            keepalive: Duration::from_secs(5),
            idle: Duration::from_secs(15),
            largest_packet: 1452,
            streams: 256,
            seed: 1,
            epoch: now,
            meter: Arc::new(Meter::unlimited()),
        };
        let mut server = Plain::new(1).server(settings);
        // The packet has a long header of an unknown version (RFC 8999, section 5.1). The server
        // answers such a packet with Version Negotiation.
        let mut packet = vec![0u8; 1200];
        packet[..6].copy_from_slice(&[0xc0, 0xfa, 0xce, 0xfa, 0xce, 8]);
        packet[14] = 8;
        let remote = |port| SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), port));
        let beyond = 3;
        for number in 0..MOST_RESPONSES + beyond {
            let port = u16::try_from(number).unwrap();
            server.handle(now, now, remote(port), None, None, BytesMut::from(&packet[..]));
        }
        assert_eq!(server.responses_dropped(), beyond as u64);
        let (mut out, mut sent) = (Vec::new(), Vec::new());
        while let Some(transmit) = server.poll_transmit(now, 1, &mut out) {
            sent.push(transmit.destination.port());
            out.clear();
        }
        let oldest = u16::try_from(MOST_RESPONSES).unwrap();
        assert!(sent.iter().copied().eq(0..oldest));
    }
}
