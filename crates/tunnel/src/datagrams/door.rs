use super::{Flow, send};
use crate::frame::{Opening, Status};
use crate::session::Session;
use crate::transport::Connection;
use bytes::BytesMut;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::runtime::Handle;

/// A socket to which applications send datagrams. Each source address is a flow.
#[derive(Debug)]
pub(crate) struct UdpDoor<C: Connection> {
    socket: UdpSocket,
    guests: Mutex<HashMap<SocketAddr, Arc<Guest<C>>>>,
    idle: Duration,
    most: usize,
}

#[derive(Debug)]
struct Guest<C: Connection> {
    session: Arc<Session<C>>,
    flow: u32,
    /// Whether the application has sent anything since the last check.
    spoke: AtomicBool,
}

impl<C: Connection> UdpDoor<C> {
    pub(crate) fn new(socket: UdpSocket, idle: Duration, most: usize) -> Arc<Self> {
        Arc::new(Self { socket, guests: Mutex::default(), idle, most })
    }

    /// Runs for ever. `pick` chooses the connection of a new flow and the thread that serves it.
    /// `opening` builds the opening.
    pub(crate) async fn keep(
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
            let known = known.filter(|guest| !guest.session.connection.is_closed());
            let Some(guest) = known.or_else(|| self.welcome(source, &pick, &opening)) else {
                continue;
            };
            guest.spoke.store(true, Ordering::Relaxed);
            send(&guest.session, guest.flow, &buffer);
        }
    }

    fn welcome(
        self: &Arc<Self>,
        source: SocketAddr,
        pick: &impl Fn() -> Option<(Handle, Arc<Session<C>>)>,
        opening: &impl Fn(u32) -> Opening,
    ) -> Option<Arc<Guest<C>>> {
        let (shard, session) = pick()?;
        let number = session.flows.number();
        let full = self.lock().len() >= self.most;
        let flow = Flow::begin(&session, number).filter(|_| !full);
        let Some(flow) = flow else {
            session.counters.datagrams_dropped.one();
            return None;
        };
        let spoke = AtomicBool::new(true);
        let guest = Arc::new(Guest { session: Arc::clone(&session), flow: number, spoke });
        self.lock().insert(source, Arc::clone(&guest));
        let (door, opening) = (Arc::clone(self), opening(number));
        let leaving = Arc::clone(&guest);
        shard.spawn(async move {
            door.answer(source, &leaving, flow, &opening).await;
            let mut guests = door.lock();
            if guests.get(&source).is_some_and(|now| Arc::ptr_eq(now, &leaving)) {
                guests.remove(&source);
            }
        });
        Some(guest)
    }

    /// Returns the answers to the application, until the flow ends.
    async fn answer(
        &self,
        source: SocketAddr,
        guest: &Guest<C>,
        mut flow: Flow<C>,
        opening: &Opening,
    ) {
        let session = &guest.session;
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
                    session.counters.tunnels_refused.one();
                    tracing::warn!(status = ?answer.status, why = %answer.message, "the other end refused");
                }
                Err(_) => {}
            }
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                payload = flow.next() => {
                    let Some(payload) = payload else { return };
                    guest.spoke.store(true, Ordering::Relaxed);
                    if self.socket.send_to(&payload, source).await.is_ok() {
                        session.counters.datagrams_in.one();
                    }
                }
                () = &mut ended => return,
                () = tokio::time::sleep(self.idle) => {
                    if !guest.spoke.swap(false, Ordering::Relaxed) {
                        return;
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Guest<C>>>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
