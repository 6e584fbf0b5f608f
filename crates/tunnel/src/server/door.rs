//! Handles new connections at a shard's socket until the peer is identified.

use super::handshakes::{Handshake, Handshakes, Verdict};
use super::limits::Place;
use super::{World, stream};
use crate::identity::{PeerName, peer_name};
use crate::session::{SERVERS, Session};
use crate::transport::Connection;
use crate::transport::quic::{Knock, QuicConnection};
use rustls::pki_types::UnixTime;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

pub(super) async fn keep(world: Arc<World>, shard: usize) {
    let limits = &world.limits;
    let handshakes = Handshakes::new(limits.handshakes, limits.handshakes_unproved);
    loop {
        let knock = tokio::select! {
            knock = world.quic.knock(shard) => knock,
            () = world.draining.cancelled() => None,
        };
        let Some(knock) = knock else { return };
        let address = knock.remote().ip();
        match handshakes.admit(Instant::now(), address, knock.is_validated()) {
            Verdict::Begin(handshake) => {
                tokio::spawn(greet(Arc::clone(&world), knock, handshake));
            }
            Verdict::Prove => {
                world.counters.handshakes_put_off.one();
                knock.ask_for_proof();
            }
            Verdict::Drop => {
                world.counters.handshakes_put_off.one();
                knock.ignore();
            }
        }
    }
}

async fn greet(world: Arc<World>, knock: Knock, handshake: Handshake) {
    let remote = knock.remote();
    let connected = tokio::select! {
        connected = knock.accept() => connected,
        () = handshake.evicted() => {
            world.counters.handshakes_evicted.one();
            tracing::debug!(%remote, "handshake dropped: too many in progress");
            return;
        }
    };
    drop(handshake);
    let connection = match connected {
        Ok(connection) => connection,
        Err(error) => {
            tracing::info!(%remote, %error, "no connection was made");
            world.counters.connections_failed.one();
            return;
        }
    };
    let peer = peer_name(&connection.certificates(), &world.guard().trusted, UnixTime::now());
    let peer = match peer {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%remote, %error, "a stranger is not let in");
            world.counters.strangers.one();
            connection.close("this identity is not let in");
            return;
        }
    };
    serve(world, connection, peer).await;
}

async fn serve(world: Arc<World>, connection: QuicConnection, peer: PeerName) {
    let usage = world.usage(&peer);
    let limit = world.limits.connections_each;
    let Some(_place) = Place::take(&usage, |usage| &usage.connections, limit) else {
        tracing::warn!(%peer, limit, "too many connections of one identity");
        connection.close("this identity has reached its limit of connections");
        return;
    };
    let owner = Arc::from(peer.as_str());
    let session = Session::new(connection.clone(), SERVERS, &world.budget, &owner, &world.counters);
    world.counters.connections_made.one();
    tracing::info!(%peer, remote = %connection.remote(), "connected");
    world
        .sessions
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((peer.clone(), Arc::downgrade(&session)));
    tokio::spawn(Arc::clone(&session).deliver_datagrams());
    tokio::spawn(Arc::clone(&session).end_if_silent(world.tuning.keepalive));
    let why = stream::serve(&world, &session, &peer, &usage).await;
    world.counters.lost(&why);
    tracing::info!(%peer, %why, "disconnected");
}
