//! Congestion control, pacing and loss detection of one connection.
//!
//! The engine, quinn-proto, retransmits packets. This module decides when each packet leaves. The
//! packet keys ([`crate::session`]) report each packet and each acknowledgement to this module
//! before the engine handles the packet or the acknowledgement.

mod controller;

pub(crate) use controller::Factory;

use crate::ack::AckFrame;
use crate::choice::Congestion;
use crate::connection::Outstanding;
use crate::fixed::Fixed;
use crate::flight::{Acked, Flight};
use crate::lag::Lag;
use crate::pacer::Pacer;
use crate::ranges::Ranges;
use crate::reading::{Reading, Readings};
use crate::reordering::Reordering;
use crate::thinning::Thinning;
use cc::{CongestionControl, Path, Reduction};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use units::{Bytes, Span, Time};

/// A connection's state, shared by its keys, its controllers and its driver.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Control>>);

pub(crate) struct Control {
    congestion: Congestion,
    seed: u64,
    epoch: Instant,
    /// For the event in progress: the arrival time of the packet, and the time at which this end
    /// processes the packet.
    arrived: Instant,
    now: Instant,
    path: PathControl,
    /// Former paths, to which the engine may return as long as it holds their controllers. After a
    /// change of address, the engine keeps the former path until the engine has validated the new
    /// path.
    former: Vec<(Weak<()>, PathControl)>,
    /// Identifies the present path; all controllers of the path share the value.
    present: Option<Weak<()>>,
    /// Whether the next controller belongs to the present path.
    keep_path: bool,
    /// The newest packet number, including packets that are not ack-eliciting.
    newest_number: Option<u64>,
    /// Whether the peer has sent a Handshake packet, which validates the peer's address.
    peer_has_handshake_keys: bool,
    gate: Gate,
    thinning: Thinning,
    readings: Readings,
}

/// State of one path. After a change of address, a new state begins.
struct PathControl {
    /// The congestion control algorithm, created at the first RTT sample. Before that, only the
    /// handshake is sent.
    algorithm: Option<Box<dyn CongestionControl>>,
    flight: Flight,
    lag: Lag,
    pacer: Pacer,
    reordering: Reordering,
    srtt: Option<Duration>,
    min_rtt: Option<Duration>,
    /// The RTT sample from the acknowledgements in `pending`, without the peer's ACK delay.
    rtt: Option<Duration>,
    mtu: u16,
    recovery_until: Option<u64>,
    newest_sent: u64,
    /// The path counts as lossy up to this packet: at its beginning, and after each loss.
    lossy_until: Option<u64>,
    window_limited: bool,
    app_limited: bool,
    /// The maximum number of bytes that a single recent acknowledgement covered. Up to this number
    /// of bytes in flight may already have reached the peer.
    batch: u64,
    /// The acknowledgements and losses that arrived at the same time. A process that did not run
    /// for a while receives many acknowledgements at once. If the process reported the
    /// acknowledgements one by one, the path would seem to stall and then to deliver at a very high
    /// rate.
    pending: Option<Pending>,
    /// Bytes lost that were not reported to the algorithm yet.
    lost: u64,
    /// Bytes lost in the present recovery, minus the bytes that were counted as lost but arrived
    /// late.
    lost_in_recovery: u64,
    last_sent: Option<Instant>,
    /// The latest time that was reported to the algorithm.
    clock: Option<Instant>,
    largest_acked: Option<u64>,
    /// The send time of the largest packet number that was acknowledged most recently.
    largest_sent_at: Option<Instant>,
    /// Whether this module withholds some acknowledgements from the engine.
    keeps_back: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    arrived: Instant,
    /// The time of the event, on the algorithm's clock.
    at: Instant,
    largest: Option<u64>,
    loss: Option<PendingLoss>,
}

#[derive(Debug, Clone, Copy)]
struct PendingLoss {
    bytes: u64,
    largest: u64,
    persistent: bool,
}

impl Pending {
    /// Starts to gather events at `now`. Without an acknowledgement, the algorithm's clock does not
    /// advance.
    fn new(now: Instant, clock: Option<Instant>) -> Self {
        Self { arrived: now, at: clock.unwrap_or(now), largest: None, loss: None }
    }
}

