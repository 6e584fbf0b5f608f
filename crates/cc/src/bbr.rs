use crate::gain::{ONE, scaled};
use crate::round::Rounds;
use crate::windowed_max::WindowedMax;
use crate::{Ack, CongestionControl, Loss, Path, Reduction};
use aggregation::Aggregation;
use long_term::LongTerm;
use units::{Bytes, Rate, Span, Time};

mod aggregation;
mod long_term;

/// BBR version 1 as in Linux (net/ipv4/tcp_bbr.c; Cardwell et al., "BBR: Congestion-Based
/// Congestion Control", 2016), with its policer detection and its allowance for aggregated ACKs.
#[derive(Debug, Clone)]
pub struct Bbr {
    mss: u64,
    initial: u64,
    mode: Mode,
    cwnd: u64,
    pacing: u64,
    rounds: Rounds,
    /// The bandwidth in bytes a second: the maximum of ten rounds.
    bandwidth: WindowedMax,
    min_rtt: Option<(Span, Time)>,
    full: FullPipe,
    cycle: Cycle,
    probe_rtt_done: Option<Time>,
    probe_rtt_rounds: Option<u64>,
    window_before: u64,
    /// Whether the recovery is in its first round, in which the window only conserves packets.
    conserves: bool,
    repair: Repair,
    /// `repair` at the previous ACK. A recovery that directly follows another recovery counts as
    /// the same recovery, and the window conserves packets only once (`prev_ca_state`).
    repair_before: Repair,
    /// The range of `delivered` counts in which ProbeRTT sent too little to fill the path. BBR
    /// ignores rate samples of packets sent in this range.
    unused: (Bytes, Bytes),
    restarting: bool,
    aggregation: Aggregation,
    long_term: LongTerm,
    random: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// The host's state of loss repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    Nothing,
    Recovery,
    Timeout,
}

/// Detects a full pipe by three rounds in which the bandwidth grew by less than a quarter.
#[derive(Debug, Clone, Copy, Default)]
struct FullPipe {
    bandwidth: u64,
    rounds: u32,
    reached: bool,
}

#[derive(Debug, Clone, Copy)]
struct Cycle {
    phase: usize,
    since: Time,
}

impl Bbr {
    /// Creates BBR version 1 at the start of a connection.
    pub fn new(path: &Path) -> Self {
        let mss = path.mss.count().max(1);
        let initial = path.initial_window.count();
        let mut bbr = Self {
            mss,
            initial,
            mode: Mode::Startup,
            cwnd: initial,
            pacing: 0,
            rounds: Rounds::default(),
            bandwidth: WindowedMax::new(BANDWIDTH_ROUNDS),
            min_rtt: path.handshake_rtt.map(|rtt| (rtt, path.now)),
            full: FullPipe::default(),
            cycle: Cycle { phase: 0, since: path.now },
            probe_rtt_done: None,
            probe_rtt_rounds: None,
            window_before: 0,
            conserves: false,
            repair: Repair::Nothing,
            repair_before: Repair::Nothing,
            unused: (Bytes::new(u64::MAX), Bytes::new(0)),
            restarting: false,
            aggregation: Aggregation::new(path.now),
            long_term: LongTerm::default(),
            random: path.seed,
        };
        let rtt = path.handshake_rtt.unwrap_or(Span::from_millis(1)).nanos().max(1_000);
        let first = u128::from(initial) * 1_000_000_000 / u128::from(rtt);
        bbr.pacing = scaled(u64::try_from(first).unwrap_or(u64::MAX), HIGH_GAIN);
        bbr
    }

    /// Returns the bandwidth estimate in bytes a second.
    fn model(&self) -> u64 {
        self.long_term.bandwidth().unwrap_or_else(|| self.bandwidth.max())
    }

    fn bdp(&self, gain: u64) -> u64 {
        // No RTT sample yet.
        let Some((rtt, _)) = self.min_rtt else { return scaled(self.initial, gain) };
        let bytes = u128::from(self.model()) * u128::from(rtt.nanos()) / 1_000_000_000;
        scaled(u64::try_from(bytes).unwrap_or(u64::MAX), gain)
    }

    /// Returns the bandwidth-delay product times `gain`, with room for the bursts at both ends.
    fn inflight(&self, gain: u64) -> u64 {
        let mut target = self.bdp(gain) + 3 * self.burst();
        // Round up to an even number of segments, so that delayed ACKs cost no utilisation.
        target = target.div_ceil(2 * self.mss) * 2 * self.mss;
        if self.mode == Mode::ProbeBandwidth && self.cycle.phase == 0 {
            target += 2 * self.mss;
        }
        target
    }

    /// Returns the size of a burst of segmentation offload: a millisecond of data at the pacing
    /// rate.
    fn burst(&self) -> u64 {
        let least = if self.pacing < SLOW { 1 } else { 2 };
        (self.pacing >> 10).clamp(least * self.mss, 0x7f * self.mss).min(64 * 1024)
    }

