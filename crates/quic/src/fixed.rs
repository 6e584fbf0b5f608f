use cc::{Ack, CongestionControl, Loss, Reduction};
use units::{Bytes, Rate, Span, Time};

/// Sends at a configured rate. The window stops the sender only if no acknowledgements arrive.
#[derive(Debug)]
pub(super) struct Fixed {
    rate: Rate,
    rtt: Span,
}

impl Fixed {
    pub(super) fn new(rate: Rate, rtt: Span) -> Self {
        Self { rate, rtt }
    }
}

impl CongestionControl for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.rtt = (self.rtt * 7 + rtt) / 8;
        }
    }

    fn on_loss(&mut self, _loss: &Loss) {}

    fn on_recovered(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _loss: &Loss) {}

    fn on_undo(&mut self, _now: Time) {}

    fn on_idle(&mut self, _now: Time, _idle: Span) {}

    fn cwnd(&self) -> Bytes {
        // Return twice the bandwidth-delay product, plus an allowance for late timers and delayed
        // acknowledgements.
        self.rate.bytes_in(self.rtt * 2 + Span::from_millis(10)) + Bytes::kib(16)
    }

    fn ssthresh(&self) -> Bytes {
        Bytes::new(u64::MAX)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    fn reduction(&self) -> Reduction {
        Reduction::Own
    }
}
