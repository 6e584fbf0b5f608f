use crate::transport::Lost;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Declares [`Counters`] and their snapshot type.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counts what an end has done since its start, over all connections.
        #[derive(Debug, Default)]
        pub struct Counters { $(pub(crate) $name: Counter,)* }

        /// A snapshot of the counters.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
        pub struct Counted { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
    pub(crate) fn lost(&self, why: &Lost) {
        self.connections_lost.increment();
        if matches!(why, Lost::Violation(_)) {
            self.connections_in_violation.increment();
        }
    }

            pub fn now(&self) -> Counted {
                Counted { $($name: self.$name.count(),)* }
            }
        }
    };
}

impl Counters {
    /// Waits until no tunnel is left, or for `patience`.
    pub(crate) async fn no_tunnels(&self, patience: Duration) {
        let finished = async {
            while self.tunnels.count() > 0 {
                tokio::time::sleep(DRAIN_LOOK).await;
            }
        };
        let _ = tokio::time::timeout(patience, finished).await;
    }
}

counters! {
    connections_made
    connections_failed
    connections_lost
    /// Lost connections that this end closed because the peer was silent.
    connections_silent
    /// Connections lost because the peer exceeded its credit or left too many gaps.
    connections_in_violation
    /// Handshakes that had to prove their address, or were dropped.
    handshakes_put_off
    /// Handshakes dropped for newer ones because too many were in progress.
    handshakes_evicted
    /// Peers whose identity is not let in.
    strangers
    tunnels_opened
    /// Tunnels open now.
    tunnels
    tunnels_refused
    /// Refused tunnels that exceeded a limit.
    tunnels_over_limit
    tunnels_broken
    /// Broken tunnels that this end reset because their reader was stuck and memory was short.
    tunnels_not_read
    /// Malformed frames.
    not_understood
    dials_failed
    bytes_in
    bytes_out
    datagrams_in
    datagrams_out
    datagrams_oversize
    /// Datagrams without a flow, or beyond a flow's queue.
    datagrams_dropped
    listeners
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const DRAIN_LOOK: Duration = Duration::from_millis(20);
