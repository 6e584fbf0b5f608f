//! Computes the buffer sizes that a connection needs from measurements of its path.

use std::time::{Duration, Instant};

/// The bytes that the receiving end of a connection must be able to hold: 6.5 times the path's
/// bandwidth-delay product, measured from the received bytes. A packet that is lost twice arrives 2
/// to 3 RTTs late, and the path continues to deliver packets meanwhile.
#[derive(Debug, Clone)]
pub struct PathWindow {
    least: u64,
    bound: u64,
    since: Instant,
    received: u64,
    /// Maximum bandwidth-delay product of recent measurements, in bytes.
    largest: u64,
    stretches: u32,
}

impl PathWindow {
    /// Starts measuring at `now`. The bound begins at `least` bytes and never falls below it.
    pub fn new(now: Instant, least: u64) -> Self {
        Self { least, bound: least, since: now, received: 0, largest: 0, stretches: 0 }
    }

    /// Returns the number of bytes that the receiving end must be able to hold now.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Records received bytes. Returns the bound if the bound changed. Calls `rtt` once per
    /// measurement.
    pub fn receive(
        &mut self,
        now: Instant,
        bytes: u64,
        rtt: impl FnOnce() -> Duration,
    ) -> Option<u64> {
        self.received += bytes;
        let passed = now.saturating_duration_since(self.since);
        if passed < STRETCH {
            return None;
        }
        let rtt = rtt().max(Duration::from_millis(1));
        let product = self.received as f64 * rtt.as_secs_f64() / passed.as_secs_f64();
        (self.since, self.received) = (now, 0);
        self.stretches += 1;
        if self.stretches >= REMEMBERED {
            self.stretches = 0;
            self.largest -= self.largest / 4;
        }
        self.largest = self.largest.max(product as u64);
        let wanted = (self.largest * 13 / 2).max(self.least);
        // Increase the bound at once, but decrease it only to a half or less.
        if wanted <= self.bound && wanted >= self.bound / 2 {
            return None;
        }
        self.bound = wanted;
        Some(wanted)
    }

    /// Resets the bound of a connection that has become idle.
    pub fn forget(&mut self) {
        (self.largest, self.bound) = (0, self.least);
    }
}

/// Returns the new limit of unacknowledged bytes at the sending end, if the limit `present` must
/// change. The sender keeps data that was delivered after a gap until the gap is filled, so a limit
/// of one congestion window would stall the sender.
pub fn send_window(cwnd: u64, least: u64, present: u64) -> Option<u64> {
    let wanted = cwnd.saturating_mul(7).clamp(least, SEND_LIMIT);
    (wanted > present || wanted < present / 4).then_some(wanted)
}

/// Duration of one rate measurement.
const STRETCH: Duration = Duration::from_millis(20);
const REMEMBERED: u32 = 50;
/// Maximum send window that a path needs, in bytes.
const SEND_LIMIT: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: u64 = 512 * 1024;

    #[test]
    fn the_path_window_follows_the_bandwidth_delay_product_and_shrinks_slowly() {
        let start = Instant::now();
        let mut window = PathWindow::new(start, LEAST);
        let rtt = || Duration::from_millis(100);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(window.receive(at(10), 1000, rtt), None);
        // 1 MB in 20 ms at an RTT of 100 ms is a bandwidth-delay product of 5 MB.
        let grown = window.receive(at(20), 999_000, rtt).unwrap();
        assert_eq!(grown, 32_500_000);
        assert_eq!(window.receive(at(40), 900_000, rtt), None);
        let mut last = None;
        for stretch in 3..400 {
            last = window.receive(at(20 * stretch), 0, rtt).or(last);
        }
        assert!(last.unwrap() < grown / 2 && last == Some(window.bound()), "{last:?}");
        window.forget();
        assert_eq!(window.bound(), LEAST);
    }

    #[test]
    fn a_send_window_grows_at_once_and_shrinks_late() {
        assert_eq!(send_window(LEAST, LEAST, LEAST), Some(7 * LEAST));
        assert_eq!(send_window(LEAST, LEAST, 8 * LEAST), None);
        assert_eq!(send_window(0, LEAST, 8 * LEAST), Some(LEAST));
        assert_eq!(send_window(u64::MAX, LEAST, LEAST), Some(SEND_LIMIT));
    }
}
