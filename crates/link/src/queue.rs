//! Queues in front of the link. Each discipline is one file, with a type that implements
//! [`Discipline`] and a type of its settings, and one line of the registry.

mod backlog;
mod caqm;
mod codel;
mod droptail;
mod fq_codel;
mod headdrop;
mod limit;
mod of_path;
mod pie;
mod red;
mod registry;

pub use limit::Limit;
pub use of_path::{QueueOfPath, with_size};
pub use registry::*;

use crate::queue::registry::Kind;
use crate::{LinkError, LinkStats, Packet};

use units::{Bytes, Rate, Time};

/// A packet in a queue.
#[derive(Debug, Clone)]
pub struct Queued<P> {
    /// The packet itself, which the queue may mark.
    pub packet: P,
    /// The packet's size, read once on arrival.
    pub size: Bytes,
    /// The logical time at which the packet arrived at the queue.
    pub arrived: Time,
}

/// A queueing discipline. Times are logical and never run backwards. Every accepted packet is
/// dequeued later or counted in `stats.dropped`.
pub trait Discipline<P: Packet>: Sized {
    /// The settings of this discipline.
    type Config;

    /// Creates an empty queue. `pace` is the link's long-term rate, `None` for an unlimited link.
    fn new(config: &Self::Config, pace: Option<Rate>, seed: u64) -> Self;

    /// Applies new settings and keeps the learnt state. The caller enforces the limit: the caller
    /// takes all packets out and admits them again.
    fn retune(&mut self, config: &Self::Config, pace: Option<Rate>);

    /// Handles a packet that arrives at `now`: queues, marks or drops it, and counts marks and
    /// drops in `stats`.
    fn enqueue(&mut self, now: Time, item: Queued<P>, stats: &mut LinkStats);

    /// Admits a packet that was already queued. Drops the packet only if the queue has no room.
    fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats);

    /// Removes and returns the next packet when the link is free. `None` if no packet is left; the
    /// link then calls this method again only after the next arrival.
    fn dequeue(&mut self, now: Time, stats: &mut LinkStats) -> Option<Queued<P>>;

    /// Returns the number of packets in the queue.
    fn packets(&self) -> usize;

    /// Returns the bytes of all packets in the queue.
    fn bytes(&self) -> Bytes;

    /// Visits each packet, in any order.
    fn for_each(&self, see: &mut dyn FnMut(&P));

    /// Removes all packets and returns them in the order of their arrival.
    fn take_all(&mut self) -> Vec<Queued<P>>;
}

/// Any of the disciplines, with statistics of its occupancy.
#[derive(Debug)]
pub struct Queue<P: Packet> {
    config: QueueConfig,
    pace: Option<Rate>,
    seed: u64,
    /// The number of disciplines that this queue has had. Each discipline derives its random
    /// streams from this number.
    generation: u64,
    kind: Kind<P>,
}

impl<P: Packet> Queue<P> {
    /// Creates an empty queue. `pace` is the link's long-term rate (`None`: unlimited), and `seed`
    /// drives random drops and marks. Fails if the settings are invalid.
    pub fn new(config: &QueueConfig, pace: Option<Rate>, seed: u64) -> Result<Self, LinkError> {
        config.validate()?;
        Ok(Self { config: *config, pace, seed, generation: 0, kind: Kind::new(config, pace, seed) })
    }

    /// Takes a packet that arrives at `now`, or drops packets as the discipline demands. Records
    /// the new size in `stats`.
    #[inline]
    pub fn enqueue(&mut self, now: Time, item: Queued<P>, stats: &mut LinkStats) {
        self.kind.enqueue(now, item, stats);
        stats.occupancy.becomes(now, self.bytes());
    }

    /// Removes the next packet for a link that is free at `now`, and records its wait in `stats`.
    /// `None` if no packet is left.
    #[inline]
    pub fn dequeue(&mut self, now: Time, stats: &mut LinkStats) -> Option<Queued<P>> {
        let item = self.kind.dequeue(now, stats);
        stats.occupancy.becomes(now, self.bytes());
        if let Some(item) = &item {
            stats.sojourns.add(now.since(item.arrived));
        }
        item
    }

    /// Changes the settings or the discipline. Queued packets stay if the new queue has room for
    /// the packets.
    pub fn reconfigure(
        &mut self,
        now: Time,
        config: &QueueConfig,
        pace: Option<Rate>,
        stats: &mut LinkStats,
    ) -> Result<(), LinkError> {
        config.validate()?;
        if (self.config, self.pace) == (*config, pace) {
            return Ok(());
        }
        let waiting = self.kind.take_all();
        if !self.kind.retune(config, pace) {
            self.generation += 1;
            let seed = self.seed ^ crate::random::mix(self.generation);
            self.kind = Kind::new(config, pace, seed);
        }
        for item in waiting {
            self.kind.admit(item, stats);
        }
        (self.config, self.pace) = (*config, pace);
        stats.occupancy.becomes(now, self.bytes());
        Ok(())
    }

    /// Returns the number of packets in the queue.
    #[inline]
    pub fn packets(&self) -> usize {
        self.kind.packets()
    }

    /// Visits each packet, in any order.
    pub fn for_each(&self, see: &mut dyn FnMut(&P)) {
        self.kind.for_each(see);
    }

    /// Returns the bytes of all packets in the queue.
    #[inline]
    pub fn bytes(&self) -> Bytes {
        self.kind.bytes()
    }
}
