//! Keeps connections established: reconnects after a loss, and uses the next server if a server
//! does not answer.

use super::backoff::{self, Backoff};
use super::refusals::{self, Cause, Choice, Refusal};
use super::{Remote, Shared, failover, reverse};
use crate::account::SessionMeter;
use crate::identity::explained;
use crate::revocation;
use crate::session::{CLIENTS, Session};
use crate::transport::quic::QuicConnection;
use crate::transport::{Carried, Carrier, Connection, Lost, Shards, Transport};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use units::Span;

type ActiveSession = Arc<Session<Carried>>;

/// A connection that has just been made.
struct Made {
    server: usize,
    session: ActiveSession,
    /// The number of this end's key in the handshake.
    key: u64,
}

/// A slot that keeps one connection established.
#[derive(Debug)]
pub(super) struct Link {
    shard: Handle,
    /// The number that chooses the shard at the server. Adjacent slots use different shards.
    slot: u8,
    /// The server's index, and the connection.
    current: watch::Sender<Option<(usize, ActiveSession)>>,
    /// Requests a new connection in place of the current connection.
    renewal: Notify,
}

#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Arc<Link>>,
    next: AtomicUsize,
    /// The number of connections that were established so far.
    made: watch::Sender<u64>,
    /// Replaced connections that still carry tunnels, each with the index of its server.
    retiring: Mutex<Vec<(usize, Weak<Session<Carried>>)>>,
}

impl Links {
    pub(super) fn new(count: usize, shards: &Shards) -> Self {
        // Start at a random shard, so that clients with one connection spread over the shards.
        let first: u8 = rand::random();
        let link = |index| {
            let shard = shards.handle(index).clone();
            let slot = first.wrapping_add(index as u8);
            let current = watch::Sender::new(None);
            Arc::new(Link { shard, slot, current, renewal: Notify::new() })
        };
        let all = (0..count).map(link).collect();
        let (next, made) = (AtomicUsize::new(0), watch::Sender::new(0));
        Self { all, next, made, retiring: Mutex::default() }
    }

    pub(super) fn all(&self) -> &[Arc<Link>] {
        &self.all
    }

    pub(super) async fn connected(&self) {
        let mut made = self.made.subscribe();
        while self.pick().is_none() {
            if made.changed().await.is_err() {
                return;
            }
        }
    }

    /// Picks the next established connection in round-robin order.
    pub(super) fn pick(&self) -> Option<(Handle, ActiveSession)> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let links = (0..self.all.len()).map(|step| &self.all[(start + step) % self.all.len()]);
        let mut active = links.filter_map(|link| Some((link.shard.clone(), link.current()?.1)));
        active.next()
    }

    /// Picks a connection. Waits up to `patience` for a connection.
    pub(super) async fn pick_within(&self, patience: Duration) -> Option<(Handle, ActiveSession)> {
        if let Some(picked) = self.pick() {
            return Some(picked);
        }
        let _ = tokio::time::timeout(patience, self.connected()).await;
        self.pick()
    }

    pub(super) fn close(&self, why: &'static str) {
        for link in &self.all {
            if let Some((_, session)) = link.current.borrow().as_ref() {
                session.close(why);
            }
        }
        for (_, session) in self.retiring() {
            session.close(why);
        }
    }

    /// Replaces all connections by new connections. Tunnels stay on their connections.
    pub(super) fn renew(&self) {
        self.all.iter().for_each(|link| link.renewal.notify_one());
    }

    /// Replaces the connection of this session by a new connection.
    pub(super) fn renew_of(&self, session: &ActiveSession) {
        let is_current = |link: &&Arc<Link>| {
            link.current.borrow().as_ref().is_some_and(|(_, one)| Arc::ptr_eq(one, session))
        };
        if let Some(link) = self.all.iter().find(is_current) {
            link.renewal.notify_one();
        }
    }

    /// Returns the replaced connections that still carry tunnels, each with the index of its
    /// server.
    pub(super) fn retiring(&self) -> Vec<(usize, ActiveSession)> {
        let all = self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = all.iter().filter_map(|(server, session)| Some((*server, session.upgrade()?)));
        alive.filter(|(_, session)| !session.connection.is_closed()).collect()
    }

    fn retire(&self, server: usize, session: ActiveSession) {
        let mut all = self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, session)| session.strong_count() > 0);
        all.push((server, Arc::downgrade(&session)));
        tokio::spawn(session.retire());
    }
}

