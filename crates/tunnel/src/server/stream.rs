//! Serves a peer's streams.

use super::Shared;
use super::division::Exceeded;
use super::limits::{QuotaPermit, Usage};
use super::places::Place;
use super::ports::Port;
use super::reverse::BoundListener;
use crate::access::{Access, Destination, Refusal};
use crate::access_log::End;
use crate::datagrams::{self, Flow};
use crate::dial::{DialError, dial};
use crate::frame::{Answer, Opening, Request, Status};
use crate::identity::PeerName;
use crate::inbound::{Inbound, OpeningError};
use crate::journal::{Kind, Line};
use crate::local::{Local, LocalPort};
use crate::relay::{Tally, relay_while};
use crate::session::Session;
use crate::target::Target;
use crate::transport::{Connection, Lost, Sending};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use units::foreign;

/// Serves the streams that the peer opens, until the connection ends.
pub(super) async fn serve<C: Connection>(
    shared: &Arc<Shared>,
    session: &Arc<Session<C>>,
    peer: &PeerName,
    usage: &Arc<Usage>,
) -> Lost {
    let openings = Arc::new(Semaphore::new(OPENINGS));
    loop {
        // A stream that waits for a permit uses memory of its peer's share, but no task.
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
                return refuse(&mut sending, inbound, &answer).await;
            }
            Ok(Err(_)) => return,
            Err(_) => return inbound.stop(0),
        };
        let opening = match self.without_token(opening) {
            Ok(opening) => opening,
            Err(answer) => {
                self.shared.counters.tunnels_refused.increment();
                self.log_refusal("token", &answer);
                return refuse(&mut sending, inbound, &answer).await;
            }
        };
        let target = opening.request.to_string();
        let is_forward = matches!(opening.request, Request::Forward(_));
        let request = is_forward.then(|| self.session.request());
        match self.grant(opening).await {
            Ok((granted, place)) => {
                self.carry(granted, sending, inbound).await;
                drop((place, request));
            }
            Err(answer) => {
                drop(request);
                self.log_refusal(&target, &answer);
                self.shared.counters.tunnels_refused.increment();
                refuse(&mut sending, inbound, &answer).await;
            }
        }
    }

    /// Logs a refused opening: as a warning if a rule or a limit refused it, and at level info if
    /// the target did not answer, which is common.
    fn log_refusal(&self, target: &str, answer: &Answer) {
        let Some(line) = self.line() else { return };
        let (peer, address, omitted) = (&self.peer, self.address(), line.omitted);
        let (target, reason) = (foreign(target), foreign(&answer.message));
        match answer.status {
            Status::Denied => {
                tracing::warn!(%peer, %address, %target, %reason, omitted, "target denied");
            }
            Status::Busy => {
                tracing::warn!(%peer, %address, %target, %reason, omitted, "tunnel refused");
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

    /// Replaces a token by the target that this server derives from it.
    fn without_token(&self, opening: Opening) -> Result<Opening, Answer> {
        let Request::Token(token) = &opening.request else { return Ok(opening) };
        let refusal = |message: String| Answer { status: Status::NotUnderstood, message };
        let parser = self.shared.tokens.ok_or_else(|| {
            refusal("this server takes no tokens: run `weir tunnel compat quic-tun server`".into())
        })?;
        let target = parser.target(token).map_err(|error| refusal(error.to_string()))?;
        Ok(Opening { request: Request::Forward(target), ..opening })
    }

    /// Grants the request if this peer is entitled to it and it succeeds.
    async fn grant(&self, opening: Opening) -> Result<(Granted<C>, Place), Answer> {
        match opening.request {
            Request::Forward(target) => {
                // Reserve the slot before the dial, because the limit also bounds dials.
                let place = self.place()?;
                Ok((self.dial(target, opening.properties.flow).await?, place))
            }
            Request::Listen(target) => {
                let admitted = self.shared.guard().access.admit_listen(&self.peer, &target);
                let admitted = admitted.map_err(|refusal| denied(&refusal))?;
                let (permit, place) = (self.listener_permit()?, self.place()?);
                let number = opening.properties.listener.unwrap_or(0);
                let bound =
                    BoundListener::new(&self.shared, &self.peer, &target, &admitted).await?;
                Ok((Granted::Listener(bound, number, permit), place))
            }
            Request::Arrived(_) | Request::Token(_) | Request::Renew => Err(Answer {
                status: Status::NotUnderstood,
                message: "only a server sends this kind of request".to_owned(),
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
            if addresses.is_empty() {
                return Err(not_understood("no address"));
            }
            let port = self.shared.ports.flow(&self.peer, self.shared.identities());
            let port = port.map_err(|exceeded| self.busy(no_port(&exceeded)))?;
            let socket = datagrams::dial(addresses).await.map_err(|error| Answer {
                status: Status::Unreachable,
                message: error.to_string(),
            })?;
            let flow = Flow::begin(&self.session, number)
                .ok_or_else(|| not_understood("flow number already in use"))?;
            return Ok(Granted::Datagrams(flow, socket, port, target));
        }
        if let Destination::Service(name) = admitted.destination() {
            // The stream to the client that offers the service takes a second slot in this peer's
            // share.
            let place = self.place()?;
            let connected = self.shared.services.connect(name, &self.peer, place);
            let local = connected.inspect_err(|_| {
                self.shared.counters.services_missed.increment();
            })?;
            return Ok(Granted::Stream(local, target));
        }
        let take_port = |address: SocketAddr| {
            let port = self.shared.ports.connect(address, &self.peer, self.shared.identities());
            let boxed = |port: Port| Some(Box::new(port) as Box<dyn LocalPort>);
            port.map(boxed).map_err(|exceeded| no_port(&exceeded))
        };
        let local = dial(&admitted, patience, began, &take_port).await.map_err(|error| {
            match &error {
                DialError::NoPort(_) => self.shared.counters.tunnels_over_limit.increment(),
                _ => self.shared.counters.dials_failed.increment(),
            }
            Answer::from(error)
        })?;
        Ok(Granted::Stream(local, target))
    }

    /// Reserves a tunnel or a listener in this peer's share.
    fn place(&self) -> Result<Place, Answer> {
        if self.shared.draining.is_cancelled() {
            return Err(self.busy("the server is shutting down".to_owned()));
        }
        if let Some(reason) = self.session.meter.account().refusal() {
            self.shared.counters.tunnels_over_quota.increment();
            return Err(Answer { status: Status::Busy, message: reason });
        }
        self.shared.place(&self.peer).map_err(|reason| self.busy(reason))
    }

    fn busy(&self, message: String) -> Answer {
        self.shared.counters.tunnels_over_limit.increment();
        Answer { status: Status::Busy, message }
    }

    fn listener_permit(&self) -> Result<QuotaPermit, Answer> {
        if self.shared.left.is_cancelled() {
            return Err(self.busy("another process of the server listens now".to_owned()));
        }
        let most = self.shared.limits.listeners_each;
        let permit = QuotaPermit::acquire(&self.usage, |usage| &usage.listeners, most);
        permit.ok_or_else(|| Answer {
            status: Status::Busy,
            message: "this identity has reached its limit of listeners".to_owned(),
        })
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
                let tunnel = self.session.tunnel();
                tunnel.meter.describe("forward", &target, None);
                let windows = &self.session.windows;
                let remote = local.remote_ip();
                let revoked = self.revoked(|access| self.may_reach(access, &target, remote));
                let record = self.shared.tunnels.as_ref().map(|tunnels| {
                    let reached = match (local.remote(), &target) {
                        (Some(at), _) => at.to_string(),
                        (None, Target::Unix(path)) => path.display().to_string(),
                        (None, target) => target.to_string(),
                    };
                    tunnels.open(sending.number(), reached, self.session.connection.remote())
                });
                let tally =
                    Tally { record: record.as_deref(), ..Tally::new(counters, &tunnel.meter) };
                let relayed =
                    relay_while(local, sending, inbound, windows, tally, None, revoked).await;
                if let Err(error) = relayed {
                    error.count(counters);
                    let target = foreign(target);
                    tracing::debug!(peer = %self.peer, %target, %error, "a tunnel ended early");
                }
            }
            Granted::Datagrams(flow, socket, _port, target) => {
                let tunnel = self.session.tunnel();
                let meter = &tunnel.meter;
                meter.describe("forward", &target, None);
                let idle = self.shared.limits.datagrams_idle;
                let remote = socket.peer_addr().ok().map(|address| address.ip().to_canonical());
                tokio::select! {
                    () = datagrams::carry(&self.session, flow, &socket, &mut inbound, idle, meter) => {}
                    () = self.revoked(|access| self.may_reach(access, &target, remote)) => {
                        meter.end_as(End::NotAllowed);
                    }
                }
                sending.finish();
            }
            Granted::Listener(mut bound, number, _permit) => {
                let target = bound.target().clone();
                let may = |access: &Access| access.admit_listen(&self.peer, &target).is_ok();
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
    Datagrams(Flow<C>, UdpSocket, Port, Target),
    Listener(BoundListener<C>, u32, QuotaPermit),
}

fn no_port(exceeded: &Exceeded) -> String {
    let Exceeded { used, capacity } = exceeded;
    format!(
        "this identity has its share, {used} of {capacity} local ports towards the target: keep \
         connections open for longer, or widen the server's net.ipv4.ip_local_port_range"
    )
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

async fn refuse<C: Connection>(sending: &mut C::Sending, mut inbound: Inbound<C>, answer: &Answer) {
    inbound.stop(0);
    // Return the memory of the bytes that this end has read from the stream.
    drop(inbound);
    let told = async {
        if sending.write(answer.encode()).await.is_ok() {
            sending.finish();
            let _ = sending.delivered().await;
        }
    };
    let _ = tokio::time::timeout(TOLD_WITHIN, told).await;
}

/// How long the peer may take to acknowledge the answer to a refused opening.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// Maximum number of streams of one connection whose openings this end awaits. Packet loss delays a
/// few openings.
const OPENINGS: usize = 256;
