//! Tail loss probes, as in RFC 8985, section 7, for TCP.
//!
//! When the engine's probe timeout expires, the engine sends a PING. Only the acknowledgement of
//! this PING shows that earlier data was lost, so the engine retransmits a lost last packet only
//! after three round trips. On a path that loses packets, this module sends the PING an eighth of a
//! round trip after the last packet.

use std::time::{Duration, Instant};

/// The state of the path after the last packet was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outstanding {
    /// The number of the newest packet that the peer has to acknowledge.
    pub(crate) newest: u64,
    pub(crate) sent_at: Instant,
    pub(crate) srtt: Duration,
}

#[derive(Debug, Default)]
pub(super) struct TailProbe {
    due: Option<Instant>,
    newest: u64,
    /// The highest packet number that needs no further probe: the number of a packet for which a
    /// probe was already sent, or the number of this probe.
    settled: Option<u64>,
}

impl TailProbe {
    /// Sets the probe's time when the connection has nothing more to send. `outstanding` is `None`
    /// if no packet is in flight, or if the path loses no packets.
    pub(super) fn arm(&mut self, outstanding: Option<Outstanding>) {
        let is_new = |tail: &Outstanding| self.settled.is_none_or(|settled| tail.newest > settled);
        // On a short path, the engine's own timeout is not later than the probe would be, so send
        // no probe.
        let outstanding = outstanding.filter(|tail| is_new(tail) && tail.srtt >= 2 * LEAST_WAIT);
        self.due = outstanding.map(|tail| tail.sent_at + (tail.srtt / 8).max(LEAST_WAIT));
        self.newest = outstanding.map_or(self.newest, |tail| tail.newest);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether to send a PING now.
    pub(super) fn fire(&mut self, now: Instant) -> bool {
        let fires = self.due.is_some_and(|due| due <= now);
        if fires {
            self.due = None;
            self.settled = Some(self.newest + 1);
        }
        fires
    }
}

/// Minimum wait before a probe. A peer acknowledges a single packet within two milliseconds.
const LEAST_WAIT: Duration = Duration::from_millis(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_loss_probe_is_sent_once_and_not_while_packets_follow() {
        let start = Instant::now();
        let millis = |count| start + Duration::from_millis(count);
        let tail = |newest, sent_at| {
            Some(Outstanding { newest, sent_at, srtt: Duration::from_millis(80) })
        };
        let mut probe = TailProbe::default();
        probe.arm(tail(7, start));
        assert_eq!(probe.due(), Some(millis(10)));
        // Another packet was sent after the last packet, so the probe moves to a later time.
        probe.arm(tail(8, millis(5)));
        assert!(!probe.fire(millis(10)));
        assert!(probe.fire(millis(15)));
        // The PING is packet 9, which needs no probe.
        probe.arm(tail(9, millis(15)));
        assert_eq!(probe.due(), None);
        assert!(!probe.fire(millis(100)));
        probe.arm(tail(10, millis(200)));
        assert_eq!(probe.due(), Some(millis(210)));
        probe.arm(Some(Outstanding { newest: 11, sent_at: start, srtt: Duration::from_millis(7) }));
        assert_eq!(probe.due(), None);
        // The peer has acknowledged all packets.
        probe.arm(None);
        assert!(!probe.fire(millis(210)));
    }
}
