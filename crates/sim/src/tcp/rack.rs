use super::rtt::RoundTrip;
use super::scoreboard::{Arrival, Change, Scoreboard};
use units::{Span, Time};

/// Recent acknowledgement (RFC 8985, 6.2): a segment is lost if it was sent at least a reordering
/// window before a segment that has arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rack {
    latest: Option<Arrival>,
    rtt: Span,
    reordered: bool,
    /// The window in quarters of the smallest round trip. The window grows when retransmissions
    /// prove spurious.
    quarters: u32,
    /// Recoveries left until `quarters` is reset.
    persists: u32,
    /// The sequence at which the round trip ends. A spurious retransmission counts once a round
    /// trip.
    round_ends: u64,
}

impl Rack {
    /// Performs steps 1 to 3 for an ACK.
    pub(crate) fn on_ack(&mut self, now: Time, change: &Change, min_rtt: Option<Span>) {
        self.reordered |= change.reordered;
        let Some(arrival) = change.latest else { return };
        let rtt = now.since(arrival.sent_at);
        // The time is shorter than the path's RTT: the ACK is for the first transmission.
        if arrival.repeated && min_rtt.is_some_and(|min| rtt < min) {
            return;
        }
        self.rtt = rtt;
        if self.latest.is_none_or(|l| (arrival.sent_at, arrival.end) > (l.sent_at, l.end)) {
            self.latest = Some(arrival);
        }
    }

    /// Performs step 4 for a DSACK: widens the reordering window. If the path has never reordered,
    /// a timer expired too early (`tcp_dsack_seen`).
    pub(crate) fn on_needless(&mut self, una: u64, nxt: u64) {
        if self.reordered && una >= self.round_ends {
            self.round_ends = nxt;
            self.quarters = (self.quarters + 1).min(WIDEST);
            self.persists = RECOVERIES;
        }
    }

    pub(crate) fn on_recovered(&mut self) {
        self.persists = self.persists.saturating_sub(1);
        if self.persists == 0 {
            self.quarters = 0;
        }
    }

    /// Performs step 5. Returns the bytes newly lost, and the time until the next check.
    pub(crate) fn detect(
        &self,
        now: Time,
        board: &mut Scoreboard,
        rtt: &RoundTrip,
        repairing: bool,
        mss: u64,
    ) -> (u64, Option<Span>) {
        let Some(latest) = self.latest else { return (0, None) };
        let patience = self.rtt + self.window(board, rtt, repairing, mss);
        let until = Time::from_nanos(now.nanos().saturating_sub(patience.nanos()));
        if now.nanos() < patience.nanos() {
            return (0, Some((latest.sent_at + patience).since(now)));
        }
        let (bytes, awaited) = board.lose_before(latest, until);
        (bytes, awaited.then(|| (latest.sent_at + patience).since(now) + LEAST_WAIT))
    }

    /// Returns the sending time up to which a timeout marks segments as lost (RFC 8985, 6.3).
    pub(crate) fn overdue(&self, now: Time) -> Time {
        Time::from_nanos(now.nanos().saturating_sub(self.rtt.nanos()))
    }

    fn window(&self, board: &Scoreboard, rtt: &RoundTrip, repairing: bool, mss: u64) -> Span {
        if !self.reordered && (repairing || board.sacked() >= DUPLICATES * mss) {
            return Span::ZERO;
        }
        let min = rtt.min().unwrap_or_default();
        let window = min * u64::from(self.quarters + 1) / 4;
        window.min(rtt.smoothed().unwrap_or_default())
    }
}

/// DupThresh.
const DUPLICATES: u64 = 3;
const RECOVERIES: u32 = 16;
/// Linux's bound of the window in quarters; the smoothed round trip bounds the window anyway.
const WIDEST: u32 = 255;
/// `TCP_TIMEOUT_MIN_US`: the time that the timer waits beyond the reordering window.
const LEAST_WAIT: Span = Span::from_millis(2);
