//! Runs an end as a process: it starts, prints its addresses, runs until a signal, and lets tunnels
//! finish.

mod drain;
mod endpoints;
mod hand_over;
mod manage;

pub use hand_over::TakeOver;
pub use manage::{drain, drained, fetch_key, kick};

use crate::access::{Resolve, SystemResolver};
use crate::client::{Client, ClientError};
use crate::config::{
    ClientConfig, ConfigError, ConfinedPaths, FarServer, Forward, MetricsAddress, ServerConfig,
    Settings, TokenForward,
};
use crate::confinement;
use crate::hand_over::TakeOverError;
use crate::health::{Health, Supervisor};
use crate::identity::{Certificate, ClientCredentials, Identity, IdentityError, handed};
use crate::quic_tun::{self, Tunnels, TunnelsAt};
use crate::server::{Guard, Server, ServerError};
use crate::status::{
    self, Answer, Directory, Facts, KickedSession, MetricsListener, Reply, Request, Status,
    StatusError,
};
use crate::transport::quic::QuicError;
use drain::Drain;
use endpoints::StatusEndpoints;
use hand_over::{Former, Handing, SETTLED};
use host::SocketFile;
use rustls::pki_types::UnixTime;
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Interval;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error("metrics cannot be served on {0}: {1}; choose another --metrics-on")]
    Metrics(MetricsAddress, #[source] io::Error),
    #[error("GET /tunnels cannot be served on {0}: {1}; choose another --httpd-listen-on")]
    Api(MetricsAddress, #[source] io::Error),
    #[error(
        "a task that this end depends on has failed: restart it, and report the panic in its log"
    )]
    Failed,
    #[error("the process cannot start: {0}")]
    Process(#[source] io::Error),
    #[error("{} ends run here: name one by --status-socket: {}", .0.len(), .0.join(", "))]
    SeveralEnds(Vec<String>),
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
}

impl RunError {
    /// Returns the error for a request that needs one of these ends of this user.
    pub fn several<'a>(ends: impl IntoIterator<Item = &'a Status>) -> Self {
        let directory = Directory::of_user();
        let path = |end: &Status| directory.path().join(end.socket_name()).display().to_string();
        Self::SeveralEnds(ends.into_iter().map(path).collect())
    }

    /// Whether another command line or file would avoid the error.
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::SeveralEnds(_)
            | Self::TakeOver(TakeOverError::Several(_) | TakeOverError::NotHere { .. })
            | Self::Server(ServerError::TakeOver(_)) => true,
            Self::Identity(error) => error.is_misuse(),
            // The user named an address that this machine does not have.
            Self::Server(ServerError::Quic(QuicError::Bind(_, error)))
            | Self::Client(ClientError::Quic(QuicError::Bind(_, error)))
            | Self::Client(ClientError::Listen(_, error))
            | Self::Metrics(_, error)
            | Self::Api(_, error) => error.kind() == io::ErrorKind::AddrNotAvailable,
            _ => false,
        }
    }
}

