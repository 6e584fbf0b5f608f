//! The client: listens for local applications and carries their data to a server.

mod associate;
mod backoff;
mod failover;
mod failures;
mod link;
mod listener;
mod listeners;
mod negotiations;
mod proxies;
mod refusals;
mod reverse;

pub use reverse::Reverse;

use crate::access::{LOOKUPS, LOOKUPS_EACH, Lookups, Resolve};
use crate::account::SessionFigures;
use crate::counters::{Counted, Counters};
use crate::descriptors::Descriptors;
use crate::hand_over::Handed;
use crate::health::Health;
use crate::identity::ServerTrust;
use crate::journal::{Journal, Kind, Line};
use crate::memory::Budget;
use crate::peer_key::{KeyUse, PeerKey, key_uses};
use crate::proxy::Users;
use crate::quic_tun::Tunnels;
use crate::quic_tun::source::TokenSource;
use crate::session::Session;
use crate::target::{HostPort, Target, TargetError};
use crate::transport::quic::{QuicClient, QuicError};
use crate::transport::tcp::TlsClient;
use crate::transport::{Carried, Carrier, Connection, Shards, Statistics, Tuning};
use failures::Failures;
use link::{Link, Links};
use listeners::{Listeners, Reverses};
use refusals::{Cause, Refusals};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use units::{Bytes, Span};

/// The parts from which a client is built.
#[derive(Debug)]
pub struct ClientParts {
    /// The servers in order of preference. The client uses the next server if the previous server
    /// cannot be reached.
    pub servers: Vec<ServerAt>,
    pub listeners: Vec<Listener>,
    pub reverse: Vec<Reverse>,
    pub resolver: Arc<dyn Resolve>,
    pub tuning: Tuning,
    pub limits: ClientLimits,
    /// The number of parallel connections to one server. Tunnels are spread over these connections.
    pub connections: usize,
    pub carrier: Carrier,
    /// The number of threads; by default one per CPU.
    pub shards: Option<usize>,
    /// The list of open tunnels for `GET /tunnels`; `None` if this end does not serve the list.
    pub tunnels: Option<Arc<Tunnels>>,
}

#[derive(Debug)]
pub struct ServerAt {
    pub address: HostPort,
    pub trust: ServerTrust,
    pub tls: rustls::ClientConfig,
    /// The port of TLS over TCP, if it differs from the port of UDP.
    pub tcp_port: Option<u16>,
}

/// A local listener. The listener's applications reach a target as seen from the server.
#[derive(Debug, Clone)]
pub struct Listener {
    pub listen: ListenAt,
    pub route: Route,
}

/// The way in which the connections of a listener get their target.
#[derive(Debug, Clone)]
pub enum Route {
    Target(Target),
    /// Each application names its target in SOCKS5 (RFC 1928). With `Users`, each application must
    /// also log in.
    Socks5(Option<Arc<Users>>),
    /// Each application names its target in HTTP's CONNECT. With `Users`, each application must
    /// also log in.
    HttpConnect(Option<Arc<Users>>),
    /// The server derives the target from a token.
    Token(Arc<TokenSource>),
}

impl FromStr for Route {
    type Err = TargetError;

    /// Parses a target into [`Route::Target`].
    fn from_str(text: &str) -> Result<Self, TargetError> {
        text.parse().map(Self::Target)
    }
}

