//! Listeners at the server whose guests reach targets on this side, as with `ssh -R`.

use super::World;
use crate::access::{Admitted, Way};
use crate::datagrams::{self, Flow};
use crate::dial::dial;
use crate::frame::{Answer, Opening, Properties, Request, Status};
use crate::inbound::Inbound;
use crate::local::Local;
use crate::relay::relay;
use crate::session::Session;
use crate::target::Target;
use crate::transport::quic::QuicConnection;
use crate::transport::{Connection, Sending};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::Instant;
use units::foreign;

/// Connections to `listen` at the server reach `target` as seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverse {
    pub listen: Target,
    pub target: Target,
}

/// Requests the listener from the server, and again after each loss.
pub(super) async fn keep(world: Arc<World>, number: u32, at: Target) {
    let mut pause = FIRST_PAUSE;
    while !world.draining.is_cancelled() {
        if let Some((_, session)) = world.links.pick_within(LONGEST_PAUSE).await {
            match listen(&session, number, &at).await {
                Ok(()) => pause = FIRST_PAUSE,
                Err(why) => {
                    tracing::warn!(listen = %at, %why, "the server does not listen")
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until the listener, once opened, ends.
async fn listen(session: &Session<QuicConnection>, number: u32, at: &Target) -> Result<(), String> {
    let properties = Properties { listener: Some(number), ..Properties::default() };
    let opening = Opening { request: Request::Listen(at.clone()), properties };
    let opened = session.open(&opening).await.map_err(|error| error.to_string());
    let (_sending, mut inbound) = opened?;
    let answer = inbound.answer().await.map_err(|error| error.to_string())?;
    if answer.status != Status::Open {
        return Err(answer.message);
    }
    tracing::info!(listen = %at, "the server listens");
    session.counters.listeners.one();
    while inbound.fill().await.is_ok() && inbound.ready() > 0 {
        inbound.consume(inbound.ready());
    }
    session.counters.listeners.less_one();
    Ok(())
}

/// Handles guests of listeners at the server until the connection ends.
pub(super) async fn arrivals(world: Arc<World>, session: Arc<Session<QuicConnection>>) {
    while let Ok((sending, inbound)) = session.accept().await {
        tokio::spawn(arrival(Arc::clone(&world), Arc::clone(&session), sending, inbound));
    }
}

async fn arrival<C: Connection>(
    world: Arc<World>,
    session: Arc<Session<C>>,
    mut sending: C::Sending,
    mut inbound: Inbound<C>,
) {
    let opening = tokio::time::timeout(world.limits.answer, inbound.opening()).await;
    let Ok(Ok(opening)) = opening else {
        world.counters.not_understood.one();
        return inbound.stop(0);
    };
    let _tunnel = session.tunnel();
    let (answer, granted) = match reach(&world, &session, &opening).await {
        Ok(granted) => (Answer::open(), Some(granted)),
        Err(answer) => {
            world.counters.tunnels_refused.one();
            tracing::info!(why = %foreign(&answer.message), "refused a tunnel from the server");
            (answer, None)
        }
    };
    if sending.write(answer.encode()).await.is_err() {
        return;
    }
    match granted {
        Some(Granted::Stream(local)) => {
            let windows = &session.windows;
            let relayed = relay(local, sending, inbound, windows, &world.counters, None).await;
            if let Err(error) = relayed {
                world.counters.tunnels_broken.one();
                tracing::debug!(%error, "a tunnel broke");
            }
        }
        Some(Granted::Datagrams(flow, socket)) => {
            let idle = world.limits.datagrams_idle;
            datagrams::carry(&session, flow, &socket, &mut inbound, idle).await;
            sending.finish();
        }
        None => {
            inbound.stop(0);
            sending.finish();
            let _ = sending.delivered().await;
        }
    }
}

enum Granted<C: Connection> {
    Stream(Local),
    Datagrams(Flow<C>, UdpSocket),
}

async fn reach<C: Connection>(
    world: &World,
    session: &Arc<Session<C>>,
    opening: &Opening,
) -> Result<Granted<C>, Answer> {
    let refusal = |status, message: &str| Answer { status, message: message.to_owned() };
    let Request::Arrived(number) = opening.request else {
        return Err(refusal(Status::NotUnderstood, "a client does not dial for its server"));
    };
    // The server names only the listener; this end chooses the target.
    let target = world.reverses.target(number);
    let target =
        target.ok_or_else(|| refusal(Status::NotUnderstood, "no listener has this number"))?;
    if world.counters.tunnels.count() > world.limits.tunnels as u64 {
        world.counters.tunnels_over_limit.one();
        return Err(refusal(Status::Busy, "the client has reached its limit of tunnels"));
    }
    let (began, patience) = (Instant::now(), world.limits.answer);
    let resolver = world.lookups.of(&number, began + patience);
    let admitted = Admitted::by_own_file(&target, &resolver).await;
    let admitted = admitted.map_err(|error| refusal(Status::Unreachable, &error.to_string()))?;
    let Way::Udp(addresses) = admitted.way() else {
        let local = dial(&admitted, patience, began).await.map_err(|error| {
            world.counters.dials_failed.one();
            Answer::from(error)
        })?;
        return Ok(Granted::Stream(local));
    };
    let missing = || refusal(Status::NotUnderstood, "datagrams require the number of a flow");
    let number = opening.properties.flow.ok_or_else(missing)?;
    let address = addresses.first().ok_or_else(missing)?;
    let socket = datagrams::dial(*address).await;
    let socket = socket.map_err(|error| refusal(Status::Unreachable, &error.to_string()))?;
    let taken = || refusal(Status::NotUnderstood, "flow number already in use");
    Ok(Granted::Datagrams(Flow::begin(session, number).ok_or_else(taken)?, socket))
}

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
