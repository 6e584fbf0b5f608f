use crate::conditions::{Conditioned, Conditions};
use crate::packet::Packet;
use link::{Capacity, Count, Link, LinkConfig, LinkError, LinkStats};
use std::collections::VecDeque;
use units::{Bytes, Span, Time};

/// A link of a world. A link that has only a delay needs no model and no statistics.
#[derive(Debug)]
pub(crate) enum Line {
    Wire(Wire),
    Modelled(Box<Link<Packet>>),
    Conditioned(Box<Conditioned>),
}

#[derive(Debug)]
pub(crate) struct Wire {
    delay: Span,
    travelling: VecDeque<(Time, Packet)>,
    delivered: u64,
}

impl Line {
    /// Creates the link, as a wire if possible. `changes`: whether the link's configuration will
    /// change later.
    pub(crate) fn new(
        config: &LinkConfig,
        conditions: &Conditions,
        changes: bool,
        seed: u64,
    ) -> Result<Self, LinkError> {
        config.validate()?;
        let seeded = || LinkConfig { seed: link::mix(seed) ^ config.seed, ..config.clone() };
        if !conditions.are_none() {
            let line = Conditioned::new(&seeded(), conditions)?;
            return Ok(Self::Conditioned(Box::new(line)));
        }
        let bare = LinkConfig {
            delay: config.delay,
            queue: config.queue,
            overhead: config.overhead,
            seed: config.seed,
            ..LinkConfig::default()
        };
        if config.rate == Capacity::Unlimited && *config == bare && !changes {
            let delay = config.delay;
            return Ok(Self::Wire(Wire { delay, travelling: VecDeque::new(), delivered: 0 }));
        }
        Ok(Self::Modelled(Box::new(Link::new(&seeded(), Time::ZERO)?)))
    }

    #[inline]
    pub(crate) fn arrive(&mut self, now: Time, packet: Packet) {
        match self {
            Self::Wire(wire) => wire.travelling.push_back((now + wire.delay, packet)),
            Self::Modelled(link) => link.arrive(now, packet),
            Self::Conditioned(line) => line.arrive(now, packet),
        }
    }

    /// Returns the time of the next call of [`deliver`](Self::deliver).
    #[inline]
    pub(crate) fn due(&self) -> Option<Time> {
        match self {
            Self::Wire(wire) => wire.travelling.front().map(|(at, _)| *at),
            Self::Modelled(link) => link.next_delivery(),
            Self::Conditioned(line) => line.due(),
        }
    }

    #[inline]
    pub(crate) fn deliver(&mut self, now: Time) -> Option<Packet> {
        match self {
            Self::Wire(wire) => {
                if wire.travelling.front()?.0 > now {
                    return None;
                }
                wire.delivered += 1;
                wire.travelling.pop_front().map(|(_, packet)| packet)
            }
            Self::Modelled(link) => link.deliver(now).map(|delivery| delivery.packet),
            Self::Conditioned(line) => line.deliver(now),
        }
    }

    /// Changes the link's configuration; a wire does not change.
    pub(crate) fn reconfigure(&mut self, now: Time, config: &LinkConfig) -> Result<(), LinkError> {
        match self {
            Self::Wire(_) => Ok(()),
            Self::Modelled(link) => link.reconfigure(now, config),
            Self::Conditioned(line) => line.link.reconfigure(now, config),
        }
    }

    fn link(&self) -> Option<&Link<Packet>> {
        match self {
            Self::Wire(_) => None,
            Self::Modelled(link) => Some(link),
            Self::Conditioned(line) => Some(&line.link),
        }
    }

    /// Returns the packets that a policer before the link dropped.
    pub(crate) fn policed(&self) -> Count {
        match self {
            Self::Wire(_) | Self::Modelled(_) => Count::default(),
            Self::Conditioned(line) => line.policed,
        }
    }

    pub(crate) fn stats(&self) -> Option<&LinkStats> {
        self.link().map(Link::stats)
    }

    pub(crate) fn queued(&self) -> Bytes {
        self.link().map_or(Bytes::ZERO, |link| link.queued().1)
    }

    pub(crate) fn delivered(&self) -> u64 {
        match self {
            Self::Wire(wire) => wire.delivered,
            Self::Modelled(link) => link.stats().delivered.packets,
            Self::Conditioned(line) => line.link.stats().delivered.packets,
        }
    }

    /// Calls `see` for each packet in the link.
    pub(crate) fn for_each(&self, see: &mut dyn FnMut(&Packet)) {
        match self {
            Self::Wire(wire) => wire.travelling.iter().for_each(|(_, packet)| see(packet)),
            Self::Modelled(link) => link.for_each(see),
            Self::Conditioned(line) => line.for_each(see),
        }
    }

    /// Returns the number of packets in the link.
    pub(crate) fn inside(&self) -> u64 {
        match self {
            Self::Wire(wire) => wire.travelling.len() as u64,
            Self::Modelled(link) => (link.queued().0 + link.in_flight()) as u64,
            Self::Conditioned(line) => {
                (line.link.queued().0 + line.link.in_flight() + line.held()) as u64
            }
        }
    }
}