impl From<Target> for Route {
    fn from(target: Target) -> Self {
        Self::Target(target)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAt {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ClientLimits {
    /// Maximum number of tunnels. The process's limit of open files may permit fewer tunnels.
    pub tunnels: usize,
    /// Maximum time for which an application waits for a connection to the server.
    pub patience: Duration,
    /// Timeout for the server's answer to an opening, including the server's dial.
    pub answer: Duration,
    pub datagrams_idle: Duration,
}

/// A running client. Dropping this value ends the client immediately; [`Client::drain`] lets
/// tunnels finish first.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    shards: Arc<Shards>,
    listeners: Listeners,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error("threads cannot be started: {0}; end other programs, or raise `ulimit -u`")]
    Threads(#[source] io::Error),
    #[error("{0} cannot be listened on: {1}{advice}", advice = advice(.1))]
    Listen(ListenAt, #[source] io::Error),
    #[error("a client needs a server: name one at least")]
    NoServer,
    #[error(
        "no server has answered within {within}, so the running client goes on: {why}",
        within = Span::from(*.0).shown(), why = .1
    )]
    NotConnected(Duration, String),
    #[error(
        "a listener at the server and its target must both carry datagrams, or neither: {0} and {1}"
    )]
    MixedReverse(Target, Target),
    #[error("a listener and its target must both carry datagrams, or neither: {0} and {1}")]
    Mixed(ListenAt, Target),
    #[error("{0} cannot be listened on by a proxy: choose a TCP address")]
    MixedProxy(ListenAt),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": stop its owner (ss -tulpn), or choose another address",
        io::ErrorKind::AddrNotAvailable => ": see `ip address`, or choose another address",
        io::ErrorKind::PermissionDenied => {
            ": choose a port from 1024 on, or a folder that you may write to"
        }
        _ => "",
    }
}

/// The status of one connection, for diagnosis of its speed.
#[derive(Debug, Clone)]
pub struct LinkStatus {
    /// `None` while there is no connection.
    pub server: Option<HostPort>,
    pub remote: Option<SocketAddr>,
    pub figures: SessionFigures,
    pub tunnels: usize,
    /// The key that the server has proved.
    pub key: Option<PeerKey>,
    /// Whether another connection has replaced this connection. A replaced connection takes no new
    /// tunnels.
    pub is_retiring: bool,
    /// The reason for which TCP carries the connection; `None` over UDP.
    pub over_tcp: Option<String>,
    pub statistics: Statistics,
}

/// A server of a client, and whether the client can use the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    pub address: HostPort,
    /// The number of connections that take new tunnels.
    pub connections: usize,
    /// Whether the server has lately refused this client's key. Other servers are then preferred.
    pub is_refusing: bool,
    /// The reason for which the last attempt to connect failed; `None` if the attempt did not fail.
    pub failure: Option<String>,
}

#[derive(Debug)]
struct Shared {
    servers: Vec<Arc<Remote>>,
    resolver: Arc<dyn Resolve>,
    /// Limits name look-ups, for each reverse listener by its number. The clients of such a
    /// listener cause look-ups of the target's name.
    lookups: Lookups<u32>,
    tuning: Tuning,
    limits: ClientLimits,
    /// A permit for each tunnel that occupies a descriptor.
    places: Arc<Semaphore>,
    journal: Journal,
    reverses: Reverses,
    carrier: Carrier,
    tunnels: Option<Arc<Tunnels>>,
    counters: Arc<Counters>,
    budget: Budget,
    links: Links,
    draining: CancellationToken,
    /// Cancelled when the client ends.
    ended: CancellationToken,
}

#[derive(Debug)]
struct Remote {
    address: HostPort,
    trust: watch::Sender<ServerTrust>,
    quic: QuicClient,
    tls: TlsClient,
    tcp_port: Option<u16>,
    /// Whether TCP carried the last connection because UDP did not answer.
    is_udp_blocked: AtomicBool,
    failures: Failures,
    refusals: Refusals,
}

impl Client {
    pub async fn start(parts: ClientParts) -> Result<Self, ClientError> {
        Self::take_over(parts, &mut Handed::default()).await
    }