impl Link {
    pub(super) fn shard(&self) -> &Handle {
        &self.shard
    }

    pub(super) fn current(&self) -> Option<(usize, ActiveSession)> {
        let current = self.current.borrow();
        current.as_ref().filter(|(_, session)| !session.connection.is_closed()).cloned()
    }

    /// Runs for ever. Tries servers in their order. While a later server is in use, retries the
    /// preferred servers periodically for new tunnels. Existing tunnels stay on their connection.
    pub(super) async fn maintain(self: Arc<Self>, shared: Arc<Shared>) {
        let mut backoff = Backoff::new();
        let mut silent = None;
        while !shared.draining.is_cancelled() {
            let found = self.first_of(&shared, Choice::Any, silent.take()).await;
            let pause = match found {
                Ok(made) => {
                    let began = Instant::now();
                    let (index, why) = self.hold(&shared, made).await;
                    silent = (why == Lost::Silent).then_some(index);
                    backoff.after_connection(began.elapsed(), &why)
                }
                Err(why) => backoff.after_failure(&why),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Holds a connection until the connection is lost. Replaces the connection when a preferred
    /// server is reached, and at a renewal. Returns the index of the last server, and the reason
    /// for which its connection was lost.
    async fn hold(&self, shared: &Arc<Shared>, mut made: Made) -> (usize, Lost) {
        loop {
            let Made { server: index, session, key } = made;
            let Remote { address, failures, refusals, .. } = &*shared.servers[index];
            // Do not log a connection that the server will refuse again.
            let mut is_refused = failures.forget_unless_refused();
            is_refused |= refusals.last(Instant::now()).is_some();
            if !is_refused {
                tracing::info!(server = %address, "connected");
            }
            tokio::spawn(Arc::clone(&session).deliver_datagrams());
            tokio::spawn(Arc::clone(&session).end_if_silent(shared.tuning.keepalive));
            let (connection, trust) =
                (session.connection.clone(), shared.servers[index].trust.subscribe());
            tokio::spawn(revocation::watch_server(connection, address.to_string(), trust));
            tokio::spawn(reverse::accept_streams(Arc::clone(shared), Arc::clone(&session)));
            self.current.send_replace(Some((index, Arc::clone(&session))));
            shared.links.made.send_modify(|made| *made += 1);
            let since = tokio::time::Instant::now();
            let better = async {
                loop {
                    tokio::select! {
                        () = self.renewal.notified() => loop {
                            tokio::time::sleep_until(since + RENEWALS_APART).await;
                            if let Some(found) = self.replacement(shared, Choice::Renewal(index)).await {
                                return found;
                            }
                            tokio::select! {
                                () = tokio::time::sleep(RENEW_AGAIN) => {}
                                () = self.renewal.notified() => {
                                    tokio::time::sleep(RENEWALS_APART).await;
                                }
                            }
                        },
                        () = tokio::time::sleep_until(since + KEPT), if is_refused => {
                            is_refused = false;
                            failures.forget();
                            refusals.forget();
                            tracing::info!(server = %address, "connected");
                        }
                        () = tokio::time::sleep(RETURN), if index > 0 => {
                            if let Some(found) = self.replacement(shared, Choice::Before(index)).await {
                                return found;
                            }
                        }
                    }
                }
            };
            tokio::select! {
                why = session.connection.closed() => {
                    let why = session.reason(why);
                    if why == Lost::Here && shared.draining.is_cancelled() {
                        tracing::info!(server = %address, "connection closed");
                    } else if let Some(cause) = backoff::cause(&why) && since.elapsed() < KEPT {
                        shared.on_refusal(index, key, cause, &why, TRYING_AGAIN);
                    } else {
                        let why = session.words(&why);
                        tracing::warn!(server = %address, why, "connection lost");
                    }
                    shared.counters.lost(&why);
                    self.current.send_replace(None);
                    return (index, why);
                }
                found = better => {
                    shared.links.retire(index, session);
                    made = found;
                }
            }
        }
    }

    /// Makes a connection that is to replace the current connection. Returns the new connection
    /// once its server has kept the new connection for a moment: in TLS 1.3, a client learns only
    /// after its handshake that the server refuses its key, and the current connection may still
    /// work.
    async fn replacement(&self, shared: &Arc<Shared>, choice: Choice) -> Option<Made> {
        loop {
            let made = self.first_of(shared, choice, None).await.ok()?;
            let Made { server: index, session, key } = &made;
            let Remote { address: server, failures, refusals, .. } = &*shared.servers[*index];
            // A refusal arrives a round trip after the handshake.
            let kept = KEPT.max(session.connection.rtt() * 2);
            let Ok(why) = tokio::time::timeout(kept, session.connection.closed()).await else {
                refusals.forget();
                return Some(made);
            };
            shared.counters.lost(&why);
            if let Some(cause) = backoff::cause(&why) {
                // Try again, because another server may accept this end.
                if shared.on_refusal(*index, *key, cause, &why, STAYS) {
                    continue;
                }
            } else if let Some(omitted) = failures.line(Instant::now(), &why.to_string()) {
                tracing::warn!(%server, error = %why, omitted, "{STAYS}");
            }
            return None;
        }
    }

    /// Connects to the first server among the chosen servers that answers. `silent` is the server
    /// that has just stopped answering: the next server is then tried almost at once. The error is
    /// the error of the last failed attempt.
    async fn first_of(
        &self,
        shared: &Arc<Shared>,
        choice: Choice,
        silent: Option<usize>,
    ) -> Result<Made, Lost> {
        let (slot, now) = (self.slot, Instant::now());
        let refused = shared.servers.iter().map(|remote| Some(remote.refusals.last(now)?.at));
        let order = refusals::order(&refused.collect::<Vec<_>>(), choice);
        let attempt = |place: usize| {
            let (shared, server) = (Arc::clone(shared), order[place]);
            async move {
                let remote = &shared.servers[server];
                let key = remote.refusals.key();
                let session = connect(&shared, remote, slot).await?;
                Ok(Made { server, session, key })
            }
        };
        let failed = |place: usize, error: &Lost| {
            let Remote { address: server, failures, .. } = &*shared.servers[order[place]];
            shared.counters.connections_failed.increment();
            let error = explained(error);
            if let Some(omitted) = failures.line(Instant::now(), &error) {
                tracing::warn!(%server, %error, omitted, "{TRYING_AGAIN}");
            }
        };
        let lead = |place: usize| if silent == Some(order[place]) { LEAD_OF_SILENT } else { LEAD };
        let found = failover::first_to_connect(order.len(), lead, attempt, failed).await;
        shared.counters.connections_made.add(u64::from(found.is_ok()));
        found.map(|(_, made)| made)
    }
}

impl Shared {
    /// Logs that a server has refused this client after the handshake, and records the refusal of
    /// the key with this number. Returns whether the client now prefers another server.
    fn on_refusal(&self, server: usize, key: u64, cause: Cause, why: &Lost, then: &str) -> bool {
        let Remote { address: server, failures, refusals, .. } = &*self.servers[server];
        let (at, error) = (Instant::now(), explained(why));
        let refusal = Refusal { at, cause, why: error.clone() };
        // This end closes a connection that this end's own rules no longer allow.
        let is_by_server = *why != Lost::Here;
        let prefers_others =
            is_by_server && refusals.record(key, refusal) && self.servers.len() > 1;
        if let Some(omitted) = failures.refusal(at, &error) {
            tracing::warn!(%server, %error, omitted, "{then}");
        }
        if prefers_others {
            let why = match cause {
                Cause::Key => "this server refuses this client; other servers come first",
                Cause::Limit => {
                    "this client has reached a limit of this server; other servers come first"
                }
            };
            tracing::warn!(%server, "{why}");
        }
        prefers_others
    }
}

async fn connect(shared: &Shared, remote: &Arc<Remote>, slot: u8) -> Result<ActiveSession, Lost> {
    let host = remote.address.host();
    let addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => {
            let found =
                tokio::time::timeout(shared.tuning.handshake, shared.resolver.resolve(host));
            let found =
                found.await.map_err(|_| Lost::Failed(format!("{host}: lookup timed out")))?;
            found.map_err(|error| Lost::Failed(format!("{host} cannot be looked up: {error}")))?
        }
    };
    if addresses.is_empty() {
        return Err(Lost::Failed(format!("{host} has no address")));
    }
    let port = remote.address.port();
    let addresses = addresses.into_iter().take(MOST_ADDRESSES);
    let addresses = addresses.map(|address| SocketAddr::new(address, port)).collect();
    let connection = carried(remote, addresses, slot, shared).await?;
    let owner = Arc::from(remote.address.to_string());
    let (budget, meter) = (&shared.budget, SessionMeter::new(Arc::default(), None));
    Ok(Session::new(connection, CLIENTS, budget, &owner, &shared.counters, meter))
}

/// Connects over UDP, TCP or both, as configured. With both, TCP begins after UDP, and carries the
/// connection only if the server does not answer over UDP.
async fn carried(
    remote: &Arc<Remote>,
    addresses: Vec<SocketAddr>,
    slot: u8,
    shared: &Shared,
) -> Result<Carried, Lost> {
    let patience = shared.tuning.handshake;
    let tcp_port = remote.tcp_port.unwrap_or(remote.address.port());
    let for_tcp: Vec<_> =
        addresses.iter().map(|address| SocketAddr::new(address.ip(), tcp_port)).collect();
    let udp = async { first_to_answer(remote, addresses, slot, patience).await.map(Carried::Udp) };
    match shared.carrier {
        Carrier::Udp => return udp.await,
        Carrier::Tcp => {
            return over_tcp(remote, &for_tcp, "this client uses TCP alone (--carrier tcp)").await;
        }
        Carrier::Auto => {}
    }
    let head_start = match remote.is_udp_blocked.load(Ordering::Relaxed) {
        true => HEAD_START_AGAIN,
        false => HEAD_START,
    };
    tokio::pin!(udp);
    let why = tokio::select! {
        udp = &mut udp => match udp {
            Ok(connection) => {
                remote.is_udp_blocked.store(false, Ordering::Relaxed);
                return Ok(connection);
            }
            Err(lost) => lost,
        },
        () = tokio::time::sleep(head_start) => {
            let why = format!("UDP has not answered within {}", Span::from(head_start).shown());
            let tcp = over_tcp(remote, &for_tcp, &why);
            tokio::pin!(tcp);
            tokio::select! {
                udp = &mut udp => match udp {
                    Ok(connection) => {
                        remote.is_udp_blocked.store(false, Ordering::Relaxed);
                        return Ok(connection);
                    }
                    // Wait only for TCP, which began soon after UDP.
                    Err(lost) => return tcp.await.or(Err(lost)),
                },
                tcp = &mut tcp => match tcp {
                    Ok(connection) => {
                        // Try UDP once more: the server may have started after the last attempt.
                        let udp = tokio::time::timeout(GRACE, &mut udp).await;
                        let is_blocked = !matches!(udp, Ok(Ok(_)));
                        remote.is_udp_blocked.store(is_blocked, Ordering::Relaxed);
                        return if let Ok(Ok(udp)) = udp { Ok(udp) } else { Ok(connection) };
                    }
                    Err(error) => {
                        tracing::debug!(server = %remote.address, %error, "no connection over TCP");
                        return udp.await;
                    }
                },
            }
        }
    };
    let failed = format!("UDP has failed: {why}");
    over_tcp(remote, &for_tcp, &failed).await.map_err(|error| {
        tracing::debug!(server = %remote.address, %error, "no connection over TCP");
        why
    })
}

/// Connects over TCP. Tries the next address once the previous address has failed or stayed silent
/// for a moment, as [`first_to_answer`] does.
async fn over_tcp(
    remote: &Arc<Remote>,
    addresses: &[SocketAddr],
    why: &str,
) -> Result<Carried, Lost> {
    let attempt = |index: usize| {
        let (remote, address, why) = (Arc::clone(remote), addresses[index], why.to_owned());
        async move {
            let name = remote.trust.borrow().server_name().to_owned();
            remote.tls.connect(address, &name, why).await.map(Carried::Tcp)
        }
    };
    let found = failover::first_to_connect(addresses.len(), |_| APART, attempt, |_, _| {}).await;
    found.map(|(_, connection)| connection)
}

/// Connects to a server with several addresses. Tries the next address if the previous address has
/// failed or has been silent for a moment (RFC 8305, 5), so that a silent address delays the
/// connection only briefly. After the last address, starts again with the first address: a
/// handshake retransmits at growing intervals, so a new handshake reaches a server that has just
/// started sooner. Returns the first established connection.
///
/// Each handshake has a socket and a timer. Therefore only the first handshake with each address
/// and the latest handshakes continue.
async fn first_to_answer(
    remote: &Arc<Remote>,
    addresses: Vec<SocketAddr>,
    slot: u8,
    patience: Duration,
) -> Result<QuicConnection, Lost> {
    let count = addresses.len();
    let mut turns = addresses.into_iter().cycle().take(count * MOST_TURNS);
    let mut tries = JoinSet::new();
    let (mut begun, mut latest) = (0, VecDeque::new());
    let mut next = turns.next();
    let mut failed = 0;
    let deadline = tokio::time::sleep(patience);
    tokio::pin!(deadline);
    loop {
        if let Some(address) = next.take() {
            let remote = Arc::clone(remote);
            let task = tries.spawn(async move {
                let name = remote.trust.borrow().server_name().to_owned();
                remote.quic.connect(address, &name, slot).await
            });
            begun += 1;
            // Keep the first handshake with each address, because the path may have a long round
            // trip.
            if begun > count {
                latest.push_back(task);
            }
            if latest.len() > LATEST {
                latest.pop_front().iter().for_each(AbortHandle::abort);
            }
        }
        tokio::select! {
            Some(tried) = tries.join_next() => {
                let lost = match tried {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(lost)) => lost,
                    Err(error) if error.is_cancelled() => continue,
                    Err(error) => Lost::Failed(error.to_string()),
                };
                failed += 1;
                // All addresses have failed.
                if failed >= count && tries.is_empty() {
                    return Err(lost);
                }
                next = if failed < count { turns.next() } else { None };
            }
            () = tokio::time::sleep(APART.mul_f64(rand::random_range(0.8..1.2))) => {
                next = turns.next();
            }
            () = &mut deadline => return Err(Lost::Silent),
        }
    }
}

/// Returns the maximum number of descriptors that one slot holds while its connection is replaced,
/// if the servers with these names are silent.
pub(super) fn descriptors<'a>(hosts: impl Iterator<Item = &'a str>, handshake: Duration) -> usize {
    let of_server = |host: &str| {
        let addresses = if host.parse::<IpAddr>().is_ok() { 1 } else { MOST_ADDRESSES };
        DESCRIPTORS_EACH * (addresses + LATEST) + addresses // TCP
    };
    let mut all: Vec<_> = hosts.map(of_server).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    // A silent server delays the next server by its lead, and the attempt at the silent server goes
    // on.
    let at_once = 2 + handshake.div_duration_f64(LEAD).ceil() as usize;
    // The connection that is being replaced still carries tunnels.
    2 * DESCRIPTORS_EACH + all.iter().take(at_once).sum::<usize>()
}

