use crate::hystart::{CONSERVATIVE_DIVISOR, Growth, HyStart};
use crate::{Ack, CongestionControl, Loss, Path, Reduction};
use units::{Bytes, Rate, Span, Time};

/// CUBIC (RFC 9438) with HyStart++ (RFC 9406).
#[derive(Debug, Clone)]
pub struct Cubic {
    mss: f64,
    initial: f64,
    /// In segments, as everything the RFC counts.
    cwnd: f64,
    ssthresh: f64,
    /// The window at which the last reduction came, lowered for fast convergence.
    w_max: f64,
    /// Just before that reduction.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
    hystart: HyStart,
    srtt: Option<Span>,
    before: Option<(f64, f64, f64, f64)>,
}

/// A stretch of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Time,
    /// When the cubic is back at its plateau, in seconds from the start.
    k: f64,
    plateau: f64,
    /// What Reno would have reached.
    w_est: f64,
}

impl Cubic {
    pub fn new(path: &Path) -> Self {
        let mss = path.mss.count().max(1) as f64;
        let initial = path.initial_window.count() as f64 / mss;
        Self {
            mss,
            initial,
            cwnd: initial,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            cwnd_prior: initial,
            epoch: None,
            hystart: HyStart::new(),
            srtt: path.handshake_rtt,
            before: None,
        }
    }

    fn slow_start(&mut self, ack: &Ack, segments: f64) -> f64 {
        let growth = match self.hystart.on_ack(ack) {
            Growth::Full => segments,
            Growth::Conservative => segments / CONSERVATIVE_DIVISOR as f64,
            Growth::Ends => {
                self.ssthresh = self.cwnd;
                return segments;
            }
        };
        let room = (self.ssthresh - self.cwnd).max(0.0).min(growth);
        self.cwnd += room;
        if room < growth { growth - room } else { 0.0 }
    }

    fn avoid_congestion(&mut self, ack: &Ack, segments: f64) {
        let epoch = self.epoch.get_or_insert_with(|| {
            // Without a loss behind it (slow start left by HyStart++) the plateau is where it stands.
            let plateau = self.w_max.max(self.cwnd);
            let k = ((plateau - self.cwnd) / C).cbrt();
            Epoch { start: ack.now, k, plateau, w_est: self.cwnd }
        });
        let alpha = if epoch.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        epoch.w_est += alpha * segments / self.cwnd;
        let t = ack.now.since(epoch.start).secs_f64();
        let cubic = |t: f64| C * (t - epoch.k).powi(3) + epoch.plateau;
        if cubic(t) < epoch.w_est {
            self.cwnd = self.cwnd.max(epoch.w_est);
            return;
        }
        let rtt = self.srtt.map_or(0.0, |rtt| rtt.secs_f64());
        let target = cubic(t + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
        self.cwnd += (target - self.cwnd) / self.cwnd * segments;
    }

    fn reduce(&mut self) {
        self.before = Some((self.cwnd, self.ssthresh, self.w_max, self.cwnd_prior));
        self.cwnd_prior = self.cwnd;
        // Fast convergence (4.7): a flow that lost ground leaves more of it to others.
        self.w_max =
            if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.ssthresh = (self.cwnd * BETA).max(2.0);
        self.epoch = None;
    }
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            let smoothed =
                self.srtt.map_or(rtt.nanos(), |srtt| (7 * srtt.nanos() + rtt.nanos()) / 8);
            self.srtt = Some(Span::from_nanos(smoothed));
        }
        // 5.8: a window that was not used has proved nothing.
        if ack.in_recovery || !ack.window_limited {
            return;
        }
        let mut segments = ack.acked.count() as f64 / self.mss;
        if self.cwnd < self.ssthresh {
            segments = self.slow_start(ack, segments);
        }
        if segments > 0.0 && self.cwnd >= self.ssthresh {
            self.avoid_congestion(ack, segments);
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
        self.cwnd = 1.0;
        // 4.8: slow start follows, and its end begins a new epoch.
        self.hystart = HyStart::new();
    }

    fn on_undo(&mut self, _now: Time) {
        if let Some((cwnd, ssthresh, w_max, cwnd_prior)) = self.before.take() {
            self.cwnd = self.cwnd.max(cwnd);
            (self.ssthresh, self.w_max, self.cwnd_prior) = (ssthresh, w_max, cwnd_prior);
            self.epoch = None;
        }
    }

    fn on_idle(&mut self, _now: Time, idle: Span) {
        self.cwnd = self.cwnd.min(self.initial);
        // 5.8: idle time is no time of growth.
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
    }

    fn cwnd(&self) -> Bytes {
        Bytes::new((self.cwnd * self.mss) as u64)
    }

    fn ssthresh(&self) -> Bytes {
        // As a cast an infinite threshold becomes the largest number.
        Bytes::new((self.ssthresh * self.mss) as u64)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    fn reduction(&self) -> Reduction {
        Reduction::Proportional
    }
}

/// 5.1
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// 4.3: 3·(1 − β)/(1 + β)
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
