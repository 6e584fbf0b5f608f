//! The house's congestion controls on QUIC connections: what noq tells becomes [`cc::Ack`] and
//! [`cc::Loss`], what they answer becomes a window and a pacing rate.

mod choice;
mod fixed;
mod lag;
mod reading;
mod sampler;

pub use choice::{Congestion, CongestionError};
pub use reading::{Reading, Readings};

use crate::transport::carried;
use cc::{Algorithm, CongestionControl, Path, Reduction};
use fixed::Fixed;
use lag::Lag;
use noq::congestion::{Controller, ControllerFactory, ControllerMetrics};
use sampler::Sampler;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use units::{Bytes, Span, Time};

/// Makes the controllers of one connection, and lets others read them.
#[derive(Debug, Clone)]
pub(crate) struct Factory {
    congestion: Congestion,
    readings: Readings,
    epoch: Instant,
}

impl Factory {
    pub(crate) fn new(congestion: Congestion, readings: Readings) -> Self {
        Self { congestion, readings, epoch: Instant::now() }
    }
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let state = State {
            congestion: self.congestion,
            algorithm: None,
            sampler: Sampler::default(),
            lag: Lag::default(),
            epoch: self.epoch,
            mtu: current_mtu,
            recovery_until: None,
            newest_sent: 0,
            window_limited: false,
            pending: None,
            lost: 0,
            lost_total: 0,
            last_active: now,
            readings: self.readings.clone(),
        };
        Box::new(Adapter { shared: Arc::new(Mutex::new(state)) })
    }
}

/// One path's. noq clones it when the other end's port changes: the path is the same, and so is the state.
struct Adapter {
    shared: Arc<Mutex<State>>,
}

struct State {
    congestion: Congestion,
    /// From the first round trip measured; before it only the handshake was sent.
    algorithm: Option<Box<dyn CongestionControl>>,
    sampler: Sampler,
    lag: Lag,
    epoch: Instant,
    mtu: u16,
    recovery_until: Option<u64>,
    newest_sent: u64,
    window_limited: bool,
    /// Acknowledgements and losses of one moment, not told yet. A process that did not run for a while finds
    /// many at once: one by one they would look like a path that stood still and then raced.
    pending: Option<Pending>,
    /// Not told yet.
    lost: u64,
    lost_total: u64,
    last_active: Instant,
    readings: Readings,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    now: Instant,
    in_flight: u64,
    app_limited: bool,
    largest: Option<u64>,
    loss: Option<PendingLoss>,
}

#[derive(Debug, Clone, Copy)]
struct PendingLoss {
    bytes: u64,
    largest: u64,
    persistent: bool,
}

