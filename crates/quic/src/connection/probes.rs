//! PINGs that ask the peer for an answer, besides the engine's keepalives.

use std::time::{Duration, Instant};

/// Decides when a connection asks its peer for an answer.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// If this end sends no packet for this time, a PING follows.
    after: Option<Duration>,
    /// The time at which this end last sent a packet, or at which the last PING was due.
    last: Option<Instant>,
    /// Whether the next packet may leave even if the congestion control allows no packet.
    pub(super) is_forced: bool,
}

impl Probes {
    /// Sets the time without a sent packet after which a PING follows. With `None`, no such PINGs
    /// are sent.
    pub(super) fn set(&mut self, after: Option<Duration>) {
        self.after = after;
    }

    /// Records an attempt to send. `any`: whether a packet left.
    pub(super) fn on_transmit(&mut self, now: Instant, any: bool) {
        self.is_forced = false;
        self.last = if any { Some(now) } else { self.last };
    }

    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.last? + self.after?)
    }

    /// Whether to send a PING now.
    pub(super) fn fire(&mut self, now: Instant) -> bool {
        let fires = self.due().is_some_and(|due| due <= now);
        if fires {
            // Count the PING as sent now, because the congestion control may delay it.
            self.last = Some(now);
        }
        fires
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_due_when_this_end_has_sent_nothing_for_the_time() {
        let start = Instant::now();
        let millis = |count| start + Duration::from_millis(count);
        let mut probes = Probes::default();
        probes.on_transmit(start, true);
        assert!(probes.due().is_none() && !probes.fire(millis(10_000)));
        probes.set(Some(Duration::from_millis(300)));
        assert_eq!(probes.due(), Some(millis(300)));
        // A packet of the application postpones the PING.
        probes.on_transmit(millis(200), true);
        probes.on_transmit(millis(250), false);
        assert!(!probes.fire(millis(499)) && probes.fire(millis(500)));
        // The PING is due, but has not left yet.
        assert!(!probes.fire(millis(500)));
        assert_eq!(probes.due(), Some(millis(800)));
        probes.set(None);
        assert_eq!(probes.due(), None);
    }
}
