use super::rtt::RoundTrip;
use super::ticks::Ticks;
use crate::TcpConfig;
use units::{Span, Time};

/// Tail loss probe (RFC 8985, 7).
#[derive(Debug, Clone, Default)]
pub(crate) struct Probe {
    /// The time of the next probe.
    pub(crate) at: Option<Time>,
    /// The probe in flight.
    flying: Option<Flying>,
}

#[derive(Debug, Clone, Copy)]
struct Flying {
    /// TLP.end_seq.
    end: u64,
    /// The probe retransmitted old data.
    repeats: bool,
}

impl Probe {
    /// 7.2: two round trips, and the receiver's delay if it may wait for a second segment. At the
    /// latest, the probe replaces the expiry of the retransmission timer.
    pub(crate) fn schedule(
        &mut self,
        now: Time,
        rtt: &RoundTrip,
        alone: bool,
        timeout_at: Time,
        config: &TcpConfig,
    ) {
        self.at = None;
        if self.flying.is_some() || !config.tail_loss_probe {
            return;
        }
        let wait = match rtt.smoothed() {
            Some(smoothed) if alone => smoothed * 2 + config.rto_min,
            Some(smoothed) => smoothed * 2 + GRANULARITY,
            None => config.rto_initial,
        };
        self.at = Some(Ticks(config.tick).after(now, wait).min(timeout_at));
    }

    pub(crate) fn sent(&mut self, end: u64, repeats: bool) {
        self.at = None;
        self.flying = Some(Flying { end, repeats });
    }

    pub(crate) fn cancel(&mut self) {
        *self = Self::default();
    }

    /// 7.4.2: whether the ACK shows that the probe repaired a loss.
    pub(crate) fn repaired(&mut self, acknowledged: u64, needless: bool, news: bool) -> bool {
        let Some(flying) = self.flying.filter(|flying| acknowledged >= flying.end) else {
            return false;
        };
        let over = !flying.repeats || needless || acknowledged > flying.end || !news;
        if over {
            self.flying = None;
        }
        flying.repeats && !needless && acknowledged > flying.end
    }
}

/// `TCP_TIMEOUT_MIN_US`.
const GRANULARITY: Span = Span::from_millis(2);
