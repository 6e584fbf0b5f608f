//! Decides when a peer that sends nothing counts as gone.

use std::time::Duration;

/// The counts of a connection until now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Number of reports by the network that no process has the peer's port.
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
    /// The time for which this end has sent packets without an answer since a report that no
    /// process has the peer's port; `None` without a report. Anybody on the path can forge a
    /// report, and a router that restarts may send a wrong report.
    unanswered: Option<Duration>,
}

impl Silence {
    /// The peer counts as gone after `keepalives` silent keepalives.
    pub(crate) fn new(keepalives: u32, seen: Seen) -> Self {
        // Subtract two polls, because the last packet may have arrived between two polls.
        let most = (keepalives * POLLS_PER_KEEPALIVE - 2) * SHARES;
        Self { last: seen, shares: 0, most, unanswered: None }
    }

    /// Whether a report says that no process has the peer's port, and no packet has arrived since.
    /// This end must then ask for an answer after each poll.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.unanswered.is_some()
    }

    /// Returns the time until the next poll. A report calls for a poll at once.
    pub(crate) fn pause(&self, keepalive: Duration, rtt: Duration) -> Duration {
        // On a path with a long RTT, the transport retransmits a lost probe later, so wait longer.
        let usual = (keepalive / POLLS_PER_KEEPALIVE).max(rtt / 2);
        if self.is_in_doubt() { usual / SHARES } else { usual }
    }

    /// Takes what the connection has seen after a pause of this length.
    pub(crate) fn poll(&mut self, seen: Seen, pause: Duration, rtt: Duration) -> Verdict {
        let last = std::mem::replace(&mut self.last, seen);
        let is_reported = seen.ports_closed > last.ports_closed;
        if seen.received != last.received {
            self.shares = 0;
            self.unanswered = is_reported.then_some(Duration::ZERO);
            return Verdict::Wait;
        }
        match &mut self.unanswered {
            Some(unanswered) => {
                self.shares += 1;
                // Omit the polls before which nothing was sent: the peer had nothing to answer.
                if seen.sent != last.sent {
                    *unanswered += pause;
                }
                if *unanswered >= (pause * UNANSWERED).max(rtt * 3) {
                    return Verdict::NoProcess;
                }
            }
            None if is_reported => self.unanswered = Some(Duration::ZERO),
            None => self.shares += SHARES,
        }
        if self.shares >= self.most { Verdict::Silent } else { Verdict::Wait }
    }
}

/// The number of times per keepalive that an end asks an idle peer for an answer, while a report
/// can shorten the wait and tunnels are open. With the polls after a report, an application learns
/// within a keepalive that the peer's process has ended.
pub(crate) const ASKS_PER_KEEPALIVE: u32 = 3;
const POLLS_PER_KEEPALIVE: u32 = 4;
/// Number of polls that replace a usual poll after a report.
const SHARES: u32 = 5;
/// Minimum number of polls with unanswered packets after a report: half a keepalive. A router that
/// sends reports for a shorter time ends no connection.
const UNANSWERED: u32 = 10;

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
        // The report arrives in the first pause.
        let closed = |seen: &mut Seen| (seen.sent, seen.ports_closed) = (seen.sent + 1, 1);
        assert_eq!(polled(99, RTT, closed), (Verdict::NoProcess, Duration::from_millis(750)));
        // On a path with a long round trip, the peer has three round trips.
        let rtt = Duration::from_secs(1);
        assert_eq!(polled(99, rtt, closed), (Verdict::NoProcess, Duration::from_millis(3500)));
    }

    #[test]
    fn an_application_learns_within_a_keepalive_that_an_idle_peers_process_has_ended() {
        let mut silence = Silence::new(3, Seen { received: 1, sent: 1, ports_closed: 0 });
        let closed = |sent| Seen { received: 1, sent, ports_closed: 1 };
        // The process ends after an answer. The next packet leaves late, and its report at once
        // leads to a poll.
        let mut time = KEEPALIVE / ASKS_PER_KEEPALIVE + RTT;
        assert_eq!(silence.poll(closed(2), Duration::ZERO, RTT), Verdict::Wait);
        for sent in 3..99 {
            let pause = silence.pause(KEEPALIVE, RTT);
            time += pause;
            if silence.poll(closed(sent), pause, RTT) == Verdict::NoProcess {
                break;
            }
        }
        assert!(time < KEEPALIVE * 9 / 10, "{time:?}");
    }

    /// The peer's last packet arrives just after a poll, so that the next poll still sees a new
    /// packet. No report arrives, as on a path that is cut.
    #[test]
    fn an_application_learns_within_three_keepalives_that_a_peer_stays_away() {
        for rtt in [RTT, KEEPALIVE / 2] {
            let mut polls = 0;
            let (verdict, time) = polled(99, rtt, |seen| {
                seen.received += u64::from(polls == 0);
                seen.sent += 1;
                polls += 1;
            });
            assert_eq!(verdict, Verdict::Silent, "{rtt:?}");
            assert!(time < KEEPALIVE * 3, "{rtt:?}: {time:?}");
        }
    }

    #[test]
    fn reports_during_a_short_interruption_end_no_connection() {
        let mut count = 0;
        let interrupted = |seen: &mut Seen| {
            // Each report quotes a packet that this end has sent after the last poll.
            let is_interrupted = count % 12 < 9;
            seen.sent += 1;
            seen.ports_closed += u64::from(is_interrupted);
            seen.received += u64::from(!is_interrupted);
            count += 1;
        };
        assert_eq!(polled(10_000, RTT, interrupted).0, Verdict::Wait);
    }

    #[test]
    fn forged_reports_end_no_connection_whose_peer_answers() {
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
    fn a_peer_has_time_to_answer_packets_that_follow_long_after_a_report() {
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
    fn a_report_without_an_unanswered_packet_shortens_no_wait() {
        // The pause in which the report arrives does not count.
        let silent = Duration::from_millis(2750);
        assert_eq!(polled(99, RTT, |seen| seen.ports_closed = 9), (Verdict::Silent, silent));
    }
}
