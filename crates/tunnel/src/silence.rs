//! Decides when a peer that sends nothing counts as gone.

use std::time::Duration;

/// The counts of a connection until now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// How often the network has reported that no process has the peer's port.
    pub(crate) ports_closed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The peer may still live.
    Wait,
    /// The peer has been silent for several keepalives.
    Silent,
    /// The peer is silent, and the network reports that no process has the peer's port.
    NoProcess,
}

/// Counts polls, not time: while the host stalls, this end receives nothing from a live peer.
#[derive(Debug)]
pub(crate) struct Silence {
    /// The counts at the last poll.
    last: Seen,
    /// Silent polls, in shares of a usual poll.
    shares: u32,
    most: u32,
    hint: Option<Hint>,
}

/// A report that no process has the peer's port. Anybody on the path can forge such a report, so
/// the packets that this end sends afterwards must stay unanswered, too.
#[derive(Debug)]
struct Hint {
    /// The packets that this end had sent by then.
    sent: u64,
    /// The pauses since this end has sent enough further packets; `None` before.
    waited: Option<Duration>,
}

impl Silence {
    /// The peer counts as gone after `keepalives` silent keepalives.
    pub(crate) fn new(keepalives: u32, seen: Seen) -> Self {
        // Subtract two polls, because the last packet may have arrived between two polls.
        let most = (keepalives * POLLS_PER_KEEPALIVE - 2) * SHARES;
        Self { last: seen, shares: 0, most, hint: None }
    }

    /// Returns the time until the next poll.
    pub(crate) fn pause(&self, keepalive: Duration, rtt: Duration) -> Duration {
        // On a path with a long RTT, the transport retransmits a lost probe later, so wait longer.
        let usual = (keepalive / POLLS_PER_KEEPALIVE).max(rtt / 2);
        if self.hint.is_some() { usual / SHARES } else { usual }
    }

    /// Takes what the connection has seen after a pause of this length.
    pub(crate) fn poll(&mut self, seen: Seen, pause: Duration, rtt: Duration) -> Verdict {
        let last = std::mem::replace(&mut self.last, seen);
        let is_new_hint = seen.ports_closed > last.ports_closed;
        let new_hint = || is_new_hint.then_some(Hint { sent: seen.sent, waited: None });
        if seen.received != last.received {
            (self.shares, self.hint) = (0, new_hint());
            return Verdict::Wait;
        }
        match &mut self.hint {
            None => {
                self.shares += SHARES;
                self.hint = new_hint();
            }
            Some(hint) => {
                self.shares += 1;
                // The time for an answer begins with the packets: this end may have been idle since
                // the report.
                let are_sent = seen.sent.saturating_sub(hint.sent) >= UNANSWERED;
                let waited = hint.waited.map(|waited| waited + pause);
                hint.waited = waited.or(are_sent.then_some(Duration::ZERO));
                if hint.waited.is_some_and(|waited| waited >= (rtt * 3).max(pause * 4)) {
                    return Verdict::NoProcess;
                }
            }
        }
        if self.shares >= self.most { Verdict::Silent } else { Verdict::Wait }
    }
}

const POLLS_PER_KEEPALIVE: u32 = 4;
/// After a hint, this many polls replace a usual poll.
const SHARES: u32 = 5;
/// Minimum number of packets that stay unanswered after a hint. All these packets ask for an
/// answer: a peer that receives nothing acknowledges nothing.
const UNANSWERED: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPALIVE: Duration = Duration::from_secs(1);
    const RTT: Duration = Duration::from_millis(20);

    /// Polls until a verdict, at most `most` times. `sees` changes what the connection has seen.
    /// Returns the verdict and the sum of the pauses.
    fn polled(most: usize, rtt: Duration, mut sees: impl FnMut(&mut Seen)) -> (Verdict, Duration) {
        let mut seen = Seen { received: 1, sent: 1, ports_closed: 0 };
        let (mut silence, mut time) = (Silence::new(3, seen), Duration::ZERO);
        for _ in 0..most {
            let pause = silence.pause(KEEPALIVE, rtt);
            time += pause;
            sees(&mut seen);
            match silence.poll(seen, pause, rtt) {
                Verdict::Wait => {}
                verdict => return (verdict, time),
            }
        }
        (Verdict::Wait, time)
    }

    #[test]
    fn a_peer_is_gone_after_its_keepalives_or_sooner_if_its_port_is_closed() {
        let silent = Duration::from_millis(2500);
        assert_eq!(polled(99, RTT, |seen| seen.sent += 1), (Verdict::Silent, silent));
        let closed = |seen: &mut Seen| (seen.sent, seen.ports_closed) = (seen.sent + 1, 1);
        assert_eq!(polled(99, RTT, closed), (Verdict::NoProcess, Duration::from_millis(550)));
        // After a hint, the peer has at least three round trips to answer.
        let rtt = Duration::from_secs(1);
        assert_eq!(polled(99, rtt, closed), (Verdict::NoProcess, Duration::from_millis(3700)));
    }

    #[test]
    fn forged_hints_end_no_connection_whose_peer_answers() {
        let forged = |seen: &mut Seen| {
            (seen.received, seen.sent) = (seen.received + 1, seen.sent + 1);
            seen.ports_closed += 100;
        };
        assert_eq!(polled(10_000, RTT, forged).0, Verdict::Wait);
        // The peer answers every third packet.
        let mut count = 0;
        let sparse = |seen: &mut Seen| {
            count += 1;
            (seen.sent, seen.ports_closed) = (seen.sent + 1, seen.ports_closed + 1);
            seen.received += u64::from(count % 3 == 0);
        };
        assert_eq!(polled(10_000, RTT, sparse).0, Verdict::Wait);
    }

    #[test]
    fn a_peer_has_time_to_answer_packets_that_follow_long_after_a_hint() {
        let mut count = 0;
        // Packets leave before every tenth poll, and their answers arrive two polls later.
        let bursts = |seen: &mut Seen| {
            seen.ports_closed += u64::from(count % 10 == 2);
            seen.sent += if count % 10 == 9 { 8 } else { 0 };
            seen.received += u64::from(count % 10 == 1 && count > 1);
            count += 1;
        };
        assert_eq!(polled(10_000, RTT, bursts).0, Verdict::Wait);
    }

    #[test]
    fn a_hint_without_an_unanswered_packet_shortens_no_wait() {
        let silent = Duration::from_millis(2500);
        assert_eq!(polled(99, RTT, |seen| seen.ports_closed = 9), (Verdict::Silent, silent));
    }
}
