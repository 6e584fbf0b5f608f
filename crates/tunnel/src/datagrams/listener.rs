use super::{Flow, send};
use crate::frame::{Opening, Status};
use crate::journal::{Journal, Kind, Line};
use crate::session::Session;
use crate::transport::Connection;
use bytes::BytesMut;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::runtime::Handle;

/// A socket to which applications send datagrams. Each source address is a flow.
#[derive(Debug)]
pub(crate) struct UdpListener<C: Connection> {
    socket: UdpSocket,
    sources: Mutex<HashMap<SocketAddr, Arc<SourceFlow<C>>>>,
    idle: Duration,
    most: usize,
    journal: Journal,
}

#[derive(Debug)]
struct SourceFlow<C: Connection> {
    session: Arc<Session<C>>,
    flow: u32,
    /// Whether the application has sent anything since the last check.
    is_active: AtomicBool,
}

impl<C: Connection> UdpListener<C> {
    pub(crate) fn new(socket: UdpSocket, idle: Duration, most: usize) -> Arc<Self> {
        let (sources, journal) = (Mutex::default(), Journal::default());
        Arc::new(Self { socket, sources, idle, most, journal })
    }

    /// Runs for ever. `pick` chooses the connection of a new flow and the thread that serves it.
    /// `opening` builds the opening.
    pub(crate) async fn run(
        self: &Arc<Self>,
        pick: impl Fn() -> Option<(Handle, Arc<Session<C>>)>,
        opening: impl Fn(u32) -> Opening,
    ) {
        let mut buffer = BytesMut::with_capacity(super::LARGEST);
        loop {
            buffer.clear();
            let Ok((_, source)) = self.socket.recv_buf_from(&mut buffer).await else {
                // An ICMP error for an earlier datagram; the socket still works.
                continue;
            };
            let known = self.lock().get(&source).cloned();
            let known = known.filter(|source_flow| !source_flow.session.connection.is_closed());
            let Some(source_flow) = known.or_else(|| self.open_flow(source, &pick, &opening))
            else {
                continue;
            };
            source_flow.is_active.store(true, Ordering::Relaxed);
            send(&source_flow.session, source_flow.flow, &buffer);
        }
    }

    fn open_flow(
        self: &Arc<Self>,
        source: SocketAddr,
        pick: &impl Fn() -> Option<(Handle, Arc<Session<C>>)>,
        opening: &impl Fn(u32) -> Opening,
    ) -> Option<Arc<SourceFlow<C>>> {
        let (shard, session) = pick()?;
        let number = session.flows.number();
        let full = self.lock().len() >= self.most;
        let flow = Flow::begin(&session, number).filter(|_| !full);
        let Some(flow) = flow else {
            session.counters.datagrams_dropped.increment();
            return None;
        };
        let is_active = AtomicBool::new(true);
        let source_flow =
            Arc::new(SourceFlow { session: Arc::clone(&session), flow: number, is_active });
        self.lock().insert(source, Arc::clone(&source_flow));
        let (listener, opening) = (Arc::clone(self), opening(number));
        let ending = Arc::clone(&source_flow);
        shard.spawn(async move {
            listener.forward_answers(source, &ending, flow, &opening).await;
            let mut sources = listener.lock();
            if sources.get(&source).is_some_and(|now| Arc::ptr_eq(now, &ending)) {
                sources.remove(&source);
            }
        });
        Some(source_flow)
    }

    /// Returns the answers to the application, until the flow ends.
    async fn forward_answers(
        &self,
        source: SocketAddr,
        source_flow: &SourceFlow<C>,
        mut flow: Flow<C>,
        opening: &Opening,
    ) {
        let session = &source_flow.session;
        let _tunnel = session.tunnel();
        let Ok((_sending, mut inbound)) = session.open(opening).await else { return };
        let ended = async {
            match inbound.answer().await {
                Ok(answer) if answer.status == Status::Open => {
                    while inbound.fill().await.is_ok() && inbound.ready() > 0 {
                        inbound.consume(inbound.ready());
                    }
                }
                Ok(answer) => {
                    session.counters.tunnels_refused.increment();
                    let line = self.journal.line(Instant::now(), source.ip(), Kind::Denial);
                    if let Some(Line { omitted }) = line {
                        let (status, why) = (answer.status, answer.message);
                        tracing::warn!(?status, %why, omitted, "the other end refused");
                    }
                }
                Err(_) => {}
            }
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                payload = flow.next() => {
                    let Some(payload) = payload else { return };
                    source_flow.is_active.store(true, Ordering::Relaxed);
                    if self.socket.send_to(&payload, source).await.is_ok() {
                        session.counters.datagrams_in.increment();
                    }
                }
                () = &mut ended => return,
                () = tokio::time::sleep(self.idle) => {
                    if !source_flow.is_active.swap(false, Ordering::Relaxed) {
                        return;
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<SourceFlow<C>>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