/// Decides whether the engine may send. The engine's controller answers accordingly.
#[derive(Debug, Clone, Copy, Default)]
struct Gate {
    open: bool,
    transmitting: bool,
    /// Whether the engine asked while the gate was closed, because it has data to send.
    asked: bool,
    /// Number of bytes under congestion control that were sent through the gate.
    sent: u64,
    /// The time at which acknowledgements are due. At this time, the gate opens for one packet,
    /// even if the window or the pacer would keep it closed.
    due: Option<Instant>,
}

/// The current time, and the epoch from which the algorithm counts time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) epoch: Instant,
    pub(crate) now: Instant,
}

impl Shared {
    pub(crate) fn new(
        congestion: Congestion,
        Clock { epoch, now }: Clock,
        seed: u64,
        readings: Readings,
    ) -> Self {
        let control = Control {
            congestion,
            seed,
            epoch,
            arrived: now,
            now,
            path: PathControl::new(0),
            former: Vec::new(),
            present: None,
            keep_path: false,
            newest_number: None,
            peer_has_handshake_keys: false,
            gate: Gate { open: true, ..Gate::default() },
            thinning: Thinning::default(),
            readings,
        };
        Self(Arc::new(Mutex::new(control)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Control> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Control {
    /// Sets the clock: packets that this end processes from now on arrived at `arrived`.
    pub(crate) fn at(&mut self, now: Instant, arrived: Instant) {
        self.now = now;
        self.arrived = arrived;
    }

    /// Records a packet that the engine has encrypted and that leaves now.
    pub(crate) fn on_sent(
        &mut self,
        number: u64,
        bytes: u64,
        is_ack_eliciting: bool,
        is_size_probe: bool,
    ) {
        let now = self.now;
        self.newest_number = Some(number);
        self.thinning.on_sent(now);
        // The engine sends size probes outside the window, and does not report their loss.
        if !is_ack_eliciting || bytes > self.path.mtu.into() && is_size_probe {
            return;
        }
        self.report_pending();
        let epoch = self.epoch;
        let path = &mut self.path;
        if path.flight.inflight() == 0
            && let (Some(last), Some(algorithm)) = (path.last_sent, path.algorithm.as_mut())
        {
            let idle = now.saturating_duration_since(last);
            if idle >= IDLE {
                path.clock = Some(now);
                algorithm.on_idle(time(epoch, now), Span::from(idle));
            }
        }
        self.gate.sent += bytes;
        path.last_sent = Some(now);
        path.newest_sent = path.newest_sent.max(number);
        path.lossy_until.get_or_insert(number + LOSSY_FOR);
        path.flight.on_sent(now, bytes, number);
    }

    /// Records a packet that has arrived. `is_urgent`: the peer asks for an immediate answer.
    pub(crate) fn on_arrival(&mut self, number: u64, is_urgent: bool) {
        self.thinning.on_arrival(self.now, number);
        if is_urgent {
            self.thinning.hurry();
        }
    }

    /// Records that the next acknowledgement must not wait.
    pub(crate) fn hurry(&mut self) {
        self.thinning.hurry();
    }

    /// Returns the time until which acknowledgements may wait, if the engine had nothing else to
    /// send when it was last asked.
    pub(crate) fn may_wait(&self, now: Instant) -> Option<Instant> {
        let rtt = self.path.min_rtt.filter(|_| self.path.app_limited)?;
        self.thinning.until(now, rtt)
    }

    pub(crate) fn on_handshake_packet(&mut self) {
        self.peer_has_handshake_keys = true;
    }

    pub(crate) fn peer_has_handshake_keys(&self) -> bool {
        self.peer_has_handshake_keys
    }

    /// Records an ACK frame. Returns the ranges that the engine must see instead, if they differ.
    pub(crate) fn on_ack(&mut self, frame: &AckFrame) -> Option<Ranges> {
        let (now, looked_at) = (self.arrived, self.now);
        if Some(frame.largest) > self.newest_number {
            // This end never sent the acknowledged packet, so the engine closes the connection.
            return None;
        }
        if self.path.pending.is_some_and(|pending| pending.arrived != now) {
            self.report_pending();
        }
        let path = &mut self.path;
        let at = path.acknowledged_at(now, frame);
        let acked = path.flight.on_acked(at, &frame.ranges);
        path.on_acked(now, looked_at, frame, acked);
        let (loss, known) =
            path.pending.map_or((None, None), |pending| (pending.loss, pending.largest));
        let largest = known.max(Some(frame.largest));
        path.pending = Some(Pending { arrived: now, at, largest, loss });
        if acked.not_lost > 0 {
            self.undo(acked.not_lost);
        }
        let path = &mut self.path;
        let shown = path.keep_back(now, frame);
        let keep = path.srtt.unwrap_or(UNKNOWN_RTT) * 4 + KEPT;
        if let Some(bound) = now.checked_sub(keep) {
            path.flight.forget_before(bound, frame.largest);
        }
        shown
    }

    /// Records that the engine counts the oldest `bytes` outstanding bytes as lost.
    pub(crate) fn on_lost(&mut self, bytes: u64, persistent: bool) {
        // The engine retransmits, so the next acknowledgement must not wait.
        self.thinning.hurry();
        let now = self.arrived;
        if self.path.pending.is_some_and(|pending| pending.arrived != now) {
            self.report_pending();
        }
        let path = &mut self.path;
        let Some(largest) = path.flight.on_lost(bytes) else { return };
        path.lost += bytes;
        path.lossy_until = Some(path.newest_sent + LOSSY_FOR);
        path.lost_in_recovery += bytes;
        let pending = path.pending.get_or_insert(Pending::new(now, path.clock));
        let loss = pending.loss.get_or_insert(PendingLoss { bytes: 0, largest, persistent: false });
        loss.bytes += bytes;
        loss.largest = loss.largest.max(largest);
        loss.persistent |= persistent;
    }

    /// Limits this module's count to the engine's bytes in flight, whatever the peer's packets
    /// contain.
    fn on_engine_in_flight(&mut self, in_flight: u64) {
        if !self.path.keeps_back {
            self.path.flight.bound_inflight(in_flight);
        }
    }

    /// Records a CE mark, to which the algorithm reacts as to a loss (RFC 9002, section 7.1).
    fn on_marked(&mut self) {
        let path = &mut self.path;
        let Some(largest) = path.largest_acked else { return };
        let pending = path.pending.get_or_insert(Pending::new(self.arrived, path.clock));
        pending.loss.get_or_insert(PendingLoss { bytes: 0, largest, persistent: false });
    }

    /// Reports all pending events to the algorithm.
    pub(crate) fn report_pending(&mut self) {
        let epoch = self.epoch;
        let Some(pending) = self.path.pending.take() else { return };
        if let Some(loss) = pending.loss {
            self.path.report_loss(epoch, pending.at, loss);
        }
        let Some(sample) = self.path.flight.take_sample(self.path.app_limited) else {
            return;
        };
        if self.path.algorithm.is_none() {
            let Some(rtt) = self.path.rtt else { return };
            self.path.algorithm = Some(self.start(pending.at, rtt));
        }
        let path = &mut self.path;
        let leaves_out_waiting =
            path.algorithm.as_ref().is_some_and(|algorithm| algorithm.leaves_out_waiting_bytes());
        path.batch = sample.acked.max(path.batch - path.batch / BATCHES);
        let time = time(epoch, pending.at);
        let inflight = path.flight.inflight();
        let ack = cc::Ack {
            now: time,
            rtt: path.rtt.take().map(Span::from),
            min_rtt: path.min_rtt.map(Span::from),
            acked: Bytes::new(sample.acked),
            lost: Bytes::new(std::mem::take(&mut path.lost)),
            marked: Bytes::ZERO,
            inflight: Bytes::new(match leaves_out_waiting {
                true => path.lag.without(inflight),
                false => inflight,
            }),
            delivered: Bytes::new(path.flight.delivered()),
            prior_delivered: Bytes::new(sample.prior_delivered),
            sent_inflight: Bytes::new(sample.sent_inflight),
            lost_since: Bytes::new(path.flight.lost_total().saturating_sub(sample.prior_lost)),
            interval: Span::from(sample.interval),
            app_limited: sample.app_limited,
            window_limited: std::mem::take(&mut path.window_limited),
            in_recovery: path.recovery_until.is_some(),
        };
        let recovered = path
            .recovery_until
            .zip(pending.largest)
            .is_some_and(|(until, largest)| largest > until);
        let Some(algorithm) = path.algorithm.as_mut() else { return };
        if recovered {
            algorithm.on_recovered(time);
            path.recovery_until = None;
            path.lost_in_recovery = 0;
        }
        algorithm.on_ack(&ack);
        self.readings.update(|reading| read(reading, &ack, &**algorithm));
        let rate = self.pacing_rate();
        self.path.pacer.set_rate(rate);
    }

    /// Records that packets that were counted as lost have arrived late. If all losses of a
    /// recovery were late arrivals, the algorithm undoes its reaction.
    fn undo(&mut self, not_lost: u64) {
        self.report_pending();
        let path = &mut self.path;
        let at = time(self.epoch, path.clock.unwrap_or(self.now));
        path.lost_in_recovery = path.lost_in_recovery.saturating_sub(not_lost);
        if path.lost_in_recovery > 0 || path.recovery_until.is_none() {
            return;
        }
        if let Some(algorithm) = path.algorithm.as_mut() {
            algorithm.on_undo(at);
            path.recovery_until = None;
        }
    }

    fn start(&self, now: Instant, rtt: Duration) -> Box<dyn CongestionControl> {
        let path = Path {
            mss: Bytes::new(self.path.mtu.into()),
            initial_window: Bytes::new(INITIAL_SEGMENTS * u64::from(self.path.mtu)),
            handshake_rtt: Some(Span::from(rtt)),
            now: time(self.epoch, now),
            seed: self.seed,
            memory: None,
            caqm: None,
        };
        match self.congestion {
            Congestion::Algorithm(algorithm) => algorithm.start(&path),
            Congestion::Fixed(rate) => Box::new(Fixed::new(rate, Span::from(rtt))),
        }
    }

    fn window(&self) -> u64 {
        let path = &self.path;
        let Some(algorithm) = &path.algorithm else {
            return INITIAL_SEGMENTS * u64::from(path.mtu);
        };
        let mut window = algorithm.cwnd().count();
        if algorithm.leaves_out_waiting_bytes() {
            window = path.lag.with(window) + path.batch.min(window);
        }
        // RFC 9002, section 7.3.2: a sender may reduce its window at once where TCP spreads the
        // reduction (RFC 6937).
        if path.recovery_until.is_some() && algorithm.reduction() == Reduction::Proportional {
            window = window.min(algorithm.ssthresh().count());
        }
        let least = algorithm.min_window_segments().unwrap_or(LEAST_SEGMENTS);
        window.max(least * u64::from(path.mtu))
    }

    fn pacing_rate(&self) -> Option<u64> {
        let rate = self.path.algorithm.as_ref()?.pacing_rate()?;
        Some((rate.bits_per_second() / 8).max(u64::from(self.path.mtu)))
    }

    /// Returns how many full packets may leave now, and opens or closes the gate for the engine's
    /// next packets. `owes`: data has arrived since this end last sent a packet. `is_forced`: one
    /// packet may leave even if the gate would be closed.
    pub(crate) fn open_gate(&mut self, now: Instant, owes: bool, is_forced: bool) -> usize {
        self.at(now, now);
        self.report_pending();
        let packet = u64::from(self.path.mtu);
        let room = self.window().saturating_sub(self.path.flight.inflight());
        let allowed = room.min(self.path.pacer.allowance(now, packet));
        // If the window has any room, the last packet may exceed the window.
        let mut packets = allowed.div_ceil(packet);
        // After a long silence, let one packet pass, because the engine does not probe in two
        // cases. First, the client's part of the handshake is lost and the window is full of data:
        // the engine would retransmit only data, which the server drops until the handshake is
        // complete. Second, this module counts more bytes in flight than the engine, and the engine
        // sends no probe.
        let silent = self.path.last_sent.map(|last| now.saturating_duration_since(last));
        if packets == 0 && silent >= Some(UNKNOWN_RTT + self.path.srtt.unwrap_or_default() * 4) {
            packets = 1;
        }
        // Let due acknowledgements pass: the engine writes acknowledgements after queued data,
        // which the window or the pacer may block. The pacer of an endpoint that sends only credit
        // has the low rate of the credit, which would delay the acknowledgements for long. Two
        // endpoints with full windows would wait for each other.
        let little = room > 0 && self.path.flight.inflight() < LITTLE * packet;
        let patience = (self.path.srtt.unwrap_or(UNKNOWN_RTT) / 4).min(LONGEST_DUE);
        if packets == 0 && (is_forced || owes && (little || silent >= Some(patience))) {
            packets = 1;
        }
        let due = self.path.last_sent.filter(|_| owes).map(|last| last + patience);
        self.gate = Gate { open: packets > 0, transmitting: true, due, ..Gate::default() };
        usize::try_from(packets).unwrap_or(usize::MAX)
    }

    /// Closes the gate after the engine has sent packets, or has sent no packet (`any` is false).
    /// Returns the time for which the connection waits.
    pub(crate) fn close_gate(&mut self, now: Instant, any: bool) -> Blocked {
        let Gate { asked, sent, due, .. } = std::mem::take(&mut self.gate);
        if sent > 0 {
            self.path.pacer.on_sent(now, sent);
        }
        if any {
            self.path.app_limited = false;
            return Blocked::No;
        }
        self.path.app_limited = !asked;
        if !asked {
            return Blocked::No;
        }
        if self.path.flight.inflight() >= self.window() {
            self.path.window_limited = true;
            return due.map_or(Blocked::No, Blocked::Until);
        }
        let paced = self.path.pacer.wait();
        let until = paced.map(|paced| due.map_or(paced, |due| due.min(paced)));
        until.map_or(Blocked::No, Blocked::Until)
    }

    /// Returns the window for the engine's controller. With an open gate, the engine may send any
    /// number of bytes; with a closed gate, the engine may send only acknowledgements and probes. A
    /// window above `u32::MAX` turns the engine's own pacer off.
    fn engine_window(&mut self) -> u64 {
        if self.gate.open || !self.gate.transmitting {
            return u64::MAX;
        }
        self.gate.asked = true;
        1
    }

    /// Returns the smoothed RTT excluding the peer's ACK delay, once it is measured.
    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.path.srtt
    }

    /// Returns the newest packet in flight for a tail loss probe, if the path is new or has lost
    /// packets lately.
    pub(crate) fn outstanding(&self) -> Option<Outstanding> {
        let path = &self.path;
        let lossy = path.newest_sent < path.lossy_until?;
        let (srtt, sent_at) = (path.srtt?, path.last_sent?);
        let newest = path.newest_sent;
        (lossy && path.flight.inflight() > 0).then_some(Outstanding { newest, sent_at, srtt })
    }

    /// Returns the losses and late arrivals on the present path.
    pub(crate) fn losses(&self) -> Losses {
        Losses {
            bytes_lost: self.path.flight.lost_total(),
            bytes_mistaken: self.path.flight.mistaken_total(),
            packets_late: self.path.reordering.late(),
        }
    }

    /// Announces that the engine is about to create a new controller for the same path.
    pub(crate) fn keep_path(&mut self) {
        self.keep_path = true;
    }

    /// Continues the path's state after the peer has changed its port. The engine counts no packet
    /// as in flight on the new path. With a full window or a slow pacer, the engine could not
    /// challenge the path in time, and the peer would never acknowledge a packet.
    fn on_another_port(&mut self) {
        self.thinning.hurry();
        self.path.flight.leave_path();
        let rate = self.pacing_rate();
        self.path.pacer = Pacer::default();
        self.path.pacer.set_rate(rate);
    }

    /// Makes `path` the present path, which the engine uses from now on.
    fn switch(&mut self, path: &Arc<()>) {
        if self.present.as_ref().is_some_and(|present| std::ptr::eq(present.as_ptr(), &**path)) {
            return;
        }
        let before = self.present.replace(Arc::downgrade(path));
        // The first controller of a connection belongs to the path that exists already.
        let (Some(before), false) = (before, std::mem::take(&mut self.keep_path)) else { return };
        self.former.retain(|(of, _)| of.strong_count() > 0);
        let known = self.former.iter().position(|(of, _)| std::ptr::eq(of.as_ptr(), &**path));
        let path = match known {
            Some(index) => self.former.swap_remove(index).1,
            None => PathControl::new(self.path.mtu),
        };
        self.former.push((before, std::mem::replace(&mut self.path, path)));
        // The engine challenges the new path, so the next acknowledgement must not wait.
        self.thinning.hurry();
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Losses {
    pub(crate) bytes_lost: u64,
    pub(crate) bytes_mistaken: u64,
    pub(crate) packets_late: u64,
}

/// Whether a connection with data to send waits for a time. With a full window, the connection
/// waits for an acknowledgement instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    No,
    Until(Instant),
}

impl PathControl {
    fn new(mtu: u16) -> Self {
        Self {
            algorithm: None,
            flight: Flight::default(),
            lag: Lag::default(),
            pacer: Pacer::default(),
            reordering: Reordering::default(),
            srtt: None,
            min_rtt: None,
            rtt: None,
            mtu,
            recovery_until: None,
            newest_sent: 0,
            lossy_until: None,
            window_limited: false,
            app_limited: false,
            batch: 0,
            pending: None,
            lost: 0,
            lost_in_recovery: 0,
            last_sent: None,
            clock: None,
            largest_acked: None,
            largest_sent_at: None,
            keeps_back: false,
        }
    }

    /// Returns the time at which the acknowledgement would have arrived without the peer's delay. A
    /// peer that is short of CPU time acknowledges many packets at once. By the arrival times of
    /// these acknowledgements, the path would seem to stall and then deliver at a very high rate.
    fn acknowledged_at(&mut self, now: Instant, frame: &AckFrame) -> Instant {
        let sent = self.flight.sent_at(frame.largest).or(self.largest_sent_at).unwrap_or(now);
        self.largest_sent_at = Some(sent);
        let whole = now.saturating_duration_since(sent);
        let at = sent + bare_round_trip(whole, frame);
        *self.clock.insert(self.clock.map_or(at, |clock| clock.max(at)))
    }

    fn on_acked(&mut self, now: Instant, looked_at: Instant, frame: &AckFrame, acked: Acked) {
        if let Some(sent) = acked.largest_sent
            && self.largest_acked.is_none_or(|known| frame.largest > known)
        {
            let whole = now.saturating_duration_since(sent);
            let bare = bare_round_trip(whole, frame);
            let held = whole - bare + looked_at.saturating_duration_since(now);
            self.lag.on_rtt(bare, held);
            // If several samples arrive in one moment, the shortest is closest to the path's RTT.
            self.rtt = Some(self.rtt.map_or(bare, |other| other.min(bare)));
            self.min_rtt = Some(self.min_rtt.map_or(bare, |least| least.min(bare)));
            self.srtt = Some(self.srtt.map_or(bare, |srtt| (srtt * 7 + bare) / 8));
        }
        self.largest_acked = self.largest_acked.max(Some(frame.largest));
        if let Some(smallest) = acked.smallest {
            let srtt = self.srtt.unwrap_or(UNKNOWN_RTT);
            self.reordering.on_acked(now, smallest, frame.largest, srtt);
        }
    }

    /// Returns the ranges that the engine must see instead of the frame's ranges, as long as a
    /// missing packet may only be late.
    fn keep_back(&mut self, now: Instant, frame: &AckFrame) -> Option<Ranges> {
        let window = self.reordering.window();
        if window.is_zero() && !self.keeps_back {
            return None;
        }
        let mut gap = self.flight.first_gap(0);
        while let Some(number) = gap {
            let open_since = self.reordering.open_since(number);
            let age = open_since.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
            if age < window {
                break;
            }
            gap = self.flight.first_gap(number + 1);
        }
        let kept_back_before = std::mem::replace(&mut self.keeps_back, gap.is_some());
        if gap.is_none() && !kept_back_before {
            return None;
        }
        let bound = gap.unwrap_or(u64::MAX);
        let mut shown = self.flight.acked().below(bound);
        for range in frame.ranges.below(bound).iter() {
            shown.insert(range, |_| {});
        }
        Some(shown)
    }

    fn report_loss(&mut self, epoch: Instant, now: Instant, loss: PendingLoss) {
        let time = time(epoch, now);
        let inflight = Bytes::new(self.flight.inflight() + loss.bytes);
        let Some(algorithm) = self.algorithm.as_mut() else { return };
        let within = self.recovery_until.is_some_and(|until| loss.largest <= until);
        let reported = cc::Loss {
            now: time,
            lost: Bytes::new(loss.bytes),
            inflight,
            repeated: loss.persistent && self.recovery_until.is_some(),
        };
        if loss.persistent {
            algorithm.on_timeout(&reported);
            self.recovery_until = None;
        } else if self.recovery_until.is_some() && algorithm.reduction() == Reduction::Own {
            // BBR holds its window for the first round trip of each recovery. If packets are lost
            // in each round trip, BBR would enter one recovery after another, and its window would
            // never grow.
            self.recovery_until = Some(self.newest_sent);
        } else if !within {
            if self.recovery_until.is_some() {
                algorithm.on_recovered(time);
                self.lost_in_recovery = loss.bytes;
            }
            algorithm.on_loss(&reported);
            self.recovery_until = Some(self.newest_sent);
        }
    }
}

fn read(reading: &mut Reading, ack: &cc::Ack, algorithm: &dyn CongestionControl) {
    reading.rtt = ack.rtt.unwrap_or(reading.rtt);
    reading.min_rtt = ack.min_rtt.unwrap_or_default();
    reading.cwnd = algorithm.cwnd();
    reading.pacing_rate = algorithm.pacing_rate();
    if let Some(rate) = ack.delivery_rate().filter(|_| !ack.app_limited) {
        reading.delivery_rate = rate;
    }
    reading.inflight = ack.inflight;
    reading.path_loss = algorithm.path_loss();
}

fn time(epoch: Instant, now: Instant) -> Time {
    let nanos = now.saturating_duration_since(epoch).as_nanos();
    Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Minimum window in packets: more packets than the peer gathers before it acknowledges. With fewer
/// packets in flight, every round trip would include the peer's full ACK delay.
const LEAST_SEGMENTS: u64 = 10;
/// A number of packets in flight that is too low to overload a path.
const LITTLE: u64 = 2;
/// Maximum time for which due acknowledgements wait for the window.
const LONGEST_DUE: Duration = Duration::from_millis(25);
/// The approximate number of acknowledgements after which `batch` forgets a large value.
const BATCHES: u64 = 64;
/// Initial window in packets (RFC 9002, section 7.2).
const INITIAL_SEGMENTS: u64 = 10;
/// The RTT that is assumed before the first sample.
pub(crate) const UNKNOWN_RTT: Duration = Duration::from_millis(100);
/// The idle time after which TCP would restart (RFC 5681, section 4.1: one retransmission timeout).
const IDLE: Duration = Duration::from_millis(200);
/// The number of packets after a loss for which a path counts as lossy. A new path also counts as
/// lossy: the path's probe timeout is at first far longer than the round trip, because the engine
/// allows for an RTT variance that the engine has not measured yet.
const LOSSY_FOR: u64 = 2000;
/// Time for which this module keeps records of lost packets, in addition to four RTTs. A late
/// acknowledgement shows that the packet was not lost.
const KEPT: Duration = Duration::from_millis(100);

/// Returns an RTT excluding the peer's reported delay, at least a sixteenth of the measured RTT.
fn bare_round_trip(whole: Duration, frame: &AckFrame) -> Duration {
    whole.saturating_sub(frame.delay()).max(whole / 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cc::Algorithm;

    /// An endpoint that only receives sends credit occasionally, so its pacer is slow. The pacer
    /// must not delay the acknowledgements of the data that the endpoint receives.
    #[test]
    fn due_acknowledgements_leave_despite_a_slow_pacer() {
        let now = Instant::now();
        let congestion = Congestion::Algorithm(Algorithm::Tcpa);
        let shared = Shared::new(congestion, Clock { epoch: now, now }, 1, Readings::default());
        let mut control = shared.lock();
        control.path.mtu = 1200;
        control.path.pacer.set_rate(Some(2000));
        control.path.pacer.on_sent(now, 100_000);
        assert_eq!(control.open_gate(now, false, false), 0);
        for number in 0..4 {
            assert_eq!(control.open_gate(now, true, false), 1, "packet {number}");
            control.on_sent(number, 600, true, false);
            assert_eq!(control.close_gate(now, true), Blocked::No);
        }
        assert_eq!(control.open_gate(now, true, false), 0);
        assert_eq!(control.open_gate(now + LONGEST_DUE, true, false), 1);
        assert_eq!(control.open_gate(now + LONGEST_DUE, false, true), 1);
        assert_eq!(control.open_gate(now + LONGEST_DUE, false, false), 0);
        assert!(control.engine_window() == 1);
        assert!(matches!(control.close_gate(now, false), Blocked::Until(_)));
    }
}
