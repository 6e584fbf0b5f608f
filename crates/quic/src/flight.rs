//! Sent packets of the application's packet number space, and delivery rate samples from their
//! acknowledgements (draft-ietf-ccwg-bbr, section on delivery rate estimation).

use crate::ranges::Ranges;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Sent packets, by packet number, until [`Self::forget_before`] drops them.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    sent: VecDeque<Option<Sent>>,
    /// The packet number of the first entry in `sent`.
    first: u64,
    /// Every packet below this number was acknowledged, was counted as lost, or is not under
    /// congestion control.
    judged: u64,
    acked: Ranges,
    delivered: u64,
    delivered_at: Option<Instant>,
    first_sent_at: Option<Instant>,
    inflight: u64,
    /// Packets below this number left on a former path, and so do not count as in flight.
    counted_from: u64,
    lost_total: u64,
    mistaken_total: u64,
    /// Delivery rate samples are application-limited until `delivered` reaches this count of bytes.
    app_limited_until: u64,
    batch: Option<Batch>,
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
    counted_lost: bool,
}

/// Acknowledgements that were gathered for one sample.
#[derive(Debug, Clone, Copy, Default)]
struct Batch {
    acked: u64,
    newest: Option<Sent>,
}

/// The effect of one acknowledgement on the flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Acked {
    /// The send time of the frame's largest packet; `None` if an earlier frame acknowledged this
    /// packet.
    pub(crate) largest_sent: Option<Instant>,
    /// The lowest packet number that this acknowledgement newly acknowledged.
    pub(crate) smallest: Option<u64>,
    /// Newly acknowledged bytes that had been counted as lost.
    pub(crate) not_lost: u64,
}

/// One delivery rate sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) acked: u64,
    pub(crate) prior_delivered: u64,
    pub(crate) sent_inflight: u64,
    pub(crate) prior_lost: u64,
    pub(crate) interval: Duration,
    pub(crate) app_limited: bool,
}