impl Adapter {
    /// With all told that is known.
    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.tell();
        state
    }

    /// With all told that is known of another moment.
    fn at(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.pending.is_some_and(|pending| pending.now != now) {
            state.tell();
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn time(&self, now: Instant) -> Time {
        let nanos = now.saturating_duration_since(self.epoch).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn start(&self, now: Instant, rtt: Duration) -> Box<dyn CongestionControl> {
        let path = Path {
            mss: Bytes::new(self.mtu.into()),
            initial_window: Bytes::new(10 * u64::from(self.mtu)),
            handshake_rtt: Some(Span::from(rtt)),
            now: self.time(now),
            seed: rand::random(),
            memory: None,
        };
        match self.congestion {
            Congestion::Algorithm(algorithm) => algorithm.start(&path),
            Congestion::Fixed(rate) => Box::new(Fixed::new(rate, Span::from(rtt))),
        }
    }

    fn window(&self) -> u64 {
        let least = LEAST_SEGMENTS * u64::from(self.mtu);
        let Some(algorithm) = &self.algorithm else {
            return INITIAL_SEGMENTS * u64::from(self.mtu);
        };
        let mut window = algorithm.cwnd().count();
        if self.measures_queues() {
            window = self.lag.with(window);
        }
        // RFC 9002, 7.3.2: a sender may reduce at once where TCP spreads it (RFC 6937).
        if self.recovery_until.is_some() && algorithm.reduction() == Reduction::Proportional {
            window = window.min(algorithm.ssthresh().count());
        }
        window.max(least)
    }

    /// It takes what is in flight for what is on the path.
    fn measures_queues(&self) -> bool {
        self.congestion == Congestion::Algorithm(Algorithm::Tcpa)
    }

    fn pacing_rate(&self) -> Option<u64> {
        let rate = self.algorithm.as_ref()?.pacing_rate()?;
        Some((rate.bits_per_second() / 8).max(u64::from(self.mtu)))
    }

    fn tell(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        if let Some(loss) = pending.loss {
            self.tell_loss(pending.now, loss);
        }
        let Pending { now, in_flight, app_limited, largest, .. } = pending;
        let Some(batch) = self.sampler.take_batch(now, app_limited, in_flight) else { return };
        if self.algorithm.is_none() {
            let Some(rtt) = batch.rtt else { return };
            self.algorithm = Some(self.start(now, rtt));
        }
        let time = self.time(now);
        let in_recovery = self.recovery_until.is_some();
        let ack = cc::Ack {
            now: time,
            rtt: batch.rtt.map(Span::from),
            min_rtt: self.sampler.min_rtt().map(Span::from),
            acked: Bytes::new(batch.acked),
            lost: Bytes::new(std::mem::take(&mut self.lost)),
            marked: Bytes::ZERO,
            inflight: Bytes::new(match self.measures_queues() {
                true => self.lag.without(in_flight),
                false => in_flight,
            }),
            delivered: Bytes::new(self.sampler.delivered()),
            prior_delivered: Bytes::new(batch.prior_delivered),
            sent_inflight: Bytes::new(batch.sent_inflight),
            lost_since: Bytes::new(self.lost_total.saturating_sub(batch.prior_lost)),
            interval: Span::from(batch.interval),
            app_limited: batch.app_limited,
            window_limited: self.window_limited,
            in_recovery,
        };
        let recovered =
            self.recovery_until.zip(largest).is_some_and(|(until, largest)| largest > until);
        let Some(algorithm) = self.algorithm.as_mut() else { return };
        if recovered {
            algorithm.on_recovered(time);
            self.recovery_until = None;
        }
        algorithm.on_ack(&ack);
        self.window_limited = false;
        self.readings.update(|reading| {
            reading.rtt = ack.rtt.unwrap_or(reading.rtt);
            reading.min_rtt = ack.min_rtt.unwrap_or_default();
            reading.cwnd = algorithm.cwnd();
            reading.pacing_rate = algorithm.pacing_rate();
            if let Some(rate) = ack.delivery_rate().filter(|_| !ack.app_limited) {
                reading.delivery_rate = rate;
            }
            reading.inflight = ack.inflight;
            reading.path_loss = algorithm.path_loss();
        });
    }
}

impl State {
    fn tell_loss(&mut self, now: Instant, loss: PendingLoss) {
        let time = self.time(now);
        let inflight = Bytes::new(self.sampler.inflight() + loss.bytes);
        let Some(algorithm) = self.algorithm.as_mut() else { return };
        let within = self.recovery_until.is_some_and(|until| loss.largest <= until);
        let told = cc::Loss {
            now: time,
            lost: Bytes::new(loss.bytes),
            inflight,
            repeated: loss.persistent && self.recovery_until.is_some(),
        };
        if loss.persistent {
            algorithm.on_timeout(&told);
            self.recovery_until = None;
        } else if !within {
            if self.recovery_until.is_some() {
                algorithm.on_recovered(time);
            }
            algorithm.on_loss(&told);
            self.recovery_until = Some(self.newest_sent);
        }
    }
}

impl Controller for Adapter {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        carried(bytes.into());
        let mut state = self.current();
        let state = &mut *state;
        if state.sampler.inflight() == 0 {
            let idle = now.saturating_duration_since(state.last_active);
            let time = state.time(now);
            if idle >= IDLE
                && let Some(algorithm) = state.algorithm.as_mut()
            {
                algorithm.on_idle(time, Span::from(idle));
            }
        }
        state.last_active = now;
        state.newest_sent = state.newest_sent.max(pn);
        let lost_total = state.lost_total;
        state.sampler.on_sent(now, bytes.into(), pn, lost_total);
    }

    fn on_cwnd_limited(&mut self) {
        self.current().window_limited = true;
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        _app_limited: bool,
        _rtt: &noq_proto::RttEstimator,
    ) {
        let mut state = self.at(now);
        state.sampler.on_acked(now, sent, bytes, pn);
    }

    fn on_rtt(&mut self, now: Instant, rtt: Duration, bare: Duration) {
        let mut state = self.lock();
        state.sampler.on_rtt(bare);
        // `now` is when the packet came, and it is looked at only now.
        state.lag.on_rtt(bare, rtt.saturating_sub(bare) + now.elapsed());
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest: Option<u64>,
    ) {
        let mut state = self.at(now);
        let before = state.pending;
        let largest = before.and_then(|pending| pending.largest).max(largest);
        let loss = before.and_then(|pending| pending.loss);
        state.pending = Some(Pending { now, in_flight, app_limited, largest, loss });
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, _now: Instant) {
        let mut state = self.lock();
        state.sampler.on_lost(pn);
        state.lost += u64::from(lost_bytes);
        state.lost_total += u64::from(lost_bytes);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _sent: Instant,
        is_persistent_congestion: bool,
        _is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        let mut state = self.at(now);
        // What was lost is taken off already.
        let in_flight = state.sampler.inflight() + lost_bytes;
        let pending = state.pending.get_or_insert(Pending {
            now,
            in_flight,
            app_limited: false,
            largest: None,
            loss: None,
        });
        pending.in_flight = pending.in_flight.saturating_sub(lost_bytes);
        let loss = pending.loss.get_or_insert(PendingLoss {
            bytes: 0,
            largest: largest_lost_pn,
            persistent: false,
        });
        loss.bytes += lost_bytes;
        loss.largest = loss.largest.max(largest_lost_pn);
        loss.persistent |= is_persistent_congestion;
    }

    fn on_spurious_congestion_event(&mut self) {
        let mut state = self.current();
        let state = &mut *state;
        let time = state.time(state.last_active);
        if let Some(algorithm) = state.algorithm.as_mut().filter(|_| state.recovery_until.is_some())
        {
            algorithm.on_undo(time);
            state.recovery_until = None;
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.lock().mtu = new_mtu;
    }

    fn window(&self) -> u64 {
        self.current().window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let state = self.current();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = state.window();
        metrics.pacing_rate = state.pacing_rate();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { shared: Arc::clone(&self.shared) })
    }

    fn initial_window(&self) -> u64 {
        INITIAL_SEGMENTS * u64::from(self.lock().mtu)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").finish_non_exhaustive()
    }
}

/// More than the other end waits for before it acknowledges: with less in flight every round trip would
/// take as long as it holds an acknowledgement back.
const LEAST_SEGMENTS: u64 = 10;
/// What noq takes for a round trip before it measured one; odd, so that it is not taken for a measured one.
pub(crate) const UNKNOWN_RTT: Duration = Duration::from_nanos(100_000_007);
/// For the handshake alone.
const INITIAL_SEGMENTS: u64 = 10;
/// A pause for which TCP would have to restart (RFC 5681, 4.1: one retransmission timeout).
const IDLE: Duration = Duration::from_millis(200);
