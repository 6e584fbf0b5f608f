//! Handles new connections at a shard's socket until the peer is identified.

use super::handshakes::{Handshake, Handshakes, Verdict};
use super::limits::Usage;
use super::places::Place;
use super::{Shared, stream};
use crate::account::{CountedSession, SessionMeter};
use crate::identity::{PeerName, explained, peer_name};
use crate::journal::Kind;
use crate::revocation;
use crate::session::{SERVERS, Session};
use crate::transport::quic::IncomingConnection;
use crate::transport::{CONNECTION_LIMIT, Carried, Connection, Lost, TUNNEL_LIMIT};
use rustls::pki_types::UnixTime;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

pub(super) async fn run(shared: Arc<Shared>, shard: usize) {
    let limits = &shared.limits;
    let handshakes = Handshakes::new(limits.handshakes, limits.handshakes_unvalidated);
    loop {
        let Some(incoming) = incoming(&shared, shard).await else { return };
        if shared.left.is_cancelled() {
            incoming.refuse();
            continue;
        }
        let address = incoming.remote().ip();
        match handshakes.admit(Instant::now(), address, incoming.is_validated()) {
            Verdict::Begin(handshake) => {
                tokio::spawn(handle_handshake(Arc::clone(&shared), incoming, handshake));
            }
            Verdict::Validate => {
                shared.counters.handshakes_put_off.increment();
                incoming.require_validation();
            }
            Verdict::Drop => {
                shared.counters.handshakes_put_off.increment();
                drop(incoming);
            }
        }
    }
}

async fn incoming(shared: &Shared, shard: usize) -> Option<IncomingConnection> {
    shared.quic.as_ref()?.incoming(shard).await
}

/// Accepts connections over TCP. The threads take the connections in turn.
pub(super) async fn run_tcp(
    shared: Arc<Shared>,
    listener: std::net::TcpListener,
    threads: Vec<Handle>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    // A client that has completed TCP's handshake receives packets at its address.
    let handshakes = Handshakes::new(shared.limits.handshakes, shared.limits.handshakes);
    for thread in threads.iter().cycle() {
        let stream = loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shared.left.cancelled() => return,
            };
            match accepted {
                Ok((stream, _)) => break stream,
                Err(error) => {
                    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
                    if let Some(line) = shared.line((here, 0).into(), Kind::Accept) {
                        tracing::warn!(%error, omitted = line.omitted, "accept has failed");
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        };
        let Ok(remote) = stream.peer_addr() else { continue };
        let Verdict::Begin(handshake) = handshakes.admit(Instant::now(), remote.ip(), true) else {
            shared.counters.handshakes_put_off.increment();
            continue;
        };
        let Ok(stream) = stream.into_std() else { continue };
        let shared = Arc::clone(&shared);
        thread.spawn(async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let connected = async { shared.tls.accept(stream).await.map(Carried::Tcp) };
            let Some(connected) = shaken(&shared, remote, connected, handshake).await else {
                return;
            };
            identify(shared, connected);
        });
    }
}

async fn handle_handshake(shared: Arc<Shared>, incoming: IncomingConnection, handshake: Handshake) {
    let remote = incoming.remote();
    let connected = async { incoming.accept().await.map(Carried::Udp) };
    if let Some(connection) = shaken(&shared, remote, connected, handshake).await {
        identify(shared, connection);
    }
}

/// Waits for the handshake to complete. A later handshake may evict this handshake.
async fn shaken(
    shared: &Shared,
    remote: SocketAddr,
    connected: impl Future<Output = Result<Carried, Lost>>,
    handshake: Handshake,
) -> Option<Carried> {
    let connected = tokio::select! {
        connected = connected => connected,
        () = handshake.evicted() => {
            shared.counters.handshakes_evicted.increment();
            tracing::debug!(%remote, "handshake dropped: too many in progress");
            return None;
        }
    };
    drop(handshake);
    connected
        .inspect_err(|error| {
            shared.counters.connections_failed.increment();
            // The peer has sent its certificate under the keys of the handshake: its address is not
            // forged.
            let is_stranger = matches!(error, Lost::Untrusted(_));
            let kind = if is_stranger { Kind::Stranger } else { Kind::Handshake };
            let Some(line) = shared.line(remote, kind) else { return };
            let (address, port, omitted) =
                (remote.ip().to_canonical(), remote.port(), line.omitted);
            if is_stranger {
                tracing::warn!(%address, port, reason = %error, omitted, "connection refused");
            } else {
                let reason = explained(error);
                tracing::info!(%address, port, %reason, omitted, "handshake failed");
            }
        })
        .ok()
}

