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
