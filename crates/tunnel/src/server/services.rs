//! Services that clients offer to other clients by name. A connection to a service is a pair of
//! sockets: one socket is the target of the client that uses the service, the other is a connection
//! at the listener of the client that offers the service.

use super::places::Place;
use crate::frame::{Answer, Status};
use crate::identity::PeerName;
use crate::local::Local;
use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Mutex, PoisonError};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// The services that clients offer.
#[derive(Debug, Default)]
pub(super) struct Services(Mutex<HashMap<String, Offer>>);

#[derive(Debug)]
struct Offer {
    peer: PeerName,
    connections: mpsc::Sender<ServiceConnection>,
}

/// A connection of a client to a service. The connection takes a slot of the client that uses the
/// service, and no slot of the client that offers the service.
#[derive(Debug)]
pub(super) struct ServiceConnection {
    pub(super) stream: StdStream,
    pub(super) place: Place,
    pub(super) user: PeerName,
}

impl Services {
    /// Connects to a service. `place`: the slot for the connection to the client that offers the
    /// service.
    pub(super) fn connect(
        &self,
        name: &str,
        user: &PeerName,
        place: Place,
    ) -> Result<Local, Answer> {
        let failed = |error: io::Error| Answer {
            status: Status::Unreachable,
            message: format!("service:{name} cannot be reached: {error}"),
        };
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(offer) = all.get(name).filter(|offer| !offer.connections.is_closed()) else {
            let message = format!("no client offers service:{name} now");
            return Err(Answer { status: Status::Unreachable, message });
        };
        let (here, there) = StdStream::pair().map_err(failed)?;
        let nonblocking = here.set_nonblocking(true).and_then(|()| there.set_nonblocking(true));
        let here = nonblocking.and_then(|()| UnixStream::from_std(here)).map_err(failed)?;
        let connection = ServiceConnection { stream: there, place, user: user.clone() };
        offer.connections.try_send(connection).map_err(|_| Answer {
            status: Status::Busy,
            message: format!("too many connections wait for service:{name}: try again"),
        })?;
        Ok(Local::of_unix(here))
    }

    /// Returns each service with the client that offers it.
    pub(super) fn offered(&self) -> Vec<(String, PeerName)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = all.iter().filter(|(_, offer)| !offer.connections.is_closed());
        let mut offered: Vec<_> =
            alive.map(|(name, offer)| (name.clone(), offer.peer.clone())).collect();
        offered.sort();
        offered
    }

    /// Registers a service under a name that no other identity offers now.
    pub(super) fn offer(
        &self,
        name: &str,
        peer: &PeerName,
    ) -> io::Result<mpsc::Receiver<ServiceConnection>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, offer| !offer.connections.is_closed());
        if all.get(name).is_some_and(|offer| offer.peer != *peer) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (connections, waiting) = mpsc::channel(WAITING);
        all.insert(name.to_owned(), Offer { peer: peer.clone(), connections });
        Ok(waiting)
    }
}

/// Maximum number of connections to a service that wait for the client that offers it.
const WAITING: usize = 64;
