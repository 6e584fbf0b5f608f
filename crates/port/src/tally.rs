use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Offload, PortCounters};

/// The counters of a port that several threads use. Different counters may be read at different
/// times.
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
        let (count, bytes) = sum(frames.iter().map(crate::Frame::on_wire));
        self.received_frames.fetch_add(count, Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts sent packets. `offloads`: the offload of each packet; empty if all packets are
    /// finished.
    #[inline]
    pub(crate) fn sent(&self, packets: &[&[u8]], offloads: &[Offload]) {
        let (count, bytes) = if offloads.is_empty() {
            sum(packets.iter().map(|packet| (1, packet.len() as u64)))
        } else {
            let both = packets.iter().zip(offloads);
            sum(both.map(|(packet, offload)| offload.on_wire(packet.len())))
        };
        self.sent_frames.fetch_add(count, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts received frames that the port could not accept.
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

#[inline]
fn sum(frames: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    frames.fold((0, 0), |sum, frame| (sum.0 + frame.0, sum.1 + frame.1))
}
