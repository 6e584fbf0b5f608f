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
            self.count += 1;
            self.restart(ack.delivered);
        }
        begins
    }

    /// The round under way begins again: it is over when something is acknowledged that is sent from
    /// now on.
    pub(crate) fn restart(&mut self, delivered: Bytes) {
        self.ends_at = delivered;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
