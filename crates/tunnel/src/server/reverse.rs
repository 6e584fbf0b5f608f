//! Listeners at the server whose connections the server carries to a client.

use super::Shared;
use super::places::Place;
use super::services::ServiceConnection;
use crate::access::{Access, Admitted, Destination};
use crate::access_log::End;
use crate::account::TunnelMeter;
use crate::datagrams::UdpListener;
use crate::frame::{Answer, Opening, Properties, Request, Status};
use crate::identity::PeerName;
use crate::inbound::Inbound;
use crate::journal::{Kind, Line};
use crate::local::{Local, UnixPathListener};
use crate::relay::{RelayError, Tally, relay_while};
use crate::session::Session;
use crate::target::Target;
use crate::transport::Connection;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use units::foreign;

/// The holder of each listening address, so that a client that reconnects takes the listener over
/// from its lost connection.
#[derive(Debug, Default)]
pub(super) struct Listeners(Mutex<HashMap<Target, (PeerName, Arc<CancellationToken>)>>);

/// A bound listener.
#[derive(Debug)]
pub(super) struct BoundListener<C: Connection> {
    socket: Socket<C>,
    peer: PeerName,
    target: Target,
    cancel: Arc<CancellationToken>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Socket<C: Connection> {
    Tcp(TcpListener),
    Unix(UnixPathListener),
    Udp(UdpListener<C>),
    /// Connections of other clients to a service.
    Service(mpsc::Receiver<ServiceConnection>),
}

impl<C: Connection> BoundListener<C> {
    pub(super) async fn new(
        shared: &Arc<Shared>,
        peer: &PeerName,
        target: &Target,
        admitted: &Admitted,
    ) -> Result<Self, Answer> {
        let cancel = Arc::<CancellationToken>::default();
        let mut tries = TRIES;
        loop {
            // Ask for the address at each attempt: another identity may have released it meanwhile.
            let is_holder = shared.listeners.take(peer, target, &cancel);
            let bound = match is_holder || has_open_port(target) {
                true => bind(shared, peer, admitted).await,
                false => Err(io::ErrorKind::AddrInUse.into()),
            };
            match bound {
                Ok(socket) => {
                    shared.counters.listeners.increment();
                    let (peer, target) = (peer.clone(), target.clone());
                    return Ok(Self { socket, peer, target, cancel, shared: Arc::clone(shared) });
                }
                // The previous holder may be about to release the address.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {
                    tries -= 1;
                    let is_first = tries + FIRST_TRIES > TRIES;
                    tokio::time::sleep(if is_first { FIRST_PAUSE } else { RETRY_PAUSE }).await;
                    if cancel.is_cancelled() {
                        let message = format!("a later connection of {peer} listens on {target}");
                        return Err(Answer { status: Status::Busy, message });
                    }
                }
                Err(error) => {
                    shared.listeners.remove(target, &cancel);
                    let message = format!("{target} cannot be listened on: {error}");
                    return Err(Answer { status: Status::Unreachable, message });
                }
            }
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Serves the listener until the client ends it, or takes it over on another connection.
    pub(super) async fn serve(
        &mut self,
        session: &Arc<Session<C>>,
        number: u32,
        inbound: &mut Inbound<C>,
    ) {
        let ended = async {
            while inbound.fill().await.is_ok() && inbound.ready() > 0 {
                inbound.consume(inbound.ready());
            }
        };
        let (cancel, shared) = (Arc::clone(&self.cancel), Arc::clone(&self.shared));
        let flows = match &self.socket {
            Socket::Udp(listener) => Some(listener.flows()),
            _ => None,
        };
        // Keep the listener while flows are open: they receive their datagrams there.
        let drained = async {
            shared.left.cancelled().await;
            if let Some(flows) = &flows {
                flows.all_ended().await;
            }
        };
        tokio::select! {
            () = ended => {}
            () = cancel.cancelled() => {}
            () = drained => {}
            () = self.receive(session, number) => {}
        }
    }

    async fn receive(&mut self, session: &Arc<Session<C>>, number: u32) {
        if let Socket::Udp(listener) = &self.socket {
            let shard = Handle::current();
            let pick = || match session.meter.account().refusal() {
                _ if self.shared.left.is_cancelled() => None,
                Some(_) => {
                    session.counters.datagrams_over_limit.increment();
                    None
                }
                None => Some((shard.clone(), Arc::clone(session))),
            };
            return listener.run(pick, |flow| arrived(number, Some(flow))).await;
        }
        loop {
            match self.next().await {
                Ok((local, of_user)) => {
                    let (user, place) = match of_user {
                        Some((user, place)) => (Some(user), Ok(place)),
                        None => (None, self.place(session)),
                    };
                    let Ok(place) = place.inspect_err(|reason| self.refuse(session, reason)) else {
                        local.abort();
                        continue;
                    };
                    let connection = ListenerConnection {
                        _place: place,
                        shared: Arc::clone(&self.shared),
                        session: Arc::clone(session),
                        peer: self.peer.clone(),
                        listener: self.target.clone(),
                        user,
                    };
                    tokio::spawn(connection.carry(local, number));
                }
                Err(error) => {
                    let remote = session.connection.remote();
                    if let Some(Line { omitted }) = self.shared.line(remote, Kind::Accept) {
                        let listen = foreign(&self.target);
                        tracing::warn!(%error, %listen, omitted, "accept has failed");
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Takes a slot in the share of the listener's owner.
    fn place(&self, session: &Session<C>) -> Result<Place, String> {
        if let Some(reason) = session.meter.account().refusal() {
            self.shared.counters.tunnels_over_quota.increment();
            return Err(reason);
        }
        self.shared.place(&self.peer).inspect_err(|_| {
            self.shared.counters.tunnels_over_limit.increment();
        })
    }

    /// Logs a connection beyond the share of the listener's owner, which this end resets.
    fn refuse(&self, session: &Session<C>, reason: &str) {
        if let Some(Line { omitted }) = self.shared.line(session.connection.remote(), Kind::Denial)
        {
            let (peer, listen) = (&self.peer, foreign(&self.target));
            tracing::warn!(%peer, %listen, reason, omitted, "tunnel refused");
        }
    }

    /// Waits for the next connection. A connection to a service already has a slot of the service's
    /// user.
    async fn next(&mut self) -> io::Result<(Local, Option<(PeerName, Place)>)> {
        let local = match &mut self.socket {
            Socket::Service(waiting) => match waiting.recv().await {
                Some(ServiceConnection { stream, place, user }) => {
                    let local = Local::of_unix(UnixStream::from_std(stream)?);
                    return Ok((local, Some((user, place))));
                }
                None => std::future::pending().await,
            },
            Socket::Tcp(listener) => Local::of_tcp(listener.accept().await?.0)?,
            Socket::Unix(listener) => Local::of_unix(listener.accept().await?),
            Socket::Udp(_) => std::future::pending().await,
        };
        Ok((local, None))
    }
}

impl Listeners {
    /// Tries to take the address for this token, and returns whether the token now holds it. Ends
    /// an earlier entry of the same identity. An entry of another identity stays.
    fn take(&self, peer: &PeerName, target: &Target, cancel: &Arc<CancellationToken>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A later connection of the same identity has taken the listener over.
        if cancel.is_cancelled() {
            return false;
        }
        match all.get(target) {
            Some((_, held)) if Arc::ptr_eq(held, cancel) => return true,
            Some((other, _)) if other != peer => return false,
            _ => {}
        }
        if let Some((_, before)) = all.insert(target.clone(), (peer.clone(), Arc::clone(cancel))) {
            before.cancel();
        }
        true
    }

    /// Removes this token's entry. An entry of another identity or of a later connection stays.
    fn remove(&self, target: &Target, cancel: &Arc<CancellationToken>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(target).is_some_and(|(_, held)| Arc::ptr_eq(held, cancel)) {
            all.remove(target);
        }
    }
}

impl<C: Connection> Drop for BoundListener<C> {
    fn drop(&mut self) {
        self.shared.counters.listeners.decrement();
        self.shared.listeners.remove(&self.target, &self.cancel);
    }
}

async fn bind<C: Connection>(
    shared: &Shared,
    peer: &PeerName,
    admitted: &Admitted,
) -> io::Result<Socket<C>> {
    let limits = &shared.limits;
    match admitted.destination() {
        Destination::Tcp(addresses) => Ok(Socket::Tcp(TcpListener::bind(&addresses[..]).await?)),
        Destination::Udp(addresses) => {
            let socket = UdpSocket::bind(&addresses[..]).await?;
            Ok(Socket::Udp(UdpListener::new(socket, limits.datagrams_idle, limits.tunnels_each)))
        }
        Destination::Unix(path) => Ok(Socket::Unix(UnixPathListener::open(path).await?)),
        Destination::Service(name) => Ok(Socket::Service(shared.services.offer(name, peer)?)),
    }
}

/// Whether the port is 0, with which two listeners get different addresses.
fn has_open_port(target: &Target) -> bool {
    matches!(target, Target::Tcp(host) | Target::Udp(host) if host.port() == 0)
}

fn arrived(number: u32, flow: Option<u32>) -> Opening {
    let properties = Properties { flow, ..Properties::default() };
    Opening { request: Request::Arrived(number), properties }
}

/// A connection that arrived at a listener.
struct ListenerConnection<C: Connection> {
    _place: Place,
    shared: Arc<Shared>,
    session: Arc<Session<C>>,
    peer: PeerName,
    listener: Target,
    /// The identity that uses the service, if the listener is a service.
    user: Option<PeerName>,
}

impl<C: Connection> ListenerConnection<C> {
    /// Carries the connection for as long as the client may listen on that address.
    async fn carry(self, local: Local, number: u32) {
        let (shared, session) = (&*self.shared, &self.session);
        // The tunnel on the user's own connection counts a service's bytes against the user's
        // quota.
        let tunnel = match self.user {
            Some(_) => session.metered_tunnel(TunnelMeter::without_payer(&session.meter)),
            None => session.tunnel(),
        };
        tunnel.meter.describe("reverse", &self.listener, self.user.as_ref());
        // Set a timeout, because the client may permit no further stream.
        let opening = arrived(number, None);
        let opened = tokio::time::timeout(shared.limits.dial, session.open(&opening)).await;
        let Ok(Ok((sending, inbound))) = opened else {
            shared.counters.tunnels_broken.increment();
            tunnel.meter.end_as(End::NoAnswer);
            return local.abort();
        };
        // Wait longer than the client's own dial timeout.
        let answer = Some(shared.limits.dial * 2);
        let (windows, counters) = (&session.windows, &shared.counters);
        let tally = Tally::new(counters, &tunnel.meter);
        let may = |access: &Access| access.admit_listen(&self.peer, &self.listener).is_ok();
        let revoked = shared.revoked(&self.peer, may);
        let relayed = relay_while(local, sending, inbound, windows, tally, answer, revoked).await;
        let Err(error) = relayed else { return };
        error.count(counters);
        if let RelayError::Refused(status, why) = error {
            let (peer, listen) = (&self.peer, &self.listener);
            tracing::info!(%peer, %listen, ?status, %why, "the client refused");
        }
    }
}

const TRIES: u32 = 20;
/// Number of retries that come after a short pause: a replaced connection soon releases its
/// listener.
const FIRST_TRIES: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