impl Flight {
    /// Records a sent packet. Packet numbers must increase; skipped numbers belong to packets that
    /// are not ack-eliciting.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, number: u64) {
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
            lost: self.lost_total,
            app_limited: self.app_limited_until > self.delivered,
            counted_lost: false,
        };
        if self.sent.is_empty() {
            self.first = number;
            self.judged = self.judged.max(number);
        }
        let Some(skipped) = number.checked_sub(self.end()) else { return };
        // The gap is this large if an endpoint that only receives data has sent nothing but
        // acknowledgements for some time.
        if skipped > MOST_GAP {
            self.sent.clear();
            self.inflight = bytes;
            self.first = number;
            self.judged = number;
        } else {
            self.sent.extend((0..skipped).map(|_| None));
        }
        self.sent.push_back(Some(record));
    }

    /// Records an acknowledgement. `at`: the arrival time, corrected for the peer's ACK delay.
    pub(crate) fn on_acked(&mut self, at: Instant, ranges: &Ranges) -> Acked {
        let at = self.delivered_at.map_or(at, |last| last.max(at));
        let mut outcome = Acked::default();
        let (first, end) = (self.first, self.end());
        let mut fresh = Vec::new();
        for range in ranges.iter() {
            let known = range.start.max(first)..range.end.min(end);
            self.acked.insert(known, |part| fresh.push(part));
        }
        let largest = ranges.largest();
        for number in fresh.into_iter().flatten() {
            let Some(record) = self.take(number) else { continue };
            outcome.smallest = Some(outcome.smallest.unwrap_or(number).min(number));
            if Some(number) == largest {
                outcome.largest_sent = Some(record.at);
            }
            if record.counted_lost {
                outcome.not_lost += record.bytes;
                self.mistaken_total += record.bytes;
                self.lost_total = self.lost_total.saturating_sub(record.bytes);
            } else {
                self.leave_flight(number, record.bytes);
            }
            self.delivered += record.bytes;
            self.delivered_at = Some(at);
            let batch = self.batch.get_or_insert_default();
            batch.acked += record.bytes;
            let newer =
                |newest: Sent| (record.delivered, record.at) >= (newest.delivered, newest.at);
            if batch.newest.is_none_or(newer) {
                batch.newest = Some(record);
            }
        }
        outcome
    }

    /// Records that the engine counts the oldest outstanding packets as lost, `bytes` in all.
    /// Returns the highest packet number of the lost packets.
    pub(crate) fn on_lost(&mut self, bytes: u64) -> Option<u64> {
        let (mut left, mut largest) = (bytes, None);
        while left > 0 && self.judged < self.end() {
            let number = self.judged;
            let index = (number - self.first) as usize;
            if let Some(record) = self.sent[index].as_mut().filter(|record| !record.counted_lost) {
                if record.bytes > left {
                    break;
                }
                record.counted_lost = true;
                let bytes = record.bytes;
                left -= bytes;
                self.leave_flight(number, bytes);
                self.lost_total += bytes;
                largest = Some(number);
            }
            self.judged = self.acked.first_gap(number + 1);
        }
        largest
    }

    /// Forgets packets sent before `bound` that are acknowledged or counted as lost. Also forgets
    /// size probes, which the engine abandons without notice.
    pub(crate) fn forget_before(&mut self, bound: Instant, largest_acked: u64) {
        while let Some(front) = self.sent.front() {
            match front {
                Some(record) if record.at >= bound => break,
                Some(record) if !record.counted_lost => {
                    if self.first >= largest_acked {
                        break;
                    }
                    self.leave_flight(self.first, record.bytes);
                }
                _ => {}
            }
            self.sent.pop_front();
            self.first += 1;
        }
        if self.sent.is_empty() && self.sent.capacity() <= FEW {
            self.sent = VecDeque::new();
        }
        self.judged = self.judged.max(self.first);
        self.acked.forget_below(self.first);
    }

    /// Completes one batch of acknowledgements and returns its delivery rate sample.
    pub(crate) fn take_sample(&mut self, app_limited: bool) -> Option<Sample> {
        let batch = self.batch.take()?;
        if app_limited {
            self.app_limited_until = self.delivered + self.inflight.max(1);
        }
        let Some(newest) = batch.newest else {
            return Some(Sample {
                acked: batch.acked,
                prior_delivered: 0,
                sent_inflight: 0,
                prior_lost: 0,
                interval: Duration::ZERO,
                app_limited,
            });
        };
        self.first_sent_at = Some(newest.at);
        let sending = newest.at.saturating_duration_since(newest.first_sent_at);
        let acked_at = self.delivered_at.unwrap_or(newest.delivered_at);
        let acking = acked_at.saturating_duration_since(newest.delivered_at);
        Some(Sample {
            acked: batch.acked,
            prior_delivered: newest.delivered,
            sent_inflight: newest.inflight,
            prior_lost: newest.lost,
            interval: sending.max(acking),
            app_limited: newest.app_limited,
        })
    }

    /// Returns the number of bytes that were counted as lost and acknowledged later.
    pub(crate) fn mistaken_total(&self) -> u64 {
        self.mistaken_total
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn inflight(&self) -> u64 {
        self.inflight
    }

    /// Takes all outstanding packets out of the bytes in flight. The peer may still acknowledge the
    /// packets. The engine reports the loss of such packets only together with later losses.
    pub(crate) fn leave_path(&mut self) {
        self.inflight = 0;
        self.counted_from = self.end();
        self.judged = self.end();
    }

    fn leave_flight(&mut self, number: u64, bytes: u64) {
        if number >= self.counted_from {
            self.inflight = self.inflight.saturating_sub(bytes);
        }
    }

    pub(crate) fn bound_inflight(&mut self, most: u64) {
        self.inflight = self.inflight.min(most);
    }

    pub(crate) fn lost_total(&self) -> u64 {
        self.lost_total
    }

    /// Returns the acknowledged packet numbers that are not forgotten.
    pub(crate) fn acked(&self) -> &Ranges {
        &self.acked
    }

    /// Returns the first outstanding packet with at least the number `from`, if a later packet was
    /// acknowledged.
    pub(crate) fn first_gap(&self, from: u64) -> Option<u64> {
        let mut number = from.max(self.judged);
        let largest = self.acked.largest()?;
        loop {
            number = self.acked.first_gap(number);
            if number > largest {
                return None;
            }
            let index = number.checked_sub(self.first)?;
            match self.sent.get(index as usize)? {
                Some(record) if !record.counted_lost => return Some(number),
                _ => number += 1,
            }
        }
    }

    /// Returns the next packet number, which follows the newest packet number.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// Returns the send time of an unacknowledged packet.
    pub(crate) fn sent_at(&self, number: u64) -> Option<Instant> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.sent.get(index)?.map(|record| record.at)
    }

    fn take(&mut self, number: u64) -> Option<Sent> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.sent.get_mut(index)?.take()
    }
}

