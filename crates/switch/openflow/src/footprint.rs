//! The memory that a change takes up.

use flow::action::heap_bytes;
use flow::request::{Bucket, Change};

/// Returns the heap memory of a change in bytes. The size of [`Change`] itself is not included.
pub(super) fn footprint(change: &Change) -> usize {
    match change {
        Change::Flow(change) => heap_bytes(&change.actions),
        Change::Group(change) => {
            let buckets = change.buckets.iter().map(|bucket| heap_bytes(&bucket.actions));
            change.buckets.capacity() * size_of::<Bucket>() + buckets.sum::<usize>()
        }
        Change::Port(_) => 0,
        Change::PacketOut(packet) => packet.frame.capacity() + heap_bytes(&packet.actions),
    }
}
