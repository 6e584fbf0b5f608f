//! Decides when an endpoint that only receives sends acknowledgements.
//!
//! The engine acknowledges after a number of packets and after a time. The number and the time are
//! settings of the whole connection. On a slow return path, frequent acknowledgements fill the
//! queue: the round trip grows, and the sender's rate falls. A sender needs a few acknowledgements
//! in each round trip (draft-ietf-quic-ack-frequency, section 8). While packets arrive in order, an
//! endpoint with nothing else to send waits for a part of the path's round trip between two
//! acknowledgements. The endpoint acknowledges at once when a packet is missing or late, and when
//! the peer asks for an answer. The endpoint acknowledges soon after the packets stop, so that the
//! sender's probe timeout sees no further delay.

use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Thinning {
    /// The highest packet number that has arrived.
    newest: Option<u64>,
    /// The time at which the newest packet arrived.
    arrived_at: Option<Instant>,
    /// The time at which this end last sent a packet.
    sent_at: Option<Instant>,
    /// Whether an acknowledgement is due: a packet was missing or late since this end last sent a
    /// packet, or an acknowledgement is due for another reason.
    is_due: bool,
}

impl Thinning {
    pub(crate) fn on_arrival(&mut self, now: Instant, number: u64) {
        let expected = self.newest.map_or(number, |newest| newest + 1);
        self.is_due |= number != expected;
        self.newest = self.newest.max(Some(number));
        self.arrived_at = Some(now);
    }

    pub(crate) fn on_sent(&mut self, now: Instant) {
        self.sent_at = Some(now);
        self.is_due = false;
    }

    /// Records that the next packet must not wait.
    pub(crate) fn hurry(&mut self) {
        self.is_due = true;
    }

    /// Returns the time until which acknowledgements may wait on a path with this round trip;
    /// `None` if acknowledgements are due.
    pub(crate) fn until(&self, now: Instant, rtt: Duration) -> Option<Instant> {
        if self.is_due {
            return None;
        }
        let wait = Some(rtt / PER_ROUND_TRIP).filter(|wait| *wait >= SHORTEST)?;
        let thin = self.sent_at? + wait.min(LONGEST);
        let silent = self.arrived_at? + SILENCE;
        Some(thin.min(silent)).filter(|until| *until > now)
    }
}

/// Minimum number of acknowledgements per round trip. With this number, the sender's window grows
/// in start-up almost as fast as with more acknowledgements.
const PER_ROUND_TRIP: u32 = 8;
/// Minimum time for which a wait is worthwhile. In a shorter time, few packets arrive, and each
/// wait costs a timer.
const SHORTEST: Duration = Duration::from_micros(250);
/// Maximum time between two acknowledgements: the default of `max_ack_delay` (RFC 9000, section
/// 18.2).
const LONGEST: Duration = Duration::from_millis(25);
/// Maximum time from the last packet to its acknowledgement. The sender includes this time in its
/// probe timeout.
const SILENCE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(80);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn acknowledgements_wait_for_an_eighth_of_the_round_trip_while_packets_arrive() {
        let start = Instant::now();
        let mut thinning = Thinning::default();
        thinning.on_arrival(start, 7);
        assert_eq!(thinning.until(start, RTT), None, "nothing was acknowledged before");
        thinning.on_sent(start);
        for count in 1..10 {
            thinning.on_arrival(start + millis(count), 7 + count);
            let wait = thinning.until(start + millis(count), RTT);
            assert_eq!(wait, Some(start + millis((count + 2).min(10))));
        }
        thinning.on_arrival(start + millis(10), 17);
        assert_eq!(thinning.until(start + millis(10), RTT), None);
    }

    #[test]
    fn acknowledgements_do_not_wait_once_packets_stop() {
        let start = Instant::now();
        let mut thinning = Thinning::default();
        thinning.on_sent(start);
        thinning.on_arrival(start + millis(1), 0);
        assert_eq!(thinning.until(start + millis(2), RTT), Some(start + millis(3)));
        assert_eq!(thinning.until(start + millis(3), RTT), None);
    }

    #[test]
    fn a_missing_or_late_packet_is_reported_at_once() {
        let start = Instant::now();
        let mut thinning = Thinning::default();
        for numbers in [[0, 2], [3, 1]] {
            thinning.on_sent(start);
            thinning.on_arrival(start, numbers[0]);
            assert!(thinning.until(start, RTT).is_some());
            thinning.on_arrival(start, numbers[1]);
            assert_eq!(thinning.until(start, RTT), None);
        }
    }

    #[test]
    fn a_packet_that_is_due_for_another_reason_leaves_at_once() {
        let start = Instant::now();
        let mut thinning = Thinning::default();
        thinning.on_sent(start);
        thinning.on_arrival(start, 0);
        assert!(thinning.until(start, RTT).is_some());
        thinning.hurry();
        assert_eq!(thinning.until(start, RTT), None);
        thinning.on_sent(start);
        assert!(thinning.until(start, RTT).is_some());
    }

    #[test]
    fn acknowledgements_do_not_wait_on_a_short_path() {
        let start = Instant::now();
        let mut thinning = Thinning::default();
        thinning.on_sent(start);
        thinning.on_arrival(start, 0);
        assert!(thinning.until(start, millis(2)).is_some());
        assert_eq!(thinning.until(start, millis(1)), None);
    }

    #[test]
    fn the_longest_wait_is_the_default_of_max_ack_delay() {
        let start = Instant::now();
        let mut thinning = Thinning::default();
        thinning.on_sent(start);
        let now = start + millis(24);
        thinning.on_arrival(now, 0);
        assert_eq!(thinning.until(now, millis(900)), Some(start + LONGEST));
    }
}
