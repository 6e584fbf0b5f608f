//! The server: admits known peers and dials the targets that the rules allow them.

mod accept;
mod division;
mod handshakes;
mod limits;
mod operation;
mod places;
mod ports;
mod reverse;
mod services;
mod stream;

pub use limits::Limits;
pub use operation::Kicked;

use crate::access::{Access, Lookups, Resolve};
use crate::access_log::{AccessLog, AccessLogAt, End};
use crate::account::{AccountFigures, Accounts, Quota, SessionFigures};
use crate::congestion::Reading;
use crate::counters::{Counted, Counters};
use crate::descriptors::Descriptors;
use crate::frame::{Opening, Properties, Request};
use crate::hand_over::{Handed, HandedUdp, TCP, TakeOverError};
use crate::health::Health;
use crate::identity::{PeerName, Pin, Proof, TrustedPeer};
use crate::journal::{Journal, Kind, Line};
use crate::memory::Budget;
use crate::peer_key::{KeyUse, PeerKey, key_uses};
use crate::quic_tun::Tunnels;
use crate::quic_tun::token::Cleartext;
use crate::session::Session;
use crate::transport::quic::{QuicError, QuicServer};
use crate::transport::tcp::TlsServer;
use crate::transport::{
    Carried, Connection, SERVER_HAS_ENDED, SERVER_SHUTS_DOWN, Shards, Statistics, Tuning,
};
use limits::Usage;
use places::{Place, Places};
use ports::Ports;
use reverse::Listeners;
use services::Services;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use units::Bytes;

/// The parts from which a server is built.
#[derive(Debug)]
pub struct ServerParts {
    /// The address on which the server listens on UDP; `None` serves TCP alone.
    pub listen: Option<SocketAddr>,
    /// The address on which the server listens on TLS over TCP.
    pub tcp: TcpAt,
    pub tls: rustls::ServerConfig,
    pub guard: Guard,
    pub resolver: Arc<dyn Resolve>,
    pub tuning: Tuning,
    pub limits: Limits,
    /// The quotas of the identities that have a quota.
    pub quotas: Vec<(PeerName, Quota)>,
    /// The file or pipe to which the server writes a line for each tunnel that has ended.
    pub access_log: Option<AccessLogAt>,
    /// The number of threads; by default one per CPU.
    pub shards: Option<usize>,
    /// The encoding of clients' tokens; `None` refuses tokens.
    pub tokens: Option<Cleartext>,
    /// The list of open tunnels for `GET /tunnels`; `None` if this end does not serve the list.
    pub tunnels: Option<Arc<Tunnels>>,
}

/// The address on which a server listens on TLS over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpAt {
    Nowhere,
    /// TCP uses the address of UDP. If another program has the TCP port, the server serves UDP
    /// alone.
    SameAsUdp,
    Address(SocketAddr),
}

impl TcpAt {
    /// Returns the address for TLS over TCP, if UDP is served at `udp`.
    pub(crate) fn address(self, udp: Option<SocketAddr>) -> Option<SocketAddr> {
        match self {
            Self::Nowhere => None,
            Self::SameAsUdp => udp,
            Self::Address(address) => Some(address),
        }
    }
}

/// The trusted peers and their rights.
#[derive(Debug, Clone)]
pub struct Guard {
    pub trusted: Vec<TrustedPeer>,
    pub access: Access,
}

