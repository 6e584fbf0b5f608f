use crate::{Ack, CongestionControl, Loss, Path, Reduction};
use units::{Bytes, Span, Time};

/// Reno: slow start, additive increase, and half of the window after a loss (RFC 5681). The host
/// performs the recovery of RFC 6582.
#[derive(Debug, Clone)]
pub struct Reno {
    mss: u64,
    initial: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged since the window last grew, in congestion avoidance.
    counted: u64,
    /// Window and threshold before the latest reduction.
    before: (u64, u64),
}

impl Reno {
    /// Creates Reno at the start of a connection.
    pub fn new(path: &Path) -> Self {
        let initial = path.initial_window.count();
        Self {
            mss: path.mss.count().max(1),
            initial,
            cwnd: initial,
            ssthresh: u64::MAX,
            counted: 0,
            before: (initial, u64::MAX),
        }
    }

    /// Takes half of `numerator / denominator` off the window, for a mark without a loss.
    pub(crate) fn shrink_by(&mut self, numerator: u64, denominator: u64) {
        let cut =
            (u128::from(self.cwnd) * u128::from(numerator) / u128::from(2 * denominator)) as u64;
        self.cwnd = (self.cwnd - cut.min(self.cwnd)).max(2 * self.mss);
        self.ssthresh = self.cwnd;
        self.counted = 0;
    }

    fn reduce(&mut self) {
        self.before = (self.cwnd, self.ssthresh);
        // Halve the window and not the flight, which RFC 5681 (4) names: an unused window did not
        // grow, and a host whose segmentation offload waits for more data leaves a third of the
        // window unused (`tcp_reno_ssthresh`). Round down to whole segments, as Linux does: in a
        // small window half a segment is a large share.
        let segments = self.cwnd / (2 * self.mss);
        self.ssthresh = segments.max(2) * self.mss;
        self.counted = 0;
    }
}

impl CongestionControl for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn on_ack(&mut self, ack: &Ack) {
        // Do not grow a window that the flow does not use (RFC 7661).
        if ack.in_recovery || !ack.window_limited {
            return;
        }
        let mut acked = ack.acked.count();
        if self.cwnd < self.ssthresh {
            let room = (self.ssthresh - self.cwnd).min(acked);
            self.cwnd += room;
            acked -= room;
        }
        self.counted += acked;
        // Appropriate byte counting (RFC 3465): add a segment for each acknowledged window.
        while self.counted >= self.cwnd && acked > 0 {
            self.counted -= self.cwnd;
            self.cwnd += self.mss;
        }
    }

    fn on_loss(&mut self, _loss: &Loss) {
        self.reduce();
    }

    fn on_recovered(&mut self, _now: Time) {
        self.cwnd = self.cwnd.min(self.ssthresh);
    }

    fn on_timeout(&mut self, loss: &Loss) {
        if !loss.repeated {
            self.reduce();
        }
        self.cwnd = self.mss;
    }

    fn on_undo(&mut self, _now: Time) {
        (self.cwnd, self.ssthresh) = (self.cwnd.max(self.before.0), self.before.1);
    }

    fn on_idle(&mut self, _now: Time, _idle: Span) {
        // RFC 5681, 4.1: restart with no more than the initial window. The caller reports idle
        // periods of at least one timeout.
        self.cwnd = self.cwnd.min(self.initial);
    }

    fn cwnd(&self) -> Bytes {
        Bytes::new(self.cwnd)
    }

    fn ssthresh(&self) -> Bytes {
        Bytes::new(self.ssthresh)
    }

    fn reduction(&self) -> Reduction {
        Reduction::Proportional
    }
}