    fn update_bandwidth(&mut self, ack: &Ack, round: bool) {
        let Some(rate) = ack.delivery_rate() else { return };
        let rate = rate.bits_per_second() / 8;
        let limited =
            ack.app_limited || (self.unused.0..=self.unused.1).contains(&ack.prior_delivered);
        self.long_term.on_ack(ack, round, limited, self.mode == Mode::ProbeBandwidth);
        if !limited || rate >= self.bandwidth.max() {
            self.bandwidth.offer(self.rounds.count(), rate);
        }
    }

    fn update_cycle(&mut self, ack: &Ack) {
        if self.mode != Mode::ProbeBandwidth || self.long_term.bandwidth().is_some() {
            return;
        }
        let rtt = self.min_rtt.map_or(Span::ZERO, |(rtt, _)| rtt);
        let long_enough = ack.now.since(self.cycle.since) > rtt;
        let before = ack.inflight.count() + ack.acked.count();
        let over = match PACING_GAINS[self.cycle.phase] {
            ONE => long_enough,
            gain if gain > ONE => {
                long_enough && (ack.lost.count() > 0 || before >= self.inflight(gain))
            }
            _ => long_enough || before <= self.inflight(ONE),
        };
        if over {
            self.cycle.phase = (self.cycle.phase + 1) % PACING_GAINS.len();
            self.cycle.since = ack.now;
        }
    }

    fn enter_probe_bandwidth(&mut self, now: Time) {
        self.mode = Mode::ProbeBandwidth;
        // Start in any phase except the draining phase, so that flows do not probe together.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        let turn = (self.random >> 33) as usize % (PACING_GAINS.len() - 1);
        self.cycle = Cycle { phase: if turn == 0 { 0 } else { turn + 1 }, since: now };
    }

