//! Keeps connections up: reconnects lost ones, and moves to the next server if one is gone.

use super::backoff::Backoff;
use super::{Remote, Shared, reverse};
use crate::revocation;
use crate::session::{CLIENTS, Session};
use crate::transport::quic::QuicConnection;
use crate::transport::{Connection, Lost, Shards, Transport};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

type ActiveSession = Arc<Session<QuicConnection>>;

/// A slot for one connection, which is established most of the time.
#[derive(Debug)]
pub(super) struct Link {
    shard: Handle,
    /// Chooses the shard at the server: neighbouring slots use different shards.
    slot: u8,
    /// The server's index, and the connection.
    current: watch::Sender<Option<(usize, ActiveSession)>>,
}

#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Arc<Link>>,
    next: AtomicUsize,
    /// Counts connections established so far.
    made: watch::Sender<u64>,
}

impl Links {
    pub(super) fn new(count: usize, shards: &Shards) -> Self {
        // A random start, so that clients with a single connection do not all use the same shard.
        let first: u8 = rand::random();
        let link = |index| {
            let shard = shards.handle(index).clone();
            let slot = first.wrapping_add(index as u8);
            Arc::new(Link { shard, slot, current: watch::Sender::new(None) })
        };
        let all = (0..count).map(link).collect();
        Self { all, next: AtomicUsize::new(0), made: watch::Sender::new(0) }
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

    /// Picks the next established connection, in turn.
    pub(super) fn pick(&self) -> Option<(Handle, ActiveSession)> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let links = (0..self.all.len()).map(|step| &self.all[(start + step) % self.all.len()]);
        let mut active = links.filter_map(|link| Some((link.shard.clone(), link.current()?.1)));
        active.next()
    }

    /// Picks a connection, waiting up to `patience` for one.
    pub(super) async fn pick_within(&self, patience: Duration) -> Option<(Handle, ActiveSession)> {
        if let Some(picked) = self.pick() {
            return Some(picked);
        }
        let _ = tokio::time::timeout(patience, self.connected()).await;
        self.pick()
    }

    pub(super) fn close(&self, why: &str) {
        for link in &self.all {
            if let Some((_, session)) = link.current.borrow().as_ref() {
                session.connection.close(why);
            }
        }
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

    /// Runs for ever. It tries servers in their order. While a later one serves, it retries the
    /// first one periodically for new tunnels. Existing tunnels stay on their connection.
    pub(super) async fn maintain(self: Arc<Self>, shared: Arc<Shared>) {
        let mut backoff = Backoff::new();
        while !shared.draining.is_cancelled() {
            let found = self.first_of(&shared, shared.servers.len()).await;
            let pause = match found {
                Ok((index, session)) => {
                    let began = Instant::now();
                    let why = self.hold(&shared, index, session).await;
                    backoff.after_connection(began.elapsed(), &why)
                }
                Err(why) => backoff.after_failure(&why),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Keeps the slot connected until its connection is lost.
    async fn hold(
        &self,
        shared: &Arc<Shared>,
        mut index: usize,
        mut session: ActiveSession,
    ) -> Lost {
        loop {
            let address = &shared.servers[index].address;
            tracing::info!(server = %address, "connected");
            tokio::spawn(Arc::clone(&session).deliver_datagrams());
            tokio::spawn(Arc::clone(&session).end_if_silent(shared.tuning.keepalive));
            let (connection, trust) =
                (session.connection.clone(), shared.servers[index].trust.subscribe());
            tokio::spawn(revocation::watch_server(connection, address.to_string(), trust));
            tokio::spawn(reverse::accept_streams(Arc::clone(shared), Arc::clone(&session)));
            self.current.send_replace(Some((index, Arc::clone(&session))));
            shared.links.made.send_modify(|made| *made += 1);
            let better = async {
                loop {
                    tokio::time::sleep(RETURN).await;
                    if let Ok(found) = self.first_of(shared, index).await {
                        return found;
                    }
                }
            };
            tokio::select! {
                why = session.connection.closed() => {
                    let why = session.reason(why);
                    if why == Lost::Here && shared.draining.is_cancelled() {
                        tracing::info!(server = %address, "connection closed");
                    } else {
                        tracing::warn!(server = %address, %why, "connection lost");
                    }
                    shared.counters.lost(&why);
                    self.current.send_replace(None);
                    return why;
                }
                found = better, if index > 0 => (index, session) = found,
            }
        }
    }

    /// Connects to the first reachable server among the first `count`. The error is that of the
    /// last one.
    async fn first_of(
        &self,
        shared: &Arc<Shared>,
        count: usize,
    ) -> Result<(usize, ActiveSession), Lost> {
        let mut last = Lost::Silent;
        for (index, remote) in shared.servers.iter().enumerate().take(count) {
            match connect(shared, remote, self.slot).await {
                Ok(session) => {
                    remote.failures.forget();
                    shared.counters.connections_made.increment();
                    return Ok((index, session));
                }
                Err(error) => {
                    shared.counters.connections_failed.increment();
                    if let Some(omitted) = remote.failures.line(Instant::now(), &error.to_string())
                    {
                        let server = &remote.address;
                        tracing::warn!(%server, %error, omitted, "no connection; trying again");
                    }
                    last = error;
                }
            }
        }
        Err(last)
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
    let connection = first_to_answer(remote, addresses, slot, shared.tuning.handshake).await?;
    let owner = Arc::from(remote.address.to_string());
    Ok(Session::new(connection, CLIENTS, &shared.budget, &owner, &shared.counters))
}

/// Tries the next address once the previous one has failed or stayed silent for a moment (RFC 8305,
/// 5), so a dead address delays nobody. After the last address it starts over with the first: a
/// handshake retransmits at growing intervals, and a server that has just started should not wait
/// for the next retransmission. The first established connection wins.
async fn first_to_answer(
    remote: &Arc<Remote>,
    addresses: Vec<SocketAddr>,
    slot: u8,
    patience: Duration,
) -> Result<QuicConnection, Lost> {
    let count = addresses.len();
    let mut turns = addresses.into_iter().cycle().take(count * MOST_TURNS);
    let mut tries = JoinSet::new();
    let mut next = turns.next();
    let mut failed = 0;
    let deadline = tokio::time::sleep(patience);
    tokio::pin!(deadline);
    loop {
        if let Some(address) = next.take() {
            let remote = Arc::clone(remote);
            tries.spawn(async move {
                let name = remote.trust.borrow().server_name().to_owned();
                remote.quic.connect(address, &name, slot).await
            });
        }
        tokio::select! {
            Some(tried) = tries.join_next() => {
                let lost = match tried {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(lost)) => lost,
                    Err(error) => Lost::Failed(error.to_string()),
                };
                failed += 1;
                // Each address has answered or failed.
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

/// The interval at which a preferred server is retried while a later one is in use.
const RETURN: Duration = Duration::from_secs(30);
const MOST_ADDRESSES: usize = 4;
/// Handshakes with one address while it stays silent.
const MOST_TURNS: usize = 20;
/// Most handshakes complete within this time. On a longer path, another one starts, and the first
/// to complete wins.
const APART: Duration = Duration::from_millis(500);
