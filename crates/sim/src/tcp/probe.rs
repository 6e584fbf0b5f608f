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
    in_flight: Option<ProbeInFlight>,
}

#[derive(Debug, Clone, Copy)]
struct ProbeInFlight {
    /// TLP.end_seq.
    end: u64,
    /// Whether the probe retransmitted old data.
    repeats: bool,
}

impl Probe {
    /// Schedules a probe (RFC 8985, 7.2) after two round trips, and after the receiver's ACK delay
    /// if a single segment is in flight. The probe leaves at the latest when the retransmission
    /// timer would expire.
    pub(crate) fn schedule(
        &mut self,
        now: Time,
        rtt: &RoundTrip,
        alone: bool,
        timeout_at: Time,
        config: &TcpConfig,
    ) {
        self.at = None;
        if self.in_flight.is_some() || !config.tail_loss_probe {
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
        self.in_flight = Some(ProbeInFlight { end, repeats });
    }

    pub(crate) fn cancel(&mut self) {
        *self = Self::default();
    }

    /// Whether the ACK shows that the probe repaired a loss (RFC 8985, 7.4.2).
    pub(crate) fn repaired(&mut self, acknowledged: u64, needless: bool, news: bool) -> bool {
        let Some(in_flight) = self.in_flight.filter(|in_flight| acknowledged >= in_flight.end)
        else {
            return false;
        };
        let over = !in_flight.repeats || needless || acknowledged > in_flight.end || !news;
        if over {
            self.in_flight = None;
        }
        in_flight.repeats && !needless && acknowledged > in_flight.end
    }
}

/// `TCP_TIMEOUT_MIN_US`.
const GRANULARITY: Span = Span::from_millis(2);
