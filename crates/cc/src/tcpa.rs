use crate::core::{CoreAck, CoreOut, CorePath, TcpaCore, TcpaParams};
use crate::{Ack, CongestionControl, Loss, Path, Reduction};
use units::{Bytes, Rate, Span, Time};

/// The algorithm of `core/tcpa.h`, as the kernel runs it.
#[derive(Debug, Clone)]
pub struct Tcpa {
    core: TcpaCore,
    out: CoreOut,
}

impl Tcpa {
    pub fn new(path: &Path) -> Self {
        let params = TcpaParams { init_cwnd: INIT_CWND, loss_init_cwnd: LOSS_INIT_CWND };
        let (core, out) = TcpaCore::start(&params, &CorePath::from(path));
        Self { core, out }
    }
}

impl CongestionControl for Tcpa {
    fn name(&self) -> &'static str {
        "tcpa"
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.out = self.core.on_ack(&CoreAck::from(ack));
    }

    fn on_loss(&mut self, _loss: &Loss) {}

    fn on_recovered(&mut self, _now: Time) {}

    fn on_timeout(&mut self, _loss: &Loss) {
        self.out = self.core.on_timeout();
    }

    fn on_undo(&mut self, _now: Time) {}

    fn on_idle(&mut self, now: Time, _idle: Span) {
        self.out = self.core.on_idle(now.nanos() / 1000);
    }

    fn cwnd(&self) -> Bytes {
        self.out.cwnd()
    }

    fn ssthresh(&self) -> Bytes {
        Bytes::new(u64::MAX)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.out.pacing_rate())
    }

    fn reduction(&self) -> Reduction {
        Reduction::Own
    }

    fn in_slow_start(&self) -> bool {
        false
    }
}

/// Paced over the first round trip; on a path of 2 Mbit/s they wait 300 ms at most.
const INIT_CWND: u32 = 48;
const LOSS_INIT_CWND: u32 = 10;
