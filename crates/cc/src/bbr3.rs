use crate::gain::{ONE, scaled};
use crate::round::Rounds;
use crate::windowed_max::WindowedMax;
use crate::{Ack, CongestionControl, Loss, Path, Reduction};
use bounds::{Bounds, LatestRound};
use minimum::MinimumRtt;
use startup::FullPipe;
use units::{Bytes, Rate, Span, Time};

mod bounds;
mod minimum;
mod startup;

/// BBR version 3, after draft-ietf-ccwg-bbr. The draft judges each lost packet. This type judges
/// losses when an ACK reports them, against the flight when the acknowledged packet was sent.
#[derive(Debug, Clone)]
pub struct Bbr3 {
    mss: u64,
    initial: u64,
    state: State,
    cwnd: u64,
    pacing: u64,
    rounds: Rounds,
    /// The bandwidth in bytes a second: the maximum of two probing cycles.
    bandwidth: WindowedMax,
    cycles: u64,
    minimum: MinimumRtt,
    full: FullPipe,
    bounds: Bounds,
    latest: LatestRound,
    /// The bytes that arrive at once beyond the model's estimate, over ten rounds.
    aggregation: WindowedMax,
    aggregation_since: Time,
    aggregation_acked: u64,
    feedback: Feedback,
    cycle_since: Time,
    probe_wait: Span,
    rounds_since_probe: u64,
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    window_before: u64,
    restarting: bool,
    random: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// The phase in which the flow sent the packets that arriving ACKs report on (the draft's
/// `ack_phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feedback {
    Nothing,
    Refilling,
    ProbeStarting,
    Probe,
    ProbeStopping,
}

impl Bbr3 {
    /// Creates BBR version 3 at the start of a connection.
    pub fn new(path: &Path) -> Self {
        let rtt = path.handshake_rtt.unwrap_or(Span::from_millis(1)).nanos().max(1_000);
        let initial = path.initial_window.count();
        let first = u128::from(initial) * 1_000_000_000 / u128::from(rtt);
        Self {
            mss: path.mss.count().max(1),
            initial,
            state: State::Startup,
            cwnd: initial,
            pacing: scaled(u64::try_from(first).unwrap_or(u64::MAX), STARTUP_PACING),
            rounds: Rounds::default(),
            bandwidth: WindowedMax::new(2),
            cycles: 0,
            minimum: MinimumRtt::new(path.handshake_rtt, path.now),
            full: FullPipe::default(),
            bounds: Bounds::default(),
            latest: LatestRound::default(),
            aggregation: WindowedMax::new(AGGREGATION_ROUNDS),
            aggregation_since: path.now,
            aggregation_acked: 0,
            feedback: Feedback::Nothing,
            cycle_since: path.now,
            probe_wait: Span::ZERO,
            rounds_since_probe: 0,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            window_before: 0,
            restarting: false,
            random: path.seed,
        }
    }

    /// Returns the bandwidth estimate in bytes a second.
    fn model(&self) -> u64 {
        self.bandwidth.max().min(self.bounds.bandwidth_short.unwrap_or(u64::MAX))
    }

    fn bdp(&self, bandwidth: u64, gain: u64) -> u64 {
        let Some(rtt) = self.minimum.rtt() else { return scaled(self.initial, gain) };
        let bytes = u128::from(bandwidth) * u128::from(rtt.nanos()) / 1_000_000_000;
        scaled(u64::try_from(bytes).unwrap_or(u64::MAX), gain)
    }

    fn inflight(&self, bandwidth: u64, gain: u64) -> u64 {
        self.quantized(self.bdp(bandwidth, gain))
    }

    fn quantized(&self, inflight: u64) -> u64 {
        let burst = (self.pacing / 1000).clamp(2 * self.mss, 64 * 1024);
        let least = inflight.max(3 * burst).max(self.least());
        if self.state == State::Up { least + 2 * self.mss } else { least }
    }

    fn least(&self) -> u64 {
        LEAST_SEGMENTS * self.mss
    }

