//! The rate limit of one identity in one direction.
//!
//! The limit is a token bucket that may go below zero. If the bucket holds any token, a tunnel
//! takes all tokens that it needs, and the next tunnel waits until the balance is positive again.
//! Tunnels take tokens in turn, so that each tunnel gets the same share of the rate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use units::Rate;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The limit in bits per second; 0 means no limit.
    rate: AtomicU64,
    /// The lock that the tunnel whose turn is next holds.
    turn: tokio::sync::Mutex<()>,
    bucket: Mutex<Bucket>,
}

/// Tokens, one for each byte; a debt counts as negative tokens.
#[derive(Debug, Default)]
struct Bucket {
    tokens: f64,
    filled: Option<Instant>,
}

impl Pace {
    pub(super) fn set(&self, rate: Option<Rate>) {
        self.rate.store(rate.map_or(0, Rate::bits_per_second), Ordering::Relaxed);
    }

    pub(super) fn is_limited(&self) -> bool {
        self.rate.load(Ordering::Relaxed) > 0
    }

    /// Waits for earlier tunnels, and then for tokens. A changed rate also applies to waiting
    /// tunnels.
    pub(super) async fn pass(&self, bytes: usize) {
        let _turn = self.turn.lock().await;
        while let Some(rate) = self.bytes_per_second() {
            let wait = self.bucket().take(rate, bytes, 0.0, Instant::now());
            let Some(wait) = wait else { return };
            tokio::time::sleep(wait.min(LOOK_AGAIN)).await;
        }
    }

    /// Takes the tokens of a datagram at once. Returns false if this is not possible. A datagram
    /// may run up a debt as large as the bucket, because waiting tunnels leave no tokens.
    pub(super) fn passes_now(&self, bytes: usize) -> bool {
        let Some(rate) = self.bytes_per_second() else { return true };
        self.bucket().take(rate, bytes, -depth(rate), Instant::now()).is_none()
    }

    /// Maximum number of bytes that a tunnel may carry in one turn.
    pub(super) fn at_once(&self) -> usize {
        self.bytes_per_second().map_or(usize::MAX, |rate| depth(rate) as usize)
    }

    fn bytes_per_second(&self) -> Option<f64> {
        let rate = self.rate.load(Ordering::Relaxed);
        (rate > 0).then(|| rate as f64 / 8.0)
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    /// Takes `bytes` tokens if the bucket holds more than `least`. Otherwise returns the time until
    /// the bucket holds more than `least`. `rate` is in bytes per second.
    fn take(&mut self, rate: f64, bytes: usize, least: f64, now: Instant) -> Option<Duration> {
        let passed = self.filled.map(|filled| now.saturating_duration_since(filled));
        let added = passed.map_or(f64::INFINITY, |passed| passed.as_secs_f64() * rate);
        self.tokens = (self.tokens + added).min(depth(rate));
        self.filled = Some(now);
        if self.tokens > least {
            self.tokens -= bytes as f64;
            return None;
        }
        let missing = (least - self.tokens) / rate;
        Some(Duration::from_secs_f64(missing.min(LONGEST)) + SHORTEST)
    }
}

/// Returns the size of the bucket: the bytes of 20 ms, because timers fire some milliseconds late,
/// but at least 4096 for a few packets.
fn depth(rate: f64) -> f64 {
    (rate / 50.0).max(4096.0)
}

/// Maximum time until a waiting tunnel notices a changed rate.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const SHORTEST: Duration = Duration::from_micros(100);
/// Maximum wait for tokens before the next check, in seconds.
const LONGEST: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes chunks through the bucket for ten seconds. Returns the number of bytes that passed.
    fn carried(rate: f64, chunk: usize, late: Duration) -> f64 {
        let (mut bucket, begun) = (Bucket::default(), Instant::now());
        let (mut now, mut sum) = (begun, 0.0);
        while now < begun + Duration::from_secs(10) {
            match bucket.take(rate, chunk, 0.0, now) {
                None => sum += chunk as f64,
                Some(wait) => now += wait.min(LOOK_AGAIN) + late,
            }
        }
        sum
    }

    #[test]
    fn tunnels_keep_the_rate_limit_with_any_chunk_size_and_timer_lateness() {
        for rate in [8e3, 125e3, 6.25e6, 125e6] {
            for chunk in [100, 1400, 64 << 10] {
                for late in [Duration::ZERO, Duration::from_millis(4)] {
                    let most = rate * 10.0 + depth(rate) + chunk as f64;
                    let sum = carried(rate, chunk, late);
                    assert!(sum <= most * 1.001, "{rate} {chunk} {late:?}: {sum}");
                    assert!(sum >= rate * 10.0 * 0.97, "{rate} {chunk} {late:?}: {sum}");
                }
            }
        }
    }

    #[test]
    fn datagrams_pass_within_the_rate_limit_although_tunnels_use_all_tokens() {
        let (mut bucket, begun, rate) = (Bucket::default(), Instant::now(), 125e3);
        let (mut passed, mut streams) = (0, 0);
        for millisecond in 0..10_000 {
            let now = begun + Duration::from_millis(millisecond);
            while bucket.take(rate, 1400, 0.0, now).is_none() {
                streams += 1400;
            }
            // Send 50 datagrams per second beside the tunnels.
            if millisecond % 20 == 0 && bucket.take(rate, 200, -depth(rate), now).is_none() {
                passed += 200;
            }
        }
        assert_eq!(passed, 500 * 200);
        assert!(f64::from(passed + streams) <= rate * 10.0 + depth(rate) + 1600.0);
        let flood = (0..10_000).filter(|millisecond| {
            let now = begun + Duration::from_millis(10_000 + millisecond);
            bucket.take(rate, 1400, -depth(rate), now).is_none()
        });
        assert!(flood.count() as f64 * 1400.0 <= rate * 10.0 + 2.0 * depth(rate) + 1400.0);
    }

    #[test]
    fn a_changed_rate_limit_applies_at_once() {
        let pace = Pace::default();
        assert!(!pace.is_limited() && pace.passes_now(usize::MAX >> 12));
        pace.set(Some("8kbit".parse().unwrap()));
        assert!(pace.is_limited() && pace.at_once() == 4096);
        assert!(pace.passes_now(100_000) && !pace.passes_now(1));
        pace.set(None);
        assert!(pace.passes_now(1) && pace.at_once() == usize::MAX);
    }
}
