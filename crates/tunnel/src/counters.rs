use crate::transport::Lost;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Declares [`Counters`] and what they read as.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// What an end has done since it began; all connections together.
        #[derive(Debug, Default)]
        pub struct Counters { $(pub(crate) $name: Counter,)* }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
        pub struct Counted { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
    pub(crate) fn lost(&self, why: &Lost) {
        self.connections_lost.one();
        if matches!(why, Lost::Violation(_)) {
            self.connections_in_violation.one();
        }
    }

            pub fn now(&self) -> Counted {
                Counted { $($name: self.$name.count(),)* }
            }
        }
    };
}

impl Counters {
    /// Until no tunnel is left, or for `patience`.
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
    /// Of those lost, by this end, because the peer was not heard any more.
    connections_silent
    /// Connections lost because the peer sent more than its credit, or left too many gaps.
    connections_in_violation
    /// Handshakes asked for a proof of their address, or not answered at all.
    handshakes_put_off
    /// Handshakes given up for newer ones, because too many were under way.
    handshakes_evicted
    /// Peers who showed no identity that is let in.
    strangers
    tunnels_opened
    /// Now.
    tunnels
    tunnels_refused
    /// Of those refused, by a limit.
    tunnels_over_limit
    tunnels_broken
    /// Of those broken, by this end, because nobody read what came and the memory for it ran short.
    tunnels_not_read
    /// Frames that made no sense.
    not_understood
    dials_failed
    bytes_in
    bytes_out
    datagrams_in
    datagrams_out
    datagrams_oversize
    /// Without a flow, or of too many.
    datagrams_dropped
    listeners
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn less_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const DRAIN_LOOK: Duration = Duration::from_millis(20);
