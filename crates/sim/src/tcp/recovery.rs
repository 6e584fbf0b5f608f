//! The reaction to losses: the congestion states (Open, CWR, Recovery, Loss), the reductions, and
//! the undo of reductions.

use super::prr::Reduction as Prr;
use super::scoreboard::Change;
use super::sender::Sender;
use crate::Ecn;
use crate::packet::{Flags, Packet, Sacks};
use cc::{Ack, Loss, Reduction};
use units::{Bytes, Time};

/// The state of a sender between the detection of a loss and its repair.
#[derive(Debug, Clone, Default)]
pub(super) struct Recovery {
    state: State,
    /// SND.NXT at the beginning of the recovery, which ends when this sequence is acknowledged.
    point: u64,
    /// The window reduction in progress (PRR), which allows bytes per ACK.
    reduction: Option<Prr>,
    undo: Option<Undo>,
    /// The time of the first retransmission since none was in flight. An ACK that echoes an older
    /// time answers a first transmission (Eifel, RFC 3522; `retrans_stamp`).
    repeated_at: Option<Time>,
    /// Timeouts in a row without an acknowledgement in between.
    tries: u32,
    /// Whether the next ACK may prove the timeout spurious (RFC 5682).
    forward: bool,
    /// Whether to send new data now instead of repairs (step 2.b).
    holds: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Open,
    /// The host reduces the window for a congestion mark without a loss.
    Marked,
    Repairing,
    /// After a timeout.
    TimedOut,
}

/// The evidence on whether the reduction was spurious.
#[derive(Debug, Clone, Copy)]
struct Undo {
    from: u64,
    /// Whether the host has retransmitted.
    repeated: bool,
    /// Retransmissions that no DSACK has reported as spurious.
    unproven: u32,
}

impl Recovery {
    pub(super) fn is_repairing(&self) -> bool {
        matches!(self.state, State::Repairing | State::TimedOut)
    }

    #[inline]
    pub(super) fn window(&self) -> Option<u64> {
        self.reduction.map(|reduction| reduction.window)
    }

    #[inline]
    pub(super) fn on_sent(&mut self, bytes: u64) {
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent(bytes);
        }
    }

    pub(super) fn on_repeated(&mut self, now: Time) {
        self.repeated_at.get_or_insert(now);
        if let Some(undo) = &mut self.undo {
            undo.repeated = true;
            undo.unproven += 1;
        }
    }

    /// Whether the algorithm is between `on_loss` and `on_recovered`.
    fn is_reducing(&self) -> bool {
        matches!(self.state, State::Marked | State::Repairing)
    }

    /// Begins a recovery. `in_flight`: segments retransmitted earlier and still in flight.
    fn begin(&mut self, state: State, point: u64, una: u64, in_flight: u32) {
        self.state = state;
        self.point = point;
        if in_flight == 0 {
            self.repeated_at = None;
        }
        self.undo = Some(Undo { from: una, repeated: in_flight > 0, unproven: in_flight });
    }

    /// Whether repairs wait until the sender has sent new data.
    #[inline]
    pub(super) fn holds_repairs(&self) -> bool {
        self.holds
    }

    pub(super) fn moves_forward(&self) -> bool {
        self.forward
    }

    /// Lets repairs continue if there was no new data to send.
    pub(super) fn release_repairs(&mut self, nxt: u64) {
        self.holds = false;
        self.forward &= nxt > self.point;
    }

    fn proves_needless(&self, echo: Time, advanced: bool) -> bool {
        let repairing = self.is_repairing() && self.undo.is_some();
        repairing && advanced && self.repeated_at.is_some_and(|at| echo < at)
    }
}

