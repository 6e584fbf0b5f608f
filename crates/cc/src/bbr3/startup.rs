use super::bounds::is_too_high;
use crate::Ack;
use crate::gain::{ONE, scaled};

/// Detects that more bytes in flight bring no more bandwidth.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FullPipe {
    bandwidth: u64,
    rounds: u32,
    /// Whether the pipe was full since the last restart.
    pub(super) now: bool,
    /// Whether the pipe was ever full.
    pub(super) reached: bool,
}

impl FullPipe {
    pub(super) fn restart(&mut self, bandwidth: u64) {
        *self = Self { bandwidth, reached: self.reached, ..Self::default() };
    }

    pub(super) fn on_ack(&mut self, ack: &Ack, round: bool, rate: u64) {
        if self.now || ack.app_limited {
            return;
        }
        if rate >= scaled(self.bandwidth, ONE * 5 / 4) {
            self.restart(rate);
            return;
        }
        if round {
            self.rounds += 1;
            self.now = self.rounds >= ROUNDS;
            self.reached |= self.now;
        }
    }

    /// Whether this ACK ends start-up because a complete round of recovery lost more than 2 % of
    /// its bytes, and at least six ACKs reported a loss.
    pub(super) fn lost_too_much(&mut self, ack: &Ack, events: Option<u32>) -> bool {
        let ends = !self.reached && events.is_some_and(|count| count >= LOSSES) && is_too_high(ack);
        self.reached |= ends;
        ends
    }
}

const ROUNDS: u32 = 3;
const LOSSES: u32 = 6;