    /// Returns the bytes that a flow uses: bounded by the pipe and by the window.
    fn target(&self) -> u64 {
        self.bdp(self.model(), ONE).min(self.cwnd)
    }

    fn probes_bandwidth(&self) -> bool {
        matches!(self.state, State::Down | State::Cruise | State::Refill | State::Up)
    }

    fn update_bandwidth(&mut self, ack: &Ack, rate: u64) {
        if rate > 0 && (rate >= self.bandwidth.max() || !ack.app_limited) {
            self.bandwidth.offer(self.cycles, rate);
        }
    }

    fn update_aggregation(&mut self, ack: &Ack) {
        let expected = |model: u64, since: Time| {
            let nanos = u128::from(ack.now.since(since).nanos());
            u64::try_from(u128::from(model) * nanos / 1_000_000_000).unwrap_or(u64::MAX)
        };
        if self.aggregation_acked <= expected(self.model(), self.aggregation_since) {
            self.aggregation_acked = 0;
            self.aggregation_since = ack.now;
        }
        self.aggregation_acked += ack.acked.count();
        let more = self
            .aggregation_acked
            .saturating_sub(expected(self.model(), self.aggregation_since))
            .min(self.cwnd);
        self.aggregation.offer(self.rounds.count(), more);
    }

    fn check_startup(&mut self, ack: &Ack) {
        if self.full.lost_too_much(ack, self.latest.lossy_rounds_of_recovery(ack)) {
            self.bounds.inflight_long =
                Some(self.bdp(self.bandwidth.max(), ONE).max(self.latest.inflight));
        }
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
        }
        if self.state == State::Drain
            && ack.inflight.count() <= self.inflight(self.bandwidth.max(), ONE)
        {
            self.start_down(ack);
        }
    }

    fn update_cycle(&mut self, ack: &Ack, round: bool, rate: u64) {
        if !self.full.reached {
            return;
        }
        self.adapt_long_term(ack, round);
        let goes_down = self.state == State::Up && self.is_time_to_go_down(ack, rate);
        match self.state {
            State::Down => {
                if self.is_time_to_probe(ack) {
                    self.start_refill(ack);
                } else if self.is_time_to_cruise(ack) {
                    self.state = State::Cruise;
                }
            }
            State::Cruise if self.is_time_to_probe(ack) => self.start_refill(ack),
            State::Refill if round => {
                self.bounds.probing = true;
                self.start_up(ack, rate);
            }
            State::Up if goes_down => self.start_down(ack),
            _ => {}
        }
    }

    fn adapt_long_term(&mut self, ack: &Ack, round: bool) {
        match self.feedback {
            Feedback::ProbeStarting if round => self.feedback = Feedback::Probe,
            Feedback::ProbeStopping if round => {
                self.feedback = Feedback::Nothing;
                self.bounds.probing = false;
                if self.probes_bandwidth() && !ack.app_limited {
                    self.cycles += 1;
                }
            }
            _ => {}
        }
        if bounds::is_too_high(ack) {
            if self.bounds.probing {
                self.bounds.probing = false;
                if !ack.app_limited {
                    let kept = scaled(self.target(), BETA);
                    self.bounds.inflight_long = Some(ack.sent_inflight.count().max(kept));
                }
                if self.state == State::Up {
                    self.start_down(ack);
                }
            }
            return;
        }
        self.bounds.raise(ack.sent_inflight.count());
        if self.state == State::Up && self.is_window_limited(ack) {
            self.bounds.probe_upward(ack, round, self.cwnd, self.mss);
        }
    }

    /// Whether the window, and not the pace or the application, limited the flight when the newest
    /// packet left.
    fn is_window_limited(&self, ack: &Ack) -> bool {
        ack.sent_inflight.count() + 2 * self.mss > self.cwnd
    }

    fn is_time_to_probe(&self, ack: &Ack) -> bool {
        let reno = (self.target() / self.mss).min(MOST_ROUNDS_BETWEEN_PROBES);
        ack.now.since(self.cycle_since) > self.probe_wait || self.rounds_since_probe >= reno
    }

    fn is_time_to_cruise(&self, ack: &Ack) -> bool {
        let inflight = ack.inflight.count();
        inflight <= self.bounds.with_headroom(self.mss, self.least())
            && inflight <= self.inflight(self.bandwidth.max(), ONE)
    }

    fn is_time_to_go_down(&mut self, ack: &Ack, rate: u64) -> bool {
        let bound = self.bounds.inflight_long;
        if self.is_window_limited(ack) && bound.is_some_and(|bound| self.cwnd >= bound) {
            // A loss bound, and not the path, limits the rate: the rate does not tell whether the
            // pipe is full.
            self.full.restart(rate);
            return false;
        }
        self.full.now
    }

    fn start_down(&mut self, ack: &Ack) {
        self.latest.restart();
        self.bounds.stop_probing();
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        let chance = self.random >> 33;
        self.rounds_since_probe = chance & 1;
        self.probe_wait = Span::from_millis(2000 + (chance >> 1) % 1000);
        self.cycle_since = ack.now;
        self.feedback = Feedback::ProbeStopping;
        self.rounds.restart(ack.delivered);
        self.state = State::Down;
    }

    fn start_refill(&mut self, ack: &Ack) {
        self.bounds.forget_short_term();
        self.bounds.begin_probe();
        self.feedback = Feedback::Refilling;
        self.rounds.restart(ack.delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, ack: &Ack, rate: u64) {
        self.feedback = Feedback::ProbeStarting;
        self.rounds.restart(ack.delivered);
        self.full.restart(rate);
        self.state = State::Up;
        self.bounds.steepen(self.cwnd, self.mss);
    }

    fn check_probe_rtt(&mut self, ack: &Ack, round: bool) {
        let expired = self.minimum.on_ack(ack);
        if self.state != State::ProbeRtt && expired && !self.restarting {
            self.save_window(ack.in_recovery);
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.feedback = Feedback::ProbeStopping;
            self.rounds.restart(ack.delivered);
        }
        if self.state == State::ProbeRtt {
            match self.probe_rtt_done {
                None if ack.inflight.count() <= self.probe_rtt_window() => {
                    self.probe_rtt_done = Some(ack.now + PROBE_RTT_TIME);
                    self.probe_rtt_round_done = false;
                    self.rounds.restart(ack.delivered);
                }
                Some(done) => {
                    self.probe_rtt_round_done |= round;
                    if self.probe_rtt_round_done && ack.now > done {
                        self.leave_probe_rtt(ack);
                    }
                }
                None => {}
            }
        }
        if ack.acked.count() > 0 {
            self.restarting = false;
        }
    }

    fn leave_probe_rtt(&mut self, ack: &Ack) {
        self.minimum.refreshed(ack.now);
        self.cwnd = self.cwnd.max(self.window_before);
        self.bounds.forget_short_term();
        if self.full.reached {
            self.start_down(ack);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    fn probe_rtt_window(&self) -> u64 {
        self.bdp(self.model(), ONE / 2).max(self.least())
    }

    fn gains(&self) -> (u64, u64) {
        match self.state {
            State::Startup => (STARTUP_PACING, 2 * ONE),
            State::Drain => (ONE / 2, 2 * ONE),
            State::Down => (ONE * 9 / 10, 2 * ONE),
            State::Cruise | State::Refill => (ONE, 2 * ONE),
            State::Up => (ONE * 5 / 4, ONE * 9 / 4),
            State::ProbeRtt => (ONE, ONE / 2),
        }
    }

    fn set_pacing(&mut self, gain: u64) {
        let rate = scaled(self.model(), gain) / 100 * (100 - PACING_MARGIN_PERCENT);
        if rate > 0 && (self.full.reached || rate > self.pacing) {
            self.pacing = rate;
        }
    }

    fn set_window(&mut self, ack: &Ack, gain: u64) {
        let more = if self.full.reached { self.aggregation.max() } else { 0 };
        let most = self.quantized(self.bdp(self.model(), gain) + more);
        self.cwnd = self.cwnd.saturating_sub(ack.lost.count()).max(self.mss);
        if self.full.reached {
            self.cwnd = (self.cwnd + ack.acked.count()).min(most);
        } else if self.cwnd < most || ack.delivered.count() < self.initial {
            self.cwnd += ack.acked.count();
        }
        self.cwnd = self.cwnd.max(self.least());
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_window());
        }
        let headroom = self.bounds.with_headroom(self.mss, self.least());
        let long = match self.state {
            State::Down | State::Refill | State::Up => self.bounds.inflight_long,
            State::ProbeRtt | State::Cruise => Some(headroom),
            State::Startup | State::Drain => None,
        };
        let short = self.bounds.inflight_short;
        let cap = long.unwrap_or(u64::MAX).min(short.unwrap_or(u64::MAX));
        self.cwnd = self.cwnd.min(cap.max(self.least()));
    }

    fn save_window(&mut self, recovering: bool) {
        self.window_before = if !recovering && self.state != State::ProbeRtt {
            self.cwnd
        } else {
            self.window_before.max(self.cwnd)
        };
    }
}