/// A running server. Dropping this value ends the server immediately; [`Server::drain`] lets
/// tunnels finish first.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// The threads end when the last reference is dropped.
    threads: Arc<Shards>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error("TCP address {0} cannot be listened on: {1}; choose another --tcp-listen-on")]
    Tcp(SocketAddr, #[source] io::Error),
    #[error("the server has no carrier: give an address of UDP or TCP")]
    NoCarrier,
    #[error("the access log {0} cannot be opened: {1}; choose another --access-log")]
    AccessLog(String, #[source] io::Error),
    #[error("threads cannot be started: {0}; end other programs, or raise `ulimit -u`")]
    Threads(#[source] io::Error),
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
}

/// The status of one connection, for diagnosis of its speed.
#[derive(Debug, Clone)]
pub struct PeerStatus {
    pub peer: PeerName,
    pub remote: SocketAddr,
    pub figures: SessionFigures,
    /// A number that distinguishes the connections of this peer.
    pub number: usize,
    pub tunnels: usize,
    /// The key that the peer has proved.
    pub key: Option<PeerKey>,
    pub is_over_tcp: bool,
    /// Bytes buffered behind a gap in their stream, and the limit of this buffer.
    pub held: (Bytes, Bytes),
    pub statistics: Statistics,
}

/// A session and its peer.
#[derive(Debug)]
struct PeerSession<S> {
    peer: PeerName,
    /// The lowest number that no other session of the peer has.
    number: usize,
    session: S,
}

#[derive(Debug)]
struct Shared {
    quic: Option<QuicServer>,
    tls: TlsServer,
    tcp_address: Option<SocketAddr>,
    /// A copy of the TCP listener, for the process that takes over.
    tcp: Mutex<Option<std::net::TcpListener>>,
    /// A change makes every tunnel and connection check its rights again.
    guard: watch::Sender<Arc<Guard>>,
    lookups: Lookups<PeerName>,
    tuning: Tuning,
    limits: Limits,
    counters: Arc<Counters>,
    budget: Budget,
    listeners: Listeners,
    services: Services,
    tokens: Option<Cleartext>,
    tunnels: Option<Arc<Tunnels>>,
    journal: Journal,
    places: Arc<Places>,
    ports: Arc<Ports>,
    usage: Mutex<HashMap<PeerName, Weak<Usage>>>,
    accounts: Accounts,
    log: Arc<AccessLog>,
    sessions: Mutex<Vec<PeerSession<Weak<Session<Carried>>>>>,
    /// Cancelled once the server accepts no new connections and tunnels.
    draining: CancellationToken,
    /// Cancelled with `draining`, or once another process accepts the new connections.
    left: CancellationToken,
}

impl Server {
    pub fn start(parts: ServerParts) -> Result<Self, ServerError> {
        Self::take_over(parts, &mut Handed::default())
    }

    /// Starts with the sockets that another process handed over. Binds a new socket where the
    /// address has changed or no socket was handed over.
    pub fn take_over(parts: ServerParts, handed: &mut Handed) -> Result<Self, ServerError> {
        let udp = handed.take_udp();
        // Each socket needs one thread.
        let shards = udp.as_ref().map(|udp| udp.sockets.len()).or(parts.shards);
        let shards =
            Arc::new(Shards::start(shards, parts.tuning.gather).map_err(ServerError::Threads)?);
        let budget = Budget::new(parts.tuning.memory);
        let (tuning, meter) = (parts.tuning.clone(), budget.meter());
        let tls = TlsServer::new(parts.tls.clone(), tuning.clone(), meter);
        check_address(parts.listen, udp.as_ref())?;
        let quic = match (parts.listen, udp) {
            (Some(_), Some(udp)) => Some(QuicServer::on(udp, parts.tls, tuning, meter, &shards)?),
            (Some(at), None) => Some(QuicServer::bind(at, parts.tls, tuning, meter, &shards)?),
            (None, _) => None,
        };
        let udp = quic.as_ref().and_then(QuicServer::local_addr);
        let tcp = listen_tcp(parts.tcp, udp, handed.take(TCP).map(std::net::TcpListener::from))?;
        if udp.is_none() && tcp.is_none() {
            return Err(ServerError::NoCarrier);
        }
        shards.spawn(0, budget.clone().keep());
        let (limits, descriptors) = (parts.limits, Descriptors::of_process());
        let lookups = descriptors.map_or(usize::MAX, |all| all.for_lookups()).min(limits.lookups);
        let counters = Arc::<Counters>::default();
        let draining = CancellationToken::new();
        let shared = Arc::new(Shared {
            quic,
            tls,
            tcp: Mutex::new(tcp.as_ref().and_then(|listener| listener.try_clone().ok())),
            tcp_address: tcp.as_ref().and_then(|listener| listener.local_addr().ok()),
            guard: watch::Sender::new(Arc::new(parts.guard)),
            lookups: Lookups::new(parts.resolver, limits.lookups_each, lookups),
            budget,
            tuning: parts.tuning,
            places: Places::new(&limits, descriptors),
            ports: Ports::new(local_ports()),
            limits,
            log: Arc::new(AccessLog::new(&counters)),
            counters,
            listeners: Listeners::default(),
            services: Services::default(),
            tokens: parts.tokens,
            tunnels: parts.tunnels,
            journal: Journal::default(),
            usage: Mutex::default(),
            accounts: Accounts::default(),
            sessions: Mutex::default(),
            left: draining.child_token(),
            draining,
        });
        shared.open_access_log(parts.access_log.as_ref())?;
        shared.accounts.set_quotas(&parts.quotas);
        shards.spawn(0, operation::sample_rates(Arc::downgrade(&shared)));
        for shard in 0..shards.count() {
            shards.spawn(shard, accept::run(Arc::clone(&shared), shard));
        }
        if let Some(listener) = tcp {
            let handles = (0..shards.count()).map(|shard| shards.handle(shard).clone()).collect();
            shards.spawn(0, accept::run_tcp(Arc::clone(&shared), listener, handles));
        }
        Ok(Self { shared, threads: shards })
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        let udp = self.shared.quic.as_ref().and_then(QuicServer::local_addr);
        udp.or(self.shared.tcp_address)
    }

    /// Returns the addresses of both carriers: UDP without a prefix, TCP with the prefix `tcp:`.
    pub fn listens_on(&self) -> Vec<String> {
        let udp = self.shared.quic.as_ref().and_then(QuicServer::local_addr);
        let tcp = self.shared.tcp_address.map(|address| format!("tcp:{address}"));
        udp.map(|address| address.to_string()).into_iter().chain(tcp).collect()
    }

    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.shared.tcp_address
    }

    /// Replaces the trusted peers and their rights. Connected peers that are no longer trusted are
    /// disconnected (`revocation`). Tunnels and listeners that are no longer allowed end; other
    /// tunnels and listeners continue.
    pub fn replace_guard(&self, guard: Guard) {
        self.shared.guard.send_replace(Arc::new(guard));
    }

    /// Replaces the quotas of all identities. Connections and tunnels continue.
    pub fn replace_quotas(&self, quotas: &[(PeerName, Quota)]) {
        self.shared.accounts.set_quotas(quotas);
    }

    /// Returns the accounts of the identities, by name.
    pub fn accounts(&self) -> Vec<AccountFigures> {
        self.shared.accounts.figures()
    }

    pub fn health(&self) -> Health {
        self.threads.health()
    }

    pub fn counted(&self) -> Counted {
        self.shared.counters.now()
    }

    pub fn memory_granted(&self) -> Bytes {
        self.shared.budget.granted()
    }

    /// Returns the memory that peers make this end hold.
    pub fn memory_held(&self) -> Bytes {
        self.shared.budget.held()
    }

    pub fn peers(&self) -> Vec<PeerStatus> {
        let sessions = self.shared.sessions().into_iter();
        type Alive = PeerSession<Arc<Session<Carried>>>;
        let status = |Alive { peer, number, session }| PeerStatus {
            peer,
            number,
            remote: session.connection.remote(),
            figures: session.meter.figures(),
            tunnels: session.tunnels(),
            key: session.key,
            is_over_tcp: session.connection.over_tcp().is_some(),
            held: session.windows.held(),
            statistics: session.connection.statistics(),
        };
        sessions.map(status).collect()
    }

    /// Returns each service with the client that offers it.
    pub fn services(&self) -> Vec<(String, PeerName)> {
        self.shared.services.offered()
    }

    /// Returns each peer that has several pins, with the number of connections that use each pin.
    pub fn keys(&self) -> Vec<KeyUse> {
        let mut used: HashMap<PeerName, Vec<Pin>> = HashMap::new();
        for PeerSession { peer, session, .. } in self.shared.sessions() {
            used.entry(peer).or_default().extend(session.key.map(|key| key.pin));
        }
        let of_peer = |peer: &TrustedPeer| {
            let Proof::Pins(pins) = &peer.proof else { return Vec::new() };
            key_uses(&peer.name, pins, used.get(&peer.name).map_or(&[], Vec::as_slice))
        };
        self.shared.guard().trusted.iter().flat_map(of_peer).collect()
    }

    /// Asks all clients for new connections, which prove the present key of this end. Open tunnels
    /// stay on their connections, which end with their last tunnel. Clients of earlier versions
    /// refuse, and keep their connections.
    pub fn renew_connections(&self) {
        self.threads.spawn(0, ask_all_for_renewal(Arc::clone(&self.shared)));
    }

    /// Accepts no new tunnels, waits until all tunnels have ended or `patience` has passed, and
    /// notifies the peers.
    pub async fn drain(self, patience: Duration) {
        self.begin_drain();
        self.shared.counters.no_tunnels(patience).await;
        self.shared.close(SERVER_SHUTS_DOWN);
        let notified = async {
            if let Some(quic) = &self.shared.quic {
                quic.notified().await;
            }
            if self.shared.tcp_address.is_some() {
                tokio::time::sleep(LAST_BYTES).await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, notified).await;
        // Dropping joins the threads, which a task must not do.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.draining.cancel();
        self.shared.close(SERVER_HAS_ENDED);
    }
}

impl PeerStatus {
    pub fn reading(&self) -> Reading {
        self.statistics.reading
    }
}

impl Shared {
    /// Closes all connections.
    fn close(&self, why: &str) {
        for PeerSession { session, .. } in self.sessions() {
            session.meter.close_as(End::Shutdown);
            if session.connection.over_tcp().is_some() {
                session.connection.close(why);
            }
        }
        if let Some(quic) = &self.quic {
            quic.close(why);
        }
    }

    fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.guard.borrow())
    }

    /// Returns the log line for an event of `remote`; `None` if this source has caused too many
    /// lines.
    fn line(&self, remote: SocketAddr, kind: Kind) -> Option<Line> {
        self.journal.line(Instant::now(), remote.ip(), kind)
    }

    /// Waits until `may` no longer holds for the rules.
    async fn revoked(&self, peer: &PeerName, may: impl Fn(&Access) -> bool) {
        let mut guard = self.guard.subscribe();
        loop {
            let now = Arc::clone(&guard.borrow_and_update());
            if !may(&now.access) {
                tracing::info!(%peer, "the rules no longer allow this tunnel or listener");
                return;
            }
            if guard.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Returns the number of identities that share this server's resources.
    fn identities(&self) -> usize {
        self.guard.borrow().trusted.len()
    }

    /// Reserves a slot for a tunnel or a listener of this peer.
    fn place(&self, peer: &PeerName) -> Result<Place, String> {
        self.places.take(peer, self.identities())
    }

    fn sessions(&self) -> Vec<PeerSession<Arc<Session<Carried>>>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = sessions.iter().filter_map(|PeerSession { peer, number, session }| {
            let (peer, number) = (peer.clone(), *number);
            Some(PeerSession { peer, number, session: session.upgrade()? })
        });
        alive.collect()
    }

    /// Lists the session until it ends.
    fn add_session(&self, peer: &PeerName, session: &Arc<Session<Carried>>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|one| one.session.strong_count() > 0);
        let is_free =
            |number: &usize| !sessions.iter().any(|one| one.peer == *peer && one.number == *number);
        let number = (0..=sessions.len()).find(is_free).unwrap_or_default();
        let session = Arc::downgrade(session);
        sessions.push(PeerSession { peer: peer.clone(), number, session });
    }

    fn usage(&self, peer: &PeerName) -> Arc<Usage> {
        let mut all = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(usage) = all.get(peer).and_then(Weak::upgrade) {
            return usage;
        }
        all.retain(|_, usage| usage.strong_count() > 0);
        let usage = Arc::<Usage>::default();
        all.insert(peer.clone(), Arc::downgrade(&usage));
        usage
    }
}

