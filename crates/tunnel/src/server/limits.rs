use crate::access::{LOOKUPS, LOOKUPS_EACH};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The limits of a server, per identity and in total.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum number of tunnels and listeners of all identities together. The process's limit of
    /// open files may allow fewer.
    pub tunnels: usize,
    pub tunnels_each: usize,
    pub connections_each: usize,
    /// Maximum number of handshakes in progress at each socket. Beyond this limit, the server
    /// evicts the oldest handshake of the network with the most handshakes. Beyond a quarter of the
    /// limit, the server validates addresses.
    pub handshakes: usize,
    /// Number of handshakes of one network (an IPv4 address or an IPv6 /64) beyond which the server
    /// validates the network's addresses.
    pub handshakes_unvalidated: usize,
    /// Timeout of the connection to a target, including the look-up of its name.
    pub dial: Duration,
    /// Maximum number of name look-ups in progress. Each look-up occupies a thread.
    pub lookups: usize,
    pub lookups_each: usize,
    /// Maximum time that a stream may take to send its opening.
    pub opening: Duration,
    /// Idle timeout of datagram flows.
    pub datagrams_idle: Duration,
    /// Maximum number of listeners that a client may have at this end.
    pub listeners_each: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tunnels: 20_000,
            tunnels_each: 12_000,
            connections_each: 64,
            handshakes: 256,
            handshakes_unvalidated: 8,
            dial: Duration::from_secs(10),
            lookups: LOOKUPS,
            lookups_each: LOOKUPS_EACH,
            opening: Duration::from_secs(10),
            datagrams_idle: Duration::from_secs(60),
            listeners_each: 64,
        }
    }
}

/// The limited resources that one identity uses now.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) listeners: AtomicUsize,
}

/// One unit of a limited resource. Dropping the value frees the unit.
#[derive(Debug)]
pub(super) struct QuotaPermit {
    usage: Arc<Usage>,
    which: fn(&Usage) -> &AtomicUsize,
}

impl QuotaPermit {
    pub(super) fn acquire(
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

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        (self.which)(&self.usage).fetch_sub(1, Ordering::Relaxed);
    }
}