impl Sender {
    pub(super) fn on_ack(&mut self, now: Time, packet: &Packet) {
        let (una, flight) = (self.board.una(), self.board.pipe());
        if packet.sequence > self.board.nxt() {
            return;
        }
        let mut change = Change::default();
        let reached = self.board.reached();
        let needless = self.take_sacks(now, packet, &mut change);
        self.board.acknowledge(now, packet.sequence, reached, &mut change);
        let advanced = self.board.una() > una;
        if advanced {
            self.recovery.tries = 0;
        }
        self.take_rtt(&change);
        self.rack.on_ack(now, &change, self.rtt.min());
        let mut undone = needless && self.needless_all();
        if self.recovery.proves_needless(packet.stamp, advanced) {
            undone = true;
        }
        if undone || self.move_forward(&change, advanced) {
            self.undo(now);
        }
        let acked = change.sample.acked;
        let news = acked > 0 || advanced;
        let repaired = self.probe.repaired(packet.sequence, needless, news);
        let (lost, lost_again) =
            if self.board.nxt() > self.board.una() { self.detect(now) } else { (0, false) };
        if self.recovery.state != State::Open && packet.sequence >= self.recovery.point {
            self.leave(now);
        }
        if repaired && self.recovery.state == State::Open {
            // The probe repaired a loss, for which the window must shrink.
            self.reduce(now, State::Marked, 0, flight);
            self.leave(now);
        }
        // Losses beyond the ended event begin the next event (`tcp_time_to_recover`).
        if lost > 0 || self.recovery.state == State::Open && self.board.has_lost() {
            self.on_lost(now, lost, flight, lost_again);
        }
        let marked = self.take_echo(now, packet, acked, flight);
        self.report(now, &change, marked, advanced);
        let mss = self.mss();
        let pipe = self.board.pipe();
        if let Some(reduction) = &mut self.recovery.reduction {
            reduction.on_ack(acked, pipe, advanced && lost == 0, mss);
        }
        if advanced {
            self.rtt.backoff = 0;
        }
        if advanced || self.timeout_at == Time::NEVER {
            self.rearm(now);
        }
        if news {
            self.schedule_probe(now);
        }
    }

    /// Handles RACK's timer: segments sent a reordering window ago have not arrived.
    pub(super) fn on_reordering_timer(&mut self, now: Time) {
        let flight = self.board.pipe();
        self.reordering_at = None;
        let (lost, _) = self.detect(now);
        let enters = self.recovery.state != State::Repairing;
        if lost > 0 {
            // Reduce after a timeout too, because a repair was lost (`tcp_rack_reo_timeout`).
            self.on_lost(now, lost, flight, true);
            let (pipe, mss) = (self.board.pipe(), self.mss());
            if let Some(reduction) = self.recovery.reduction.as_mut().filter(|_| enters) {
                reduction.on_ack(mss, pipe, false, mss);
            }
        }
    }

    /// Handles the retransmission timeout (RFC 6298, 5.4 to 5.6; RFC 8985, 6.3).
    pub(super) fn on_timeout(&mut self, now: Time, out: &mut Vec<Packet>) {
        let Some(head) = self.board.head().copied() else {
            self.timeout_at = Time::NEVER;
            return;
        };
        self.counts.timeouts += 1;
        let overdue = self.rack.overdue(now);
        let lost = self.board.lose_all(overdue);
        self.delivery.lost += lost;
        self.unreported += lost;
        // `tcp_enter_loss`: reduce once for the data in flight. A timeout that follows an earlier
        // timeout and some progress is a new event.
        let repeated = match self.recovery.state {
            State::Open => false,
            State::TimedOut => self.recovery.tries > 0 && self.board.una() < self.recovery.point,
            State::Marked | State::Repairing => self.board.una() < self.recovery.point,
        };
        self.recovery.forward = !self.recovery.is_repairing() || self.recovery.tries > 0;
        self.recovery.holds = false;
        self.recovery.tries += 1;
        let undo = self.recovery.undo;
        self.begin(State::TimedOut);
        if repeated {
            self.recovery.undo = undo;
        }
        self.recovery.reduction = None;
        self.reordering_at = None;
        self.probe.cancel();
        self.rtt.backoff += 1;
        let loss = Loss {
            now,
            lost: Bytes::new(lost),
            inflight: Bytes::new(self.board.nxt() - self.board.una()),
            repeated,
        };
        if let Some(algorithm) = &mut self.algorithm {
            algorithm.on_timeout(&loss);
        }
        // Send the first segment regardless of the window.
        self.repeat(now, head.sequence, head.length, out);
        self.rearm(now);
    }