/// Refuses a changed UDP address, because open connections need the sockets that were handed over.
fn check_address(listen: Option<SocketAddr>, udp: Option<&HandedUdp>) -> Result<(), TakeOverError> {
    let Some((socket, _)) = udp.and_then(|udp| udp.sockets.first()) else { return Ok(()) };
    let Ok(theirs) = socket.local_addr() else { return Ok(()) };
    match listen.is_some_and(|ours| is_same(ours, theirs)) {
        true => Ok(()),
        false => Err(TakeOverError::Address {
            theirs: theirs.to_string(),
            ours: listen.map_or_else(|| "no UDP".to_owned(), |ours| ours.to_string()),
        }),
    }
}

/// Whether binding a socket to `asked` may have given it the address `bound`.
fn is_same(asked: SocketAddr, bound: SocketAddr) -> bool {
    asked.ip() == bound.ip() && [0, bound.port()].contains(&asked.port())
}

/// Binds the TCP listener of a server whose UDP address is `udp`, or takes over `handed`. `handed`
/// is the listener of another process.
fn listen_tcp(
    at: TcpAt,
    udp: Option<SocketAddr>,
    handed: Option<std::net::TcpListener>,
) -> Result<Option<std::net::TcpListener>, ServerError> {
    let Some(address) = at.address(udp) else { return Ok(None) };
    let is_there =
        |one: &std::net::TcpListener| one.local_addr().is_ok_and(|bound| is_same(address, bound));
    if let Some(handed) = handed.filter(is_there) {
        return Ok(Some(handed));
    }
    let listen = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    match listen() {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if at == TcpAt::SameAsUdp => {
            tracing::warn!(
                %address, %error,
                "no TCP for networks that block UDP: choose a free --tcp-listen-on, or --carrier udp"
            );
            Ok(None)
        }
        Err(error) => Err(ServerError::Tcp(address, error)),
    }
}

