//! What a peer asks of this end, stream by stream.

use super::World;
use super::limits::{Place, Usage};
use crate::dial::dial;
use crate::frame::{Answer, Opening, Request, Status};
use crate::identity::PeerName;
use crate::inbound::{HeadError, Inbound};
use crate::local::Local;
use crate::relay::relay;
use crate::session::Session;
use crate::target::Target;
use crate::transport::{Connection, Lost, Sending};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Until the connection ends.
pub(super) async fn serve<C: Connection>(
    world: &Arc<World>,
    session: &Arc<Session<C>>,
    peer: &PeerName,
    usage: &Arc<Usage>,
) -> Lost {
    loop {
        match session.accept().await {
            Ok((sending, inbound)) => {
                let visit = Visit {
                    world: Arc::clone(world),
                    session: Arc::clone(session),
                    peer: peer.clone(),
                    usage: Arc::clone(usage),
                };
                tokio::spawn(visit.take(sending, inbound));
            }
            Err(why) => return why,
        }
    }
}

/// One stream of a peer.
struct Visit<C: Connection> {
    world: Arc<World>,
    session: Arc<Session<C>>,
    peer: PeerName,
    usage: Arc<Usage>,
}

impl<C: Connection> Visit<C> {
    async fn take(self, mut sending: C::Sending, mut inbound: Inbound<C>) {
        let opening = tokio::time::timeout(self.world.limits.opening, inbound.opening()).await;
        let opening = match opening {
            Ok(Ok(opening)) => opening,
            Ok(Err(HeadError::Frame(error))) => {
                self.world.counters.not_understood.one();
                tracing::warn!(peer = %self.peer, %error, "not understood");
                let answer = Answer { status: Status::NotUnderstood, message: error.to_string() };
                return refuse(&mut sending, &mut inbound, &answer).await;
            }
            Ok(Err(_)) => return,
            Err(_) => return inbound.stop(0),
        };
        match self.grant(opening).await {
            Ok((granted, places)) => {
                self.carry(granted, sending, inbound).await;
                drop(places);
            }
            Err(answer) => {
                tracing::info!(peer = %self.peer, why = %answer.message, "refused");
                self.world.counters.tunnels_refused.one();
                refuse(&mut sending, &mut inbound, &answer).await;
            }
        }
    }

    /// What was asked for, if this peer may have it and it can be had.
    async fn grant(&self, opening: Opening) -> Result<(Granted, [Place; 2]), Answer> {
        let places = self.places()?;
        match opening.request {
            Request::Forward(target) => {
                let access = Arc::clone(&self.world.guard());
                let admitted =
                    access.access.admit(&self.peer, &target, &*self.world.resolver).await;
                let admitted = admitted.map_err(|refusal| Answer {
                    status: Status::Denied,
                    message: refusal.to_string(),
                })?;
                let local = dial(&admitted, self.world.limits.dial).await;
                let local = local.map_err(|error| {
                    self.world.counters.dials_failed.one();
                    Answer::from(error)
                })?;
                Ok((Granted::Stream(local, target), places))
            }
            Request::Listen(_) | Request::Arrived(_) => Err(Answer {
                status: Status::NotUnderstood,
                message: "this end takes no such request".to_owned(),
            }),
        }
    }

    /// One of this peer's and one of all tunnels.
    fn places(&self) -> Result<[Place; 2], Answer> {
        let limits = &self.world.limits;
        let busy = |message: &str| {
            self.world.counters.tunnels_over_limit.one();
            Answer { status: Status::Busy, message: message.to_owned() }
        };
        if self.world.draining.is_cancelled() {
            return Err(busy("the server is shutting down"));
        }
        let tunnels: fn(&Usage) -> &AtomicUsize = |usage| &usage.tunnels;
        let own = Place::take(&self.usage, tunnels, limits.tunnels_each)
            .ok_or_else(|| busy("this identity has as many tunnels as it may have"))?;
        let all = Place::take(&self.world.total, tunnels, limits.tunnels)
            .ok_or_else(|| busy("the server has as many tunnels as it may have"))?;
        Ok([own, all])
    }

    async fn carry(&self, granted: Granted, mut sending: C::Sending, inbound: Inbound<C>) {
        let tunnel = self.session.tunnel();
        match granted {
            Granted::Stream(local, target) => {
                if sending.write(Answer::open().encode()).await.is_err() {
                    return local.abort();
                }
                let windows = &self.session.windows;
                let counters = &self.world.counters;
                if let Err(error) = relay(local, sending, inbound, windows, counters, None).await {
                    counters.tunnels_broken.one();
                    tracing::debug!(peer = %self.peer, %target, %error, "a tunnel broke off");
                }
            }
        }
        drop(tunnel);
    }
}

enum Granted {
    Stream(Local, Target),
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
