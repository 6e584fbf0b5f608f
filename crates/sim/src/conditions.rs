//! Effects at a link's ends, outside the link itself: a policer before the link, and a periodic
//! release of packets after the link.

use crate::packet::Packet;
use link::{Count, Link, LinkConfig, LinkError};
use std::collections::VecDeque;
use units::{Bytes, Rate, Span, Time};

/// The effects at a link's ends. The default has no effects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conditions {
    /// A policer before the link's queue; `None` lets all packets through.
    pub policer: Option<Policer>,
    /// The link releases delivered packets together, at multiples of this time, like the grants of
    /// a cable modem or the aggregates of Wi-Fi.
    pub release_every: Option<Span>,
}

/// A token bucket that drops packets for which it has too few tokens, and delays no packet (Flach
/// et al., "An Internet-Wide Analysis of Traffic Policing", SIGCOMM 2016). The bucket is full at
/// the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policer {
    /// The rate at which tokens arrive, and so the highest long-term rate of the packets that pass.
    pub rate: Rate,
    /// The size of the bucket: the largest burst that passes at any rate.
    pub burst: Bytes,
}

/// A link with the effects at its ends.
#[derive(Debug)]
pub(crate) struct Conditioned {
    pub(crate) link: Link<Packet>,
    bucket: Option<Bucket>,
    release_every: Option<Span>,
    /// Packets that the link has delivered, and their release times.
    held: VecDeque<(Time, Packet)>,
    pub(crate) policed: Count,
}

#[derive(Debug)]
struct Bucket {
    policer: Policer,
    /// The tokens in bits times nanoseconds per second, so that no rounding is needed.
    level: u128,
    at: Time,
}

impl Conditions {
    pub(crate) fn are_none(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn validate(&self) -> Result<(), LinkError> {
        let refuse = |setting, problem: &str| {
            Err(LinkError::Invalid { setting, problem: problem.to_owned() })
        };
        match (self.policer, self.release_every) {
            (Some(policer), _) if policer.rate.bits_per_second() == 0 => {
                refuse("policer", "lets nothing through: give a rate above 0")
            }
            (Some(policer), _) if policer.burst == Bytes::ZERO => {
                refuse("policer", "lets nothing through: give a burst above 0")
            }
            (_, Some(Span::ZERO)) => refuse("release", "is zero: give a time above 0"),
            _ => Ok(()),
        }
    }
}

impl Conditioned {
    pub(crate) fn new(config: &LinkConfig, conditions: &Conditions) -> Result<Self, LinkError> {
        conditions.validate()?;
        Ok(Self {
            link: Link::new(config, Time::ZERO)?,
            bucket: conditions.policer.map(Bucket::full),
            release_every: conditions.release_every,
            held: VecDeque::new(),
            policed: Count::default(),
        })
    }

    pub(crate) fn arrive(&mut self, now: Time, packet: Packet) {
        let size = Bytes::new(u64::from(packet.size));
        if let Some(bucket) = &mut self.bucket
            && !bucket.takes(now, size)
        {
            self.policed.add(size);
            return;
        }
        self.link.arrive(now, packet);
    }

    pub(crate) fn due(&self) -> Option<Time> {
        let held = self.held.front().map(|(at, _)| *at);
        match (self.link.next_delivery(), held) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(crate) fn deliver(&mut self, now: Time) -> Option<Packet> {
        let Some(every) = self.release_every else {
            return self.link.deliver(now).map(|delivery| delivery.packet);
        };
        while let Some(delivery) = self.link.deliver(now) {
            let ticks = delivery.at.nanos().div_ceil(every.nanos());
            let at = Time::from_nanos(ticks.saturating_mul(every.nanos()));
            self.held.push_back((at, delivery.packet));
        }
        self.held.front().filter(|(at, _)| *at <= now)?;
        self.held.pop_front().map(|(_, packet)| packet)
    }

    pub(crate) fn for_each(&self, see: &mut dyn FnMut(&Packet)) {
        self.link.for_each(&mut *see);
        self.held.iter().for_each(|(_, packet)| see(packet));
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }
}

impl Bucket {
    fn full(policer: Policer) -> Self {
        let level = u128::from(policer.burst.count()) * BIT_NANOS_A_BYTE;
        Self { policer, level, at: Time::ZERO }
    }

    fn takes(&mut self, now: Time, size: Bytes) -> bool {
        let most = u128::from(self.policer.burst.count()) * BIT_NANOS_A_BYTE;
        let passed = u128::from(now.since(self.at).nanos());
        let more = passed * u128::from(self.policer.rate.bits_per_second());
        self.level = (self.level + more).min(most);
        self.at = now;
        let needed = u128::from(size.count()) * BIT_NANOS_A_BYTE;
        let enough = self.level >= needed;
        if enough {
            self.level -= needed;
        }
        enough
    }
}

const BIT_NANOS_A_BYTE: u128 = 8 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policer_lets_through_its_burst_and_then_its_rate() {
        let policer = Policer { rate: Rate::from_mbit(8), burst: Bytes::new(10_000) };
        let mut bucket = Bucket::full(policer);
        // The policer's 1 MB/s are a thousand bytes each millisecond; twice as much arrives.
        let passed = (0..2000_u64)
            .filter(|n| bucket.takes(Time::from_nanos(n * 500_000), Bytes::new(1000)))
            .count();
        assert!((1009..=1011).contains(&passed), "{passed}");
    }

    #[test]
    fn conditions_without_throughput_are_refused() {
        let policer = |mbit, burst| Conditions {
            policer: Some(Policer { rate: Rate::from_mbit(mbit), burst: Bytes::new(burst) }),
            ..Conditions::default()
        };
        assert!(policer(1, 1).validate().is_ok());
        assert!(policer(0, 1).validate().unwrap_err().to_string().contains("a rate above 0"));
        assert!(policer(1, 0).validate().unwrap_err().to_string().contains("a burst above 0"));
        let never = Conditions { release_every: Some(Span::ZERO), ..Conditions::default() };
        assert!(never.validate().is_err());
    }
}
