use crate::Ack;
use units::Bytes;

/// Counts round trips by data: a round ends with the ACK of a packet sent after its beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rounds {
    ends_at: Bytes,
    count: u64,
}

impl Rounds {
    /// Takes an ACK. Returns true if a round begins with this ACK.
    pub(crate) fn on_ack(&mut self, ack: &Ack) -> bool {
        let begins = ack.prior_delivered >= self.ends_at;
        if begins {
            self.count += 1;
            self.restart(ack.delivered);
        }
        begins
    }

    /// Restarts the current round. The round then ends with the ACK of a packet sent from now on.
    pub(crate) fn restart(&mut self, delivered: Bytes) {
        self.ends_at = delivered;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
