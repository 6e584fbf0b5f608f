//! Listening sockets for local applications.

use super::listeners::SharedRoute;
use super::negotiations::Negotiations;
use super::proxies::{self, Dialect, NEGOTIATIONS};
use super::{ClientError, HERE, ListenAt, Route, Shared};
use crate::datagrams::{self, LocalFlows, UdpListener};
use crate::frame::{Opening, Properties, Request};
use crate::hand_over::{Handed, SocketOwner, listener_name};
use crate::inbound::Inbound;
use crate::journal::{Kind, Line};
use crate::local::{DetachedLocal, Local, UnixPathListener};
use crate::quic_tun::http::shown as application_address;
use crate::relay::{RelayError, Tally, answered, relay};
use crate::session::Session;
use crate::transport::{Carried, Connection, Sending, Shards};
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// An open listener. Dropping the value closes the listener.
#[derive(Debug)]
pub(super) struct OpenListener {
    /// The bound address, with the actual port in place of port 0.
    pub(super) bound: ListenAt,
    pub(super) route: SharedRoute,
    /// A copy of the socket for another process; `None` once the client drains.
    pub(super) socket: Option<OwnedFd>,
    pub(super) owner: Option<SocketOwner>,
    /// The flows of a listener for datagrams.
    pub(super) flows: Option<Weak<LocalFlows<SocketAddr, Carried>>>,
    cancel: CancellationToken,
}

/// A socket that another process handed over, and the file of a UNIX socket.
pub(super) type Taken = (OwnedFd, Option<SocketOwner>);

/// Takes the socket that another process handed over for a listener. `number` counts the listeners
/// with the same address.
pub(super) fn taken_over(listen: &ListenAt, number: usize, handed: &mut Handed) -> Option<Taken> {
    let name = listener_name(listen, number);
    match listen {
        ListenAt::Unix(path) => {
            handed.take_path(&name, path).map(|(file, owner)| (file, Some(owner)))
        }
        _ => handed.take(&name).map(|file| (file, None)),
    }
}