/// Runs a server until SIGINT or SIGTERM; a second signal ends the process at once. On SIGHUP,
/// `again` supplies the new configuration, and the log names the settings that need a restart.
/// `say` prints lines for the user.
///
/// With `take_over`, the process takes over the sockets of a server that runs on this machine.
pub fn server(
    config: &ServerConfig,
    take_over: Option<TakeOver>,
    again: impl Fn() -> Result<ServerConfig, ConfigError>,
    say: impl Fn(String),
) -> Result<(), RunError> {
    open_many_files();
    runtime()?.block_on(async {
        let mut signals = Signals::install()?;
        let supervisor = Arc::new(Supervisor::of_environment());
        let mut former = Former::find("server", &config.settings, take_over, &say).await?;
        let endpoints = StatusEndpoints::open("server", &config.settings, former.sockets()).await?;
        let api = open_api(config.tunnels_at.as_ref()).await?;
        let resolver = confine(&config.confined_paths, &config.settings)?;
        let credentials = config.credentials();
        let parts = config.parts(&credentials, resolver)?;
        let tunnels = parts.tunnels.clone();
        let server = Arc::new(Server::take_over(parts, former.sockets())?);
        let facts = Arc::new(Mutex::new(facts(&config.identity, &config.settings)));
        let (weak, shown, access) =
            (Arc::downgrade(&server), Arc::clone(&facts), config.access.clone());
        let _api = serve_api(api, tunnels);
        let (drain, mut requested) = Drain::new(Arc::clone(&facts));
        let status = move |server: &Server| Status::of_server(server, &access, &lock(&shown));
        let (handing, mut left) = Handing::new(
            Arc::downgrade(&server),
            &facts,
            &supervisor,
            (Server::hand_over, Server::take_back),
            &former,
        );
        former.started(&supervisor, &endpoints)?;
        let manage = move |server: &Server, request| match request {
            Request::Kick { session } => kicked(server, &session),
            Request::Drain { timeout_seconds } => {
                drain.within(timeout_seconds, server.counted().tunnels)
            }
            Request::TakeOver { .. } => Reply::Refused(NO_HAND_OVER.to_owned()),
            Request::Key {} => Reply::Key(handed::text()),
        };
        let endpoints = endpoints.serve(weak, status, manage, handing);
        let mut expiry = ExpiryWarning::new();
        expiry.warn(config.identity.certificate());
        if let Some(address) = server.local_addr() {
            say(format!("listening on {address}; this server's pin is {}", config.identity.pin()));
        }
        supervisor.tell("READY=1");
        let watched = Arc::downgrade(&server);
        let watching =
            supervisor.watch(|| watched.upgrade().map_or(Health::Good, |end| end.health()));
        tokio::pin!(watching);
        let mut patience = PATIENCE;
        loop {
            let received = tokio::select! {
                received = signals.next() => received,
                () = requested.over(|| server.begin_drain(), || server.close_idle()) => {
                    patience = Duration::ZERO;
                    break;
                }
                () = left.over(
                    || {
                        server.leave();
                        say(handed_over(server.sessions_left(), "sessions"));
                    },
                    |since| match server.sessions_left() {
                        0 => true,
                        _ if since < SETTLED => false,
                        _ => {
                            server.begin_drain();
                            server.close_idle() == 0
                        }
                    },
                ) => {
                    patience = Duration::ZERO;
                    break;
                }
                () = &mut watching => return Err(RunError::Failed),
                () = expiry.due() => {
                    expiry.warn(&lock(&facts).certificate);
                    continue;
                }
            };
            match received {
                SignalEvent::End => break,
                SignalEvent::Reload => {
                    former.hang_up();
                    let opened = |new: ServerConfig| -> Result<_, RunError> {
                        // Open the log first: only this step can fail.
                        server.open_access_log(new.access_log.as_ref())?;
                        Ok(new)
                    };
                    let outcome = again().map_err(RunError::from).and_then(opened).map(|new| {
                        let is_new = lock(&facts).certificate != *new.identity.certificate();
                        credentials.replace(&new.identity, new.peers.clone());
                        // Keep the counters of earlier refusals.
                        let access = new.access.clone().in_place_of(&config.access);
                        server.replace_guard(Guard { access, ..new.guard() });
                        server.replace_quotas(&new.quotas);
                        if is_new {
                            server.renew_connections();
                        }
                        expiry.warn(new.identity.certificate());
                        (new.identity.clone(), new.waits_for_start(config))
                    });
                    reloaded(outcome, &facts, &say);
                }
            }
        }
        supervisor.tell("STOPPING=1");
        say("shutting down; signal again to end at once".to_owned());
        end(server, endpoints, &mut signals, |server| server.drain(patience)).await;
        Ok(())
    })
}