    fn check_full(&mut self, ack: &Ack, round: bool) {
        if self.full.reached || !round || ack.app_limited {
            return;
        }
        if self.bandwidth.max() >= scaled(self.full.bandwidth, FULL_GROWTH) {
            self.full = FullPipe { bandwidth: self.bandwidth.max(), ..FullPipe::default() };
            return;
        }
        self.full.rounds += 1;
        self.full.reached = self.full.rounds >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup && self.full.reached {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.inflight.count() <= self.inflight(ONE) {
            self.enter_probe_bandwidth(ack.now);
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack, round: bool) {
        let expired = self.min_rtt.is_some_and(|(_, at)| ack.now.since(at) > MIN_RTT_WINDOW);
        if let Some(rtt) = ack.rtt
            && (expired || self.min_rtt.is_none_or(|(least, _)| rtt <= least))
        {
            self.min_rtt = Some((rtt, ack.now));
        }
        if expired && !self.restarting && self.mode != Mode::ProbeRtt {
            self.save_window();
            self.mode = Mode::ProbeRtt;
            self.unused.0 = ack.delivered;
            self.probe_rtt_done = None;
        }
        if self.mode == Mode::ProbeRtt {
            self.unused.1 = ack.delivered + ack.inflight;
            match self.probe_rtt_done {
                None if ack.inflight.count() <= PROBE_RTT_SEGMENTS * self.mss => {
                    self.probe_rtt_done = Some(ack.now + PROBE_RTT_TIME);
                    self.probe_rtt_rounds = None;
                    self.rounds.restart(ack.delivered);
                }
                Some(done) => {
                    if round {
                        self.probe_rtt_rounds = Some(self.rounds.count());
                    }
                    if self.probe_rtt_rounds.is_some() && ack.now > done {
                        self.leave_probe_rtt(ack.now);
                    }
                }
                None => {}
            }
        }
        if ack.acked.count() > 0 {
            self.restarting = false;
        }
    }

    fn leave_probe_rtt(&mut self, now: Time) {
        if let Some((_, at)) = &mut self.min_rtt {
            *at = now;
        }
        self.cwnd = self.cwnd.max(self.window_before);
        self.probe_rtt_done = None;
        if self.full.reached {
            self.enter_probe_bandwidth(now);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn gains(&self) -> (u64, u64) {
        match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth if self.long_term.bandwidth().is_some() => (ONE, CWND_GAIN),
            Mode::ProbeBandwidth => (PACING_GAINS[self.cycle.phase], CWND_GAIN),
            Mode::ProbeRtt => (ONE, ONE),
        }
    }

    fn set_pacing(&mut self, gain: u64) {
        let margin = scaled(self.model(), gain) / 100 * (100 - PACING_MARGIN_PERCENT);
        if margin > 0 && (self.full.reached || margin > self.pacing) {
            self.pacing = margin;
        }
    }

    /// Sets the window as `bbr_set_cwnd` does.
    fn set_window(&mut self, ack: &Ack, gain: u64) {
        let acked = ack.acked.count();
        if acked > 0 && !self.follow_recovery(ack) {
            let target =
                self.inflight(gain) + self.aggregation.allowance(self.model(), self.full.reached);
            if self.full.reached {
                self.cwnd = (self.cwnd + acked).min(target);
            } else if self.cwnd < target || ack.delivered.count() < self.initial {
                self.cwnd += acked;
            }
            self.cwnd = self.cwnd.max(LEAST_SEGMENTS * self.mss);
        }
        if self.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(PROBE_RTT_SEGMENTS * self.mss);
        }
    }

    /// Sets the window in recovery (`bbr_set_cwnd_to_recover_or_restore`). Returns whether recovery
    /// set the window.
    fn follow_recovery(&mut self, ack: &Ack) -> bool {
        let flight = ack.inflight.count() + ack.acked.count();
        self.cwnd = self.cwnd.saturating_sub(ack.lost.count()).max(self.mss);
        match (self.repair_before, self.repair) {
            (Repair::Nothing | Repair::Timeout, Repair::Recovery) => {
                self.conserves = true;
                self.rounds.restart(ack.delivered);
                self.cwnd = flight.max(self.mss);
            }
            (Repair::Recovery | Repair::Timeout, Repair::Nothing) => {
                self.conserves = false;
                self.cwnd = self.cwnd.max(self.window_before);
            }
            _ => {}
        }
        self.repair_before = self.repair;
        if self.conserves {
            self.cwnd = self.cwnd.max(flight);
        }
        self.conserves
    }

    fn save_window(&mut self) {
        self.window_before = if self.repair_before == Repair::Nothing && self.mode != Mode::ProbeRtt
        {
            self.cwnd
        } else {
            self.window_before.max(self.cwnd)
        };
    }
}

impl CongestionControl for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn on_ack(&mut self, ack: &Ack) {
        let round = self.rounds.on_ack(ack);
        if round {
            self.conserves = false;
        }
        self.update_bandwidth(ack, round);
        self.aggregation.on_ack(ack, round, self.model(), self.cwnd);
        self.update_cycle(ack);
        self.check_full(ack, round);
        self.check_drain(ack);
        self.update_min_rtt(ack, round);
        let (pacing_gain, window_gain) = self.gains();
        self.set_pacing(pacing_gain);
        self.set_window(ack, window_gain);
    }

    fn on_loss(&mut self, _loss: &Loss) {
        self.save_window();
        self.repair = Repair::Recovery;
    }

    fn on_recovered(&mut self, _now: Time) {
        self.repair = Repair::Nothing;
    }

    fn on_timeout(&mut self, loss: &Loss) {
        self.save_window();
        self.repair = Repair::Timeout;
        self.repair_before = Repair::Timeout;
        self.full.bandwidth = 0;
        self.full.rounds = 0;
        self.conserves = false;
        self.long_term.on_timeout(loss.now);
        self.cwnd = self.mss;
    }

    fn on_timeout_repaired(&mut self, _now: Time) {
        self.repair = Repair::Nothing;
    }

    fn on_undo(&mut self, _now: Time) {
        self.repair = Repair::Nothing;
        self.full.bandwidth = 0;
        self.full.rounds = 0;
        self.long_term.reset();
    }

    fn on_idle(&mut self, now: Time, _idle: Span) {
        self.restarting = true;
        self.aggregation.restart(now);
        match self.mode {
            Mode::ProbeBandwidth => self.set_pacing(ONE),
            Mode::ProbeRtt if self.probe_rtt_done.is_some_and(|done| now > done) => {
                self.leave_probe_rtt(now);
            }
            _ => {}
        }
    }

    fn cwnd(&self) -> Bytes {
        Bytes::new(self.cwnd)
    }

    fn ssthresh(&self) -> Bytes {
        Bytes::new(u64::MAX)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate::from_bits_per_second(self.pacing.saturating_mul(8)))
    }

    fn reduction(&self) -> Reduction {
        Reduction::Own
    }

    /// Returns two segments, so that the host's minimum does not keep ProbeRTT from draining the
    /// path down to four packets.
    fn min_window_segments(&self) -> Option<u64> {
        Some(2)
    }

    fn in_slow_start(&self) -> bool {
        self.mode == Mode::Startup
    }
}

/// The smallest gain that doubles the rate each round: 2/ln 2, in 1/256.
const HIGH_GAIN: u64 = ONE * 2885 / 1000 + 1;
const DRAIN_GAIN: u64 = ONE * 1000 / 2885;
const CWND_GAIN: u64 = 2 * ONE;
const PACING_GAINS: [u64; 8] = [ONE * 5 / 4, ONE * 3 / 4, ONE, ONE, ONE, ONE, ONE, ONE];
const BANDWIDTH_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Span = Span::from_secs(10);
const PROBE_RTT_TIME: Span = Span::from_millis(200);
const PROBE_RTT_SEGMENTS: u64 = 4;
const LEAST_SEGMENTS: u64 = 4;
const PACING_MARGIN_PERCENT: u64 = 1;
const FULL_GROWTH: u64 = ONE * 5 / 4;
const FULL_ROUNDS: u32 = 3;
/// The rate below which a burst is one segment: 1.2 Mbit/s, in bytes a second.
const SLOW: u64 = 150_000;

#[cfg(test)]
mod tests;
