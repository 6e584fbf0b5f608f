//! Where applications come in.

use super::{ClientError, ListenAt, Listener, World};
use crate::frame::Opening;
use crate::local::{Local, Loose};
use crate::relay::{RelayError, relay};
use crate::session::Session;
use crate::target::Target;
use crate::transport::Shards;
use crate::transport::quic::QuicConnection;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};

/// Begins to listen; tells where.
pub(super) async fn open(
    world: &Arc<World>,
    shards: &Arc<Shards>,
    index: usize,
    listener: Listener,
) -> Result<ListenAt, ClientError> {
    let failed = |error| ClientError::Listen(listener.listen.clone(), error);
    if matches!(listener.listen, ListenAt::Udp(_)) != listener.target.is_datagrams() {
        return Err(ClientError::Mixed(listener.listen, listener.target));
    }
    let handle = shards.handle(index).clone();
    let _shard = handle.enter();
    let target = listener.target.clone();
    let world = Arc::clone(world);
    let (bound, door) = match &listener.listen {
        ListenAt::Tcp(address) => {
            let socket = std::net::TcpListener::bind(address).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            let socket = TcpListener::from_std(socket).map_err(failed)?;
            (ListenAt::Tcp(socket.local_addr().map_err(failed)?), Door::Tcp(socket))
        }
        ListenAt::Unix(path) => {
            clear(path).map_err(failed)?;
            (listener.listen.clone(), Door::Unix(UnixListener::bind(path).map_err(failed)?))
        }
        ListenAt::Udp(_) => {
            return Err(failed(io::Error::from(io::ErrorKind::Unsupported)));
        }
    };
    handle.spawn(async move {
        tokio::select! {
            () = door.keep(&world, &target) => {}
            () = world.draining.cancelled() => {}
        }
    });
    Ok(bound)
}

enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    async fn keep(&self, world: &Arc<World>, target: &Target) {
        loop {
            match self.next().await {
                Ok(guest) => {
                    tokio::spawn(receive(Arc::clone(world), guest, target.clone()));
                }
                Err(error) => {
                    // Out of descriptors as a rule: some have to be given back first.
                    tracing::warn!(%error, "nobody can be let in");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    async fn next(&self) -> io::Result<Loose> {
        match self {
            Self::Tcp(listener) => Ok(Loose::Tcp(listener.accept().await?.0.into_std()?)),
            Self::Unix(listener) => Ok(Loose::Unix(listener.accept().await?.0.into_std()?)),
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
            Err(error) => tracing::warn!(%error, "a guest was lost"),
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
            tracing::debug!(target = %shown, %error, "a tunnel broke off");
        }
    }
}

/// A socket that a dead process left is taken away; anything else stays, and is told.
fn clear(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else is there"));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::from(io::ErrorKind::AddrInUse));
    }
    std::fs::remove_file(path)
}

const BREATH: Duration = Duration::from_millis(100);
