use crate::core::{CoreAck, CoreOut, CorePath, TcpaCore, TcpaParams};
use crate::{Ack, CongestionControl, Loss, Memory, Path, Reduction};
use units::{Bytes, Rate, Share, Span, Time};

/// The algorithm of `core/tcpa.h`, as the kernel runs it.
#[derive(Debug, Clone)]
pub struct Tcpa {
    core: TcpaCore,
    out: CoreOut,
}

/// The tunables of the core, in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpaSettings {
    /// The first window without a memory of the path, which the sender paces over the first round
    /// trip.
    pub init_cwnd: u32,
    /// The window after a retransmission timeout.
    pub loss_init_cwnd: u32,
    /// Whether the flow sends less at times, to measure the path without this host's flows. Without
    /// pauses a flow detects neither a longer path nor another flow.
    pub pauses: bool,
}

impl Default for TcpaSettings {
    /// With these settings, the first window takes at most 300 ms of queue on a path of 2 Mbit/s.
    fn default() -> Self {
        Self { init_cwnd: 48, loss_init_cwnd: 10, pauses: true }
    }
}

impl Tcpa {
    /// Creates TCPA with the default settings at the start of a connection.
    pub fn new(path: &Path) -> Self {
        Self::with(path, TcpaSettings::default())
    }

    /// Creates TCPA with `settings` at the start of a connection.
    pub fn with(path: &Path, settings: TcpaSettings) -> Self {
        let TcpaSettings { init_cwnd, loss_init_cwnd, pauses } = settings;
        let params =
            TcpaParams { init_cwnd, loss_init_cwnd, no_pauses: (!pauses).into(), unused: 0 };
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

    fn leaves_out_waiting_bytes(&self) -> bool {
        true
    }

    fn note(&self) -> Option<Memory> {
        self.core.note().map(Memory::from)
    }

    fn path_loss(&self) -> Option<Share> {
        Some(self.core.floor())
    }

    fn in_slow_start(&self) -> bool {
        false
    }
}
