use crate::Ack;
use units::Bytes;

/// Counts round trips by data: one is over when a packet is acknowledged that was sent after it began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rounds {
    ends_at: Bytes,
    count: u64,
}

impl Rounds {
    /// Takes an acknowledgement; true if a round began with it.
    pub(crate) fn on_ack(&mut self, ack: &Ack) -> bool {
        let begins = ack.prior_delivered >= self.ends_at;
        if begins {
            self.begin(ack.delivered);
        }
        begins
    }

    /// A round begins now, whatever was under way.
    pub(crate) fn begin(&mut self, delivered: Bytes) {
        self.ends_at = delivered;
        self.count += 1;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
