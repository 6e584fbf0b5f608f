use crate::round::Rounds;
use crate::{Ack, CongestionControl, Loss, Path, Reduction, Reno};
use units::{Bytes, Span, Time};

/// DCTCP (RFC 8257): Reno, but marks shrink the window by half of the share of marked bytes.
#[derive(Debug, Clone)]
pub struct Dctcp {
    reno: Reno,
    /// The moving average of the share of marked bytes, in 1/2²⁰.
    alpha: u64,
    rounds: Rounds,
    acked: u64,
    marked: u64,
    /// The value of `delivered` at the last reduction: marks on data sent before the reduction
    /// cause no further reduction.
    reduced_until: Bytes,
}

impl Dctcp {
    /// Creates DCTCP at the start of a connection.
    pub fn new(path: &Path) -> Self {
        Self {
            reno: Reno::new(path),
            // RFC 8257, 4.2: the first mark halves the window, as a loss would.
            alpha: ONE,
            rounds: Rounds::default(),
            acked: 0,
            marked: 0,
            reduced_until: Bytes::new(0),
        }
    }

    /// Returns the moving average of the share of marked bytes.
    pub fn alpha(&self) -> f64 {
        self.alpha as f64 / ONE as f64
    }

    fn end_round(&mut self) {
        if let Some(share) = (self.marked * ONE).checked_div(self.acked) {
            self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (share >> GAIN_SHIFT);
            self.alpha = self.alpha.min(ONE);
        }
        (self.acked, self.marked) = (0, 0);
    }
}

impl CongestionControl for Dctcp {
    fn name(&self) -> &'static str {
        "dctcp"
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.acked += ack.acked.count();
        self.marked += ack.marked.count().min(ack.acked.count());
        if self.rounds.on_ack(ack) {
            self.end_round();
        }
        if ack.marked.count() > 0 && ack.prior_delivered >= self.reduced_until && !ack.in_recovery {
            // RFC 8257, 3.3: reduce once for each window of data.
            self.reduced_until = ack.delivered;
            self.reno.shrink_by(self.alpha, ONE);
        } else {
            self.reno.on_ack(ack);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.reno.on_loss(loss);
    }

    fn on_recovered(&mut self, now: Time) {
        self.reno.on_recovered(now);
    }

    fn on_timeout(&mut self, loss: &Loss) {
        self.reno.on_timeout(loss);
    }

    fn on_undo(&mut self, now: Time) {
        self.reno.on_undo(now);
    }

    fn on_idle(&mut self, now: Time, idle: Span) {
        self.reno.on_idle(now, idle);
    }

    fn cwnd(&self) -> Bytes {
        self.reno.cwnd()
    }

    fn ssthresh(&self) -> Bytes {
        self.reno.ssthresh()
    }

    fn reduction(&self) -> Reduction {
        Reduction::Proportional
    }

    fn wants_ecn(&self) -> bool {
        true
    }
}

const ONE: u64 = 1 << 20;
/// The shift of the gain of the moving average, 1/16 (RFC 8257, 4.2).
const GAIN_SHIFT: u32 = 4;