/// Runs a client until SIGINT or SIGTERM, like [`server()`].
pub fn client(
    config: &ClientConfig,
    take_over: Option<TakeOver>,
    again: impl Fn() -> Result<ClientConfig, ConfigError>,
    say: impl Fn(String),
) -> Result<(), RunError> {
    open_many_files();
    runtime()?.block_on(async {
        let mut signals = Signals::install()?;
        let supervisor = Arc::new(Supervisor::of_environment());
        let mut former = Former::find("client", &config.settings, take_over, &say).await?;
        let endpoints =
            StatusEndpoints::open("client", &config.settings, former.sockets()).await?;
        let api = open_api(config.tunnels_at.as_ref()).await?;
        let resolver = confine(&config.confined_paths, &config.settings)?;
        let credentials = config.credentials();
        let parts = config.parts(&credentials, resolver)?;
        let tunnels = parts.tunnels.clone();
        let client = Arc::new(Client::take_over(parts, former.sockets()).await?);
        let facts = Arc::new(Mutex::new(facts(&config.identity, &config.settings)));
        let (weak, shown) = (Arc::downgrade(&client), Arc::clone(&facts));
        let _api = serve_api(api, tunnels);
        let (drain, mut requested) = Drain::new(Arc::clone(&facts));
        let status = move |client: &Client| Status::of_client(client, &lock(&shown));
        let (handing, mut left) = Handing::new(
            Arc::downgrade(&client),
            &facts,
            &supervisor,
            (Client::hand_over, Client::take_back),
            &former,
        );
        former.started(&supervisor, &endpoints)?;
        let manage = move |client: &Client, request| match request {
            Request::Kick { .. } => Reply::Refused(
                "a client has no sessions to end: run the command at the server".to_owned(),
            ),
            Request::Drain { timeout_seconds } => {
                drain.within(timeout_seconds, client.counted().tunnels)
            }
            Request::TakeOver { .. } => Reply::Refused(NO_HAND_OVER.to_owned()),
            Request::Key {} => Reply::Key(handed::text()),
        };
        let endpoints = endpoints.serve(weak, status, manage, handing);
        let mut expiry = ExpiryWarning::new();
        expiry.warn(config.identity.certificate());
        for Forward { listen_on, target } in &config.forwards {
            say(format!("listening on {listen_on}, which leads to {target} as the server sees it"));
        }
        for proxy in &config.proxies {
            say(format!("listening on {proxy}; applications name their targets, as the server sees them"));
        }
        for TokenForward { listen_on, .. } in &config.tokens {
            say(format!("listening on {listen_on}; a token tells the server the target"));
        }
        for Forward { listen_on, target } in &config.reverses {
            say(format!(
                "the server is asked to listen on {listen_on}, which leads here to {target}"
            ));
        }
        supervisor.tell("READY=1");
        let watched = Arc::downgrade(&client);
        let watching = supervisor.watch(|| watched.upgrade().map_or(Health::Good, |end| end.health()));
        tokio::pin!(watching);
        let (mut connected, mut patience) = (false, PATIENCE);
        loop {
            let received = tokio::select! {
                () = client.connected(), if !connected => {
                    connected = true;
                    for one in client.links().iter().filter_map(|link| link.server.as_ref()).take(1) {
                        say(format!("connected to {one}"));
                    }
                    continue;
                }
                received = signals.next() => received,
                () = requested.over(|| client.begin_drain(), || client.counted().tunnels) => {
                    patience = Duration::ZERO;
                    break;
                }
                () = left.over(
                    || {
                        client.leave();
                        say(handed_over(client.counted().tunnels, "tunnels"));
                    },
                    |_| client.counted().tunnels == 0,
                ) => {
                    patience = Duration::ZERO;
                    break;
                }
                () = &mut watching => return Err(RunError::Failed),
                () = expiry.due() => {
                    expiry.warn(&lock(&facts).certificate);
                    continue;
                }
            };
            match received {
                SignalEvent::End => break,
                SignalEvent::Reload => {
                    former.hang_up();
                    let outcome = match again() {
                        Ok(new) => {
                            let adopted = adopt(&client, &credentials, config, &new).await;
                            let is_new =
                                lock(&facts).certificate != *new.identity.certificate();
                            if is_new && adopted.is_ok() {
                                client.renew_connections();
                            }
                            expiry.warn(new.identity.certificate());
                            adopted
                        }
                        Err(error) => Err(error.into()),
                    };
                    reloaded(outcome, &facts, &say);
                }
            }
        }
        supervisor.tell("STOPPING=1");
        say("shutting down; signal again to end at once".to_owned());
        end(client, endpoints, &mut signals, |client| client.drain(patience)).await;
        Ok(())
    })
}

/// Adopts a reloaded file. Replaces the listeners first: only this step can fail, and a failure
/// leaves everything unchanged. A server whose new address needs a restart keeps its pins.
async fn adopt(
    client: &Client,
    credentials: &[Arc<ClientCredentials>],
    running: &ClientConfig,
    new: &ClientConfig,
) -> Result<(Identity, Vec<&'static str>), RunError> {
    let waits = new.waits_for_start(running);
    client.replace_listeners(new.listeners(), &new.reverse()).await?;
    for (server, (credentials, far)) in credentials.iter().zip(&running.servers).enumerate() {
        let is_same = |one: &&FarServer| {
            one.endpoint == far.endpoint && one.trust.server_name() == far.trust.server_name()
        };
        let found = new.servers.iter().find(is_same).map(|one| one.trust.clone());
        let Some(trust) = found.or_else(|| client.trust(server)) else { continue };
        credentials.replace(&new.identity, trust.clone());
        client.replace_trust(server, &trust);
    }
    Ok((new.identity.clone(), waits))
}

