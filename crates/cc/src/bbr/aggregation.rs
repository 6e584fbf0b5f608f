use crate::Ack;
use crate::gain::{ONE, scaled};
use units::{Span, Time};

/// The bytes that arrive at once beyond the model's estimate, because acknowledgements arrive in
/// clusters (Wi-Fi, cable modems, receive offload): the largest excess of the last five to ten
/// rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aggregation {
    since: Time,
    acked: u64,
    excess: [u64; 2],
    rounds: u32,
}

impl Aggregation {
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, acked: 0, excess: [0; 2], rounds: 0 }
    }

    pub(super) fn restart(&mut self, now: Time) {
        self.since = now;
        self.acked = 0;
    }

    pub(super) fn on_ack(&mut self, ack: &Ack, round: bool, bandwidth: u64, cwnd: u64) {
        if ack.acked.count() == 0 || ack.interval == Span::ZERO {
            return;
        }
        if round {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.excess = [self.excess[1], 0];
            }
        }
        let expected = in_time(bandwidth, ack.now.since(self.since));
        if self.acked <= expected || self.acked + ack.acked.count() >= MOST_COUNTED {
            self.restart(ack.now);
        }
        self.acked += ack.acked.count();
        let expected = in_time(bandwidth, ack.now.since(self.since));
        let excess = self.acked.saturating_sub(expected).min(cwnd);
        self.excess[1] = self.excess[1].max(excess);
    }

    /// Returns the bytes to add to the window: at most those that the model delivers in 100 ms.
    pub(super) fn allowance(&self, bandwidth: u64, full: bool) -> u64 {
        if !full {
            return 0;
        }
        let most = in_time(bandwidth, Span::from_millis(100));
        scaled(self.excess[0].max(self.excess[1]), ONE).min(most)
    }
}

fn in_time(bandwidth: u64, time: Span) -> u64 {
    let bytes = u128::from(bandwidth) * u128::from(time.nanos()) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

const ROUNDS: u32 = 5;
const MOST_COUNTED: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ack;
    use units::Bytes;

    const BANDWIDTH: u64 = 1_000_000;

    /// Acknowledges `acked` bytes at once, a second after the previous ACK of this test.
    fn burst(aggregation: &mut Aggregation, acked: u64) {
        let ack = ack(aggregation.since + Span::from_secs(1), Span::from_millis(40));
        aggregation.on_ack(&Ack { acked: Bytes::new(acked), ..ack }, true, BANDWIDTH, 80_000);
    }

    #[test]
    fn the_window_has_room_for_the_largest_burst_of_five_to_ten_rounds() {
        let mut aggregation = Aggregation::new(Time::ZERO);
        burst(&mut aggregation, 50_000);
        for round in 2..10 {
            burst(&mut aggregation, 1_000);
            assert_eq!(aggregation.allowance(BANDWIDTH, true), 50_000, "round {round}");
        }
        burst(&mut aggregation, 1_000);
        assert_eq!(aggregation.allowance(BANDWIDTH, true), 1_000);
    }

    #[test]
    fn the_allowance_for_bursts_is_at_most_a_window_and_100_ms_of_data() {
        let mut aggregation = Aggregation::new(Time::ZERO);
        burst(&mut aggregation, 200_000);
        assert_eq!(aggregation.allowance(BANDWIDTH, true), 80_000);
        assert_eq!(aggregation.allowance(BANDWIDTH / 2, true), 50_000);
        assert_eq!(aggregation.allowance(BANDWIDTH, false), 0);
    }

    /// The second ACK arrives 10 ms after the first, in which the model delivers 10,000 bytes.
    #[test]
    fn acks_faster_than_the_model_add_up_to_one_burst() {
        let mut aggregation = Aggregation::new(Time::ZERO);
        burst(&mut aggregation, 20_000);
        let again = ack(aggregation.since + Span::from_millis(10), Span::from_millis(40));
        let again = Ack { acked: Bytes::new(15_000), ..again };
        aggregation.on_ack(&again, false, BANDWIDTH, 80_000);
        assert_eq!(aggregation.allowance(BANDWIDTH, true), 25_000);
        aggregation.on_ack(&Ack { acked: Bytes::ZERO, ..again }, false, BANDWIDTH, 80_000);
        aggregation.on_ack(&Ack { interval: Span::ZERO, ..again }, false, BANDWIDTH, 80_000);
        assert_eq!(aggregation.allowance(BANDWIDTH, true), 25_000);
    }
}
