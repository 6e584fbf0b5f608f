use super::ticks::Ticks;
use crate::TcpConfig;
use units::Span;

/// The round-trip time as in RFC 6298, with Linux's floor: the variation never counts for less than
/// the smallest timeout (`tcp_rtt_estimator`).
#[derive(Debug, Clone, Default)]
pub(crate) struct RoundTrip {
    smoothed: u64,
    variation: u64,
    latest: u64,
    min: u64,
    known: bool,
    /// Doublings since the last acknowledgement (RFC 6298, 5.5).
    pub(crate) backoff: u32,
}

impl RoundTrip {
    pub(crate) fn sample(&mut self, rtt: Span) {
        let rtt = rtt.nanos();
        self.latest = rtt;
        if !self.known {
            *self = Self {
                smoothed: rtt,
                variation: rtt / 2,
                latest: rtt,
                min: rtt,
                known: true,
                backoff: self.backoff,
            };
            return;
        }
        self.variation = (3 * self.variation + self.smoothed.abs_diff(rtt)) / 4;
        self.smoothed = (7 * self.smoothed + rtt) / 8;
        self.min = self.min.min(rtt);
    }

    /// Takes a shorter sample of the same ACK, which does not include the delay of the ACK.
    pub(crate) fn lower(&mut self, rtt: Span) {
        self.latest = rtt.nanos();
        self.min = self.min.min(rtt.nanos());
    }

    #[inline]
    pub(crate) fn smoothed(&self) -> Option<Span> {
        self.known.then_some(Span::from_nanos(self.smoothed))
    }

    /// Returns the smallest sample of this connection.
    #[inline]
    pub(crate) fn min(&self) -> Option<Span> {
        self.known.then_some(Span::from_nanos(self.min))
    }

    pub(crate) fn latest(&self) -> Option<Span> {
        self.known.then_some(Span::from_nanos(self.latest))
    }

    pub(crate) fn timeout(&self, config: &TcpConfig) -> Span {
        let base = if self.known {
            let variation = (4 * self.variation).max(config.rto_min.nanos());
            Span::from_nanos(self.smoothed + variation)
        } else {
            config.rto_initial
        };
        // `__tcp_set_rto` rounds the timeout to whole ticks, and each timeout doubles the ticks.
        let doubled = Ticks(config.tick).whole(base) * (1u64 << self.backoff.min(32));
        doubled.min(config.rto_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let config =
            TcpConfig { rto_min: Span::from_millis(1), tick: Span::ZERO, ..TcpConfig::default() };
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.timeout(&config), Span::from_secs(1));
        rtt.sample(Span::from_millis(100));
        assert_eq!(rtt.timeout(&config), Span::from_millis(300));
        rtt.sample(Span::from_millis(180));
        // RTTVAR = 3/4 50 + 1/4 80 = 57.5; SRTT = 7/8 100 + 1/8 180 = 110.
        assert_eq!(rtt.timeout(&config), Span::from_millis(340));
        rtt.backoff = 2;
        assert_eq!(rtt.timeout(&config), Span::from_millis(1360));
        rtt.backoff = 40;
        assert_eq!(rtt.timeout(&config), config.rto_max);
    }

    #[test]
    fn a_steady_path_waits_for_the_smallest_timeout() {
        let mut rtt = RoundTrip::default();
        (0..100).for_each(|_| rtt.sample(Span::from_millis(20)));
        assert_eq!(rtt.timeout(&TcpConfig::default()), Span::from_millis(220));
    }
}
