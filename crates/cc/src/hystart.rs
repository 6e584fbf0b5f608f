use crate::Ack;
use crate::round::Rounds;
use units::Span;

/// HyStart++ (RFC 9406): leaves slow start when the round-trip time grows, after five slower rounds
/// that may prove it wrong.
#[derive(Debug, Clone)]
pub(crate) struct HyStart {
    rounds: Rounds,
    last_round: Option<Span>,
    this_round: Option<Span>,
    samples: u32,
    /// In conservative slow start: the round-trip time it began at, and the rounds spent there.
    conservative: Option<(Span, u32)>,
}

/// How slow start goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    Full,
    /// A quarter of it.
    Conservative,
    /// Slow start is over.
    Ends,
}

impl HyStart {
    pub(crate) fn new() -> Self {
        Self {
            rounds: Rounds::default(),
            last_round: None,
            this_round: None,
            samples: 0,
            conservative: None,
        }
    }

    pub(crate) fn on_ack(&mut self, ack: &Ack) -> Growth {
        if self.rounds.on_ack(ack) {
            self.last_round = self.this_round.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                if *rounds >= CONSERVATIVE_ROUNDS {
                    return Growth::Ends;
                }
            }
        }
        if let Some(rtt) = ack.rtt {
            self.this_round = Some(self.this_round.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        if self.samples >= SAMPLES
            && let (Some(now), Some(last)) = (self.this_round, self.last_round)
        {
            match self.conservative {
                // It fell below where it began: the growth was no queue.
                Some((baseline, _)) if now < baseline => self.conservative = None,
                Some(_) => {}
                None if now >= last + threshold(last) => self.conservative = Some((now, 0)),
                None => {}
            }
        }
        if self.conservative.is_some() { Growth::Conservative } else { Growth::Full }
    }
}

fn threshold(last: Span) -> Span {
    Span::from_nanos((last.nanos() / 8).clamp(LEAST.nanos(), MOST.nanos()))
}

pub(crate) const CONSERVATIVE_DIVISOR: u64 = 4;
const SAMPLES: u32 = 8;
const CONSERVATIVE_ROUNDS: u32 = 5;
const LEAST: Span = Span::from_millis(4);
const MOST: Span = Span::from_millis(16);
