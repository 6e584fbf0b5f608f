use crate::access::{LOOKUPS, LOOKUPS_EACH};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How much is taken on, of one and of all.
#[derive(Debug, Clone)]
pub struct Limits {
    pub tunnels: usize,
    pub tunnels_each: usize,
    pub connections_each: usize,
    /// Handshakes under way at each socket. Of more, the oldest of the network that has the most goes. Beyond a
    /// quarter of them an address has to be proved.
    pub handshakes: usize,
    /// One network (an IPv4 address or an IPv6 /64) may have so many before its addresses have to be proved.
    pub handshakes_unproved: usize,
    /// For a target to answer, the look-up of its name included.
    pub dial: Duration,
    /// Look-ups of names under way, each of which occupies a thread.
    pub lookups: usize,
    pub lookups_each: usize,
    /// For a stream to say what it is.
    pub opening: Duration,
    /// Flows of datagrams over which nothing went for so long are forgotten.
    pub datagrams_idle: Duration,
    /// For which clients may have this end listen.
    pub listeners_each: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tunnels: 20_000,
            tunnels_each: 12_000,
            connections_each: 64,
            handshakes: 256,
            handshakes_unproved: 8,
            dial: Duration::from_secs(10),
            lookups: LOOKUPS,
            lookups_each: LOOKUPS_EACH,
            opening: Duration::from_secs(10),
            datagrams_idle: Duration::from_secs(60),
            listeners_each: 64,
        }
    }
}

/// What one identity has taken up.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) connections: AtomicUsize,
    pub(super) tunnels: AtomicUsize,
    pub(super) listeners: AtomicUsize,
}

/// One of a bounded number, as long as it is kept.
#[derive(Debug)]
pub(super) struct Place {
    usage: Arc<Usage>,
    which: fn(&Usage) -> &AtomicUsize,
}

impl Place {
    pub(super) fn take(
        usage: &Arc<Usage>,
        which: fn(&Usage) -> &AtomicUsize,
        most: usize,
    ) -> Option<Self> {
        let count = which(usage);
        let more = |taken| (taken < most).then_some(taken + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self { usage: Arc::clone(usage), which })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.which)(&self.usage).fetch_sub(1, Ordering::Relaxed);
    }
}
