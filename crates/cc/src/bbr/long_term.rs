use crate::Ack;
use units::{Span, Time};

/// Detects a policer by two intervals with much loss and the same throughput. After a detection the
/// flow sends at this throughput for 48 rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct LongTerm {
    sampling: bool,
    stretch: Stretch,
    /// Bytes a second of the previous interval.
    previous: u64,
    uses: bool,
    rounds: u32,
    delivered: u64,
    lost: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    since: Option<Time>,
    delivered: u64,
    lost: u64,
}

impl LongTerm {
    pub(super) fn bandwidth(&self) -> Option<u64> {
        self.uses.then_some(self.previous)
    }

    pub(super) fn reset(&mut self) {
        self.previous = 0;
        self.uses = false;
        self.sampling = false;
        self.begin(None);
    }

    /// Begins an interval at a timeout, which is a loss that no ACK reports.
    pub(super) fn on_timeout(&mut self, now: Time) {
        if self.sampling && self.stretch.since.is_none() {
            self.stretch.since = Some(now);
        }
    }

    pub(super) fn on_ack(&mut self, ack: &Ack, round: bool, limited: bool, cycling: bool) {
        self.delivered = ack.delivered.count();
        self.lost += ack.lost.count();
        if self.uses {
            if cycling && round {
                self.rounds += 1;
                if self.rounds >= MOST_USED {
                    self.reset();
                }
            }
            return;
        }
        if !self.sampling {
            if ack.lost.count() == 0 {
                return;
            }
            self.begin(Some(ack.now));
            self.sampling = true;
        }
        if limited {
            self.reset();
            return;
        }
        if round {
            self.rounds += 1;
        }
        if self.rounds < LEAST_ROUNDS {
            return;
        }
        if self.rounds > 4 * LEAST_ROUNDS {
            self.reset();
            return;
        }
        if ack.lost.count() == 0 {
            return;
        }
        self.end_stretch(ack.now);
    }

    fn end_stretch(&mut self, now: Time) {
        let lost = self.lost - self.stretch.lost;
        let delivered = self.delivered - self.stretch.delivered;
        if delivered == 0 || lost * 256 < MUCH_LOSS * delivered {
            return;
        }
        let elapsed = self.stretch.since.map_or(Span::ZERO, |since| now.since(since));
        if elapsed < Span::from_millis(1) {
            return;
        }
        let rate = u128::from(delivered) * 1_000_000_000 / u128::from(elapsed.nanos());
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let alike = |a: u64, b: u64| {
            let difference = a.abs_diff(b);
            difference <= b / 8 || difference <= ALIKE_BYTES
        };
        if self.previous > 0 && alike(rate, self.previous) {
            self.previous = rate.midpoint(self.previous);
            self.uses = true;
            self.rounds = 0;
            return;
        }
        self.previous = rate;
        self.begin(Some(now));
    }

    fn begin(&mut self, now: Option<Time>) {
        self.stretch = Stretch { since: now, delivered: self.delivered, lost: self.lost };
        self.rounds = 0;
    }
}

const LEAST_ROUNDS: u32 = 4;
const MOST_USED: u32 = 48;
/// The share of lost bytes that suggests a policer: a fifth, in units of 1/256.
const MUCH_LOSS: u64 = 50;
/// The largest difference of throughputs that count as the same: 4 kbit/s, in bytes a second.
const ALIKE_BYTES: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ack;
    use units::Bytes;

    /// Reports `rounds` rounds of 10 ms, each with `delivered` bytes that arrive and `lost` bytes
    /// that do not.
    fn rounds(detector: &mut LongTerm, rounds: u64, delivered: u64, lost: u64) -> Option<u64> {
        let round = Span::from_millis(10);
        for _ in 0..rounds {
            let passed = u64::from(detector.rounds + 1) * round.nanos();
            let since = detector.stretch.since.unwrap_or(Time::ZERO);
            let mut ack = ack(since + Span::from_nanos(passed), round);
            ack.delivered = Bytes::new(detector.delivered + delivered);
            ack.lost = Bytes::new(lost);
            detector.on_ack(&ack, true, false, true);
        }
        detector.bandwidth()
    }

    /// Returns a detector that is sampling, in an interval that began with the last delivered byte.
    fn sampling() -> LongTerm {
        let mut detector = LongTerm { sampling: true, ..LongTerm::default() };
        detector.begin(Some(Time::ZERO));
        detector
    }

    #[test]
    fn two_intervals_with_much_loss_and_the_same_rate_show_a_policer() {
        let mut detector = sampling();
        assert_eq!(rounds(&mut detector, 4, 10_000, 2_500), None);
        assert_eq!(rounds(&mut detector, 3, 11_000, 2_500), None);
        // 40,000 and 44,000 bytes in 40 ms each.
        assert_eq!(rounds(&mut detector, 1, 11_000, 2_500), Some(1_050_000));
        assert_eq!(rounds(&mut detector, 47, 10_000, 0), Some(1_050_000));
        assert_eq!(rounds(&mut detector, 1, 10_000, 0), None, "after 48 rounds");
    }

    #[test]
    fn intervals_with_little_loss_or_with_other_rates_show_no_policer() {
        // The path loses 10 %; the detector reacts to a fifth of the delivered bytes.
        assert_eq!(rounds(&mut sampling(), 16, 10_000, 1_000), None);
        let mut detector = sampling();
        for delivered in [10_000, 12_000, 10_000, 12_000] {
            assert_eq!(rounds(&mut detector, 4, delivered, delivered / 4), None);
        }
        // Between slow intervals a difference of up to 500 bytes a second does not count.
        let mut detector = sampling();
        rounds(&mut detector, 4, 10, 3);
        assert_eq!(rounds(&mut detector, 4, 15, 4), Some(1_250));
    }

    #[test]
    fn an_interval_without_loss_for_seventeen_rounds_ends_the_sampling() {
        let mut detector = sampling();
        rounds(&mut detector, 16, 10_000, 0);
        assert!(detector.sampling);
        rounds(&mut detector, 1, 10_000, 0);
        assert!(!detector.sampling);
    }
}
