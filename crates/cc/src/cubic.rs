use crate::hystart::{ClassicHyStart, Growth, HyStartPlusPlus};
use crate::{Ack, CongestionControl, Loss, Path, Reduction};
use linux::Linux;
use rfc9438::Epoch;
use units::{Bytes, Span, Time};

mod linux;
mod rfc9438;

/// CUBIC: as implemented by Linux, or exactly as in RFC 9438.
#[derive(Debug, Clone)]
pub struct Cubic {
    mss: f64,
    initial: f64,
    /// The window in segments, as in RFC 9438.
    cwnd: f64,
    ssthresh: f64,
    /// The window at the last reduction, lowered for fast convergence; zero before the first
    /// reduction.
    w_max: f64,
    flavour: Flavour,
    srtt: Option<Span>,
    before: Option<(f64, f64, f64)>,
    beta: f64,
}

/// The variant of CUBIC: how slow start ends, and how the window grows afterwards.
#[derive(Debug, Clone)]
enum Flavour {
    Linux(ClassicHyStart, Linux),
    Rfc9438(HyStartPlusPlus, Option<Epoch>, f64),
}

impl Cubic {
    /// Creates Linux's CUBIC (`net/ipv4/tcp_cubic.c`): whole segments, HyStart by ACK trains and by
    /// delay, and a growth rate that is recomputed 32 times a second. The Reno-friendly window
    /// never grows faster than CUBIC's share of Reno's growth. Because of the recomputation, this
    /// CUBIC grows more slowly than Reno below 30 ms.
    pub fn new(path: &Path) -> Self {
        Self::flavoured(path, Flavour::Linux(ClassicHyStart::default(), Linux::default()))
    }

    /// Creates Linux's CUBIC for a host that paces (`fq`): an ACK train shows a full path only if
    /// the train lasts a round trip.
    pub fn paced(path: &Path) -> Self {
        Self::flavoured(path, Flavour::Linux(ClassicHyStart::paced(), Linux::default()))
    }

    /// Creates CUBIC as in RFC 9438, with HyStart++ (RFC 9406).
    pub fn rfc9438(path: &Path) -> Self {
        Self::flavoured(path, Flavour::Rfc9438(HyStartPlusPlus::default(), None, 0.0))
    }

    /// Sets the part of the window that a reduction leaves, instead of 0.7.
    #[must_use]
    pub fn with_beta(self, beta: f64) -> Self {
        Self { beta, ..self }
    }

    fn flavoured(path: &Path, flavour: Flavour) -> Self {
        let mss = path.mss.count().max(1) as f64;
        let initial = path.initial_window.count() as f64 / mss;
        Self {
            mss,
            initial,
            cwnd: initial,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            flavour,
            srtt: path.handshake_rtt,
            before: None,
            beta: BETA,
        }
    }

    /// Grows the window by the acknowledged segments up to the threshold; returns the other
    /// acknowledged segments, which count for congestion avoidance.
    fn slow_start(&mut self, ack: &Ack, segments: f64) -> f64 {
        let growth = match &mut self.flavour {
            Flavour::Linux(hystart, _) => hystart.on_ack(ack, self.cwnd as u64),
            Flavour::Rfc9438(hystart, ..) => hystart.on_ack(ack),
        };
        let share = match growth {
            Growth::Full => segments,
            Growth::Share { divisor } => segments / divisor,
            Growth::Ends => {
                self.ssthresh = self.cwnd;
                return segments;
            }
        };
        let room = (self.ssthresh - self.cwnd).max(0.0).min(share);
        self.cwnd += room;
        if room < share { share - room } else { 0.0 }
    }

    fn reduce(&mut self) {
        self.before = Some((self.cwnd, self.ssthresh, self.w_max));
        // Fast convergence (RFC 9438, 4.7): a flow whose window has shrunk since its last loss
        // lowers its plateau, in favour of other flows.
        let lost_ground = self.cwnd < self.w_max;
        self.w_max = if lost_ground { self.cwnd * (1.0 + self.beta) / 2.0 } else { self.cwnd };
        self.ssthresh = (self.cwnd * self.beta).max(2.0);
        match &mut self.flavour {
            Flavour::Linux(_, growth) => {
                self.ssthresh = self.ssthresh.floor();
                self.w_max = self.w_max.floor();
                growth.end_epoch();
            }
            Flavour::Rfc9438(_, epoch, cwnd_prior) => {
                *cwnd_prior = self.cwnd;
                *epoch = None;
            }
        }
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
        // RFC 9438, 5.8: do not grow a window that the flow does not use.
        if ack.in_recovery || !ack.window_limited {
            return;
        }
        let mut segments = ack.acked.count() as f64 / self.mss;
        if self.cwnd < self.ssthresh {
            segments = self.slow_start(ack, segments);
        }
        if segments <= 0.0 || self.cwnd < self.ssthresh {
            return;
        }
        self.cwnd = match &mut self.flavour {
            Flavour::Linux(_, growth) => {
                let rtt = ack.min_rtt.unwrap_or_default();
                growth.grown(ack.now, self.cwnd.floor(), self.w_max, segments, rtt)
            }
            Flavour::Rfc9438(_, epoch, cwnd_prior) => {
                let epoch = epoch.get_or_insert_with(|| Epoch::new(ack.now, self.cwnd, self.w_max));
                let rtt = self.srtt.unwrap_or_default();
                epoch.grown(ack.now, self.cwnd, *cwnd_prior, segments, rtt)
            }
        };
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
        // RFC 9438, 4.8: slow start follows, and its end begins a new epoch.
        match &mut self.flavour {
            Flavour::Linux(hystart, growth) => {
                // `bictcp_state`: discard the state of HyStart.
                *hystart = hystart.restarted();
                *growth = Linux::default();
                self.w_max = 0.0;
            }
            Flavour::Rfc9438(hystart, ..) => *hystart = HyStartPlusPlus::default(),
        }
    }

    fn on_undo(&mut self, _now: Time) {
        let Some((cwnd, ssthresh, w_max)) = self.before.take() else { return };
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = ssthresh;
        match &mut self.flavour {
            // `tcp_reno_undo_cwnd`: the reduced plateau stays.
            Flavour::Linux(_, growth) => growth.end_epoch(),
            Flavour::Rfc9438(_, epoch, _) => {
                self.w_max = w_max;
                *epoch = None;
            }
        }
    }

    fn on_idle(&mut self, _now: Time, idle: Span) {
        self.cwnd = self.cwnd.min(self.initial);
        // RFC 9438, 5.8: the window does not grow in idle time.
        match &mut self.flavour {
            Flavour::Linux(_, growth) => growth.pause(idle),
            Flavour::Rfc9438(_, Some(epoch), _) => epoch.pause(idle),
            Flavour::Rfc9438(..) => {}
        }
    }

    fn cwnd(&self) -> Bytes {
        Bytes::new((self.cwnd * self.mss) as u64)
    }

    fn ssthresh(&self) -> Bytes {
        // The cast turns an infinite threshold into the largest number.
        Bytes::new((self.ssthresh * self.mss) as u64)
    }

    fn reduction(&self) -> Reduction {
        Reduction::Proportional
    }
}

/// Returns K, the time from a reduction until the cubic curve reaches its plateau, in seconds.
fn time_to_plateau(plateau: f64, window: f64) -> f64 {
    ((plateau - window).max(0.0) / C).cbrt()
}

/// The constant C of RFC 9438, 5.1, in segments per second cubed.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// The Reno-friendly growth per round trip, in segments (RFC 9438, 4.3): 3·(1 − β)/(1 + β).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[cfg(test)]
mod tests;
