use crate::capacity::Server;
use crate::flight::{Flight, InFlight};
use crate::loss::LossProcess;
use crate::random::Stream;
use crate::{Balance, Count, LinkConfig, LinkError, LinkStats, Packet, Queue, Queued};
use units::{Bytes, Time};

/// A link in a single direction. The crate documentation describes how a packet passes through the
/// link.
#[derive(Debug)]
pub struct Link<P: Packet> {
    config: LinkConfig,
    /// The time up to which the link has processed all events.
    clock: Time,
    queue: Queue<P>,
    server: Server,
    serving: Option<Serving<P>>,
    /// The time at which the packet at the head of the queue may start, if the packet waits for a
    /// trace's next opportunity.
    next_start: Option<Time>,
    flight: Flight<P>,
    in_flight: Count,
    next_sequence: u64,
    /// One more than the sequence number of the last delivered packet.
    expected: u64,
    loss: LossProcess,
    jitter: Stream,
    reorder: Stream,
    duplicate: Stream,
    corrupt: Stream,
    stats: LinkStats,
}

/// A packet that has crossed the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The logical time of delivery, never after the `now` passed to the call that fetched it.
    pub at: Time,
    /// The logical time at which the packet arrived at the link's queue.
    pub arrived: Time,
    /// The packet, with the marks and flipped bits that it got on the link. A duplicate is a clone.
    pub packet: P,
}

impl<P: Packet> Link<P> {
    /// Creates an empty link whose logical time begins at `start`. Fails if the configuration is
    /// invalid.
    pub fn new(config: &LinkConfig, start: Time) -> Result<Self, LinkError> {
        config.validate()?;
        let stream = |name| Stream::new(config.seed, name);
        Ok(Self {
            config: config.clone(),
            clock: start,
            queue: Queue::new(&config.queue, config.rate.mean_rate(), config.seed)?,
            server: Server::new(&config.rate, start),
            serving: None,
            next_start: None,
            flight: Flight::new(),
            in_flight: Count::default(),
            next_sequence: 0,
            expected: 0,
            loss: LossProcess::new(&config.loss, config.seed),
            jitter: stream("jitter"),
            reorder: stream("reorder"),
            duplicate: stream("duplicate"),
            corrupt: stream("corrupt"),
            stats: LinkStats::new(start),
        })
    }

    /// Takes a packet that arrives at `now`, after all events due by then. Time never runs
    /// backwards: a `now` before the time of an earlier call counts as that time.
    pub fn arrive(&mut self, now: Time, packet: P) {
        self.advance(now);
        let now = self.clock;
        let size = packet.size();
        self.stats.arrived.add(size);
        let item = Queued { packet, size, arrived: now };
        self.queue.enqueue(now, item, &mut self.stats);
        if self.serving.is_none() && self.next_start.is_none() {
            self.server.wake(now);
            self.start_next(now);
            self.run(now);
        }
    }

    /// Returns the time of the next event: a start, a departure or a delivery. A simulator calls
    /// the link at this time; an emulator need not.
    pub fn next_event(&self) -> Option<Time> {
        earliest(self.next_step(), self.flight.next())
    }

    /// Returns the earliest time at which [`deliver`](Self::deliver) can return a packet. A caller
    /// may sleep until then. The time is exact for packets in flight, and a lower bound for queued
    /// packets, which the link may still drop or delay more.
    pub fn next_delivery(&self) -> Option<Time> {
        let shortest = self.config.jitter.shortest(self.config.delay);
        let step = self.next_step().map(|at| at + shortest);
        earliest(step, self.flight.next())
    }

