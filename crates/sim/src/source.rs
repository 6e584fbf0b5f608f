use crate::random::exponential;
use crate::{Demand, Spacing};
use link::Stream;
use units::{Bytes, Rate, Span, Time};

/// An application: the times and sizes of its writes.
#[derive(Debug)]
pub(crate) struct Source {
    plan: Plan,
    random: Stream,
}

#[derive(Debug)]
enum Plan {
    Once,
    /// Writes once, when the world asks for it.
    OnceTold {
        written: bool,
    },
    Every {
        size: u64,
        every: Span,
    },
    OnOff {
        rate: Rate,
        piece: u64,
        on: Span,
        off: Span,
        random: bool,
        until: Time,
    },
    Poisson {
        size: u64,
        mean: Span,
    },
}

/// A write, and the time of the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: u64,
    pub(crate) next: Option<Time>,
    /// Whether no write follows.
    pub(crate) last: bool,
}

impl Source {
    pub(crate) fn of_demand(demand: Demand, piece: Bytes, seed: u64) -> Self {
        let plan = match demand {
            Demand::Bulk | Demand::Size(_) => Plan::Once,
            Demand::BulkTogether => Plan::OnceTold { written: false },
            Demand::Pieces { size, every } => Plan::Every { size: size.count(), every },
            Demand::OnOff { rate, on, off, random } => {
                Plan::OnOff { rate, piece: piece.count(), on, off, random, until: Time::ZERO }
            }
        };
        Self { plan, random: Stream::new(seed, "source") }
    }

    pub(crate) fn of_datagrams(rate: Rate, size: Bytes, spacing: Spacing, seed: u64) -> Self {
        let (size, gap) = (size.count(), rate.time_for(size));
        let plan = match spacing {
            Spacing::Even => Plan::Every { size, every: gap },
            Spacing::Poisson => Plan::Poisson { size, mean: gap },
        };
        Self { plan, random: Stream::new(seed, "source") }
    }

    pub(crate) fn first(&mut self, now: Time, demand: Option<Demand>) -> Piece {
        match (&mut self.plan, demand) {
            (Plan::Once, Some(Demand::Size(size))) => {
                Piece { bytes: size.count(), next: None, last: true }
            }
            (Plan::Once, _) => Piece { bytes: ENDLESS, next: None, last: false },
            (Plan::OnceTold { .. }, _) => Piece { bytes: 0, next: None, last: false },
            (Plan::OnOff { on, random, until, .. }, _) => {
                *until = now + lasting(*on, *random, &mut self.random);
                self.next(now)
            }
            (Plan::Poisson { mean, .. }, _) => {
                let next = Some(now + exponential(&mut self.random, *mean));
                Piece { bytes: 0, next, last: false }
            }
            (Plan::Every { .. }, _) => self.next(now),
        }
    }

    pub(crate) fn next(&mut self, now: Time) -> Piece {
        match &mut self.plan {
            Plan::Once => Piece { bytes: 0, next: None, last: false },
            Plan::OnceTold { written } => {
                let bytes = if *written { 0 } else { ENDLESS };
                *written = true;
                Piece { bytes, next: None, last: false }
            }
            Plan::Every { size, every } => {
                Piece { bytes: *size, next: Some(now + *every), last: false }
            }
            Plan::Poisson { size, mean } => {
                let next = Some(now + exponential(&mut self.random, *mean));
                Piece { bytes: *size, next, last: false }
            }
            Plan::OnOff { rate, piece, on, off, random, until } => {
                let mut next = now + rate.time_for(Bytes::new(*piece));
                if next > *until {
                    next = next.max(*until + lasting(*off, *random, &mut self.random));
                    *until = next + lasting(*on, *random, &mut self.random);
                }
                Piece { bytes: *piece, next: Some(next), last: false }
            }
        }
    }
}

fn lasting(mean: Span, random: bool, stream: &mut Stream) -> Span {
    if random { exponential(stream, mean) } else { mean }
}

/// The size in bytes of an endless source: more than any world carries.
const ENDLESS: u64 = 1 << 62;
