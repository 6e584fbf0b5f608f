//! Listening sockets for local applications.

use super::listeners::SharedTarget;
use super::{ClientError, HERE, ListenAt, Shared};
use crate::datagrams::{self, UdpListener};
use crate::frame::Opening;
use crate::journal::{Kind, Line};
use crate::local::{DetachedLocal, Local, UnixPathListener};
use crate::relay::{RelayError, relay};
use crate::session::Session;
use crate::target::Target;
use crate::transport::quic::QuicConnection;
use crate::transport::{Connection, Shards};
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// An open listener. Dropping it closes the listener.
#[derive(Debug)]
pub(super) struct OpenListener {
    /// The bound address, with the actual port in place of port 0.
    pub(super) bound: ListenAt,
    pub(super) current_target: SharedTarget,
    cancel: CancellationToken,
}

/// Opens a listener.
pub(super) async fn open(
    shared: &Arc<Shared>,
    shards: &Arc<Shards>,
    index: usize,
    listen: ListenAt,
    target: Target,
) -> Result<OpenListener, ClientError> {
    let shard = shards.handle(index);
    // A socket belongs to the thread that creates it.
    let (at, here) = (listen.clone(), Arc::clone(shared));
    let bound = shard.spawn(async move { ListenerSocket::bind(&at, &here).await }).await;
    let bound = bound.unwrap_or_else(|error| Err(io::Error::other(error)));
    let (bound, socket) = bound.map_err(|error| ClientError::Listen(listen, error))?;
    let opened = OpenListener {
        bound,
        current_target: Arc::new(RwLock::new(target)),
        cancel: CancellationToken::new(),
    };
    let (shared, current_target, cancel) =
        (Arc::clone(shared), Arc::clone(&opened.current_target), opened.cancel.clone());
    shard.spawn(async move {
        tokio::select! {
            () = socket.run(&shared, &current_target) => {}
            () = shared.draining.cancelled() => {}
            () = cancel.cancelled() => {}
        }
    });
    Ok(opened)
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixPathListener),
    Udp(Arc<UdpListener<QuicConnection>>),
}

impl ListenerSocket {
    async fn bind(listen: &ListenAt, shared: &Shared) -> io::Result<(ListenAt, Self)> {
        match listen {
            ListenAt::Tcp(address) => {
                let socket = TcpListener::bind(address).await?;
                Ok((ListenAt::Tcp(socket.local_addr()?), Self::Tcp(socket)))
            }
            ListenAt::Unix(path) => {
                Ok((listen.clone(), Self::Unix(UnixPathListener::open(path).await?)))
            }
            ListenAt::Udp(address) => {
                let socket = UdpSocket::bind(address).await?;
                let bound = ListenAt::Udp(socket.local_addr()?);
                let limits = &shared.limits;
                Ok((
                    bound,
                    Self::Udp(UdpListener::new(socket, limits.datagrams_idle, limits.tunnels)),
                ))
            }
        }
    }

    async fn run(&self, shared: &Arc<Shared>, current_target: &SharedTarget) {
        let target = || current_target.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Self::Udp(socket) = self {
            let pick = || shared.links.pick();
            return socket.run(pick, |flow| datagrams::opening(target(), flow)).await;
        }
        loop {
            match self.next().await {
                Ok(connection) => match shared.place() {
                    Some(place) => {
                        let shared = Arc::clone(shared);
                        tokio::spawn(handle_connection(shared, connection, target(), place));
                    }
                    None => connection.abort(),
                },
                Err(error) => {
                    // The process is usually out of file descriptors, so wait until some are freed.
                    if let Some(Line { omitted }) = shared.line(HERE, Kind::Accept) {
                        tracing::warn!(%error, omitted, "accept has failed");
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn next(&self) -> io::Result<DetachedLocal> {
        match self {
            Self::Tcp(listener) => DetachedLocal::of_tcp(listener.accept().await?.0),
            Self::Unix(socket) => Ok(DetachedLocal::Unix(socket.accept().await?.into_std()?)),
            Self::Udp(_) => std::future::pending().await,
        }
    }
}

async fn handle_connection(
    shared: Arc<Shared>,
    connection: DetachedLocal,
    target: Target,
    place: OwnedSemaphorePermit,
) {
    let Some((shard, session)) = shared.links.pick_within(shared.limits.patience).await else {
        if let Some(Line { omitted }) = shared.line(HERE, Kind::NoServer) {
            tracing::warn!(%target, omitted, "no connection to any server");
        }
        shared.counters.tunnels_refused.increment();
        return connection.abort();
    };
    shard.spawn(async move {
        match connection.bind() {
            Ok(local) => carry(&shared, &session, local, target).await,
            Err(error) => tracing::debug!(%error, "lost a local connection"),
        }
        drop(place);
    });
}

async fn carry(
    shared: &Arc<Shared>,
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
            shared.counters.tunnels_broken.increment();
            return local.abort();
        }
    };
    let answer = Some(shared.limits.answer);
    let counters = &shared.counters;
    let relayed = relay(local, sending, inbound, &session.windows, counters, answer).await;
    let Err(error) = relayed else { return };
    error.count(counters);
    match error {
        RelayError::Refused(status, why) => {
            let server = session.connection.remote().ip();
            if let Some(Line { omitted }) = shared.line(server, Kind::Denial) {
                tracing::warn!(target = %shown, ?status, %why, omitted, "the server refused");
            }
        }
        error => tracing::debug!(target = %shown, %error, "a tunnel ended early"),
    }
}

const RETRY_PAUSE: Duration = Duration::from_millis(100);