    /// Returns the next packet whose delivery is due at `now`. Packets come in the order of
    /// delivery times; packets with equal times come in the order of departure.
    pub fn deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        self.advance(now);
        let item = self.flight.pop_due(now)?;
        self.in_flight.remove(item.size);
        self.stats.delivered.add(item.size);
        if item.sequence < self.expected {
            self.stats.reordered.add(item.size);
        } else {
            self.expected = item.sequence + 1;
        }
        Some(Delivery { at: item.at, arrived: item.arrived, packet: item.packet })
    }

    /// Changes the link while it runs. Packets in the queue and in flight stay, except packets for
    /// which a smaller queue has no room (counted as overflow). A packet being serialised continues
    /// at the new rate. Packets in flight keep their delivery times, and a shorter delay does not
    /// let later packets overtake them unless the jitter may reorder. Random streams continue:
    /// `seed` is ignored.
    pub fn reconfigure(&mut self, now: Time, config: &LinkConfig) -> Result<(), LinkError> {
        config.validate()?;
        self.advance(now);
        let now = self.clock;
        let old = std::mem::replace(&mut self.config, config.clone());
        self.loss.reconfigure(&config.loss);
        self.queue.reconfigure(now, &config.queue, config.rate.mean_rate(), &mut self.stats)?;
        if old.rate != config.rate {
            let server = std::mem::replace(&mut self.server, Server::new(&config.rate, now));
            self.server.wake(now);
            if let Some(serving) = &mut self.serving {
                let size = old.overhead.on_the_medium(serving.item.size);
                let unsent = server.unsent(now, serving.finish, size);
                serving.finish = self.server.serve(self.server.ready(now), unsent);
            } else {
                self.start_next(now);
            }
            self.run(now);
        }
        Ok(())
    }

    /// Returns the current configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the statistics up to the latest time passed to any call.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Returns the packets and bytes in the queue, excluding the packet being serialised.
    pub fn queued(&self) -> (usize, Bytes) {
        (self.queue.packets(), self.queue.bytes())
    }

    /// Returns the number of packets being serialised, propagating, or waiting to be fetched.
    pub fn in_flight(&self) -> usize {
        self.flight.len() + usize::from(self.serving.is_some())
    }

    /// Visits each packet that the link holds, in any order, so that a caller that stores payloads
    /// elsewhere can find the payloads in use.
    pub fn for_each(&self, mut see: impl FnMut(&P)) {
        self.queue.for_each(&mut see);
        self.serving.iter().for_each(|serving| see(&serving.item.packet));
        self.flight.for_each(&mut see);
    }

    /// Returns the counts that account for every packet. The balance holds after any call.
    pub fn balance(&self) -> Balance {
        let (packets, bytes) = self.queued();
        Balance {
            entered: self.stats.arrived + self.stats.duplicated,
            delivered: self.stats.delivered,
            dropped: self.stats.dropped.total(),
            queued: Count { packets: packets as u64, bytes },
            in_flight: Count { packets: self.in_flight() as u64, bytes: self.in_flight.bytes },
        }
    }

    fn advance(&mut self, now: Time) {
        if now > self.clock {
            self.run(now);
            self.clock = now;
            self.stats.occupancy.until(now);
        }
    }

    fn next_step(&self) -> Option<Time> {
        match &self.serving {
            Some(serving) => Some(serving.finish),
            None => self.next_start,
        }
    }

    /// Processes all events due at `now`.
    #[inline]
    fn run(&mut self, now: Time) {
        while let Some(at) = self.next_step() {
            if at > now {
                break;
            }
            if let Some(serving) = self.serving.take() {
                self.depart(at, serving.item);
            }
            self.start_next(at);
        }
    }

    /// Starts the next packet of the queue when the link is free at `at`, or sets the time of its
    /// opportunity.
    #[inline]
    fn start_next(&mut self, at: Time) {
        self.next_start = None;
        let start = self.server.ready(at);
        if start > at && self.queue.packets() > 0 {
            self.next_start = Some(start);
            return;
        }
        // Poll an empty queue too, because some disciplines must know that the link is idle.
        if let Some(item) = self.queue.dequeue(at, &mut self.stats) {
            self.in_flight.add(item.size);
            let size = self.config.overhead.on_the_medium(item.size);
            let finish = self.server.serve(at, size);
            self.serving = Some(Serving { finish, item });
        }
    }

    /// Ends the serialisation of a packet. Each component draws a random number for every
    /// departure, whatever other components decide. Enabling one component therefore does not
    /// change the decisions of the other components.
    #[inline]
    fn depart(&mut self, at: Time, item: Queued<P>) {
        let config = &self.config;
        let drawn =
            |share: units::Share, stream: &mut Stream| !share.is_zero() && stream.happens(share);
        let corrupted = drawn(config.corrupt, &mut self.corrupt);
        let flip = if config.corrupt.is_zero() { 0 } else { self.corrupt.bits() };
        let duplicated = drawn(config.duplicate, &mut self.duplicate);
        let held_back = drawn(config.reorder.share, &mut self.reorder);
        let delay = config.jitter.vary(config.delay, &mut self.jitter);
        let Queued { mut packet, size, arrived } = item;
        if self.loss.takes_next(at) {
            self.in_flight.remove(size);
            self.stats.dropped.loss.add(size);
            return;
        }
        if corrupted {
            packet.corrupt(flip);
            self.stats.corrupted.add(size);
        }
        let at = at + delay;
        let at = if held_back { at + config.reorder.delay } else { at };
        if duplicated {
            let copy = packet.clone();
            self.stats.duplicated.add(size);
            self.in_flight.add(size);
            self.send(at, arrived, size, packet, held_back);
            self.send(at, arrived, size, copy, held_back);
        } else {
            self.send(at, arrived, size, packet, held_back);
        }
    }

    #[inline]
    fn send(&mut self, at: Time, arrived: Time, size: Bytes, packet: P, held_back: bool) {
        let item = InFlight { at, sequence: self.next_sequence, arrived, size, packet };
        self.next_sequence += 1;
        if held_back {
            self.flight.push_held_back(item);
        } else if self.config.jitter.reorder {
            self.flight.push_free(item);
        } else {
            self.flight.push_in_order(item);
        }
    }
}

#[derive(Debug)]
struct Serving<P> {
    finish: Time,
    item: Queued<P>,
}

fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
