use std::time::Duration;

/// For how long packets have left the path and their acknowledgements were not looked at yet: the other end waits
/// for a few more before it acknowledges, and both ends are threads that do not always run. Meanwhile what has
/// arrived counts as in flight. A window for the path alone would leave it idle for as long.
#[derive(Debug, Default)]
pub(super) struct Lag {
    path: Duration,
    lag: Duration,
}

impl Lag {
    /// Of one packet: on the path there and back, and beside it.
    pub(super) fn on_rtt(&mut self, path: Duration, lag: Duration) {
        self.path = if self.path.is_zero() { path } else { (self.path * 7 + path) / 8 };
        let lag = lag.min(MOST);
        // What stops everything now and then has to be covered, too.
        self.lag =
            if lag > self.lag { (self.lag * 3 + lag) / 4 } else { (self.lag * 31 + lag) / 32 };
    }

    /// A window for the path, and what has left it.
    pub(super) fn with(&self, window: u64) -> u64 {
        (window as f64 * self.factor()) as u64
    }

    /// Of what is in flight, what is on the path.
    pub(super) fn without(&self, in_flight: u64) -> u64 {
        (in_flight as f64 / self.factor()) as u64
    }

    fn factor(&self) -> f64 {
        let path = self.path.as_secs_f64().max(LEAST_PATH.as_secs_f64());
        1.0 + self.lag.as_secs_f64() / path
    }
}

/// More would wait in the other end's socket, which does not hold more.
const MOST: Duration = Duration::from_millis(20);
/// Within a machine nothing is in flight but what lags.
const LEAST_PATH: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lags_is_beside_the_window() {
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
