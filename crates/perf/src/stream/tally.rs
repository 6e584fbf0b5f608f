use super::guard;
use crate::event::Datagrams;
use crate::udp::Arrivals;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use units::{Bytes, Span};

/// Counters of a stream so far, without the omitted part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamSnapshot {
    pub at: Instant,
    pub id: u32,
    pub sends: bool,
    /// Bytes passed to the kernel or read from it. Duplicates of a datagram do not count.
    pub bytes: Bytes,
    /// Counts of a UDP stream. A sender fills in `count` only.
    pub datagrams: Option<Datagrams>,
    pub omitted: Omitted,
}

/// Counters up to [`super::Running::reset`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Omitted {
    pub bytes: Bytes,
    pub datagrams: Option<Datagrams>,
}

/// A counter with a single writer thread. The counter fills two cache lines, because x86 fetches
/// lines in pairs: otherwise writes to a neighbouring counter would move the lines between cores.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only the writer thread may call this method, which is not atomic.
    pub(crate) fn add(&self, more: u64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) enum Tally {
    /// Bytes of a TCP stream, sent or received.
    Bytes(Counter),
    /// Datagrams sent, each of `block` bytes.
    Datagrams { sent: Counter, block: u64 },
    /// Datagrams received. The mutex is locked once for each batch.
    Arrivals(Mutex<Arrivals>),
}

/// The bytes at the end of the omitted time. [`Arrivals`] keeps its own baseline.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    pub(super) bytes: u64,
}

impl Tally {
    /// Returns all bytes, omitted bytes included.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.value(),
            Self::Datagrams { sent, block } => sent.value() * block,
            Self::Arrivals(arrivals) => {
                let arrivals = guard(arrivals);
                arrivals.bytes() + arrivals.omitted_bytes()
            }
        }
    }

    pub(super) fn reset(&self) -> Baseline {
        if let Self::Arrivals(arrivals) = self {
            guard(arrivals).reset();
        }
        Baseline { bytes: self.bytes() }
    }

    pub(super) fn snapshot(&self, id: u32, sends: bool, baseline: &Baseline) -> StreamSnapshot {
        let mut snapshot = StreamSnapshot {
            at: Instant::now(),
            id,
            sends,
            bytes: Bytes::new(0),
            datagrams: None,
            omitted: Omitted::default(),
        };
        match self {
            Self::Bytes(bytes) => {
                snapshot.bytes = Bytes::new(bytes.value() - baseline.bytes);
                snapshot.omitted.bytes = Bytes::new(baseline.bytes);
            }
            Self::Datagrams { sent, block } => {
                let omitted = baseline.bytes / block;
                let count = sent.value() - omitted;
                snapshot.bytes = Bytes::new(count * block);
                snapshot.datagrams = Some(counted(count));
                snapshot.omitted.bytes = Bytes::new(baseline.bytes);
                snapshot.omitted.datagrams = Some(counted(omitted));
            }
            Self::Arrivals(arrivals) => {
                let arrivals = guard(arrivals);
                snapshot.bytes = Bytes::new(arrivals.bytes());
                snapshot.datagrams = Some(arrivals.datagrams());
                snapshot.omitted.bytes = Bytes::new(arrivals.omitted_bytes());
                snapshot.omitted.datagrams = Some(arrivals.omitted());
            }
        }
        snapshot
    }
}

fn counted(count: u64) -> Datagrams {
    Datagrams { count, jitter: Span::ZERO, ..Datagrams::default() }
}
