use crate::packet::Packet;
use link::{Capacity, Link, LinkConfig, LinkError, LinkStats};
use std::collections::VecDeque;
use units::{Bytes, Span, Time};

/// A link as the world drives it. What does nothing but delay needs no model and no statistics.
#[derive(Debug)]
pub(crate) enum Line {
    Wire(Wire),
    Modelled(Box<Link<Packet>>),
}

#[derive(Debug)]
pub(crate) struct Wire {
    delay: Span,
    travelling: VecDeque<(Time, Packet)>,
    delivered: u64,
}

impl Line {
    pub(crate) fn new(config: &LinkConfig, seed: u64) -> Result<Self, LinkError> {
        config.validate()?;
        let bare = LinkConfig {
            delay: config.delay,
            queue: config.queue,
            overhead: config.overhead,
            seed: config.seed,
            ..LinkConfig::default()
        };
        if config.rate == Capacity::Unlimited && *config == bare {
            let delay = config.delay;
            return Ok(Self::Wire(Wire { delay, travelling: VecDeque::new(), delivered: 0 }));
        }
        let config = LinkConfig { seed: link::mix(seed) ^ config.seed, ..config.clone() };
        Ok(Self::Modelled(Box::new(Link::new(&config, Time::ZERO)?)))
    }

    #[inline]
    pub(crate) fn arrive(&mut self, now: Time, packet: Packet) {
        match self {
            Self::Wire(wire) => wire.travelling.push_back((now + wire.delay, packet)),
            Self::Modelled(link) => link.arrive(now, packet),
        }
    }

    /// When [`deliver`](Self::deliver) is to be called next.
    #[inline]
    pub(crate) fn due(&self) -> Option<Time> {
        match self {
            Self::Wire(wire) => wire.travelling.front().map(|(at, _)| *at),
            Self::Modelled(link) => link.next_delivery(),
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
        }
    }

    pub(crate) fn stats(&self) -> Option<&LinkStats> {
        match self {
            Self::Wire(_) => None,
            Self::Modelled(link) => Some(link.stats()),
        }
    }

    pub(crate) fn queued(&self) -> Bytes {
        match self {
            Self::Wire(_) => Bytes::ZERO,
            Self::Modelled(link) => link.queued().1,
        }
    }

    pub(crate) fn delivered(&self) -> u64 {
        match self {
            Self::Wire(wire) => wire.delivered,
            Self::Modelled(link) => link.stats().delivered.packets,
        }
    }

    /// Packets between its ends.
    pub(crate) fn inside(&self) -> u64 {
        match self {
            Self::Wire(wire) => wire.travelling.len() as u64,
            Self::Modelled(link) => (link.queued().0 + link.in_flight()) as u64,
        }
    }
}