    /// Starts with the listening sockets that another process handed over, and binds the missing
    /// sockets.
    pub async fn take_over(parts: ClientParts, handed: &mut Handed) -> Result<Self, ClientError> {
        if parts.servers.is_empty() {
            return Err(ClientError::NoServer);
        }
        check_reverse(&parts.reverse)?;
        let shards = Arc::new(
            Shards::start(parts.shards, parts.tuning.gather).map_err(ClientError::Threads)?,
        );
        let budget = Budget::new(parts.tuning.memory);
        let slots = parts.connections.clamp(1, MOST_CONNECTIONS);
        let hosts = parts.servers.iter().map(|server| server.address.host());
        let own = slots * link::descriptors(hosts, parts.tuning.handshake);
        let tunnels = places(&parts.limits, Descriptors::of_process(), own);
        let mut servers = Vec::new();
        for server in parts.servers {
            servers.push(Arc::new(Remote {
                trust: watch::Sender::new(server.trust),
                tls: TlsClient::new(server.tls.clone(), parts.tuning.clone(), budget.meter()),
                quic: QuicClient::new(server.tls, parts.tuning.clone(), budget.meter())?,
                tcp_port: server.tcp_port,
                is_udp_blocked: AtomicBool::new(false),
                failures: Failures::default(),
                refusals: Refusals::default(),
                address: server.address,
            }));
        }
        let shared = Arc::new(Shared {
            servers,
            lookups: Lookups::new(Arc::clone(&parts.resolver), LOOKUPS_EACH, LOOKUPS),
            resolver: parts.resolver,
            budget: budget.clone(),
            tuning: parts.tuning,
            places: Arc::new(Semaphore::new(tunnels)),
            journal: Journal::default(),
            limits: parts.limits,
            reverses: Reverses::default(),
            carrier: parts.carrier,
            tunnels: parts.tunnels,
            counters: Arc::default(),
            links: Links::new(slots, &shards),
            draining: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let client = Self { shared, shards, listeners: Listeners::default() };
        let takes_over = handed.is_of_process();
        if !takes_over {
            client.open_listeners(parts.listeners.clone(), handed).await?;
        }
        for link in client.shared.links.all() {
            let maintain = Link::maintain(Arc::clone(link), Arc::clone(&client.shared));
            client.until_ended(link.shard(), maintain);
        }
        client.until_ended(client.shards.handle(0), budget.keep());
        let sample = sample_rates(Arc::downgrade(&client.shared));
        client.until_ended(client.shards.handle(0), sample);
        if takes_over {
            // The running client serves applications until this client has a connection.
            if tokio::time::timeout(CONNECTS_WITHIN, client.connected()).await.is_err() {
                let why = client.servers().into_iter().find_map(|server| server.failure);
                let why = why.unwrap_or_else(|| "silence".to_owned());
                return Err(ClientError::NotConnected(CONNECTS_WITHIN, why));
            }
            client.open_listeners(parts.listeners, handed).await?;
        }
        client.shared.reverses.replace(&parts.reverse, &client.shared, &client.shards);
        Ok(client)
    }

    async fn open_listeners(
        &self,
        listeners: Vec<Listener>,
        handed: &mut Handed,
    ) -> Result<(), ClientError> {
        self.listeners.replace(listeners, &self.shared, &self.shards, handed).await
    }

    /// Replaces all listeners with `listeners`. Existing tunnels continue. If one of the addresses
    /// cannot be bound, all present listeners stay. Does nothing once the client drains.
    pub async fn replace_listeners(
        &self,
        listeners: Vec<Listener>,
        reverse: &[Reverse],
    ) -> Result<(), ClientError> {
        check_reverse(reverse)?;
        // A client that drains must not open a listener, because another process may have its
        // address.
        if self.shared.draining.is_cancelled() {
            return Ok(());
        }
        self.open_listeners(listeners, &mut Handed::default()).await?;
        self.shared.reverses.replace(reverse, &self.shared, &self.shards);
        Ok(())
    }

    fn until_ended(&self, shard: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        shard.spawn(async move {
            tokio::select! {
                () = task => {}
                () = shared.ended.cancelled() => {}
            }
        });
    }

    /// Replaces the trust in the server with this index in the configured order. Ends connections
    /// and handshakes that the new trust does not cover.
    pub fn replace_trust(&self, server: usize, trust: &ServerTrust) {
        if let Some(server) = self.shared.servers.get(server) {
            server.trust.send_replace(trust.clone());
        }
    }

    /// Returns the trust in the server with this index in the configured order.
    pub fn trust(&self, server: usize) -> Option<ServerTrust> {
        self.shared.servers.get(server).map(|server| server.trust.borrow().clone())
    }

    /// Returns the bound addresses, in the order of the listeners, with actual ports in place of
    /// port 0.
    pub fn bound(&self) -> Vec<ListenAt> {
        self.listeners.bound()
    }

    /// Returns the listeners in the notation of the configuration; proxies with their protocol.
    pub fn listens_on(&self) -> Vec<String> {
        self.listeners.shown()
    }

    /// Waits until one connection is established.
    pub async fn connected(&self) {
        self.shared.links.connected().await;
    }

    pub fn health(&self) -> Health {
        self.shards.health()
    }

    pub fn counted(&self) -> Counted {
        self.shared.counters.now()
    }

    /// Returns the memory that servers make this end hold.
    pub fn memory_held(&self) -> Bytes {
        self.shared.budget.held()
    }

    pub fn memory_granted(&self) -> Bytes {
        self.shared.budget.granted()
    }

    /// Returns the status of all connections. Connections that take new tunnels come first.
    pub fn links(&self) -> Vec<LinkStatus> {
        let status = |server: usize, session: &Session<Carried>| LinkStatus {
            server: self.shared.servers.get(server).map(|remote| remote.address.clone()),
            remote: Some(session.connection.remote()),
            figures: session.meter.figures(),
            tunnels: session.tunnels(),
            key: session.key,
            is_retiring: session.retired.is_cancelled(),
            over_tcp: session.connection.over_tcp().map(str::to_owned),
            statistics: session.connection.statistics(),
        };
        let of_link = |link: &Arc<Link>| match link.current() {
            Some((server, session)) => status(server, &session),
            None => LinkStatus {
                server: None,
                remote: None,
                figures: SessionFigures::default(),
                tunnels: 0,
                key: None,
                is_retiring: false,
                over_tcp: None,
                statistics: Statistics::default(),
            },
        };
        let mut all: Vec<_> = self.shared.links.all().iter().map(of_link).collect();
        let retiring = self.shared.links.retiring();
        all.extend(retiring.iter().map(|(server, session)| status(*server, session)));
        all
    }

    /// Returns the state of each server, in the configured order.
    pub fn servers(&self) -> Vec<ServerState> {
        let links = self.links();
        let used = |address: &HostPort| {
            let is_used =
                |link: &&LinkStatus| link.server.as_ref() == Some(address) && !link.is_retiring;
            links.iter().filter(is_used).count()
        };
        let now = Instant::now();
        let of_remote = |remote: &Arc<Remote>| {
            let refusal = remote.refusals.last(now);
            ServerState {
                address: remote.address.clone(),
                connections: used(&remote.address),
                is_refusing: refusal.as_ref().is_some_and(|refusal| refusal.cause == Cause::Key),
                failure: refusal.map(|one| one.why).or_else(|| remote.failures.reason()),
            }
        };
        self.shared.servers.iter().map(of_remote).collect()
    }

    /// Returns each server that has several pins, with the number of connections that use each pin.
    pub fn keys(&self) -> Vec<KeyUse> {
        let links = self.links();
        let of_server = |remote: &Arc<Remote>| {
            let ServerTrust::Pins(pins) = &*remote.trust.borrow() else { return Vec::new() };
            let used = links.iter().filter(|link| link.server.as_ref() == Some(&remote.address));
            let used: Vec<_> = used.filter_map(|link| Some(link.key?.pin)).collect();
            key_uses(&remote.address, pins, &used)
        };
        self.shared.servers.iter().flat_map(of_server).collect()
    }

    /// Replaces all connections, so that new tunnels use the present key of this end. Open tunnels
    /// stay on their connections, which end with their last tunnel.
    pub fn renew_connections(&self) {
        self.shared.servers.iter().for_each(|remote| remote.refusals.on_new_key());
        self.shared.links.renew();
    }

    /// Returns copies of the listening sockets for another process.
    pub fn hand_over(&self) -> io::Result<Handed> {
        let mut handed = Handed::default();
        self.listeners.hand_over(&mut handed)?;
        Ok(handed)
    }

    /// Continues after a failed hand-over.
    pub fn take_back(&self) {
        self.listeners.take_back();
    }

    /// Accepts no new tunnels from now on: another process has the listeners. Open tunnels
    /// continue.
    pub fn leave(&self) {
        self.listeners.leave();
        self.begin_drain();
    }

    /// Accepts no new tunnels from now on. Open tunnels continue.
    pub fn begin_drain(&self) {
        self.shared.draining.cancel();
        self.listeners.forget_sockets();
    }

    /// Accepts no new tunnels, waits until all tunnels have ended or `patience` has passed, and
    /// notifies the server.
    pub async fn drain(self, patience: Duration) {
        self.begin_drain();
        self.shared.counters.no_tunnels(patience).await;
        self.shared.links.close("the client is shutting down");
        // Let the drivers send their last packets before the threads end.
        tokio::time::sleep(FAREWELL).await;
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

/// Computes the rates of the connections once a second, until the client ends.
async fn sample_rates(shared: Weak<Shared>) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(SECOND).await;
        let Some(shared) = shared.upgrade() else { return };
        let elapsed = last.elapsed();
        last = Instant::now();
        let current = shared.links.all().iter().filter_map(|link| link.current());
        for (_, session) in current.chain(shared.links.retiring()) {
            session.meter.second(elapsed);
        }
    }
}

impl Shared {
    /// Takes a tunnel's permit; if none is left, counts and logs the refusal.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        if place.is_none() {
            self.counters.tunnels_over_limit.increment();
            if let Some(Line { omitted }) = self.line(HERE, Kind::Denial) {
                tracing::warn!(
                    omitted,
                    "tunnel refused: too many are open here; close idle ones, or raise the limit of \
                     open files (LimitNOFILE, ulimit -n)"
                );
            }
        }
        place
    }

