use std::time::Duration;

/// Tracks how long packets have left the path before this end processes their acknowledgements. The
/// peer delays its ACKs to gather a few packets, and both ends are threads that do not always run.
/// Packets that have arrived meanwhile still count as in flight. A window sized for the path alone
/// would leave the path idle for as long.
#[derive(Debug, Default)]
pub(super) struct Lag {
    path: Duration,
    lag: Duration,
}

impl Lag {
    /// Records one packet: its round trip on the path, and the additional delay at the ends.
    pub(super) fn on_rtt(&mut self, path: Duration, lag: Duration) {
        self.path = if self.path.is_zero() { path } else { (self.path * 7 + path) / 8 };
        let lag = lag.min(MOST);
        // The increase is fast and the decrease slow, so that occasional stalls are covered too.
        self.lag =
            if lag > self.lag { (self.lag * 3 + lag) / 4 } else { (self.lag * 31 + lag) / 32 };
    }

    /// The window for the path plus the lagging bytes.
    pub(super) fn with(&self, window: u64) -> u64 {
        (window as f64 * self.factor()) as u64
    }

    /// The part of the bytes in flight that is on the path.
    pub(super) fn without(&self, in_flight: u64) -> u64 {
        (in_flight as f64 / self.factor()) as u64
    }

    fn factor(&self) -> f64 {
        let path = self.path.as_secs_f64().max(LEAST_PATH.as_secs_f64());
        1.0 + self.lag.as_secs_f64() / path
    }
}

/// The peer's socket buffer holds no more than this delay's worth.
const MOST: Duration = Duration::from_millis(20);
/// Within one machine, all bytes in flight are lagging.
const LEAST_PATH: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lagging_bytes_extend_the_window() {
        let mut lag = Lag::default();
        assert_eq!(lag.with(1000), 1000);
        for _ in 0..200 {
            lag.on_rtt(Duration::from_millis(1), Duration::from_millis(2));
        }
        assert!((2990..=3000).contains(&lag.with(1000)), "{lag:?}");
        assert!((332..=336).contains(&lag.without(1000)), "{lag:?}");
        for _ in 0..500 {
            lag.on_rtt(Duration::from_millis(1), Duration::ZERO);
        }
        assert!(lag.with(1000) <= 1010, "{lag:?}");
    }
}
