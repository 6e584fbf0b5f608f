//! Who comes to a shard's socket, until it is known who it is.

use super::limits::Place;
use super::{World, stream};
use crate::identity::{PeerName, peer_name};
use crate::session::{SERVERS, Session};
use crate::transport::Connection;
use crate::transport::quic::{Knock, QuicConnection};
use rustls::pki_types::UnixTime;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Handshakes under way, by address.
#[derive(Debug, Default)]
struct Porch {
    guests: Mutex<HashMap<IpAddr, usize>>,
}

/// One of them.
struct Guest {
    porch: Arc<Porch>,
    address: IpAddr,
}

pub(super) async fn keep(world: Arc<World>, shard: usize) {
    let porch = Arc::<Porch>::default();
    loop {
        let knock = tokio::select! {
            knock = world.quic.knock(shard) => knock,
            () = world.draining.cancelled() => None,
        };
        let Some(knock) = knock else { return };
        if let Some((knock, guest)) = admit(&world, &porch, knock) {
            tokio::spawn(greet(Arc::clone(&world), knock, guest));
        }
    }
}

/// A handshake costs this end a signature; what costs the other nothing is put off.
fn admit(world: &World, porch: &Arc<Porch>, knock: Knock) -> Option<(Knock, Guest)> {
    let address = knock.remote().ip().to_canonical();
    let mut guests = porch.guests.lock().unwrap_or_else(PoisonError::into_inner);
    let all: usize = guests.values().sum();
    let same = guests.get(&address).copied().unwrap_or(0);
    let limits = &world.limits;
    let crowded = all >= limits.handshakes / 4 || same >= limits.handshakes_each_address / 4;
    if all >= limits.handshakes || same >= limits.handshakes_each_address {
        world.counters.handshakes_put_off.one();
        knock.ignore();
        return None;
    }
    if crowded && !knock.is_validated() {
        world.counters.handshakes_put_off.one();
        knock.ask_for_proof();
        return None;
    }
    *guests.entry(address).or_default() += 1;
    Some((knock, Guest { porch: Arc::clone(porch), address }))
}

async fn greet(world: Arc<World>, knock: Knock, guest: Guest) {
    let remote = knock.remote();
    let connection = match knock.accept().await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::info!(%remote, %error, "no connection was made");
            world.counters.connections_failed.one();
            return;
        }
    };
    drop(guest);
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
        connection.close("this identity has as many connections as it may have");
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

impl Drop for Guest {
    fn drop(&mut self) {
        let mut guests = self.porch.guests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = guests.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&self.address);
            }
        }
    }
}
