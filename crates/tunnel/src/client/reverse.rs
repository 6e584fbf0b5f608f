//! Listeners at the server whose connections reach targets on this side, as with `ssh -R`.

use super::Shared;
use super::failures::Failures;
use crate::access::{Admitted, Destination};
use crate::datagrams::{self, Flow};
use crate::dial::dial;
use crate::frame::{Answer, Opening, Properties, Request, Status};
use crate::inbound::Inbound;
use crate::journal::{Kind, Line};
use crate::local::Local;
use crate::relay::{Tally, relay};
use crate::session::Session;
use crate::target::Target;
use crate::transport::{Carried, CarriedSending, Connection, Sending};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use units::foreign;

/// Connections to `listen` at the server reach `target` as seen from this client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverse {
    pub listen: Target,
    pub target: Target,
}

/// Requests the listener from the server, and requests it again after each loss.
pub(super) async fn keep_registered(shared: Arc<Shared>, number: u32, at: Target) {
    let mut pause = FIRST_PAUSE;
    let mut former = None;
    let failures = Failures::default();
    while !shared.draining.is_cancelled() {
        if let Some((_, session)) = shared.links.pick_within(LONGEST_PAUSE).await {
            match listen(&session, number, &at, former.take(), &shared.draining).await {
                Ok(Some(moved)) => {
                    former = Some(moved);
                    failures.forget();
                    pause = FIRST_PAUSE;
                    continue;
                }
                Ok(None) => {
                    failures.forget();
                    pause = FIRST_PAUSE;
                }
                Err(why) => {
                    if let Some(omitted) = failures.line(std::time::Instant::now(), &why) {
                        tracing::warn!(listen = %at, %why, omitted, "the server does not listen");
                    }
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The stream of a listener on a connection that takes no new tunnels. The listener stays open
/// until this client drops the stream, or until another connection takes the listener over.
type Former = (CarriedSending, Inbound<Carried>);

/// Waits until the listener, once opened, ends. Returns the listener's stream if the connection is
/// retired.
async fn listen(
    session: &Session<Carried>,
    number: u32,
    at: &Target,
    former: Option<Former>,
    draining: &CancellationToken,
) -> Result<Option<Former>, String> {
    let properties = Properties { listener: Some(number), ..Properties::default() };
    let opening = Opening { request: Request::Listen(at.clone()), properties };
    let opened = session.open(&opening).await.map_err(|error| error.to_string());
    let (sending, mut inbound) = opened?;
    let answer = inbound.answer().await.map_err(|error| error.to_string())?;
    drop(former);
    if answer.status != Status::Open {
        return Err(answer.message);
    }
    tracing::info!(listen = %at, "the server listens");
    session.counters.listeners.increment();
    let ended = async {
        while inbound.fill().await.is_ok() && inbound.ready() > 0 {
            inbound.consume(inbound.ready());
        }
    };
    let drained = async {
        draining.cancelled().await;
        // Keep the listener while datagram flows are open, because they need its socket.
        while at.is_datagrams() && session.tunnels() > 0 {
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    };
    let is_retired = tokio::select! {
        () = ended => false,
        () = session.retired.cancelled() => true,
        () = drained => false,
    };
    session.counters.listeners.decrement();
    Ok(is_retired.then_some((sending, inbound)))
}

/// Handles connections of listeners at the server until the connection ends.
pub(super) async fn accept_streams(shared: Arc<Shared>, session: Arc<Session<Carried>>) {
    while let Ok((sending, inbound)) = session.accept().await {
        tokio::spawn(handle_stream(Arc::clone(&shared), Arc::clone(&session), sending, inbound));
    }
}

async fn handle_stream(
    shared: Arc<Shared>,
    session: Arc<Session<Carried>>,
    mut sending: CarriedSending,
    mut inbound: Inbound<Carried>,
) {
    let opening = tokio::time::timeout(shared.limits.answer, inbound.opening()).await;
    let Ok(Ok(opening)) = opening else {
        shared.counters.not_understood.increment();
        return inbound.stop(0);
    };
    if opening.request == Request::Renew {
        shared.links.renew_of(&session);
        if sending.write(Answer::open().encode()).await.is_ok() {
            sending.finish();
        }
        return;
    }
    let tunnel = session.tunnel();
    let (answer, granted) = match reach(&shared, &session, &opening).await {
        Ok(granted) => (Answer::open(), Some(granted)),
        Err(answer) => {
            shared.counters.tunnels_refused.increment();
            let server = session.connection.remote().ip();
            if let Some(Line { omitted }) = shared.line(server, Kind::Connection) {
                let why = foreign(&answer.message);
                let target = match opening.request {
                    Request::Arrived(number) => shared.reverses.target(number),
                    _ => None,
                };
                let target = target.map(tracing::field::display);
                tracing::info!(target, %why, omitted, "refused a tunnel from the server");
            }
            (answer, None)
        }
    };
    if sending.write(answer.encode()).await.is_err() {
        return;
    }
    match granted {
        Some(Granted::Stream(local, _place)) => {
            let (windows, tally) = (&session.windows, Tally::new(&shared.counters, &tunnel.meter));
            let relayed = relay(local, sending, inbound, windows, tally, None).await;
            if let Err(error) = relayed {
                error.count(&shared.counters);
                tracing::debug!(%error, "a tunnel ended early");
            }
        }
        Some(Granted::Datagrams(flow, socket, _place)) => {
            let idle = shared.limits.datagrams_idle;
            let meter = &tunnel.meter;
            datagrams::carry(&session, flow, &socket, &mut inbound, idle, meter).await;
            sending.finish();
        }
        None => {
            inbound.stop(0);
            drop(inbound);
            sending.finish();
            let _ = tokio::time::timeout(shared.limits.answer, sending.delivered()).await;
        }
    }
}

enum Granted<C: Connection> {
    Stream(Local, OwnedSemaphorePermit),
    Datagrams(Flow<C>, UdpSocket, OwnedSemaphorePermit),
}

async fn reach<C: Connection>(
    shared: &Shared,
    session: &Arc<Session<C>>,
    opening: &Opening,
) -> Result<Granted<C>, Answer> {
    let refusal = |status, message: &str| Answer { status, message: message.to_owned() };
    let Request::Arrived(number) = opening.request else {
        return Err(refusal(Status::NotUnderstood, "a client does not dial for its server"));
    };
    if shared.draining.is_cancelled() {
        return Err(refusal(Status::Busy, "the client is shutting down"));
    }
    // The server names only the number of the listener; this end chooses the target.
    let target = shared.reverses.target(number);
    let target =
        target.ok_or_else(|| refusal(Status::NotUnderstood, "no listener has this number"))?;
    let busy = || refusal(Status::Busy, "the client has reached its limit of tunnels");
    let place = shared.place().ok_or_else(busy)?;
    let (began, patience) = (Instant::now(), shared.limits.answer);
    let resolver = shared.lookups.of(&number, began + patience);
    let admitted = Admitted::by_own_file(&target, &resolver).await;
    let admitted = admitted.map_err(|error| refusal(Status::Unreachable, &error.to_string()))?;
    let Destination::Udp(addresses) = admitted.destination() else {
        let local = dial(&admitted, patience, began, &|_| Ok(None)).await.map_err(|error| {
            shared.counters.dials_failed.increment();
            Answer::from(error)
        })?;
        return Ok(Granted::Stream(local, place));
    };
    let missing = || refusal(Status::NotUnderstood, "datagrams require the number of a flow");
    let number = opening.properties.flow.ok_or_else(missing)?;
    let socket = datagrams::dial(addresses).await;
    let socket = socket.map_err(|error| refusal(Status::Unreachable, &error.to_string()))?;
    let taken = || refusal(Status::NotUnderstood, "flow number already in use");
    Ok(Granted::Datagrams(Flow::begin(session, number).ok_or_else(taken)?, socket, place))
}

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