    /// Processes the SACK blocks. Returns whether a block was a DSACK (RFC 2883).
    fn take_sacks(&mut self, now: Time, packet: &Packet, change: &mut Change) -> bool {
        if packet.sacks.len() == 0 {
            return false;
        }
        let mut reported = [(u64::MAX, u64::MAX); Sacks::ROOM];
        for (place, block) in reported.iter_mut().zip(packet.sacks.blocks(packet.sequence)) {
            *place = block;
        }
        let (first, next) = (reported[0], reported[1]);
        let inside = next.0 <= first.0 && first.1 <= next.1;
        let needless = (first.0 < packet.sequence || inside).then_some(first);
        // Process blocks by sequence (`tcp_sacktag_write_queue`), although the newest block comes
        // first: reports of older data that a lost ACK delayed would look like reordering.
        let blocks = &mut reported[usize::from(needless.is_some())..packet.sacks.len()];
        blocks.sort_unstable();
        for (start, end) in blocks.iter() {
            self.board.sack(now, *start, *end, change);
        }
        let Some((start, end)) = needless else { return false };
        self.rack.on_needless(packet.sequence, self.board.nxt());
        let segments = (end - start).div_ceil(self.mss()).max(1) as u32;
        if let Some(undo) = self.recovery.undo.as_mut().filter(|undo| start >= undo.from) {
            undo.unproven = undo.unproven.saturating_sub(segments);
        }
        true
    }

    /// Whether every retransmission of the event proved spurious.
    fn needless_all(&self) -> bool {
        self.recovery.undo.is_some_and(|undo| undo.repeated && undo.unproven == 0)
            && self.board.repeated() == 0
    }

    fn take_rtt(&mut self, change: &Change) {
        if let Some(rtt) = change.sample.oldest_rtt {
            self.rtt.sample(rtt);
        }
        if let Some(rtt) = change.sample.rtt {
            self.rtt.lower(rtt);
        }
    }

    /// Whether an ACK after a timeout shows that the timeout was spurious, by forward RTO recovery
    /// (RFC 5682, 3.1; `tcp_process_loss`). After a genuine timeout, the check costs a round trip
    /// in which the host sends new data.
    fn move_forward(&mut self, change: &Change, advanced: bool) -> bool {
        if self.recovery.state != State::TimedOut || !self.recovery.forward {
            return false;
        }
        // Step 3.b: a segment arrived that was sent once, before the timeout.
        if change.original.is_some_and(|end| end <= self.recovery.point) {
            return true;
        }
        let (una, nxt) = (self.board.una(), self.board.nxt());
        if nxt > self.recovery.point {
            // Step 3.a: the loss was genuine.
            let news = advanced || change.sample.acked > 0;
            self.recovery.forward = news && change.sacked == 0;
        } else if advanced && una < self.recovery.point {
            self.recovery.point = nxt;
            self.recovery.holds = true;
        }
        false
    }

    /// Detects losses. Returns the bytes newly lost, and whether retransmissions are among them.
    fn detect(&mut self, now: Time) -> (u64, bool) {
        let in_flight = self.board.repeated();
        let (repairing, mss) = (self.recovery.is_repairing(), self.mss());
        let (lost, look_again) = self.rack.detect(now, &mut self.board, &self.rtt, repairing, mss);
        self.reordering_at = look_again.map(|wait| self.ticks().after(now, wait));
        self.delivery.lost += lost;
        self.unreported += lost;
        (lost, self.board.repeated() < in_flight)
    }

