use crate::access_log::End;
use crate::account::{SessionMeter, TunnelMeter};
use crate::counters::Counters;
use crate::datagrams::{BATCH, Flows};
use crate::frame::Opening;
use crate::inbound::Inbound;
use crate::memory::Budget;
use crate::peer_key::PeerKey;
use crate::silence::{ASKS_PER_KEEPALIVE, Seen, Silence, Verdict};
use crate::transport::{Connection, Lost, PEER_IS_SILENT, Sending, StreamError};
use crate::windows::Windows;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One connection with its tunnels. Both ends use the same type.
#[derive(Debug)]
pub(crate) struct Session<C: Connection> {
    pub(crate) connection: C,
    pub(crate) windows: Arc<Windows<C>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) flows: Flows,
    pub(crate) meter: Arc<SessionMeter>,
    /// The key that the peer has proved, if it presented a certificate.
    pub(crate) key: Option<PeerKey>,
    /// Cancelled once another connection has replaced this connection for new tunnels.
    pub(crate) retired: CancellationToken,
    tunnels: AtomicUsize,
    /// Each open request of the peer for a target has a clone; the clones count the requests.
    requests: Arc<()>,
    /// The reason for which this end has closed the connection.
    closed: OnceLock<Closed>,
}

/// The reason for which this end has closed a connection.
#[derive(Debug, Clone, Copy)]
enum Closed {
    /// The peer was silent.
    Silent,
    /// The peer was silent, and no process had the peer's port.
    NoProcess,
    /// A reason that this end also sends to the peer.
    For(&'static str),
}

/// One counted tunnel of a session. Dropping the value removes the tunnel from the count.
#[derive(Debug)]
pub(crate) struct Tunnel<C: Connection> {
    session: Arc<Session<C>>,
    pub(crate) meter: TunnelMeter,
}

impl<C: Connection> Session<C> {
    /// Creates the session of a connection. `first_flow` is the number of the first flow that this
    /// end opens; the numbers of the next flows follow in steps of two. `owner` is the peer's
    /// identity, whose connections share one part of the memory.
    pub(crate) fn new(
        connection: C,
        first_flow: u32,
        budget: &Budget,
        owner: &Arc<str>,
        counters: &Arc<Counters>,
        meter: Arc<SessionMeter>,
    ) -> Arc<Self> {
        let windows = Windows::new(connection.clone(), budget, owner);
        let counters = Arc::clone(counters);
        let flows = Flows::new(first_flow);
        let key = PeerKey::of(&connection.certificates());
        let (tunnels, closed) = (AtomicUsize::new(0), OnceLock::new());
        let retired = CancellationToken::new();
        Arc::new(Self {
            connection,
            windows,
            counters,
            flows,
            meter,
            key,
            retired,
            tunnels,
            requests: Arc::default(),
            closed,
        })
    }

    pub(crate) fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }

    /// Counts a request of the peer for a target until the result is dropped.
    pub(crate) fn request(&self) -> Arc<()> {
        Arc::clone(&self.requests)
    }

    pub(crate) fn requests(&self) -> usize {
        Arc::strong_count(&self.requests) - 1
    }

    /// Counts one more tunnel until the result is dropped.
    pub(crate) fn tunnel(self: &Arc<Self>) -> Tunnel<C> {
        self.metered_tunnel(TunnelMeter::new(&self.meter))
    }

    pub(crate) fn metered_tunnel(self: &Arc<Self>, meter: TunnelMeter) -> Tunnel<C> {
        self.tunnels.fetch_add(1, Ordering::Relaxed);
        self.counters.tunnels.increment();
        self.counters.tunnels_opened.increment();
        Tunnel { session: Arc::clone(self), meter }
    }

    /// Takes no new tunnels, and closes the connection once it has had no tunnel for a while.
    pub(crate) async fn retire(self: Arc<Self>) {
        self.retired.cancel();
        let mut unused_polls = 0;
        // Wait for a while: a task that has picked this session may be about to open its tunnel.
        while unused_polls < UNUSED_POLLS {
            tokio::select! {
                _ = self.connection.closed() => return,
                () = tokio::time::sleep(UNUSED_POLL) => {}
            }
            unused_polls = if self.tunnels() == 0 { unused_polls + 1 } else { 0 };
        }
        self.close("another connection has taken its place");
    }

    /// Closes the connection, and tells the peer the reason.
    pub(crate) fn close(&self, why: &'static str) {
        let _ = self.closed.set(Closed::For(why));
        self.connection.close(why);
    }

