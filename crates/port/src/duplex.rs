use std::os::fd::OwnedFd;

use crate::{Accepted, Frame, Offload, PortCounters, PortError};

/// A port that several threads use at once: each receive queue and the sending side have locks of
/// their own. Receiving and sending never block.
pub trait DuplexPort: Send + Sync + std::fmt::Debug {
    /// The queues from which frames can arrive.
    fn queues(&self) -> usize;

    /// Appends at most `limit` frames of a queue, oldest first, and returns their number.
    fn receive(
        &self,
        queue: usize,
        batch: &mut Vec<Frame>,
        limit: usize,
    ) -> Result<usize, PortError>;

    /// Sends packets in order until one is refused. Nothing is repeated or dropped here: the caller
    /// learns the reason, and decides.
    fn send(&self, packets: &[&[u8]]) -> Result<Accepted, PortError>;

    /// Whether the peer carries frames with this work on. Others get finished frames.
    fn takes(&self, _offload: Offload) -> bool {
        false
    }

    /// As [`Self::send`], for frames with the work that is left on each.
    fn send_unfinished(
        &self,
        packets: &[&[u8]],
        _offloads: &[Offload],
    ) -> Result<Accepted, PortError> {
        self.send(packets)
    }

    /// The part of a receive queue's room that these frames of the queue took, 1 for a full queue.
    /// 0 if the kernel owns the other end, and counts the frames that it drops there.
    fn occupancy(&self, _frames: &[Frame]) -> f64 {
        0.0
    }

    /// Becomes readable when a queue has frames again after it had none for thirty-two calls of
    /// [`Self::receive`], or more. Stays the same when another peer comes.
    fn fd(&self, queue: usize) -> Option<OwnedFd>;

    /// Whether the peer, or the interface, is there.
    fn is_connected(&self) -> bool;

    /// A number that is another one whenever the peer has come or gone.
    fn changes(&self) -> u64;

    /// Whether the port itself waits for a peer that has gone. The owner opens others again.
    fn reconnects(&self) -> bool;

    /// The longest frame in bytes.
    fn longest(&self) -> usize;

    /// The counts since the port was opened.
    fn counters(&self) -> PortCounters;

    /// One line for people: the kind of port, its settings and its state.
    fn describe(&self) -> String;
}