    fn on_lost(&mut self, now: Time, lost: u64, flight: u64, lost_again: bool) {
        match self.recovery.state {
            // After a timeout, a lost repair begins a new event (`tcp_fastretrans_alert`).
            State::TimedOut if lost_again => self.reduce(now, State::Repairing, lost, flight),
            State::Open => self.reduce(now, State::Repairing, lost, flight),
            // The window is reduced already; further packets are repairs.
            State::Marked => {
                self.recovery.state = State::Repairing;
                self.recovery.point = self.board.nxt();
            }
            State::Repairing | State::TimedOut => {}
        }
        self.probe.at = None;
    }

    fn begin(&mut self, state: State) {
        let in_flight = self.board.repeated().div_ceil(self.mss()) as u32;
        self.recovery.begin(state, self.board.nxt(), self.board.una(), in_flight);
    }

    fn reduce(&mut self, now: Time, state: State, lost: u64, flight: u64) {
        self.begin(state);
        self.counts.recoveries += 1;
        let Some(algorithm) = &mut self.algorithm else { return };
        let before = algorithm.cwnd().count();
        let (lost, inflight) = (Bytes::new(lost), Bytes::new(flight));
        algorithm.on_loss(&Loss { now, lost, inflight, repeated: false });
        if algorithm.reduction() == Reduction::Proportional {
            let threshold = algorithm.ssthresh().count();
            self.recovery.reduction = Some(Prr::begin(before, threshold));
        }
    }

    /// Ends the recovery, once all data sent before the event is acknowledged.
    fn leave(&mut self, now: Time) {
        let reduced = self.recovery.is_reducing();
        self.recovery.state = State::Open;
        self.recovery.reduction = None;
        self.rack.on_recovered();
        let Some(algorithm) = &mut self.algorithm else { return };
        if reduced {
            algorithm.on_recovered(now);
        } else {
            algorithm.on_timeout_repaired(now);
        }
    }

    fn undo(&mut self, now: Time) {
        self.counts.undone += 1;
        self.recovery.undo = None;
        self.recovery.state = State::Open;
        self.recovery.reduction = None;
        self.board.lose_nothing();
        if let Some(algorithm) = &mut self.algorithm {
            algorithm.on_undo(now);
        }
    }

    /// Processes an ACK's echo of congestion marks. Returns the bytes that arrived with a mark.
    fn take_echo(&mut self, now: Time, packet: &Packet, acked: u64, flight: u64) -> u64 {
        if !packet.flags.has(Flags::ECHO) {
            return 0;
        }
        match self.ecn() {
            Ecn::Off => 0,
            Ecn::ByAlgorithm => acked,
            Ecn::Classic => {
                if self.recovery.state == State::Open {
                    self.reduce(now, State::Marked, 0, flight);
                    self.tells_reduced = true;
                }
                0
            }
        }
    }

    fn report(&mut self, now: Time, change: &Change, marked: u64, advanced: bool) {
        let acked = change.sample.acked;
        let min_rtt = self.rtt.min();
        let sample = self.delivery.finish(now, &change.sample, min_rtt);
        if acked == 0 && self.unreported == 0 {
            return;
        }
        // Data that is not acknowledged in order may be lost: do not raise the window
        // (`tcp_may_raise_cwnd`).
        let window_limited = self.window_limited() && advanced;
        let Some(algorithm) = &mut self.algorithm else { return };
        algorithm.on_ack(&Ack {
            now,
            rtt: change.sample.rtt,
            min_rtt,
            acked: Bytes::new(acked),
            lost: Bytes::new(std::mem::take(&mut self.unreported)),
            marked: Bytes::new(marked),
            inflight: Bytes::new(self.board.pipe()),
            delivered: Bytes::new(self.delivery.delivered),
            prior_delivered: Bytes::new(sample.prior_delivered),
            sent_inflight: Bytes::new(sample.sent_inflight),
            lost_since: Bytes::new(sample.lost_since),
            interval: sample.interval,
            app_limited: sample.app_limited,
            window_limited,
            in_recovery: self.recovery.is_reducing(),
        });
    }
}