async fn ask_all_for_renewal(shared: Arc<Shared>) {
    for some in shared.sessions().chunks(RENEWED_AT_ONCE) {
        for PeerSession { session, .. } in some {
            tokio::spawn(tokio::time::timeout(RENEWAL, ask_for_renewal(Arc::clone(session))));
        }
        // If all clients reconnected at once, they would exceed the limits of handshakes.
        tokio::time::sleep(RENEWALS_APART).await;
    }
}

async fn ask_for_renewal(session: Arc<Session<Carried>>) {
    let opening = Opening { request: Request::Renew, properties: Properties::default() };
    if let Ok((_sending, mut inbound)) = session.open(&opening).await {
        let _ = inbound.answer().await;
    }
}

/// Returns the number of ports from which the kernel chooses for outgoing connections.
fn local_ports() -> usize {
    let range = host::read_sysctl("net.ipv4.ip_local_port_range").unwrap_or_default();
    let mut ends = range.split(' ').filter_map(|end| end.parse::<usize>().ok());
    let (first, last) = (ends.next().unwrap_or(32_768), ends.next().unwrap_or(60_999));
    (last + 1).saturating_sub(first).max(1)
}

const FAREWELL: Duration = Duration::from_secs(1);
/// Maximum time that the drivers of TCP connections may take to send their last frames.
const LAST_BYTES: Duration = Duration::from_millis(50);
/// How many clients the server asks at once for a new connection, and the pause before it asks the
/// next clients.
const RENEWED_AT_ONCE: usize = 50;
const RENEWALS_APART: Duration = Duration::from_millis(250);
/// Maximum time that a client may take to establish a new connection after the server has asked for
/// it.
const RENEWAL: Duration = Duration::from_secs(10);