/// Opens a listener.
pub(super) async fn open(
    shared: &Arc<Shared>,
    shards: &Arc<Shards>,
    index: usize,
    listen: ListenAt,
    route: Route,
    taken: Option<Taken>,
) -> Result<OpenListener, ClientError> {
    let shard = shards.handle(index);
    // A socket belongs to the thread that creates it.
    let (at, here) = (listen.clone(), Arc::clone(shared));
    let bound = shard.spawn(async move {
        let (bound, socket) = ListenerSocket::bind(&at, &here, taken).await?;
        let (copy, owner) = socket.shared()?;
        Ok((bound, socket, copy, owner))
    });
    let bound = bound.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    let (bound, socket, copy, owner) = bound.map_err(|error| ClientError::Listen(listen, error))?;
    let flows = match &socket {
        ListenerSocket::Udp(listener) => Some(Arc::downgrade(&listener.flows())),
        ListenerSocket::Tcp(_) | ListenerSocket::Unix(_) => None,
    };
    let opened = OpenListener {
        bound,
        route: Arc::new(RwLock::new(route)),
        socket: Some(copy),
        owner,
        flows,
        cancel: CancellationToken::new(),
    };
    let (shared, route, cancel) =
        (Arc::clone(shared), Arc::clone(&opened.route), opened.cancel.clone());
    shard.spawn(async move {
        // Keep the listener while flows are open, because the flows receive their datagrams through
        // it.
        let drained = async {
            shared.draining.cancelled().await;
            if let ListenerSocket::Udp(listener) = &socket {
                listener.flows().all_ended().await;
            }
        };
        tokio::select! {
            () = socket.run(&shared, &route) => {}
            () = drained => {}
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
    Udp(UdpListener<Carried>),
}

impl ListenerSocket {
    async fn bind(
        listen: &ListenAt,
        shared: &Shared,
        taken: Option<Taken>,
    ) -> io::Result<(ListenAt, Self)> {
        match listen {
            ListenAt::Tcp(address) => {
                let socket = match taken {
                    Some((file, _)) => {
                        let socket = std::net::TcpListener::from(file);
                        socket.set_nonblocking(true)?;
                        TcpListener::from_std(socket)?
                    }
                    None => TcpListener::bind(address).await?,
                };
                Ok((ListenAt::Tcp(socket.local_addr()?), Self::Tcp(socket)))
            }
            ListenAt::Unix(path) => {
                let socket = match taken {
                    Some((file, Some(owner))) => UnixPathListener::taken_over((file, owner))?,
                    _ => UnixPathListener::open(path).await?,
                };
                Ok((listen.clone(), Self::Unix(socket)))
            }
            ListenAt::Udp(address) => {
                let socket = match taken {
                    Some((file, _)) => {
                        let socket = std::net::UdpSocket::from(file);
                        socket.set_nonblocking(true)?;
                        UdpSocket::from_std(socket)?
                    }
                    None => UdpSocket::bind(address).await?,
                };
                let bound = ListenAt::Udp(socket.local_addr()?);
                let limits = &shared.limits;
                Ok((
                    bound,
                    Self::Udp(UdpListener::new(socket, limits.datagrams_idle, limits.tunnels)),
                ))
            }
        }
    }

    /// Returns a copy of the socket, and the file of a UNIX socket.
    fn shared(&self) -> io::Result<Taken> {
        Ok(match self {
            Self::Tcp(listener) => (listener.as_fd().try_clone_to_owned()?, None),
            Self::Unix(listener) => {
                let (file, owner) = listener.shared()?;
                (file, Some(owner))
            }
            Self::Udp(listener) => (listener.flows().socket().as_fd().try_clone_to_owned()?, None),
        })
    }

    async fn run(&self, shared: &Arc<Shared>, route: &SharedRoute) {
        let route = || route.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Self::Udp(socket) = self {
            let pick = || shared.links.pick().filter(|_| !shared.draining.is_cancelled());
            // `listeners::check` refuses every other route for datagrams.
            let opening = |flow| match route() {
                Route::Target(target) => datagrams::opening(target, flow),
                _ => unreachable!("a listener for datagrams has a target"),
            };
            return socket.run(pick, opening).await;
        }
        let negotiations = Negotiations::new(NEGOTIATIONS);
        loop {
            match self.next().await {
                Ok(connection) => match shared.place() {
                    Some(place) => {
                        let (shared, limit) = (Arc::clone(shared), Arc::clone(&negotiations));
                        tokio::spawn(handle_connection(shared, connection, route(), place, limit));
                    }
                    None => connection.abort(),
                },
                Err(error) => {
                    // The process is usually out of file descriptors, so wait until some
                    // descriptors are freed.
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

/// Finds the target of a new connection, and opens its tunnel.
async fn handle_connection(
    shared: Arc<Shared>,
    connection: DetachedLocal,
    route: Route,
    place: OwnedSemaphorePermit,
    negotiations: Arc<Negotiations>,
) {
    let request = match route {
        Route::Target(target) => Request::Forward(target),
        Route::Token(source) => {
            let lookups = shared.lookups.of(&u32::MAX, Instant::now() + shared.limits.answer);
            match source.token(connection.remote(), &lookups).await {
                Ok(token) => Request::Token(token),
                Err(error) => {
                    shared.counters.tunnels_refused.increment();
                    if let Some(Line { omitted }) = shared.line(HERE, Kind::Denial) {
                        tracing::warn!(error = %error.shown(), omitted, "no token");
                    }
                    return connection.abort();
                }
            }
        }
        Route::Socks5(users) => {
            let socks = Dialect::Socks5;
            return proxies::handle(shared, connection, socks, users, place, negotiations).await;
        }
        Route::HttpConnect(users) => {
            let http = Dialect::Http;
            return proxies::handle(shared, connection, http, users, place, negotiations).await;
        }
    };
    hand_over(shared, connection, request, None, place).await;
}

/// The result of the proxy negotiation with an application that named its own target.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) dialect: Dialect,
    /// The bytes that the application sent after its request.
    pub(super) early: Bytes,
}

/// Moves the application's connection to the thread of a connection to a server.
pub(super) async fn hand_over(
    shared: Arc<Shared>,
    connection: DetachedLocal,
    request: Request,
    front: Option<Box<Front>>,
    place: OwnedSemaphorePermit,
) {
    let Some((shard, session)) = shared.links.pick_within(shared.limits.patience).await else {
        if let Some(Line { omitted }) = shared.line(HERE, Kind::NoServer) {
            tracing::warn!(target = %request, omitted, "no connection to any server");
        }
        shared.counters.tunnels_refused.increment();
        return match (front, connection.bind()) {
            (Some(front), Ok(local)) => front.dialect.no_server(local).await,
            (None, Ok(local)) => local.abort(),
            (_, Err(_)) => {}
        };
    };
    shard.spawn(async move {
        match connection.bind() {
            Ok(local) => carry(&shared, &session, local, request, front).await,
            Err(error) => tracing::debug!(%error, "lost a local connection"),
        }
        drop(place);
    });
}

async fn carry(
    shared: &Arc<Shared>,
    session: &Arc<Session<Carried>>,
    local: Local,
    request: Request,
    front: Option<Box<Front>>,
) {
    let tunnel = session.tunnel();
    let shown = request.to_string();
    let opening = Opening { request, properties: Properties::default() };
    let (mut sending, mut inbound) = match session.open(&opening).await {
        Ok(streams) => streams,
        Err(error) => {
            tracing::debug!(%error, "no stream");
            shared.counters.tunnels_broken.increment();
            return local.abort();
        }
    };
    drop(opening);
    let counters = &shared.counters;
    let record = shared.tunnels.as_ref().map(|tunnels| {
        let application = application_address(local.remote().map(|at| (at.ip(), at.port())));
        tunnels.open(sending.number(), application, session.connection.remote())
    });
    let tally = Tally { record: record.as_deref(), ..Tally::new(counters, &tunnel.meter) };
    let mut answer = Some(shared.limits.answer);
    if let Some(front) = front {
        let opened = front.open(&local, &mut sending, &mut inbound, tally, shared.limits.answer);
        // Box the future, so that the futures of tunnels without this step stay small.
        if let Err(error) = Box::pin(opened).await {
            sending.reset(0);
            inbound.stop(0);
            ended_early(shared, session, &shown, &error);
            return front.dialect.failed(local, &error).await;
        }
        answer = None;
    }
    let relayed = relay(local, sending, inbound, &session.windows, tally, answer).await;
    if let Err(error) = relayed {
        ended_early(shared, session, &shown, &error);
    }
}

impl Front {
    /// Sends the early bytes, waits for the answer to the opening, and replies to the application.
    async fn open<C: Connection>(
        &self,
        local: &Local,
        sending: &mut C::Sending,
        inbound: &mut Inbound<C>,
        tally: Tally<'_>,
        patience: Duration,
    ) -> Result<(), RelayError> {
        if !self.early.is_empty() {
            tally.sent(&self.early);
            let written = tokio::time::timeout(patience, sending.write(self.early.clone())).await;
            written.map_err(|_| RelayError::Unanswered(patience))??;
        }
        answered(inbound, patience).await?;
        let told = tokio::time::timeout(REPLY, local.write_all(&self.dialect.established())).await;
        Ok(told.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?)
    }
}

/// Counts and logs a tunnel that ended before its application and its target had finished.
fn ended_early(shared: &Shared, session: &Session<Carried>, shown: &str, error: &RelayError) {
    error.count(&shared.counters);
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

/// Maximum time for which an application may take to read the reply to its request.
const REPLY: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
