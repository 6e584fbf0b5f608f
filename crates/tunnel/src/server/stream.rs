//! Serves a peer's streams.

use super::Shared;
use super::journal::{Kind, Line};
use super::limits::{QuotaPermit, Usage};
use super::reverse::BoundListener;
use crate::access::{Access, Destination, Refusal};
use crate::datagrams::{self, Flow};
use crate::dial::dial;
use crate::frame::{Answer, Opening, Request, Status};
use crate::identity::PeerName;
use crate::inbound::{Inbound, OpeningError};
use crate::local::Local;
use crate::relay::relay_while;
use crate::revocation;
use crate::session::Session;
use crate::target::Target;
use crate::transport::{Connection, Lost, Sending};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use units::foreign;

/// Runs until the connection ends.
pub(super) async fn serve<C: Connection>(
    shared: &Arc<Shared>,
    session: &Arc<Session<C>>,
    peer: &PeerName,
    usage: &Arc<Usage>,
) -> Lost {
    let guard = shared.guard.subscribe();
    let connection = session.connection.clone();
    tokio::spawn(revocation::watch_peer(connection, peer.clone(), guard, |guard| &guard.trusted));
    let openings = Arc::new(Semaphore::new(OPENINGS));
    loop {
        // A stream that waits here costs only its peer's share of the memory, and no task.
        let Ok(permit) = Arc::clone(&openings).acquire_owned().await else {
            return session.connection.closed().await;
        };
        match session.accept().await {
            Ok((sending, inbound)) => {
                let stream = PeerStream {
                    shared: Arc::clone(shared),
                    session: Arc::clone(session),
                    peer: peer.clone(),
                    usage: Arc::clone(usage),
                };
                tokio::spawn(stream.handle(sending, inbound, permit));
            }
            Err(why) => return why,
        }
    }
}

/// One stream of a peer.
struct PeerStream<C: Connection> {
    shared: Arc<Shared>,
    session: Arc<Session<C>>,
    peer: PeerName,
    usage: Arc<Usage>,
}

impl<C: Connection> PeerStream<C> {
    async fn handle(
        self,
        mut sending: C::Sending,
        mut inbound: Inbound<C>,
        permit: OwnedSemaphorePermit,
    ) {
        let opening = tokio::time::timeout(self.shared.limits.opening, inbound.opening()).await;
        drop(permit);
        let opening = match opening {
            Ok(Ok(opening)) => opening,
            Ok(Err(OpeningError::Frame(error))) => {
                self.shared.counters.not_understood.increment();
                if let Some(line) = self.line() {
                    let (peer, address, omitted) = (&self.peer, self.address(), line.omitted);
                    tracing::warn!(%peer, %address, reason = %error, omitted, "request not understood");
                }
                let answer = Answer { status: Status::NotUnderstood, message: error.to_string() };
                return refuse(&mut sending, &mut inbound, &answer).await;
            }
            Ok(Err(_)) => return,
            Err(_) => return inbound.stop(0),
        };
        let target = opening.request.to_string();
        match self.grant(opening).await {
            Ok((granted, permits)) => {
                self.carry(granted, sending, inbound).await;
                drop(permits);
            }
            Err(answer) => {
                self.log_refusal(&target, &answer);
                self.shared.counters.tunnels_refused.increment();
                refuse(&mut sending, &mut inbound, &answer).await;
            }
        }
    }

    /// A denial by the rules is a warning. A target that does not answer is everyday life.
    fn log_refusal(&self, target: &str, answer: &Answer) {
        let Some(line) = self.line() else { return };
        let (peer, address, omitted) = (&self.peer, self.address(), line.omitted);
        let (target, reason) = (foreign(target), foreign(&answer.message));
        match answer.status {
            Status::Denied => {
                tracing::warn!(%peer, %address, %target, %reason, omitted, "target denied");
            }
            _ => tracing::info!(%peer, %address, %target, %reason, omitted, "target not reached"),
        }
    }

    fn line(&self) -> Option<Line> {
        self.shared.line(self.session.connection.remote(), Kind::Denial)
    }

    fn address(&self) -> IpAddr {
        self.session.connection.remote().ip().to_canonical()
    }

    /// Grants the request if this peer is entitled to it and it succeeds.
    async fn grant(&self, opening: Opening) -> Result<(Granted<C>, Vec<QuotaPermit>), Answer> {
        match opening.request {
            Request::Forward(target) => {
                // Reserve before the dial, because dials are what the limit bounds.
                let permits = self.permits()?;
                Ok((self.dial(target, opening.properties.flow).await?, permits))
            }
            Request::Listen(target) => {
                let admitted = self.shared.guard().access.admit_listen(&self.peer, &target);
                let admitted = admitted.map_err(|refusal| denied(&refusal))?;
                let permits = self.listener_permit()?;
                let number = opening.properties.listener.unwrap_or(0);
                let bound =
                    BoundListener::new(&self.shared, &self.peer, &target, &admitted).await?;
                Ok((Granted::Listener(bound, number), permits))
            }
            Request::Arrived(_) => Err(Answer {
                status: Status::NotUnderstood,
                message: "a client does not listen for its server".to_owned(),
            }),
        }
    }

