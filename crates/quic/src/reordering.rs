//! Tracks packets that arrive late, and how long the sender waits before it counts them as lost.
//!
//! quinn-proto counts a packet as lost once three later packets were acknowledged, or after 9/8 of
//! an RTT, and never changes these limits. On a path that reorders by jitter, quinn-proto would
//! retransmit a part of all packets needlessly. RACK (RFC 8985) widens its window when it detects
//! reordering, and this module does the same. While the window is open, this module withholds
//! acknowledgements from the engine: the acknowledgements of packets after a gap wait until the gap
//! is filled or is older than the window. On a path without reordering, the engine's own limits
//! apply.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Reordering {
    window: Duration,
    /// The highest acknowledged packet numbers, with the times of their acknowledgements.
    history: VecDeque<(u64, Instant)>,
    /// Maximum delay of a late packet after the first later packet, in the present measurement
    /// period and in the previous period.
    latest: [Duration; 2],
    stretch_began: Option<Instant>,
    late: u64,
}

impl Reordering {
    /// Returns the time for which a gap stays open before the engine learns of the gap.
    pub(crate) fn window(&self) -> Duration {
        self.window
    }

    /// Returns the number of packets that arrived after later packets.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Records an acknowledgement of packets up to `largest`. `smallest` is the lowest packet
    /// number that this acknowledgement newly acknowledged.
    pub(crate) fn on_acked(&mut self, now: Instant, smallest: u64, largest: u64, srtt: Duration) {
        if let Some(open_since) = self.open_since(smallest) {
            self.late += 1;
            let late = now.saturating_duration_since(open_since);
            self.latest[0] = self.latest[0].max(late);
            self.widen(srtt);
        }
        if self.history.back().is_none_or(|(known, _)| *known < largest) {
            self.history.push_back((largest, now));
        }
        let began = *self.stretch_began.get_or_insert(now);
        if now.saturating_duration_since(began) > srtt * STRETCH {
            self.stretch_began = Some(now);
            self.window = Duration::ZERO;
            self.latest[1] = std::mem::take(&mut self.latest[0]);
            self.widen(srtt);
        }
        while self.history.len() > MOST_HISTORY
            || self
                .history
                .front()
                .is_some_and(|(_, at)| now.saturating_duration_since(*at) > srtt * 2 + self.window)
                && self.history.len() > 1
        {
            self.history.pop_front();
        }
    }

    /// Returns the time at which the first acknowledgement of a packet later than `number` arrived.
    pub(crate) fn open_since(&self, number: u64) -> Option<Instant> {
        let index = self.history.partition_point(|(largest, _)| *largest <= number);
        self.history.get(index).map(|(_, at)| *at)
    }

    fn widen(&mut self, srtt: Duration) {
        let latest = self.latest[0].max(self.latest[1]);
        // RFC 8985, section 6.2: a window above one RTT would delay retransmissions too much.
        self.window = self.window.max((latest * 5 / 4).min(srtt));
    }
}

/// Minimum number of RTTs for which a late arrival keeps the window open. RFC 8985 keeps its window
/// for 16 recoveries.
const STRETCH: u32 = 16;
const MOST_HISTORY: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    #[test]
    fn the_reordering_window_covers_the_latest_arrival_and_closes_again() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut reordering = Reordering::default();
        reordering.on_acked(at(0), 0, 3, RTT);
        assert_eq!(reordering.window(), Duration::ZERO);
        reordering.on_acked(at(1), 5, 9, RTT);
        assert_eq!(reordering.open_since(4), Some(at(1)));
        assert_eq!(reordering.open_since(9), None);
        // Packet 4 arrives 8 ms after packet 9.
        reordering.on_acked(at(9), 4, 9, RTT);
        assert_eq!(reordering.window(), Duration::from_millis(10));
        // The window never exceeds one RTT.
        reordering.on_acked(at(10), 11, 12, RTT);
        reordering.on_acked(at(60), 10, 13, RTT);
        assert_eq!(reordering.window(), RTT);
        for (number, ms) in (14..).zip(61..1000) {
            reordering.on_acked(at(ms), number, number, RTT);
        }
        assert_eq!(reordering.window(), Duration::ZERO);
        assert!(reordering.history.len() <= 64);
    }
}
