//! Handles new connections at a shard's socket until the peer is identified.

use super::handshakes::{Handshake, Handshakes, Verdict};
use super::limits::QuotaPermit;
use super::{Shared, stream};
use crate::identity::{PeerName, peer_name};
use crate::journal::Kind;
use crate::session::{SERVERS, Session};
use crate::transport::Connection;
use crate::transport::quic::{IncomingConnection, QuicConnection};
use rustls::pki_types::UnixTime;
use std::sync::Arc;
use std::time::Instant;

pub(super) async fn run(shared: Arc<Shared>, shard: usize) {
    let limits = &shared.limits;
    let handshakes = Handshakes::new(limits.handshakes, limits.handshakes_unvalidated);
    loop {
        let incoming = tokio::select! {
            incoming = shared.quic.incoming(shard) => incoming,
            () = shared.draining.cancelled() => None,
        };
        let Some(incoming) = incoming else { return };
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

async fn handle_handshake(shared: Arc<Shared>, incoming: IncomingConnection, handshake: Handshake) {
    let remote = incoming.remote();
    let connected = tokio::select! {
        connected = incoming.accept() => connected,
        () = handshake.evicted() => {
            shared.counters.handshakes_evicted.increment();
            tracing::debug!(%remote, "handshake dropped: too many in progress");
            return;
        }
    };
    drop(handshake);
    let connection = match connected {
        Ok(connection) => connection,
        Err(error) => {
            shared.counters.connections_failed.increment();
            if let Some(line) = shared.line(remote, Kind::Handshake) {
                let (address, port) = (remote.ip().to_canonical(), remote.port());
                let omitted = line.omitted;
                tracing::info!(%address, port, reason = %error, omitted, "handshake failed");
            }
            return;
        }
    };
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
            connection.close("this identity is not let in");
            return;
        }
    };
    serve(shared, connection, peer).await;
}

async fn serve(shared: Arc<Shared>, connection: QuicConnection, peer: PeerName) {
    let usage = shared.usage(&peer);
    let limit = shared.limits.connections_each;
    let Some(_permit) = QuotaPermit::acquire(&usage, |usage| &usage.connections, limit) else {
        let remote = connection.remote();
        if let Some(line) = shared.line(remote, Kind::Denial) {
            let (address, port) = (remote.ip().to_canonical(), remote.port());
            let (reason, omitted) = ("too many connections of one identity", line.omitted);
            tracing::warn!(%peer, %address, port, reason, limit, omitted, "connection refused");
        }
        connection.close("this identity has reached its limit of connections");
        return;
    };
    let owner = Arc::from(peer.as_str());
    let session =
        Session::new(connection.clone(), SERVERS, &shared.budget, &owner, &shared.counters);
    shared.counters.connections_made.increment();
    let remote = connection.remote();
    let (address, port) = (remote.ip().to_canonical(), remote.port());
    if let Some(line) = shared.line(remote, Kind::Connection) {
        tracing::info!(%peer, %address, port, omitted = line.omitted, "peer connected");
    }
    let since = Instant::now();
    shared.add_session(&peer, &session);
    tokio::spawn(Arc::clone(&session).deliver_datagrams());
    tokio::spawn(Arc::clone(&session).end_if_silent(shared.tuning.keepalive));
    let why = session.reason(stream::serve(&shared, &session, &peer, &usage).await);
    shared.counters.lost(&why);
    if shared.line(remote, Kind::Connection).is_some() {
        let seconds = since.elapsed().as_secs();
        tracing::info!(%peer, %address, port, seconds, reason = %why, "peer disconnected");
    }
}