fn handed_over(left: u64, what: &str) -> String {
    format!("another process has taken over; this process carries its last {left} {what}")
}

/// Reports the outcome of a reload to the log, to `status` and to the user.
fn reloaded<E: Display>(
    outcome: Result<(Identity, Vec<&'static str>), E>,
    facts: &Mutex<Facts>,
    say: impl Fn(String),
) {
    let mut facts = lock(facts);
    facts.reloads += 1;
    match outcome {
        Ok((identity, waits)) => {
            facts.certificate = identity.certificate().clone();
            facts.reload_refused.clear();
            say(match waits.is_empty() {
                true => "reloaded".to_owned(),
                false => format!("reloaded; only a restart changes {}", waits.join(", ")),
            });
        }
        Err(error) => {
            facts.reload_refused = error.to_string();
            say(format!("not reloaded, all stays as it was: {error}"));
        }
    }
}

/// Tells this user's ends, or the end behind `socket`, to reload their files. First passes the
/// private key in `key` to these ends, because the process of a service may be unable to read the
/// key file. Returns the outcome for each end.
pub fn reload(
    socket: Option<&Path>,
    key: Option<&[u8]>,
) -> Result<Vec<(Status, Option<String>)>, RunError> {
    let mut after = Vec::new();
    for Answer { status: one, process } in answers(socket, key)? {
        if let Err(error) = process.hang_up() {
            after.push((one, Some(format!("the process gets no signal: {error}"))));
            continue;
        }
        let deadline = Instant::now() + RELOAD_WITHIN;
        let outcome = loop {
            let now = statuses(socket)?.into_iter().find(|now| now.pid == one.pid);
            match now {
                Some(now) if now.reloads > one.reloads => break Some(now.reload_refused),
                Some(_) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                Some(_) => {
                    break Some(format!(
                        "the process has not reloaded within {RELOAD_WITHIN:?}: read its log"
                    ));
                }
                None => break Some("the process has ended".to_owned()),
            }
        };
        after.push((one, outcome.filter(|why| !why.is_empty())));
    }
    Ok(after)
}

/// Raises the limit of open files to the user's maximum. Every tunnel uses a descriptor, and the
/// usual limit of 1,024 exists for programs that use select(2).
fn open_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let has = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: has.maximum, ..has }) {
        tracing::warn!(%error, "the limit of open files stays at {:?}", has.current);
    }
}

/// Confines the process, and returns its resolver. Must be called while the process has a single
/// thread.
fn confine(
    confined_paths: &ConfinedPaths,
    settings: &Settings,
) -> Result<Arc<dyn Resolve>, RunError> {
    if settings.unconfined {
        return Ok(Arc::new(SystemResolver));
    }
    let mut confined_paths = confined_paths.clone();
    if settings.status_socket.is_none() {
        confined_paths.binds_in(Directory::of_user().path());
    }
    confinement::confine(&confined_paths).map_err(RunError::Process)
}

/// Returns the status of this user's ends, or of the end behind `socket`. Removes sockets of dead
/// processes.
pub fn statuses(socket: Option<&Path>) -> Result<Vec<Status>, RunError> {
    Ok(answers(socket, None)?.into_iter().map(|answer| answer.status).collect())
}

