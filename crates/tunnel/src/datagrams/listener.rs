use super::{Flow, send};
use crate::access_log::End;
use crate::account::Direction;
use crate::frame::{Opening, Status};
use crate::journal::{Journal, Kind, Line};
use crate::relay::RelayError;
use crate::session::{Session, Tunnel};
use crate::transport::{Connection, set_receive_buffer};
use bytes::BytesMut;
use socket2::{Domain, SockRef, Socket, Type};
use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use units::foreign;

/// A socket to which applications send datagrams. Each source address is a flow.
#[derive(Debug)]
pub(crate) struct UdpListener<C: Connection>(Arc<LocalFlows<SocketAddr, C>>);

/// The flows that applications open at a socket of this end, by the return path of their datagrams.
#[derive(Debug)]
pub(crate) struct LocalFlows<P, C: Connection> {
    socket: UdpSocket,
    flows: Mutex<HashMap<P, Arc<LocalFlow<C>>>>,
    idle: Duration,
    most: usize,
    journal: Journal,
    ended: CancellationToken,
    /// Whether another process may read the listener's socket. Each flow then reads a separate
    /// socket.
    keeps: AtomicBool,
    /// Held while the listener's socket shares its port with the socket of a flow.
    sharing: Mutex<()>,
}

/// Identifies the application of a flow, and sends the target's datagrams to it.
pub(crate) trait ReturnPath: Clone + Eq + Hash + Send + Sync + 'static {
    fn application(&self) -> IpAddr;

    fn send(
        &self,
        socket: &UdpSocket,
        payload: &[u8],
    ) -> impl Future<Output = io::Result<usize>> + Send;
}

impl ReturnPath for SocketAddr {
    fn application(&self) -> IpAddr {
        self.ip()
    }

    async fn send(&self, socket: &UdpSocket, payload: &[u8]) -> io::Result<usize> {
        socket.send_to(payload, *self).await
    }
}

#[derive(Debug)]
struct LocalFlow<C: Connection> {
    session: Arc<Session<C>>,
    tunnel: Tunnel<C>,
    flow: u32,
    /// Whether the application has sent a datagram since the last idle check.
    is_active: AtomicBool,
    /// Whether the flow reads a separate socket.
    is_kept: AtomicBool,
    ended: CancellationToken,
}

impl<C: Connection> UdpListener<C> {
    pub(crate) fn new(socket: UdpSocket, idle: Duration, most: usize) -> Self {
        Self(LocalFlows::new(socket, idle, most))
    }

    pub(crate) fn flows(&self) -> Arc<LocalFlows<SocketAddr, C>> {
        Arc::clone(&self.0)
    }

    /// Runs for ever. `pick` chooses the connection of a new flow and the thread that serves it.
    /// `opening` builds the opening.
    pub(crate) async fn run(
        &self,
        pick: impl Fn() -> Option<(Handle, Arc<Session<C>>)>,
        opening: impl Fn(u32) -> Opening,
    ) {
        let mut buffer = BytesMut::with_capacity(super::LARGEST);
        loop {
            buffer.clear();
            let Ok((_, source)) = self.0.socket.recv_buf_from(&mut buffer).await else {
                // The error is an ICMP error for an earlier datagram; the socket remains usable.
                continue;
            };
            self.0.forward(source, &buffer, &pick, &opening);
            if self.0.keeps.load(Ordering::Relaxed) {
                self.0.keep(source);
            }
        }
    }
}

impl<C: Connection> LocalFlows<SocketAddr, C> {
    /// Lets another process read the listener's socket. The kernel delivers the datagrams of open
    /// flows to connected sockets of this process, of which it opens at most `most` at once.
    pub(crate) fn keep_flows(self: &Arc<Self>, most: usize) {
        self.keeps.store(true, Ordering::Relaxed);
        let sources: Vec<_> = self.lock().keys().take(most).copied().collect();
        sources.into_iter().for_each(|source| self.keep(source));
    }

    /// Opens no connected sockets for further flows, because no other process reads the listener's
    /// socket.
    pub(crate) fn keep_no_more(&self) {
        self.keeps.store(false, Ordering::Relaxed);
    }

    fn keep(self: &Arc<Self>, source: SocketAddr) {
        let Some(local) = self.lock().get(&source).cloned() else { return };
        if local.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let sharing = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
        let connected = connected(&self.socket, source);
        drop(sharing);
        let socket = match connected {
            Ok(socket) => socket,
            Err(error) => {
                let line = self.journal.line(Instant::now(), source.ip(), Kind::Accept);
                if let Some(Line { omitted }) = line {
                    let why = "a flow of datagrams continues in the new process";
                    tracing::warn!(%source, %error, omitted, "{why}");
                }
                return;
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = local.read(&socket, source) => {}
                () = local.ended.cancelled() => {}
            }
        });
    }
}

impl<C: Connection> LocalFlow<C> {
    /// Sends the datagrams that arrive at a socket of this flow. Returns if the socket fails.
    async fn read(&self, socket: &UdpSocket, source: SocketAddr) {
        while socket.readable().await.is_ok() {
            let mut buffer = BytesMut::with_capacity(super::LARGEST);
            match socket.try_recv_buf_from(&mut buffer) {
                // A datagram of another source may have arrived before the socket was connected.
                Ok((_, from)) if from == source => self.send(&buffer),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // This error is an ICMP error for an earlier datagram.
                Err(error) => tracing::debug!(%source, %error, "nothing received"),
            }
        }
    }

    fn send(&self, payload: &[u8]) {
        self.is_active.store(true, Ordering::Relaxed);
        send(&self.session, self.flow, payload, &self.tunnel.meter);
    }
}