    /// Returns the log line for an event that this address caused; `None` if the address has caused
    /// too many lines.
    fn line(&self, from: IpAddr, kind: Kind) -> Option<Line> {
        self.journal.line(Instant::now(), from, kind)
    }
}

/// Returns the number of tunnels that this process may have. Tunnels share the process's
/// descriptors with connections and connection attempts, which need `own` descriptors for their
/// sockets and timers.
fn places(limits: &ClientLimits, descriptors: Option<Descriptors>, own: usize) -> usize {
    let Some(descriptors) = descriptors else { return limits.tunnels };
    let shared = descriptors.for_tunnels();
    // With a low limit, an attempt to connect may fail, and the client then tries again.
    let possible = shared - own.min(shared / 2);
    if possible < limits.tunnels {
        tracing::info!(
            tunnels = possible,
            "the limit of open files bounds the tunnels: for more, raise it (LimitNOFILE, ulimit -n)"
        );
    }
    limits.tunnels.min(possible)
}

fn check_reverse(all: &[Reverse]) -> Result<(), ClientError> {
    match all.iter().find(|one| one.listen.is_datagrams() != one.target.is_datagrams()) {
        Some(Reverse { listen, target }) => {
            Err(ClientError::MixedReverse(listen.clone(), target.clone()))
        }
        None => Ok(()),
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.draining.cancel();
        self.shared.ended.cancel();
        self.shared.links.close("the client has ended");
        let _ = &self.shards;
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            tunnels: 12_000,
            patience: Duration::from_secs(15),
            answer: Duration::from_secs(15),
            datagrams_idle: Duration::from_secs(60),
        }
    }
}

/// Maximum number of parallel connections; more would not increase the throughput.
const MOST_CONNECTIONS: usize = 16;
/// The source address for log lines about events of local applications.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Maximum time that a client that takes over may take to connect to a server.
const CONNECTS_WITHIN: Duration = Duration::from_secs(8);
const FAREWELL: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_descriptors_for_attempts_to_connect_to_all_its_servers() {
        let own =
            |hosts: &[&str]| link::descriptors(hosts.iter().copied(), Tuning::default().handshake);
        // Four handshakes with an address, seven with a name of four addresses, TCP to each
        // address, the present connection and the former connection.
        assert_eq!(own(&["192.0.2.1"]), 4 + 9);
        assert_eq!(own(&["192.0.2.1", "two.example"]), 4 + 9 + 18);
        // A handshake takes at most ten seconds, and the attempts begin a second apart.
        assert_eq!(own(&["192.0.2.1"; 100]), 4 + 12 * 9);
        let limits = ClientLimits::default();
        let allowed =
            |limit| places(&limits, Some(Descriptors::new(limit, 24)), own(&["a.example"; 4]));
        assert_eq!(allowed(1024), 1024 - 24 - 128 - 76);
        assert_eq!((allowed(64), allowed(24)), (12, 0));
    }
}
