use super::scoreboard::Segment;
use units::{Span, Time};

/// Delivery rate estimation (draft-ietf-ccwg-bbr, 4.1; `net/ipv4/tcp_rate.c`).
#[derive(Debug, Clone, Default)]
pub(crate) struct Delivery {
    pub(crate) delivered: u64,
    delivered_at: Time,
    /// The sending time of the newest acknowledged packet.
    first_sent: Time,
    /// The delivered bytes up to which sent packets are application-limited.
    app_limited_until: u64,
    /// Bytes marked as lost since the connection began.
    pub(crate) lost: u64,
}

/// The state of the estimator at a packet's departure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Departure {
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Time,
    pub(crate) first_sent: Time,
    pub(crate) lost: u64,
    pub(crate) inflight: u32,
}

/// The measurements of one ACK.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) acked: u64,
    pub(crate) newest: Option<Newest>,
    /// The newest and the oldest round trip of data that was sent once.
    pub(crate) rtt: Option<Span>,
    pub(crate) oldest_rtt: Option<Span>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    pub(crate) sent_at: Time,
    end: u64,
    pub(crate) departure: Departure,
    app_limited: bool,
}

/// The finished sample.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateSample {
    pub(crate) prior_delivered: u64,
    pub(crate) sent_inflight: u64,
    pub(crate) lost_since: u64,
    pub(crate) interval: Span,
    pub(crate) app_limited: bool,
}

impl Delivery {
    /// Records that a packet leaves. `alone`: no other packet is in flight.
    #[inline]
    pub(crate) fn on_send(&mut self, now: Time, alone: bool, inflight: u64) -> Departure {
        if alone {
            self.first_sent = now;
            self.delivered_at = now;
        }
        Departure {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            lost: self.lost,
            inflight: inflight.min(u64::from(u32::MAX)) as u32,
        }
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited_until != 0
    }

    /// Records that the application has no more data although the window has room.
    pub(crate) fn app_limited(&mut self, inflight: u64) {
        self.app_limited_until = (self.delivered + inflight).max(1);
    }

    #[inline]
    pub(crate) fn finish(
        &mut self,
        now: Time,
        sample: &Sample,
        min_rtt: Option<Span>,
    ) -> RateSample {
        self.delivered += sample.acked;
        if self.app_limited_until != 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let Some(newest) = sample.newest else { return RateSample::default() };
        self.delivered_at = now;
        self.first_sent = newest.sent_at;
        let departure = newest.departure;
        let sending = newest.sent_at.since(departure.first_sent);
        let acknowledging = now.since(departure.delivered_at);
        let interval = sending.max(acknowledging);
        // Only a spurious retransmission gives an interval below a round trip.
        let plausible = min_rtt.is_none_or(|min| interval >= min);
        RateSample {
            prior_delivered: departure.delivered,
            sent_inflight: u64::from(departure.inflight),
            lost_since: self.lost - departure.lost,
            interval: if plausible { interval } else { Span::ZERO },
            app_limited: newest.app_limited,
        }
    }
}

impl Sample {
    #[inline]
    pub(crate) fn take(&mut self, now: Time, segment: &Segment) {
        self.acked += u64::from(segment.length);
        let end = segment.end();
        if self.newest.is_none_or(|newest| (segment.sent_at, end) > (newest.sent_at, newest.end)) {
            self.newest = Some(Newest {
                sent_at: segment.sent_at,
                end,
                departure: segment.departure,
                app_limited: segment.app_limited(),
            });
        }
        if !segment.was_repeated() {
            let rtt = now.since(segment.sent_at);
            self.rtt = Some(self.rtt.map_or(rtt, |known| known.min(rtt)));
            self.oldest_rtt = Some(self.oldest_rtt.map_or(rtt, |known| known.max(rtt)));
        }
    }
}