/// Opens a socket at the address of `listener` that receives the datagrams of `source` alone: the
/// kernel prefers a connected socket to an unconnected socket.
fn connected(listener: &UdpSocket, source: SocketAddr) -> io::Result<UdpSocket> {
    let at = listener.local_addr()?;
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    set_receive_buffer(&socket, super::RECEIVE_BUFFER);
    let listener = SockRef::from(listener);
    // Share the port only with this user's processes, and only for as long as it takes to bind.
    socket.set_reuse_port(true)?;
    listener.set_reuse_port(true)?;
    let bound = socket.bind(&at.into()).and_then(|()| socket.connect(&source.into()));
    listener.set_reuse_port(false)?;
    bound?;
    UdpSocket::from_std(socket.into())
}

impl<P: ReturnPath, C: Connection> LocalFlows<P, C> {
    /// Creates flows on `socket`: carries at most `most` flows. A flow ends after `idle` without a
    /// datagram.
    pub(crate) fn new(socket: UdpSocket, idle: Duration, most: usize) -> Arc<Self> {
        set_receive_buffer(&socket, super::RECEIVE_BUFFER);
        let (flows, journal) = (Mutex::default(), Journal::default());
        let (ended, keeps) = (CancellationToken::new(), AtomicBool::new(false));
        let sharing = Mutex::default();
        Arc::new(Self { socket, flows, idle, most, journal, ended, keeps, sharing })
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Waits until no flow is open.
    pub(crate) async fn all_ended(&self) {
        while !self.lock().is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends all flows.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// Sends a datagram into the flow of this return path. Opens the flow if the flow does not
    /// exist.
    pub(crate) fn forward(
        self: &Arc<Self>,
        path: P,
        payload: &[u8],
        pick: &impl Fn() -> Option<(Handle, Arc<Session<C>>)>,
        opening: &impl Fn(u32) -> Opening,
    ) {
        let known = self.lock().get(&path).cloned();
        let known = known.filter(|flow| !flow.session.connection.is_closed());
        let Some(flow) = known.or_else(|| self.open(path, pick, opening)) else { return };
        flow.send(payload);
    }

    fn open(
        self: &Arc<Self>,
        path: P,
        pick: &impl Fn() -> Option<(Handle, Arc<Session<C>>)>,
        opening: &impl Fn(u32) -> Opening,
    ) -> Option<Arc<LocalFlow<C>>> {
        let (shard, session) = pick()?;
        let number = session.flows.number();
        let full = self.lock().len() >= self.most;
        let flow = Flow::begin(&session, number).filter(|_| !full);
        let Some(flow) = flow else {
            session.counters.datagrams_dropped.increment();
            return None;
        };
        let (is_active, is_kept) = (AtomicBool::new(true), AtomicBool::new(false));
        let ended = CancellationToken::new();
        let (tunnel, session) = (session.tunnel(), Arc::clone(&session));
        if let Ok(at) = self.socket.local_addr() {
            tunnel.meter.describe("reverse", format_args!("udp:{at}"), None);
        }
        let local = LocalFlow { session, tunnel, flow: number, is_active, is_kept, ended };
        let local = Arc::new(local);
        self.lock().insert(path.clone(), Arc::clone(&local));
        let (flows, opening) = (Arc::clone(self), opening(number));
        let ending = Arc::clone(&local);
        shard.spawn(async move {
            tokio::select! {
                end = flows.forward_answers(&path, &ending, flow, &opening) => {
                    ending.tunnel.meter.end_as(end);
                }
                () = flows.ended.cancelled() => ending.tunnel.meter.end_as(End::Finished),
            }
            ending.ended.cancel();
            let mut all = flows.lock();
            if all.get(&path).is_some_and(|now| Arc::ptr_eq(now, &ending)) {
                all.remove(&path);
            }
        });
        Some(local)
    }

    /// Sends the target's datagrams to the application, until the flow ends.
    async fn forward_answers(
        &self,
        path: &P,
        local: &LocalFlow<C>,
        mut flow: Flow<C>,
        opening: &Opening,
    ) -> End {
        let session = &local.session;
        let Ok((_sending, mut inbound)) = session.open(opening).await else { return End::Lost };
        let ended = async {
            match inbound.answer().await {
                Ok(answer) if answer.status == Status::Open => loop {
                    match inbound.fill().await {
                        Ok(()) if inbound.ready() == 0 => return End::Finished,
                        Ok(()) => inbound.consume(inbound.ready()),
                        Err(error) => return RelayError::from(error).end(),
                    }
                },
                Ok(answer) => {
                    session.counters.tunnels_refused.increment();
                    let line = self.journal.line(Instant::now(), path.application(), Kind::Denial);
                    if let Some(Line { omitted }) = line {
                        let (status, why) = (answer.status, answer.message);
                        let target = foreign(&opening.request);
                        tracing::warn!(%target, ?status, %why, omitted, "the other end refused");
                    }
                    End::Refused
                }
                Err(error) => RelayError::from(error).end(),
            }
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                payload = flow.next() => {
                    let Some(payload) = payload else { return End::Lost };
                    local.is_active.store(true, Ordering::Relaxed);
                    if !local.tunnel.meter.admit_datagram(Direction::In, payload.len()) {
                        session.counters.datagrams_over_limit.increment();
                        continue;
                    }
                    if path.send(&self.socket, &payload).await.is_ok() {
                        session.counters.datagrams_in.increment();
                    }
                }
                end = &mut ended => return end,
                () = tokio::time::sleep(self.idle) => {
                    if !local.is_active.swap(false, Ordering::Relaxed) {
                        return End::Idle;
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<P, Arc<LocalFlow<C>>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LOOK: Duration = Duration::from_millis(100);
