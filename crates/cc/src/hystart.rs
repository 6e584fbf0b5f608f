use crate::Ack;
use crate::round::Rounds;
use units::{Span, Time};

/// HyStart++ (RFC 9406): when the round-trip time grows, the window grows more slowly for up to
/// five rounds; slow start then ends, unless the round-trip time has fallen again.
#[derive(Debug, Clone, Default)]
pub(crate) struct HyStartPlusPlus {
    rounds: Rounds,
    last_round: Option<Span>,
    this_round: Option<Span>,
    samples: u32,
    /// In conservative slow start: the round-trip time at its beginning, and the number of rounds
    /// since then.
    conservative: Option<(Span, u32)>,
}

/// HyStart as Ha and Rhee (2008) describe it and Linux implements it: slow start ends when an ACK
/// train lasts half a round trip, or when the round-trip time grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClassicHyStart {
    /// Whether the host paces its packets, over up to half of a round trip. Slow start then ends
    /// only with a train of twice the length.
    paced: bool,
    rounds: Rounds,
    round_began: Time,
    last_ack: Time,
    least: Option<Span>,
    samples: u32,
}

/// The growth in slow start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Growth {
    Full,
    /// The window grows by a fraction of the full growth.
    Share {
        divisor: f64,
    },
    /// Slow start has ended.
    Ends,
}

impl HyStartPlusPlus {
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
                // The RTT fell below the baseline, so no queue had caused its growth.
                Some((baseline, _)) if now < baseline => self.conservative = None,
                Some(_) => {}
                None if now >= last + threshold(last) => self.conservative = Some((now, 0)),
                None => {}
            }
        }
        match self.conservative {
            Some(_) => Growth::Share { divisor: CONSERVATIVE_DIVISOR },
            None => Growth::Full,
        }
    }
}

impl ClassicHyStart {
    pub(crate) fn paced() -> Self {
        Self { paced: true, ..Self::default() }
    }

    pub(crate) fn restarted(&self) -> Self {
        Self { paced: self.paced, ..Self::default() }
    }

    /// Returns the growth that this ACK allows. `window` is in segments.
    pub(crate) fn on_ack(&mut self, ack: &Ack, window: u64) -> Growth {
        if self.rounds.on_ack(ack) {
            (self.round_began, self.last_ack) = (ack.now, ack.now);
            self.least = None;
            self.samples = 0;
        }
        let (Some(rtt), Some(min)) = (ack.rtt, ack.min_rtt) else { return Growth::Full };
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        let slower =
            self.samples >= SAMPLES && self.least.is_some_and(|least| least > min + threshold(min));
        self.samples += 1;
        if window < LEAST_WINDOW {
            return Growth::Full;
        }
        let mut train = false;
        if ack.now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = ack.now;
            let long = if self.paced { min } else { min / 2 };
            train = ack.now.since(self.round_began) > long;
        }
        if train || slower { Growth::Ends } else { Growth::Full }
    }
}

fn threshold(last: Span) -> Span {
    Span::from_nanos((last.nanos() / 8).clamp(LEAST.nanos(), MOST.nanos()))
}

const CONSERVATIVE_DIVISOR: f64 = 4.0;
const SAMPLES: u32 = 8;
const CONSERVATIVE_ROUNDS: u32 = 5;
const LEAST: Span = Span::from_millis(4);
const MOST: Span = Span::from_millis(16);
/// The smallest window, in segments, that HyStart judges.
const LEAST_WINDOW: u64 = 16;
/// Maximum gap between the ACKs of a train.
const TRAIN_GAP: Span = Span::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    /// RFC 9406, 4.2: an eighth of the round trip, at least 4 ms and at most 16 ms.
    #[test]
    fn the_hystart_threshold_is_an_eighth_of_the_rtt_within_bounds() {
        let of = |rtt| threshold(Span::from_millis(rtt));
        assert_eq!(of(10), Span::from_millis(4));
        assert_eq!(of(40), Span::from_millis(5));
        assert_eq!(of(400), Span::from_millis(16));
    }

    fn round(round: u64, index: u64, rtt: Span) -> Ack {
        let began = 1_000_000 * round;
        Ack {
            now: Time::ZERO + Span::from_millis(100 * round + index * 3),
            rtt: Some(rtt),
            min_rtt: Some(Span::from_millis(40)),
            acked: Bytes::new(1000),
            lost: Bytes::new(0),
            marked: Bytes::new(0),
            inflight: Bytes::new(10_000),
            delivered: Bytes::new(began + index * 1000),
            prior_delivered: Bytes::new(if index == 0 { began } else { began - 1 }),
            sent_inflight: Bytes::new(10_000),
            lost_since: Bytes::new(0),
            interval: rtt,
            app_limited: false,
            window_limited: true,
            in_recovery: false,
        }
    }

    #[test]
    fn slow_start_slows_down_after_eight_slow_samples_and_ends_after_five_rounds() {
        let mut hystart = HyStartPlusPlus::default();
        let mut of =
            |number, index, ms| hystart.on_ack(&round(number, index, Span::from_millis(ms)));
        for index in 0..12 {
            assert_eq!(of(1, index, 40), Growth::Full);
        }
        for index in 0..7 {
            assert_eq!(of(2, index, 45), Growth::Full);
        }
        assert_eq!(of(2, 7, 45), Growth::Share { divisor: 4.0 });
        for number in 3..7 {
            assert_eq!(of(number, 0, 46), Growth::Share { divisor: 4.0 });
        }
        assert_eq!(of(7, 0, 46), Growth::Ends);
    }

    #[test]
    fn a_falling_rtt_resumes_slow_start() {
        let mut hystart = HyStartPlusPlus::default();
        let mut of =
            |number, index, ms| hystart.on_ack(&round(number, index, Span::from_millis(ms)));
        (0..12).for_each(|index| _ = of(1, index, 40));
        (0..12).for_each(|index| _ = of(2, index, 46));
        let last = (0..12).map(|index| of(3, index, 41)).last();
        assert_eq!(last, Some(Growth::Full));
    }

    #[test]
    fn a_long_ack_train_ends_classic_slow_start() {
        let mut hystart = ClassicHyStart::default();
        let rtt = Span::from_millis(40);
        let mut ends = None;
        for index in 0..60 {
            let mut ack = round(1, index, rtt);
            ack.now = Time::ZERO + Span::from_millis(100 + index);
            if hystart.on_ack(&ack, 100) == Growth::Ends && ends.is_none() {
                ends = Some(index);
            }
        }
        // The train lasts 20 ms, half of the path's round trip.
        assert_eq!(ends, Some(21));
        assert_eq!(hystart.on_ack(&round(1, 59, rtt), 15), Growth::Full, "too small a window");
    }

    /// The path's round trip is 40 ms, and an eighth more is 45 ms.
    #[test]
    fn a_ninth_sample_above_the_threshold_ends_classic_slow_start() {
        let ends = |ms, window| {
            let mut hystart = ClassicHyStart::default();
            (0..20).find(|index| {
                let ack = round(1, *index, Span::from_millis(ms));
                hystart.on_ack(&ack, window) == Growth::Ends
            })
        };
        assert_eq!(ends(45, 100), None);
        assert_eq!(ends(46, 100), Some(8));
        assert_eq!(ends(60, 100), Some(8));
        assert_eq!((ends(60, 15), ends(60, 16)), (None, Some(8)), "the least window");
    }
}