impl CongestionControl for Bbr3 {
    fn name(&self) -> &'static str {
        "bbr3"
    }

    fn on_ack(&mut self, ack: &Ack) {
        let rate = ack.delivery_rate().map_or(0, |rate| rate.bits_per_second() / 8);
        let round = self.rounds.on_ack(ack);
        if round {
            self.rounds_since_probe += 1;
        }
        let lossy_round = self.latest.on_ack(ack, rate);
        self.update_bandwidth(ack, rate);
        let adapts = !matches!(self.state, State::Refill | State::Up | State::Startup);
        if lossy_round == Some(true) && adapts {
            self.bounds.lower(&self.latest, self.bandwidth.max(), self.cwnd);
        }
        self.update_aggregation(ack);
        self.full.on_ack(ack, round, rate);
        self.check_startup(ack);
        self.update_cycle(ack, round, rate);
        self.check_probe_rtt(ack, round);
        if lossy_round.is_some() {
            self.latest.begin(ack, rate);
        }
        let (pacing_gain, window_gain) = self.gains();
        self.set_pacing(pacing_gain);
        self.set_window(ack, window_gain);
    }

    fn on_loss(&mut self, _loss: &Loss) {
        self.save_window(false);
        self.latest.enter_recovery();
    }

    fn on_recovered(&mut self, _now: Time) {
        self.cwnd = self.cwnd.max(self.window_before);
    }

    fn on_timeout(&mut self, _loss: &Loss) {
        self.save_window(false);
        self.cwnd = self.mss;
    }

    fn on_undo(&mut self, _now: Time) {
        self.cwnd = self.cwnd.max(self.window_before);
        self.bounds.forget_short_term();
    }

    fn on_idle(&mut self, now: Time, _idle: Span) {
        self.restarting = true;
        self.aggregation_since = now;
        self.aggregation_acked = 0;
        if self.probes_bandwidth() {
            self.set_pacing(ONE);
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

    /// Returns two segments, so that the host's minimum does not keep BBR from draining the path
    /// down to four packets.
    fn min_window_segments(&self) -> Option<u64> {
        Some(2)
    }

    fn in_slow_start(&self) -> bool {
        self.state == State::Startup
    }
}

const STARTUP_PACING: u64 = ONE * 277 / 100;
const BETA: u64 = ONE * 7 / 10;
const LEAST_SEGMENTS: u64 = 4;
const PACING_MARGIN_PERCENT: u64 = 1;
const PROBE_RTT_TIME: Span = Span::from_millis(200);
const AGGREGATION_ROUNDS: u64 = 10;
/// Maximum number of rounds between probes. In this number of rounds a Reno flow at 25 Mbit/s and
/// 30 ms grows back to its share.
const MOST_ROUNDS_BETWEEN_PROBES: u64 = 63;

#[cfg(test)]
mod tests;
