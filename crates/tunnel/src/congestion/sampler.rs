use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Samples the delivery rate from packets sent and acknowledged (draft-ietf-ccwg-bbr, section on delivery
/// rate estimation). noq tells each packet; it takes no samples itself.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    sent: VecDeque<Option<Sent>>,
    /// The number of the first in `sent`.
    first: u64,
    delivered: u64,
    delivered_at: Option<Instant>,
    first_sent_at: Option<Instant>,
    inflight: u64,
    /// Samples are bounded by the application until this much is delivered.
    app_limited_until: u64,
    min_rtt: Option<Duration>,
    /// Measured by the acknowledgement that is being gathered, without the time for which it was held back.
    rtt: Option<Duration>,
    batch: Option<Gathering>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    bytes: u64,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    inflight: u64,
    lost: u64,
    app_limited: bool,
}

#[derive(Debug, Clone, Copy)]
struct Gathering {
    acked: u64,
    newest: Option<Sent>,
}

/// What one acknowledgement told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) acked: u64,
    pub(super) rtt: Option<Duration>,
    pub(super) prior_delivered: u64,
    pub(super) sent_inflight: u64,
    pub(super) prior_lost: u64,
    pub(super) interval: Duration,
    pub(super) app_limited: bool,
}

impl Sampler {
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, number: u64, lost: u64) {
        if self.inflight == 0 {
            self.first_sent_at = Some(now);
            self.delivered_at = Some(now);
        }
        self.inflight += bytes;
        let record = Sent {
            at: now,
            bytes,
            delivered: self.delivered,
            delivered_at: self.delivered_at.unwrap_or(now),
            first_sent_at: self.first_sent_at.unwrap_or(now),
            inflight: self.inflight,
            lost,
            app_limited: self.app_limited_until > self.delivered,
        };
        // The three packet number spaces of a handshake share one path; their few packets may displace
        // each other here.
        if self.sent.is_empty() {
            self.first = number;
        }
        let Some(index) = number.checked_sub(self.first) else { return };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if index > MOST_GAP + self.sent.len() {
            self.sent.clear();
            self.first = number;
            self.sent.push_back(Some(record));
            return;
        }
        while self.sent.len() < index {
            self.sent.push_back(None);
        }
        match self.sent.get_mut(index) {
            Some(place) => *place = Some(record),
            None => self.sent.push_back(Some(record)),
        }
    }

    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        // Of several in one moment the shortest says most of the path.
        self.rtt = Some(self.rtt.map_or(rtt, |other| other.min(rtt)));
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
    }

    pub(super) fn on_acked(&mut self, now: Instant, sent: Instant, bytes: u64, number: u64) {
        let record = self.take(number).filter(|record| record.at == sent);
        self.delivered += bytes;
        self.delivered_at = Some(now);
        self.inflight = self.inflight.saturating_sub(bytes);
        let batch = self.batch.get_or_insert(Gathering { acked: 0, newest: None });
        batch.acked += bytes;
        if let Some(record) = record
            && batch
                .newest
                .is_none_or(|newest| (record.delivered, record.at) >= (newest.delivered, newest.at))
        {
            batch.newest = Some(record);
        }
    }

    pub(super) fn on_lost(&mut self, number: u64) {
        if let Some(record) = self.take(number) {
            self.inflight = self.inflight.saturating_sub(record.bytes);
        }
    }

    /// Ends one acknowledgement. `in_flight` is what the connection counts itself.
    pub(super) fn take_batch(
        &mut self,
        now: Instant,
        app_limited: bool,
        in_flight: u64,
    ) -> Option<Batch> {
        let batch = self.batch.take()?;
        self.inflight = in_flight;
        if app_limited {
            self.app_limited_until = self.delivered + in_flight.max(1);
        }
        let rtt = self.rtt.take();
        let Some(newest) = batch.newest else {
            return Some(Batch {
                acked: batch.acked,
                rtt,
                prior_delivered: 0,
                sent_inflight: 0,
                prior_lost: 0,
                interval: Duration::ZERO,
                app_limited,
            });
        };
        self.first_sent_at = Some(newest.at);
        let sending = newest.at.saturating_duration_since(newest.first_sent_at);
        let acking = now.saturating_duration_since(newest.delivered_at);
        Some(Batch {
            acked: batch.acked,
            rtt,
            prior_delivered: newest.delivered,
            sent_inflight: newest.inflight,
            prior_lost: newest.lost,
            interval: sending.max(acking),
            app_limited: newest.app_limited,
        })
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn inflight(&self) -> u64 {
        self.inflight
    }

    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    fn take(&mut self, number: u64) -> Option<Sent> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let record = self.sent.get_mut(index)?.take();
        while matches!(self.sent.front(), Some(None)) {
            self.sent.pop_front();
            self.first += 1;
        }
        record
    }
}

/// Numbers left out in a row: acknowledgements, which nobody acknowledges.
const MOST_GAP: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_flow_is_sampled_at_its_rate() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut sampler = Sampler::default();
        // A packet of 1000 bytes a millisecond, acknowledged 20 ms later.
        let mut last = None;
        for ms in 0..100 {
            if ms >= 20 {
                sampler.on_acked(at(ms), at(ms - 20), 1000, ms - 20);
                sampler.on_rtt(Duration::from_millis(20));
                last = sampler.take_batch(at(ms), false, 19_000);
            }
            sampler.on_sent(at(ms), 1000, ms, 0);
        }
        let batch = last.unwrap();
        assert_eq!(batch.rtt, Some(Duration::from_millis(20)));
        assert_eq!(batch.sent_inflight, 20_000);
        assert_eq!(sampler.delivered() - batch.prior_delivered, 20_000);
        assert_eq!(batch.interval, Duration::from_millis(20));
        assert!(!batch.app_limited);
    }

    #[test]
    fn what_was_sent_with_little_to_say_is_marked_until_it_is_delivered() {
        let start = Instant::now();
        let mut sampler = Sampler::default();
        sampler.on_sent(start, 100, 0, 0);
        sampler.on_sent(start, 100, 1, 0);
        let later = start + Duration::from_millis(5);
        sampler.on_acked(later, start, 100, 0);
        assert!(!sampler.take_batch(later, true, 100).unwrap().app_limited);
        sampler.on_sent(later, 100, 2, 0);
        sampler.on_acked(later + Duration::from_millis(5), later, 100, 2);
        assert!(
            sampler.take_batch(later + Duration::from_millis(5), false, 100).unwrap().app_limited
        );
    }

    #[test]
    fn numbers_far_apart_and_backwards_take_no_memory() {
        let now = Instant::now();
        let mut sampler = Sampler::default();
        for number in [5, 3, 1 << 40, 7, (1 << 62) - 1, 0] {
            sampler.on_sent(now, 100, number, 0);
            sampler.on_acked(now, now, 100, number);
            sampler.on_lost(number);
        }
        assert!(sampler.sent.len() <= MOST_GAP + 2);
    }
}
