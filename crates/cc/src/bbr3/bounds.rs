use super::BETA;
use crate::Ack;
use crate::gain::{ONE, scaled};
use units::Bytes;

/// Bounds learned from loss: long-term bounds from probing, short-term bounds since the last probe.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    pub(super) inflight_long: Option<u64>,
    pub(super) inflight_short: Option<u64>,
    pub(super) bandwidth_short: Option<u64>,
    /// Whether losses update the long-term bound now.
    pub(super) probing: bool,
    up_rounds: u32,
    up_acked: u64,
    /// Acknowledged bytes that raise the long-term bound by one segment.
    up_price: u64,
}

/// Measurements of the last round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LatestRound {
    pub(super) bandwidth: u64,
    pub(super) inflight: u64,
    lossy: bool,
    ends_at: Bytes,
    loss_events: u32,
    recovery: bool,
}

/// Whether the bytes lost since the acknowledged packet was sent exceed 2 % of the bytes in flight
/// at that time.
pub(super) fn is_too_high(ack: &Ack) -> bool {
    ack.lost_since.count() * 100 > ack.sent_inflight.count() * LOSS_THRESHOLD_PERCENT
}

impl Bounds {
    pub(super) fn lower(&mut self, latest: &LatestRound, bandwidth: u64, cwnd: u64) {
        let short = self.bandwidth_short.unwrap_or(bandwidth);
        self.bandwidth_short = Some(latest.bandwidth.max(scaled(short, BETA)));
        let short = self.inflight_short.unwrap_or(cwnd);
        self.inflight_short = Some(latest.inflight.max(scaled(short, BETA)));
    }

    pub(super) fn forget_short_term(&mut self) {
        self.bandwidth_short = None;
        self.inflight_short = None;
    }

    /// Returns the long-term bound, less some headroom for flows that join.
    pub(super) fn with_headroom(&self, mss: u64, least: u64) -> u64 {
        let Some(long) = self.inflight_long else { return u64::MAX };
        let headroom = scaled(long, ONE * 15 / 100).max(mss);
        long.saturating_sub(headroom).max(least)
    }

    /// Raises the long-term bound to `inflight` bytes, which caused no excessive loss.
    pub(super) fn raise(&mut self, inflight: u64) {
        if let Some(long) = &mut self.inflight_long {
            *long = (*long).max(inflight);
        }
    }

    pub(super) fn begin_probe(&mut self) {
        self.up_rounds = 0;
        self.up_acked = 0;
    }

    pub(super) fn stop_probing(&mut self) {
        self.up_price = u64::MAX;
    }

    /// Doubles the slope each round: one segment, two, four, …
    pub(super) fn steepen(&mut self, cwnd: u64, mss: u64) {
        let growth = mss << self.up_rounds.min(MOST_DOUBLINGS);
        self.up_rounds += 1;
        self.up_price = (cwnd / growth.max(1)).max(1).saturating_mul(mss);
    }

    pub(super) fn probe_upward(&mut self, ack: &Ack, round: bool, cwnd: u64, mss: u64) {
        let Some(long) = &mut self.inflight_long else { return };
        if cwnd < *long {
            return;
        }
        self.up_acked += ack.acked.count();
        if let Some(segments) = self.up_acked.checked_div(self.up_price) {
            self.up_acked -= segments * self.up_price;
            *long += segments * mss;
        }
        if round {
            self.steepen(cwnd, mss);
        }
    }
}

impl LatestRound {
    /// Returns whether the round that this ACK ends had loss; `None` if no round ends.
    pub(super) fn on_ack(&mut self, ack: &Ack, rate: u64) -> Option<bool> {
        self.bandwidth = self.bandwidth.max(rate);
        let delivered = ack.delivered.saturating_sub(ack.prior_delivered).count();
        self.inflight = self.inflight.max(delivered);
        if ack.lost.count() > 0 {
            self.lossy = true;
            self.loss_events += 1;
        }
        (ack.prior_delivered >= self.ends_at).then_some(self.lossy)
    }

    /// Begins the next round with this ACK.
    pub(super) fn begin(&mut self, ack: &Ack, rate: u64) {
        let delivered = ack.delivered.saturating_sub(ack.prior_delivered).count();
        *self = Self {
            bandwidth: rate,
            inflight: delivered,
            ends_at: ack.delivered,
            recovery: ack.in_recovery,
            ..Self::default()
        };
    }

    pub(super) fn restart(&mut self) {
        self.lossy = false;
        (self.bandwidth, self.inflight) = (0, 0);
    }

    pub(super) fn enter_recovery(&mut self) {
        self.loss_events = 0;
    }