fn answers(socket: Option<&Path>, key: Option<&[u8]>) -> Result<Vec<Answer>, RunError> {
    let sockets = sockets(socket)?;
    runtime()?.block_on(async {
        let mut all = Vec::new();
        for file in sockets {
            match status::ask(&file, key).await {
                Ok(Some(answer)) => all.push(answer),
                Ok(None) if socket.is_none() => {
                    let _ = file.clear();
                }
                Ok(None) => {}
                // The end exited while this process queried other ends.
                Err(error) if socket.is_none() && error.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    })
}

fn sockets(socket: Option<&Path>) -> Result<Vec<SocketFile>, RunError> {
    Ok(match socket {
        Some(path) => vec![status::at(path)?],
        None => Directory::of_user().sockets()?,
    })
}

fn kicked(server: &Server, which: &str) -> Reply {
    let ended: Vec<_> = server.kick(which).into_iter().map(KickedSession::from).collect();
    match ended.is_empty() {
        true => Reply::Refused(format!(
            "no session is called {which}: `weir tunnel sessions` lists the sessions"
        )),
        false => Reply::Kicked(ended),
    }
}

/// Waits until status queries have released `end`, and drains it. Removes the files of `endpoints`
/// in any case.
async fn end<T, F: Future<Output = ()>>(
    mut end: Arc<T>,
    mut endpoints: JoinSet<()>,
    signals: &mut Signals,
    drain: impl FnOnce(T) -> F,
) {
    let whole = loop {
        match Arc::try_unwrap(end) {
            Ok(whole) => break whole,
            Err(shared) => end = shared,
        }
        tokio::task::yield_now().await;
    };
    tokio::select! {
        () = drain(whole) => {}
        () = ended_again(signals) => {
            endpoints.shutdown().await;
            std::process::exit(1);
        }
    }
}

async fn ended_again(signals: &mut Signals) {
    while !matches!(signals.next().await, SignalEvent::End) {}
}

/// Binds the address of quic-tun's API.
async fn open_api(at: Option<&TunnelsAt>) -> Result<Option<MetricsListener>, RunError> {
    let Some(TunnelsAt { address, is_required }) = at else { return Ok(None) };
    match MetricsListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if *is_required => Err(RunError::Api(address.clone(), error)),
        Err(error) => {
            tracing::warn!(%address, %error, "no GET /tunnels: choose another --httpd-listen-on");
            Ok(None)
        }
    }
}

/// Serves the API until the returned value is dropped.
fn serve_api(listener: Option<MetricsListener>, tunnels: Option<Arc<Tunnels>>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if let (Some(listener), Some(tunnels)) = (listener, tunnels) {
        tasks.spawn(quic_tun::serve(listener, tunnels));
    }
    tasks
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

enum SignalEvent {
    End,
    Reload,
}

impl Signals {
    fn install() -> Result<Self, RunError> {
        let hear = |kind| signal(kind).map_err(RunError::Process);
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
            hangup: hear(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.interrupt.recv() => SignalEvent::End,
            _ = self.terminate.recv() => SignalEvent::End,
            _ = self.hangup.recv() => SignalEvent::Reload,
        }
    }
}

pub(crate) fn runtime() -> Result<Runtime, RunError> {
    Builder::new_current_thread().enable_all().build().map_err(RunError::Process)
}

fn facts(identity: &Identity, settings: &Settings) -> Facts {
    Facts {
        version: env!("CARGO_PKG_VERSION"),
        congestion: settings.congestion.to_string(),
        certificate: identity.certificate().clone(),
        memory: settings.memory,
        began: Instant::now(),
        drain_until: None,
        reloads: 0,
        reload_refused: String::new(),
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Warns of the certificate's expiry at the start, at each reload, and then once a day.
struct ExpiryWarning {
    /// Reads the wall clock every hour: the clock may be set, and a sleep does not advance while
    /// the machine is suspended.
    hours: Interval,
    hours_since: u32,
}

impl ExpiryWarning {
    fn new() -> Self {
        let hours = tokio::time::interval_at(tokio::time::Instant::now() + HOUR, HOUR);
        Self { hours, hours_since: 0 }
    }

    /// Waits until a day has passed since the last call of [`Self::warn`].
    async fn due(&mut self) {
        while self.hours_since < 24 {
            self.hours.tick().await;
            self.hours_since += 1;
        }
    }

    fn warn(&mut self, certificate: &Certificate) {
        self.hours_since = 0;
        if certificate.is_due(UnixTime::now()) {
            let until = certificate.valid_until_date();
            let way = match certificate.is_self_signed() {
                true => "renew the certificate (weir tunnel keys --renew)",
                false => "ask its authority for a new certificate",
            };
            tracing::warn!("this end's certificate expires on {until}: {way}, and reload");
        }
    }
}

const NO_HAND_OVER: &str = "only `weir tunnel server` and `client` with --take-over take over";
/// Maximum time for which tunnels may continue after the first signal.
const PATIENCE: Duration = Duration::from_secs(3);
const RELOAD_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const HOUR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_at_another_hosts_address_is_a_usage_error_and_a_used_address_is_a_failure() {
        let refused = |kind: io::ErrorKind| {
            let bind = QuicError::Bind(([203, 0, 113, 7], 7500).into(), kind.into());
            RunError::from(ServerError::from(bind))
        };
        assert!(refused(io::ErrorKind::AddrNotAvailable).is_misuse());
        assert!(!refused(io::ErrorKind::AddrInUse).is_misuse());
    }
}