/// Identifies the peer, and serves it in a task of its own. The task of the handshake ends, so that
/// the session does not keep the larger memory of that task.
fn identify(shared: Arc<Shared>, connection: Carried) {
    let remote = connection.remote();
    let peer = peer_name(&connection.certificates(), &shared.guard().trusted, UnixTime::now());
    let peer = match peer {
        Ok(peer) => peer,
        Err(error) => {
            shared.counters.strangers.increment();
            // The handshake is complete, so the address is not forged.
            if let Some(line) = shared.line(remote, Kind::Stranger) {
                let (address, port) = (remote.ip().to_canonical(), remote.port());
                let omitted = line.omitted;
                tracing::warn!(%address, port, reason = %error, omitted, "connection refused");
            }
            return connection.close("this identity is not let in");
        }
    };
    if let Some(admitted) = admit(&shared, connection, peer) {
        tokio::spawn(serve(shared, admitted));
    }
}

/// A session within the limits of its identity.
struct Admitted {
    session: Arc<Session<Carried>>,
    peer: PeerName,
    usage: Arc<Usage>,
    remote: SocketAddr,
    since: Instant,
    _counted: CountedSession,
    _place: Option<Place>,
}

/// Begins the session if the identity has not reached a limit. Closes the connection otherwise.
fn admit(shared: &Arc<Shared>, connection: Carried, peer: PeerName) -> Option<Admitted> {
    let remote = connection.remote();
    let (address, port) = (remote.ip().to_canonical(), remote.port());
    let account = shared.accounts.of(&peer);
    let counted = account.admit_session(shared.limits.connections_each).inspect_err(|limit| {
        if let Some(line) = shared.line(remote, Kind::Denial) {
            let reason =
                "this identity has reached its limit of connections (`sessions` of the peer)";
            let omitted = line.omitted;
            tracing::warn!(%peer, %address, port, reason, limit, omitted, "connection refused");
        }
        connection.close(CONNECTION_LIMIT);
    });
    let counted = counted.ok()?;
    // Over TCP a connection occupies a descriptor, as a tunnel does.
    let place = connection.over_tcp().map(|_| shared.place(&peer)).transpose();
    let place = place.inspect_err(|reason| {
        shared.counters.tunnels_over_limit.increment();
        if let Some(line) = shared.line(remote, Kind::Denial) {
            tracing::warn!(%peer, %address, port, reason, omitted = line.omitted, "connection refused");
        }
        connection.close(TUNNEL_LIMIT);
    });
    let place = place.ok()?;
    let owner = Arc::from(peer.as_str());
    let (budget, counters) = (&shared.budget, &shared.counters);
    let meter = SessionMeter::new(account, Some((Arc::clone(&shared.log), peer.clone())));
    let session = Session::new(connection, SERVERS, budget, &owner, counters, meter);
    shared.counters.connections_made.increment();
    if let Some(line) = shared.line(remote, Kind::Connection) {
        tracing::info!(%peer, %address, port, omitted = line.omitted, "peer connected");
    }
    shared.add_session(&peer, &session);
    let (usage, since) = (shared.usage(&peer), Instant::now());
    Some(Admitted { session, peer, usage, remote, since, _counted: counted, _place: place })
}

async fn serve(shared: Arc<Shared>, admitted: Admitted) {
    let Admitted { session, peer, usage, remote, since, .. } = &admitted;
    let guard = shared.guard.subscribe();
    let connection = session.connection.clone();
    // A session has a single task: each further task of a session would take more memory.
    let own = async {
        tokio::join!(
            Arc::clone(session).deliver_datagrams(),
            Arc::clone(session).end_if_silent(shared.tuning.keepalive),
            revocation::watch_peer(connection, peer.clone(), guard, |guard| &guard.trusted),
        );
        std::future::pending().await
    };
    let why = tokio::select! {
        // Deliver the last datagrams before the session ends.
        biased;
        why = own => why,
        why = stream::serve(&shared, session, peer, usage) => why,
    };
    let why = session.reason(why);
    shared.counters.lost(&why);
    if shared.line(*remote, Kind::Connection).is_some() {
        let (address, port) = (remote.ip().to_canonical(), remote.port());
        let seconds = since.elapsed().as_secs();
        let reason = session.words(&why);
        tracing::info!(%peer, %address, port, seconds, %reason, "peer disconnected");
    }
}

const RETRY_PAUSE: Duration = Duration::from_millis(100);
