//! Listening sockets for local applications.

use super::listeners::Leads;
use super::{ClientError, ListenAt, World};
use crate::datagrams::{self, UdpDoor};
use crate::frame::Opening;
use crate::local::{Local, Loose, UnixDoor};
use crate::relay::{RelayError, relay};
use crate::session::Session;
use crate::target::Target;
use crate::transport::Shards;
use crate::transport::quic::QuicConnection;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

/// An open listener. Dropping it closes the listener.
#[derive(Debug)]
pub(super) struct Opened {
    /// The bound address, with the actual port in place of port 0.
    pub(super) bound: ListenAt,
    pub(super) leads: Leads,
    over: CancellationToken,
}

/// Opens a listener.
pub(super) async fn open(
    world: &Arc<World>,
    shards: &Arc<Shards>,
    index: usize,
    listen: ListenAt,
    target: Target,
) -> Result<Opened, ClientError> {
    let shard = shards.handle(index);
    // A socket belongs to the thread that creates it.
    let (at, here) = (listen.clone(), Arc::clone(world));
    let bound = shard.spawn(async move { Door::bind(&at, &here).await }).await;
    let bound = bound.unwrap_or_else(|error| Err(io::Error::other(error)));
    let (bound, door) = bound.map_err(|error| ClientError::Listen(listen, error))?;
    let opened =
        Opened { bound, leads: Arc::new(RwLock::new(target)), over: CancellationToken::new() };
    let (world, leads, over) = (Arc::clone(world), Arc::clone(&opened.leads), opened.over.clone());
    shard.spawn(async move {
        tokio::select! {
            () = door.keep(&world, &leads) => {}
            () = world.draining.cancelled() => {}
            () = over.cancelled() => {}
        }
    });
    Ok(opened)
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

enum Door {
    Tcp(TcpListener),
    Unix(UnixDoor),
    Udp(Arc<UdpDoor<QuicConnection>>),
}

impl Door {
    async fn bind(listen: &ListenAt, world: &World) -> io::Result<(ListenAt, Self)> {
        match listen {
            ListenAt::Tcp(address) => {
                let socket = TcpListener::bind(address).await?;
                Ok((ListenAt::Tcp(socket.local_addr()?), Self::Tcp(socket)))
            }
            ListenAt::Unix(path) => Ok((listen.clone(), Self::Unix(UnixDoor::open(path).await?))),
            ListenAt::Udp(address) => {
                let socket = UdpSocket::bind(address).await?;
                let bound = ListenAt::Udp(socket.local_addr()?);
                let limits = &world.limits;
                Ok((bound, Self::Udp(UdpDoor::new(socket, limits.datagrams_idle, limits.tunnels))))
            }
        }
    }

    async fn keep(&self, world: &Arc<World>, leads: &Leads) {
        let target = || leads.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Self::Udp(door) = self {
            let pick = || world.links.pick();
            return door.keep(pick, |flow| datagrams::opening(target(), flow)).await;
        }
        loop {
            match self.next().await {
                Ok(guest) => {
                    tokio::spawn(receive(Arc::clone(world), guest, target()));
                }
                Err(error) => {
                    // The process is usually out of file descriptors, so wait until some are freed.
                    tracing::warn!(%error, "accept has failed");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    async fn next(&self) -> io::Result<Loose> {
        match self {
            Self::Tcp(listener) => Ok(Loose::Tcp(listener.accept().await?.0.into_std()?)),
            Self::Unix(door) => Ok(Loose::Unix(door.accept().await?.into_std()?)),
            Self::Udp(_) => std::future::pending().await,
        }
    }
}

async fn receive(world: Arc<World>, guest: Loose, target: Target) {
    if world.counters.tunnels.count() >= world.limits.tunnels as u64 {
        world.counters.tunnels_over_limit.one();
        return guest.abort();
    }
    let Some((shard, session)) = world.links.pick_within(world.limits.patience).await else {
        tracing::warn!(%target, "no connection to any server");
        world.counters.tunnels_refused.one();
        return guest.abort();
    };
    shard.spawn(async move {
        match guest.bind() {
            Ok(local) => carry(&world, &session, local, target).await,
            Err(error) => tracing::warn!(%error, "lost a local connection"),
        }
    });
}

async fn carry(
    world: &Arc<World>,
    session: &Arc<Session<QuicConnection>>,
    local: Local,
    target: Target,
) {
    let _tunnel = session.tunnel();
    let shown = target.to_string();
    let opening = Opening::forward(target);
    let (sending, inbound) = match session.open(&opening).await {
        Ok(streams) => streams,
        Err(error) => {
            tracing::debug!(%error, "no stream");
            world.counters.tunnels_broken.one();
            return local.abort();
        }
    };
    let answer = Some(world.limits.answer);
    match relay(local, sending, inbound, &session.windows, &world.counters, answer).await {
        Ok(()) => {}
        Err(RelayError::Refused(status, why)) => {
            world.counters.tunnels_refused.one();
            tracing::warn!(target = %shown, ?status, %why, "the server refused");
        }
        Err(error) => {
            world.counters.tunnels_broken.one();
            tracing::debug!(target = %shown, %error, "a tunnel broke");
        }
    }
}

const BREATH: Duration = Duration::from_millis(100);
