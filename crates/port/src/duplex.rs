use std::os::fd::OwnedFd;

use crate::{Accepted, Frame, Offload, PortCounters, PortError};

/// A port that several threads use at the same time: each receive queue has its own lock, and so
/// has the sending side. Receiving and sending never block.
pub trait DuplexPort: Send + Sync + std::fmt::Debug {
    /// Returns the number of queues from which frames can arrive.
    fn queues(&self) -> usize {
        1
    }

    /// Appends at most `limit` frames of a queue, oldest first, and returns their number.
    fn receive(
        &self,
        queue: usize,
        batch: &mut Vec<Frame>,
        limit: usize,
    ) -> Result<usize, PortError>;

    /// Sends packets in order until a packet is refused. The port neither retries nor drops
    /// packets: the caller gets the reason for the refusal, and decides what to do.
    fn send(&self, packets: &[&[u8]]) -> Result<Accepted, PortError>;

    /// Whether the peer accepts frames with this offload. Frames for other peers must be finished
    /// first.
    fn takes(&self, _offload: Offload) -> bool {
        false
    }

    /// Like [`Self::send`], for unfinished frames and their offloads.
    fn send_unfinished(
        &self,
        packets: &[&[u8]],
        _offloads: &[Offload],
    ) -> Result<Accepted, PortError> {
        self.send(packets)
    }

    /// Returns the share of a receive queue's capacity that these frames used: 1 for a full queue.
    /// Always 0 if the kernel is the peer, because the kernel counts the frames that it drops.
    fn occupancy(&self, _frames: &[Frame]) -> f64 {
        0.0
    }

    /// Returns a descriptor that becomes readable when a queue has frames again after at least
    /// thirty-two empty calls of [`Self::receive`]. The descriptor stays the same when the peer
    /// changes.
    fn fd(&self, queue: usize) -> Option<OwnedFd>;

    /// Whether the peer is connected, or the interface exists.
    fn is_connected(&self) -> bool;

    /// Returns a number that changes whenever the peer connects or disconnects.
    fn changes(&self) -> u64;

    /// Whether the port itself waits for the next peer. The owner must reopen a port that does not.
    fn reconnects(&self) -> bool;

    /// Returns the maximum length of a frame, in bytes.
    fn longest(&self) -> usize;

    fn counters(&self) -> PortCounters;

    /// Describes the port in a line for users: its type, settings and state.
    fn describe(&self) -> String;
}