    /// Returns the number of losses that a complete round of recovery reported.
    pub(super) fn lossy_rounds_of_recovery(&self, ack: &Ack) -> Option<u32> {
        let over = ack.prior_delivered >= self.ends_at;
        (over && self.recovery && ack.in_recovery).then_some(self.loss_events)
    }
}

const LOSS_THRESHOLD_PERCENT: u64 = 2;
const MOST_DOUBLINGS: u32 = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{MSS, ack};
    use units::{Span, Time};

    fn acked(segments: u64) -> Ack {
        let ack = ack(Time::ZERO, Span::from_millis(40));
        Ack { acked: Bytes::new(segments * MSS), ..ack }
    }

    /// The window is 100 segments. In the first round of a probe, 100 acknowledged segments raise
    /// the bound by one segment.
    #[test]
    fn each_round_of_a_probe_raises_the_bound_twice_as_fast_and_a_new_probe_begins_slowly() {
        let cwnd = 100 * MSS;
        let mut bounds = Bounds { inflight_long: Some(cwnd), ..Bounds::default() };
        for _ in 0..2 {
            bounds.begin_probe();
            bounds.steepen(cwnd, MSS);
            let before = bounds.inflight_long.unwrap_or(0);
            let mut raised = || {
                bounds.inflight_long = Some(cwnd);
                bounds.probe_upward(&acked(100), true, cwnd, MSS);
                (bounds.inflight_long.unwrap_or(0) - cwnd) / MSS
            };
            assert_eq!([(); 3].map(|()| raised()), [1, 2, 4]);
            bounds.inflight_long = Some(before);
        }
    }

    #[test]
    fn a_window_below_the_bound_raises_no_bound() {
        let mut bounds = Bounds { inflight_long: Some(101 * MSS), ..Bounds::default() };
        bounds.steepen(100 * MSS, MSS);
        bounds.probe_upward(&acked(100), false, 100 * MSS, MSS);
        assert_eq!(bounds.inflight_long, Some(101 * MSS));
    }

    #[test]
    fn a_bound_leaves_15_percent_to_others_but_keeps_the_least_window() {
        let of =
            |long| Bounds { inflight_long: long, ..Bounds::default() }.with_headroom(MSS, 4000);
        assert_eq!(of(None), u64::MAX);
        // The headroom of 15 % is 38/256 of the bound.
        assert_eq!(of(Some(256_000)), 218_000);
        assert_eq!(of(Some(6_000)), 5_000, "at least a segment");
        assert_eq!(of(Some(4_500)), 4_000);
    }

    #[test]
    fn loss_lowers_the_short_term_bounds_by_three_tenths_at_most() {
        let (mut bounds, latest) = (Bounds::default(), LatestRound::default());
        bounds.lower(&latest, 2560, 256_000);
        assert_eq!((bounds.bandwidth_short, bounds.inflight_short), (Some(1790), Some(179_000)));
        let latest = LatestRound { bandwidth: 1700, inflight: 178_000, ..latest };
        bounds.lower(&latest, 2560, 256_000);
        assert_eq!((bounds.bandwidth_short, bounds.inflight_short), (Some(1700), Some(178_000)));
    }

    #[test]
    fn a_round_ends_with_the_ack_of_a_packet_that_left_after_its_beginning() {
        let mut round = LatestRound::default();
        let mut of = |delivered, prior, lost| {
            let (delivered, prior_delivered) = (Bytes::new(delivered), Bytes::new(prior));
            let ack = Ack { delivered, prior_delivered, lost: Bytes::new(lost), ..acked(1) };
            let ended = round.on_ack(&ack, 100);
            if ended.is_some() {
                round.begin(&ack, 100);
            }
            ended
        };
        assert_eq!(of(5_000, 0, 0), Some(false));
        assert_eq!(of(6_000, 4_999, MSS), None);
        assert_eq!(of(7_000, 5_000, 0), Some(true));
        assert_eq!(of(8_000, 6_999, 0), None);
        assert_eq!(of(9_000, 7_000, 0), Some(false));
    }

    #[test]
    fn a_recovery_counts_its_own_losses() {
        let mut round = LatestRound { recovery: true, loss_events: 7, ..LatestRound::default() };
        round.enter_recovery();
        let ack = Ack { lost: Bytes::new(MSS), in_recovery: true, ..acked(1) };
        round.on_ack(&ack, 100);
        assert_eq!(round.lossy_rounds_of_recovery(&ack), Some(1));
        assert_eq!(round.lossy_rounds_of_recovery(&Ack { in_recovery: false, ..ack }), None);
    }
}