/// The descriptors of a connection over UDP: a socket and a timer.
const DESCRIPTORS_EACH: usize = 2;
/// Maximum number of handshakes with a server that continue beside the first handshake with each
/// address.
const LATEST: usize = 3;
const TRYING_AGAIN: &str = "no connection; trying again";
const STAYS: &str = "no new connection; the current one stays";
/// Minimum lifetime from which a connection counts as admitted by the server.
const KEPT: Duration = Duration::from_secs(1);
/// The interval at which a client retries preferred servers while it uses a later server.
const RETURN: Duration = Duration::from_secs(30);
/// Minimum time between two renewals that a server asks for.
const RENEWALS_APART: Duration = Duration::from_secs(1);
/// The pause before another attempt to renew a connection.
const RENEW_AGAIN: Duration = Duration::from_secs(2);
/// Time that a server has to answer before the client also tries the next server.
const LEAD: Duration = Duration::from_secs(1);
/// The same time, for a server that has just stopped answering.
const LEAD_OF_SILENT: Duration = Duration::from_millis(100);
const MOST_ADDRESSES: usize = 4;
/// Maximum number of handshakes with one silent address.
const MOST_TURNS: usize = 20;
/// Interval between the starts of two handshakes. Most handshakes complete within this time. On a
/// longer path, a second handshake starts, and the client uses the handshake that completes first.
const APART: Duration = Duration::from_millis(500);
/// Time for which a client tries only UDP: at first, and after a connection over TCP.
const HEAD_START: Duration = Duration::from_secs(2);
const HEAD_START_AGAIN: Duration = Duration::from_millis(300);
/// Time for which a client still tries UDP after TCP has connected.
const GRACE: Duration = Duration::from_millis(800);