    async fn dial(&self, target: Target, flow: Option<u32>) -> Result<Granted<C>, Answer> {
        let (began, patience) = (Instant::now(), self.shared.limits.dial);
        let guard = self.shared.guard();
        let resolver = self.shared.lookups.of(&self.peer, began + patience);
        let admitted = guard.access.admit(&self.peer, &target, &resolver).await;
        let admitted = admitted.map_err(|refusal| denied(&refusal))?;
        if let Destination::Udp(addresses) = admitted.destination() {
            let not_understood = |message: &str| Answer {
                status: Status::NotUnderstood,
                message: message.to_owned(),
            };
            let number =
                flow.ok_or_else(|| not_understood("datagrams require the number of a flow"))?;
            let address = addresses.first().ok_or_else(|| not_understood("no address"))?;
            let socket = datagrams::dial(*address).await.map_err(|error| Answer {
                status: Status::Unreachable,
                message: error.to_string(),
            })?;
            let flow = Flow::begin(&self.session, number)
                .ok_or_else(|| not_understood("flow number already in use"))?;
            return Ok(Granted::Datagrams(flow, socket, target));
        }
        let local = dial(&admitted, patience, began).await.map_err(|error| {
            self.shared.counters.dials_failed.increment();
            Answer::from(error)
        })?;
        Ok(Granted::Stream(local, target))
    }

    /// Reserves a tunnel in this peer's quota and in the total.
    fn permits(&self) -> Result<Vec<QuotaPermit>, Answer> {
        let limits = &self.shared.limits;
        let busy = |message: &str| {
            self.shared.counters.tunnels_over_limit.increment();
            Answer { status: Status::Busy, message: message.to_owned() }
        };
        if self.shared.draining.is_cancelled() {
            return Err(busy("the server is shutting down"));
        }
        let tunnels: fn(&Usage) -> &AtomicUsize = |usage| &usage.tunnels;
        let own = QuotaPermit::acquire(&self.usage, tunnels, limits.tunnels_each)
            .ok_or_else(|| busy("this identity has reached its limit of tunnels"))?;
        let all = QuotaPermit::acquire(&self.shared.total, tunnels, limits.tunnels)
            .ok_or_else(|| busy("the server has reached its limit of tunnels"))?;
        Ok(vec![own, all])
    }

    fn listener_permit(&self) -> Result<Vec<QuotaPermit>, Answer> {
        let most = self.shared.limits.listeners_each;
        let permit = QuotaPermit::acquire(&self.usage, |usage| &usage.listeners, most);
        let permit = permit.ok_or_else(|| Answer {
            status: Status::Busy,
            message: "this identity has reached its limit of listeners".to_owned(),
        })?;
        Ok(vec![permit])
    }

    async fn carry(&self, granted: Granted<C>, mut sending: C::Sending, mut inbound: Inbound<C>) {
        if sending.write(Answer::open().encode()).await.is_err() {
            if let Granted::Stream(local, _) = granted {
                local.abort();
            }
            return;
        }
        let counters = &self.shared.counters;
        match granted {
            Granted::Stream(local, target) => {
                let _tunnel = self.session.tunnel();
                let windows = &self.session.windows;
                let remote = local.remote_ip();
                let revoked = self.revoked(|access| self.may_reach(access, &target, remote));
                let relayed =
                    relay_while(local, sending, inbound, windows, counters, None, revoked).await;
                if let Err(error) = relayed {
                    error.count(counters);
                    let target = foreign(target);
                    tracing::debug!(peer = %self.peer, %target, %error, "a tunnel ended early");
                }
            }
            Granted::Datagrams(flow, socket, target) => {
                let _tunnel = self.session.tunnel();
                let idle = self.shared.limits.datagrams_idle;
                let remote = socket.peer_addr().ok().map(|address| address.ip().to_canonical());
                tokio::select! {
                    () = datagrams::carry(&self.session, flow, &socket, &mut inbound, idle) => {}
                    () = self.revoked(|access| self.may_reach(access, &target, remote)) => {}
                }
                sending.finish();
            }
            Granted::Listener(bound, number) => {
                let may = |access: &Access| access.admit_listen(&self.peer, bound.target()).is_ok();
                tokio::select! {
                    () = bound.serve(&self.session, number, &mut inbound) => {}
                    () = self.revoked(may) => {}
                }
                sending.finish();
            }
        }
    }

    async fn revoked(&self, may: impl Fn(&Access) -> bool) {
        self.shared.revoked(&self.peer, may).await;
    }

    fn may_reach(&self, access: &Access, target: &Target, remote: Option<IpAddr>) -> bool {
        access.admit_resolved(&self.peer, target, remote.as_slice()).is_ok()
    }
}

enum Granted<C: Connection> {
    Stream(Local, Target),
    Datagrams(Flow<C>, UdpSocket, Target),
    Listener(BoundListener<C>, u32),
}

fn denied(refusal: &Refusal) -> Answer {
    let status = match refusal {
        Refusal::Lookup { source, .. } => match source.kind() {
            ErrorKind::QuotaExceeded => Status::Busy,
            ErrorKind::TimedOut => Status::TimedOut,
            _ => Status::Unreachable,
        },
        Refusal::NoAddress { .. } => Status::Unreachable,
        _ => Status::Denied,
    };
    Answer { status, message: refusal.to_string() }
}

async fn refuse<C: Connection>(
    sending: &mut C::Sending,
    inbound: &mut Inbound<C>,
    answer: &Answer,
) {
    inbound.stop(0);
    if sending.write(answer.encode()).await.is_ok() {
        sending.finish();
        let _ = sending.delivered().await;
    }
}

/// Streams of one connection whose opening is awaited. Packet loss delays a few of them.
const OPENINGS: usize = 256;
