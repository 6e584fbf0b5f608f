use std::time::{Duration, Instant};

/// Decides when the next packets may leave. Packets leave in trains; a train is the packets that
/// one call hands to the kernel. A train has at most a millisecond of packets at the pacing rate,
/// or two packets on a slow path, and so fits into a short queue.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// The rate in bytes per second; `None` if only the window limits the sender.
    rate: Option<u64>,
    /// The time at which the next packet is due.
    next: Option<Instant>,
    /// The earliest start of the next train, even if the sender is behind the rate.
    not_before: Option<Instant>,
    /// Whether packets waited only for the pacer. The sender may then catch up after a late timer.
    waiting: bool,
    /// The number of bytes left in the present train.
    left: u64,
    train_ends: Option<Instant>,
}

impl Pacer {
    pub(crate) fn set_rate(&mut self, rate: Option<u64>) {
        self.rate = rate.map(|rate| rate.max(1));
    }

    /// Returns the number of bytes that may leave now. A sender that wakes up late catches up at
    /// twice the rate.
    pub(crate) fn allowance(&mut self, now: Instant, packet: u64) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let next = self.next.unwrap_or(now);
        if self.left > 0 && now < self.train_ends.unwrap_or(now) {
            return self.left;
        }
        if next > now || self.not_before.is_some_and(|bound| now < bound) {
            return 0;
        }
        let train = train(rate, packet);
        // On a fast path, the sender also catches up after a late application.
        let made_up_for = std::mem::take(&mut self.waiting) || rate >= FAST;
        let overdue = match made_up_for {
            true => now.saturating_duration_since(next).min(most_overdue(rate)),
            false => Duration::ZERO,
        };
        self.next = Some(now - overdue);
        self.left = train + bytes(rate, overdue).min(train);
        self.train_ends = Some(now + time(rate, self.left) / 2);
        self.not_before = self.train_ends;
        self.left
    }

    pub(crate) fn on_sent(&mut self, now: Instant, sent: u64) {
        let Some(rate) = self.rate else { return };
        self.next = Some(self.next.unwrap_or(now) + time(rate, sent));
        self.left = self.left.saturating_sub(sent);
    }

    /// Returns the time at which the waiting packets may leave.
    pub(crate) fn wait(&mut self) -> Option<Instant> {
        self.rate?;
        self.waiting = true;
        self.next.max(self.not_before)
    }
}

/// Returns the size of a train in bytes. A fast path has room for a millisecond of packets, and
/// longer trains save system calls. A slow path may have a queue of only a few packets.
fn train(rate: u64, packet: u64) -> u64 {
    let length = SHORT_TRAIN + (TRAIN - SHORT_TRAIN).mul_f64(speed(rate));
    bytes(rate, length).max(2 * packet)
}

/// Returns the maximum lateness after which a sender catches up completely. While the sender was
/// late, the path's queue drained, so the whole length of the queue is free.
fn most_overdue(rate: u64) -> Duration {
    SHORT_OVERDUE + (MOST_OVERDUE - SHORT_OVERDUE).mul_f64(speed(rate))
}

/// Returns 0 for a slow path, 1 for a fast path, and a value between 0 and 1 for a rate between
/// both.
fn speed(rate: u64) -> f64 {
    (rate.saturating_sub(SLOW) as f64 / (FAST - SLOW) as f64).clamp(0.0, 1.0)
}

fn bytes(rate: u64, time: Duration) -> u64 {
    (u128::from(rate) * time.as_nanos() / 1_000_000_000) as u64
}

fn time(rate: u64, bytes: u64) -> Duration {
    Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64)
}

const TRAIN: Duration = Duration::from_millis(1);
const SHORT_TRAIN: Duration = Duration::from_micros(500);
/// The rate of a slow path and of a fast path in bytes per second: 200 Mbit/s and 400 Mbit/s.
const SLOW: u64 = 25_000_000;
const FAST: u64 = 50_000_000;
const SHORT_OVERDUE: Duration = Duration::from_millis(1);
/// Maximum lateness after which a sender on a fast path catches up completely.
const MOST_OVERDUE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that leave in `ms` milliseconds if the sender asks the pacer every `step`,
    /// and the size of the largest train in packets.
    fn carried(rate: u64, ms: u64, step: Duration) -> (u64, u64) {
        let start = Instant::now();
        let mut pacer = Pacer::default();
        pacer.set_rate(Some(rate));
        let (mut now, mut sent, mut largest) = (start, 0, 0);
        while now < start + Duration::from_millis(ms) {
            let allowed = pacer.allowance(now, 1200);
            let packets = allowed / 1200;
            if packets > 0 {
                pacer.on_sent(now, packets * 1200);
                sent += packets * 1200;
                largest = largest.max(packets);
                pacer.wait();
            }
            now += step;
        }
        (sent, largest)
    }

    #[test]
    fn pacing_keeps_the_rate_in_short_trains() {
        // At 50 Mbit/s, a millisecond has five packets.
        let (sent, largest) = carried(6_250_000, 1000, Duration::from_micros(50));
        assert!((6_150_000..=6_260_000).contains(&sent), "{sent}");
        assert_eq!(largest, 2);
        // At 600 Mbit/s, a train has a millisecond of packets.
        let (sent, largest) = carried(75_000_000, 1000, Duration::from_micros(50));
        assert!((73_500_000..=75_200_000).contains(&sent), "{sent}");
        assert!((60..=63).contains(&largest), "{largest}");
        // At 1 Mbit/s, a train has two packets.
        let (sent, largest) = carried(125_000, 1000, Duration::from_micros(50));
        assert!((122_000..=130_000).contains(&sent), "{sent}");
        assert_eq!(largest, 2);
    }

    #[test]
    fn pacing_does_not_make_up_for_time_without_waiting_packets() {
        let start = Instant::now();
        let mut pacer = Pacer::default();
        pacer.set_rate(Some(6_250_000));
        assert_eq!(pacer.allowance(start, 1200), 3125);
        pacer.on_sent(start, 2400);
        let later = start + Duration::from_millis(4);
        assert_eq!(pacer.allowance(later, 1200), 3125);
    }

    #[test]
    fn a_late_sender_catches_up_without_a_long_train() {
        let (sent, largest) = carried(6_250_000, 1000, Duration::from_micros(900));
        assert!((6_100_000..=6_260_000).contains(&sent), "{sent}");
        assert!(largest <= 5, "{largest}");
    }
}
