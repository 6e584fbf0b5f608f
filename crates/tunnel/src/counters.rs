use crate::transport::Lost;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Declares [`Counters`] and their snapshot type. The sentence before each counter is also its
/// description in the metrics.
macro_rules! counters {
    ($(#[doc = $help:literal] $name:ident)*) => {
        /// Counts what an end has done since its start, over all connections.
        #[derive(Debug, Default)]
        pub struct Counters { $(pub(crate) $name: Counter,)* }

        /// A snapshot of the counters.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
        pub struct Counted { $(#[doc = $help] pub $name: u64,)* }

        impl Counters {
            pub fn now(&self) -> Counted {
                Counted { $($name: self.$name.count(),)* }
            }
        }

        impl Counted {
            /// Every counter's name and description.
            pub(crate) const HELP: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), $help),)*];
        }
    };
}

impl Counters {
    pub(crate) fn lost(&self, why: &Lost) {
        self.connections_lost.increment();
        if matches!(why, Lost::Violation(_)) {
            self.connections_in_violation.increment();
        }
    }
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
    /// This end has established this many connections.
    connections_made
    /// This many handshakes have failed.
    connections_failed
    /// This end has lost this many connections.
    connections_lost
    /// This end has closed this many connections because the peer was silent.
    connections_silent
    /// This end has closed this many connections because no process had the peer's port any more.
    connections_unreachable
    /// This many connections ended because the peer exceeded its credit or left too many gaps.
    connections_in_violation
    /// This many handshakes had to prove their address, or were dropped.
    handshakes_put_off
    /// This many handshakes gave way to newer handshakes because too many were in progress.
    handshakes_evicted
    /// This many peers were refused because nobody listed their identity.
    strangers
    /// This end has opened this many tunnels.
    tunnels_opened
    /// This many tunnels are open now.
    tunnels
    /// This many requests for a tunnel were refused.
    tunnels_refused
    /// This many requests for a tunnel were refused because they exceeded a limit.
    tunnels_over_limit
    /// The application or the target has reset this many tunnels.
    tunnels_reset
    /// This many tunnels ended by a lost connection, a timeout, a removed right or short memory.
    tunnels_broken
    /// This end has reset this many tunnels because nobody read them and memory was short.
    tunnels_not_read
    /// This end has refused or ended this many tunnels because a quota was used up.
    tunnels_over_quota
    /// This many requests were malformed.
    not_understood
    /// This many logins of applications to a proxy were refused.
    logins_refused
    /// This many connections to targets have failed.
    dials_failed
    /// This many requests were refused because the service was not offered or was busy.
    services_missed
    /// This many bytes came out of the tunnel to local sockets.
    bytes_in
    /// This many bytes went from local sockets into the tunnel.
    bytes_out
    /// This many datagrams came out of the tunnel to local sockets.
    datagrams_in
    /// This many datagrams went from local sockets into the tunnel.
    datagrams_out
    /// This many datagrams were dropped because they did not fit into a packet of the path.
    datagrams_oversize
    /// This many datagrams were dropped because they exceeded a rate limit or a quota.
    datagrams_over_limit
    /// This many datagrams were dropped because they had no flow or its queue was full.
    datagrams_dropped
    /// This many lines of the access log were dropped because its file or pipe did not take them.
    access_lines_dropped
    /// This many listeners at the server are open now.
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
