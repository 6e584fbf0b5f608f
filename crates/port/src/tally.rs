use std::sync::atomic::{AtomicU64, Ordering};

use crate::PortCounters;

/// Counters of a port that several threads use. They only count.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    received_frames: AtomicU64,
    received_bytes: AtomicU64,
    truncated: AtomicU64,
    sent_frames: AtomicU64,
    sent_bytes: AtomicU64,
}

impl Tally {
    #[inline]
    pub(crate) fn received(&self, frames: &[crate::Frame]) {
        let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
        self.received_frames.fetch_add(frames.len() as u64, Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sent(&self, packets: &[&[u8]]) {
        let bytes: u64 = packets.iter().map(|packet| packet.len() as u64).sum();
        self.sent_frames.fetch_add(packets.len() as u64, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Frames that arrived and could not be taken.
    pub(crate) fn refused(&self, count: u64) {
        self.truncated.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> PortCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PortCounters {
            received_frames: read(&self.received_frames),
            received_bytes: read(&self.received_bytes),
            truncated: read(&self.truncated),
            sent_frames: read(&self.sent_frames),
            sent_bytes: read(&self.sent_bytes),
            ..PortCounters::default()
        }
    }
}