/// Maximum number of consecutive packet numbers without a record.
const MOST_GAP: u64 = 1 << 16;
/// Maximum capacity whose memory an empty flight frees. So an idle connection keeps no records, and
/// a busy connection need not grow a large queue again and again.
const FEW: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn one(number: u64) -> Ranges {
        let mut ranges = Ranges::default();
        ranges.insert(number..number + 1, |_| {});
        ranges
    }

    #[test]
    fn a_connection_without_outstanding_packets_keeps_no_memory_for_records() {
        let start = Instant::now();
        let mut flight = Flight::default();
        for number in 0..20 {
            flight.on_sent(start, 1000, number);
        }
        for number in 0..20 {
            assert!(flight.sent.capacity() > 0);
            flight.on_acked(start, &one(number));
            flight.forget_before(start, number);
        }
        assert_eq!((flight.sent.capacity(), flight.inflight(), flight.end()), (0, 0, 20));
        flight.on_sent(start, 1000, 20);
        assert_eq!(flight.on_acked(start, &one(20)).largest_sent, Some(start));
    }

    #[test]
    fn delivery_rate_samples_of_a_steady_flow_equal_its_rate() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut flight = Flight::default();
        // Send a packet of 1000 bytes each millisecond, acknowledged 20 ms later.
        let mut last = None;
        for ms in 0..100 {
            if ms >= 20 {
                let acked = flight.on_acked(at(ms), &one(ms - 20));
                assert_eq!(acked.largest_sent, Some(at(ms - 20)));
                last = flight.take_sample(false);
            }
            flight.on_sent(at(ms), 1000, ms);
            flight.forget_before(at(ms.saturating_sub(50)), ms.saturating_sub(20));
        }
        let sample = last.unwrap();
        assert_eq!(sample.sent_inflight, 20_000);
        assert_eq!(flight.delivered() - sample.prior_delivered, 20_000);
        assert_eq!(sample.interval, Duration::from_millis(20));
        assert!(!sample.app_limited);
        assert!(flight.sent.len() <= 52);
    }

    /// Packets arrive every millisecond. The peer stalls for 10 ms, and then acknowledges the
    /// backlog in ten frames within a millisecond. Each frame reports its own ACK delay.
    #[test]
    fn a_backlog_acknowledged_at_once_is_sampled_at_the_rate_of_its_arrivals() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let mut flight = Flight::default();
        for ms in 0..70 {
            flight.on_sent(at(ms * 1000), 1000, ms);
            if (20..60).contains(&ms) {
                flight.on_acked(at(ms * 1000), &one(ms - 20));
                flight.take_sample(false);
            }
        }
        for number in 40..50 {
            let (arrived, delay) = (69_000 + number * 10, (49 - number) * 1000 + number * 10);
            flight.on_acked(at(arrived - delay), &one(number));
            let sample = flight.take_sample(false).unwrap();
            let delivered = flight.delivered() - sample.prior_delivered;
            let rate = delivered as f64 / sample.interval.as_secs_f64();
            assert!((900_000.0..1_100_000.0).contains(&rate), "{number}: {rate} bytes per second");
        }
    }

    #[test]
    fn samples_are_application_limited_until_all_limited_packets_are_delivered() {
        let start = Instant::now();
        let mut flight = Flight::default();
        flight.on_sent(start, 100, 0);
        flight.on_sent(start, 100, 1);
        let later = start + Duration::from_millis(5);
        flight.on_acked(later, &one(0));
        assert!(!flight.take_sample(true).unwrap().app_limited);
        flight.on_sent(later, 100, 2);
        flight.on_acked(later + Duration::from_millis(5), &one(2));
        let sample = flight.take_sample(false);
        assert!(sample.unwrap().app_limited);
    }

    #[test]
    fn a_late_acknowledgement_takes_back_the_loss_of_its_packet() {
        let now = Instant::now();
        let mut flight = Flight::default();
        for number in [0, 1, 2, 4, 5] {
            flight.on_sent(now, 100, number);
        }
        flight.on_acked(now, &one(5));
        flight.on_acked(now, &one(1));
        assert_eq!(flight.first_gap(0), Some(0));
        assert_eq!(flight.on_lost(200), Some(2));
        assert_eq!((flight.inflight(), flight.lost_total()), (100, 200));
        assert_eq!(flight.first_gap(0), Some(4));
        let late = flight.on_acked(now, &one(2));
        assert_eq!((late.not_lost, late.smallest), (100, Some(2)));
        assert_eq!((flight.inflight(), flight.lost_total()), (100, 100));
        assert_eq!(flight.on_lost(100), Some(4));
        assert_eq!((flight.inflight(), flight.delivered()), (0, 300));
    }

    #[test]
    fn packets_of_a_former_path_are_not_in_flight() {
        let now = Instant::now();
        let mut flight = Flight::default();
        for number in 0..3 {
            flight.on_sent(now, 100, number);
        }
        flight.leave_path();
        assert_eq!(flight.inflight(), 0);
        flight.on_sent(now, 100, 3);
        flight.on_sent(now, 100, 4);
        flight.on_acked(now, &one(1));
        assert_eq!((flight.inflight(), flight.delivered()), (200, 100));
        flight.on_acked(now, &one(4));
        assert_eq!(flight.on_lost(100), Some(3));
        assert_eq!((flight.inflight(), flight.lost_total()), (0, 100));
    }

    #[test]
    fn packet_numbers_far_apart_take_no_memory() {
        let now = Instant::now();
        let mut flight = Flight::default();
        for number in [3, 5, 1 << 40, (1 << 61) + 7, (1 << 62) - 1] {
            flight.on_sent(now, 100, number);
            flight.on_acked(now, &one(number));
            flight.on_lost(100);
        }
        assert!(flight.sent.len() as u64 <= MOST_GAP + 2);
        assert_eq!(flight.first_gap(0), None);
    }
}
