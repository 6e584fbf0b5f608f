//! Operation of a running server: rates, ending chosen sessions, and the drain.

use super::{PeerSession, Server, ServerError, Shared, ask_all_for_renewal};
use crate::access_log::{AccessLogAt, End};
use crate::hand_over::{Handed, TCP};
use crate::identity::PeerName;
use crate::transport::quic::QuicServer;
use crate::transport::{Connection, SERVER_SHUTS_DOWN, SESSION_ENDED};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A session that [`Server::kick`] has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kicked {
    pub peer: PeerName,
    /// The number of the session in this process.
    pub session: u64,
    pub remote: SocketAddr,
    pub tunnels: usize,
}

impl Server {
    /// Ends all sessions of an identity (`laptop`), or one session of the identity (`laptop/17`).
    /// The client may return at once.
    pub fn kick(&self, which: &str) -> Vec<Kicked> {
        let (name, number) = match which.split_once('/') {
            Some((name, number)) => (name, Some(number)),
            None => (which, None),
        };
        let mut ended = Vec::new();
        for PeerSession { peer, session, .. } in self.shared.sessions() {
            let own = session.meter.number();
            let is_chosen = peer.as_str() == name
                && number.is_none_or(|number| number.parse() == Ok(own))
                && !session.connection.is_closed();
            if is_chosen {
                let (remote, tunnels) = (session.connection.remote(), session.tunnels());
                tracing::info!(%peer, session = own, tunnels, "session ended by request");
                session.meter.close_as(End::Kicked);
                session.close(SESSION_ENDED);
                ended.push(Kicked { peer, session: own, remote, tunnels });
            }
        }
        ended
    }

    /// Opens the access log at `at`, also if `at` has not changed, because log rotation may have
    /// renamed the file. On an error, the server keeps its former log.
    pub fn open_access_log(&self, at: Option<&AccessLogAt>) -> Result<(), ServerError> {
        self.shared.open_access_log(at)
    }

    /// Accepts no new sessions and tunnels from now on. Open tunnels continue.
    pub fn begin_drain(&self) {
        self.shared.draining.cancel();
        self.shared.forget_tcp();
    }

    /// Ends the sessions without a tunnel and without a dial, whose clients then choose another
    /// server. Returns 0 if no tunnel is open or about to open.
    pub fn close_idle(&self) -> u64 {
        let mut requests = 0;
        for PeerSession { session, .. } in self.shared.sessions() {
            requests += session.requests() as u64;
            if session.tunnels() == 0 && session.requests() == 0 {
                session.close(SERVER_SHUTS_DOWN);
            }
        }
        self.shared.counters.tunnels.count().max(requests)
    }
}

/// The server's part in the hand-over to another process.
impl Server {
    /// Stops reading the UDP sockets, and returns copies of all sockets.
    pub fn hand_over(&self) -> io::Result<Handed> {
        let mut handed = Handed::default();
        if let Some(listener) = &*self.shared.tcp.lock().unwrap_or_else(PoisonError::into_inner) {
            handed.add(TCP, listener.try_clone()?);
        }
        if let Some(quic) = &self.shared.quic {
            handed.add_udp(quic.hand_over()?);
        }
        Ok(handed)
    }

    /// Reads the UDP sockets again after the other process has failed.
    pub fn take_back(&self) {
        self.shared.quic.iter().for_each(QuicServer::take_back);
    }

    /// Accepts no new connections and listeners from now on: another process accepts them. Clients
    /// open their new tunnels at the other process.
    pub fn leave(&self) {
        self.shared.left.cancel();
        self.shared.forget_tcp();
        let shared = Arc::clone(&self.shared);
        self.threads.spawn(0, async move {
            ask_all_for_renewal(Arc::clone(&shared)).await;
            // By now, handshakes in progress at the hand-over have become sessions.
            tokio::time::sleep(HANDSHAKES).await;
            ask_all_for_renewal(shared).await;
        });
    }

    /// Returns the number of sessions that have not ended.
    pub fn sessions_left(&self) -> u64 {
        let sessions = self.shared.sessions();
        sessions.iter().filter(|one| !one.session.connection.is_closed()).count() as u64
    }
}

impl Shared {
    /// Closes this end's copy of the TCP listener. Otherwise the kernel would go on accepting
    /// clients that no process serves.
    fn forget_tcp(&self) {
        drop(self.tcp.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    pub(super) fn open_access_log(&self, at: Option<&AccessLogAt>) -> Result<(), ServerError> {
        let failed = |error| {
            let at = at.map(ToString::to_string).unwrap_or_default();
            ServerError::AccessLog(at, error)
        };
        self.log.open(at).map_err(failed)
    }
}

/// Computes the rates of sessions and accounts once a second, until the server ends.
pub(super) async fn sample_rates(shared: Weak<Shared>) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(SECOND).await;
        let Some(shared) = shared.upgrade() else { return };
        let elapsed = last.elapsed();
        last = Instant::now();
        for PeerSession { session, .. } in shared.sessions() {
            session.meter.second(elapsed);
        }
        shared.accounts.second(elapsed);
    }
}

/// Maximum duration of a handshake that is in progress at a hand-over.
const HANDSHAKES: Duration = Duration::from_secs(4);
const SECOND: Duration = Duration::from_secs(1);