    /// Delivers datagrams to their flows until the connection ends.
    pub(crate) async fn deliver_datagrams(self: Arc<Self>) {
        // Start with room for one datagram, so that a session without datagrams needs no batch.
        let mut batch = vec![bytes::Bytes::new()];
        while let Ok(count) = self.connection.receive_datagrams(&mut batch).await {
            self.flows.deliver_all(&mut batch[..count], &self.counters).await;
            batch.resize(BATCH, bytes::Bytes::new());
        }
    }

    /// Closes the connection after the transport's `silent_keepalives`, or sooner if no process has
    /// the peer's port, and notifies the peer. If only the direction to this end is blocked, the
    /// peer still receives packets, and would not close the connection until this end stops
    /// sending.
    ///
    /// While tunnels are open, asks an idle peer for an answer more often than its keepalives do:
    /// only a packet of this end leads to a report that no process has the peer's port.
    pub(crate) async fn end_if_silent(self: Arc<Self>, keepalive: Duration) {
        let mut reports = self.connection.reports();
        let seen = self.seen(&mut reports);
        let mut silence = Silence::new(self.connection.silent_keepalives(), seen);
        let mut asks = false;
        // QUIC itself drops the connection without notice, but only after six keepalives.
        loop {
            let rtt = self.connection.rtt();
            let pause = silence.pause(keepalive, rtt);
            tokio::select! {
                _ = self.connection.closed() => return,
                () = tokio::time::sleep(pause) => {}
                () = reported(&mut reports), if !silence.is_in_doubt() => {}
            }
            let must_ask = reports.is_some() && self.tunnels() > 0;
            if must_ask != asks {
                asks = must_ask;
                self.connection.probe_after(asks.then_some(keepalive / ASKS_PER_KEEPALIVE));
            }
            let (counter, closed) = match silence.poll(self.seen(&mut reports), pause, rtt) {
                Verdict::Wait => {
                    if silence.is_in_doubt() {
                        self.connection.probe();
                    }
                    continue;
                }
                Verdict::Silent => (&self.counters.connections_silent, Closed::Silent),
                Verdict::NoProcess => (&self.counters.connections_unreachable, Closed::NoProcess),
            };
            counter.increment();
            let _ = self.closed.set(closed);
            self.meter.close_as(End::Lost);
            return self.connection.close(PEER_IS_SILENT);
        }
    }

    fn seen(&self, reports: &mut Option<watch::Receiver<u64>>) -> Seen {
        let statistics = self.connection.statistics();
        Seen {
            received: statistics.packets_received,
            sent: statistics.packets_sent,
            ports_closed: reports.as_mut().map_or(0, |reports| *reports.borrow_and_update()),
        }
    }

    /// Translates the transport's reason for the connection's end into the reason to act on.
    pub(crate) fn reason(&self, why: Lost) -> Lost {
        match (why, self.closed.get()) {
            (Lost::Here, Some(Closed::Silent | Closed::NoProcess)) => Lost::Silent,
            (why, _) => why,
        }
    }

    /// Returns the reason for the connection's end in words that say who closed the connection and
    /// why.
    pub(crate) fn words(&self, why: &Lost) -> String {
        match (why, self.closed.get()) {
            (Lost::Silent, Some(Closed::NoProcess)) => {
                format!("{why}: the network reports that no process has the peer's port")
            }
            (Lost::Here, Some(Closed::For(reason))) => format!("{why}: {reason}"),
            _ => why.to_string(),
        }
    }

    /// Opens a stream and sends its opening.
    pub(crate) async fn open(
        &self,
        opening: &Opening,
    ) -> Result<(C::Sending, Inbound<C>), StreamError> {
        let (mut sending, receiving) = self.connection.open().await?;
        sending.write(opening.encode()).await?;
        Ok((sending, Inbound::new(receiving, Arc::clone(&self.windows))))
    }

    pub(crate) async fn accept(&self) -> Result<(C::Sending, Inbound<C>), Lost> {
        let (sending, receiving) = self.connection.accept().await?;
        Ok((sending, Inbound::new(receiving, Arc::clone(&self.windows))))
    }
}

impl<C: Connection> Drop for Tunnel<C> {
    fn drop(&mut self) {
        let session = &self.session;
        self.meter.log(session.connection.remote());
        session.counters.tunnels.decrement();
        if session.tunnels.fetch_sub(1, Ordering::Relaxed) == 1 {
            session.windows.on_idle();
        }
    }
}

/// Waits for the next report that no process has the peer's port.
async fn reported(reports: &mut Option<watch::Receiver<u64>>) {
    // Boxed, because a server's session gets no reports and needs no place for this future.
    if let Some(reports) = reports
        && Box::pin(reports.changed()).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

const UNUSED_POLL: Duration = Duration::from_millis(200);
const UNUSED_POLLS: u32 = 5;
/// The number of the first flow that each end opens.
pub(crate) const CLIENTS: u32 = 0;
pub(crate) const SERVERS: u32 = 1;
