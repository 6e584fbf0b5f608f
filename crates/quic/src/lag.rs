use std::time::Duration;

/// Tracks the lag: the time between a packet's arrival and this end's processing of its
/// acknowledgement, without the path's delay. The peer delays its ACKs to gather a few packets, and
/// the threads of both ends do not always run. During the lag, packets that have already arrived
/// still count as in flight, so a window that is sized for the path alone would leave the path
/// idle.
#[derive(Debug, Default)]
pub(super) struct Lag {
    path: Duration,
    lag: Duration,
}

impl Lag {
    /// Records the round trip of one packet: its time on the path, and the additional delay at the
    /// ends.
    pub(super) fn on_rtt(&mut self, path: Duration, lag: Duration) {
        self.path = if self.path.is_zero() { path } else { (self.path * 7 + path) / 8 };
        let lag = lag.min(MOST);
        // Increase the lag fast and decrease it slowly, so that it covers occasional stalls.
        self.lag =
            if lag > self.lag { (self.lag * 3 + lag) / 4 } else { (self.lag * 31 + lag) / 32 };
    }

    /// Returns the window for the path, plus the bytes that arrive during the lag.
    pub(super) fn with(&self, window: u64) -> u64 {
        (window as f64 * self.factor()) as u64
    }

    /// Returns the part of the bytes in flight that is still on the path.
    pub(super) fn without(&self, in_flight: u64) -> u64 {
        (in_flight as f64 / self.factor()) as u64
    }

    fn factor(&self) -> f64 {
        let path = self.path.as_secs_f64().max(LEAST_PATH.as_secs_f64());
        1.0 + self.lag.as_secs_f64() / path
    }
}

/// Maximum lag. The peer's socket buffer holds no more bytes than arrive in this time.
const MOST: Duration = Duration::from_millis(20);
/// Minimum path delay, for paths within one machine, where the lag is the whole round trip.
const LEAST_PATH: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_of_acknowledgements_enlarges_the_window() {
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
