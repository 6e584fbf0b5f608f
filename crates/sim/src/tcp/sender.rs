use super::pacer::Pacer;
use super::probe::Probe;
use super::rack::Rack;
use super::rate::Delivery;
use super::recovery::Recovery;
use super::rtt::RoundTrip;
use super::scoreboard::Scoreboard;
use super::ticks::Ticks;
use crate::packet::{Flags, Kind, Packet, Sacks, Tag};
use crate::{Ecn, Flaw, Opening, TcpConfig};
use cc::{Algorithm, CongestionControl};
use std::sync::Arc;
use units::{Bytes, Rate, Span, Time};
use wire::caqm::Info;

/// The sending end of a connection, without a clock and without I/O: the caller passes arriving
/// packets and the time. The sender returns packets and the time of its next call.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(super) config: Arc<TcpConfig>,
    pub(super) algorithm: Option<Box<dyn CongestionControl>>,
    pub(super) board: Scoreboard,
    pub(super) rtt: RoundTrip,
    pub(super) rack: Rack,
    pub(super) delivery: Delivery,
    pub(super) recovery: Recovery,
    pub(super) probe: Probe,
    pacer: Pacer,
    identity: Identity,
    phase: Phase,
    /// Bytes written by the application.
    written: u64,
    /// Whether the application has written all its data.
    closed: bool,
    /// The first byte beyond the receiver's window.
    edge: u64,
    /// The largest window offered so far.
    widest: u64,
    pub(super) usage: WindowUsage,
    /// The time at which the RTO timer, or the timer of the handshake, expires.
    pub(super) timeout_at: Time,
    /// RACK's reordering timer.
    pub(super) reordering_at: Option<Time>,
    last_sent: Time,
    /// Lost bytes that no ACK has reported to the algorithm.
    pub(super) unreported: u64,
    /// Whether the next new segment must report a reduction for a congestion mark (RFC 3168,
    /// 6.1.2).
    pub(super) tells_reduced: bool,
    /// Whether data packets carry CAQM requests.
    asks: bool,
    pub(super) counts: Counts,
}

/// The flow, route, algorithm and seed of a sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) flow: u32,
    pub(crate) route: u32,
    pub(crate) algorithm: Algorithm,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) repeated_bytes: u64,
    pub(crate) timeouts: u32,
    pub(crate) recoveries: u32,
    pub(crate) undone: u32,
    pub(crate) probes: u32,
    /// Data packets that carried a CAQM tag.
    pub(crate) tagged: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A SYN or SYN-ACK has been in flight since `since`.
    Opening {
        since: Time,
        tries: u32,
    },
    Listening,
    Open,
}

/// Whether the window limited the flight (`tcp_cwnd_validate`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowUsage {
    limited: bool,
    most: u64,
    until: u64,
}

impl Sender {
    pub(crate) fn new(config: Arc<TcpConfig>, identity: Identity) -> Self {
        Self {
            algorithm: None,
            board: Scoreboard::default(),
            rtt: RoundTrip::default(),
            rack: Rack::default(),
            delivery: Delivery::default(),
            recovery: Recovery::default(),
            probe: Probe::default(),
            pacer: Pacer::default(),
            identity,
            phase: Phase::Listening,
            written: 0,
            closed: false,
            edge: 0,
            widest: 0,
            usage: WindowUsage::default(),
            timeout_at: Time::NEVER,
            reordering_at: None,
            last_sent: Time::ZERO,
            unreported: 0,
            tells_reduced: false,
            asks: false,
            counts: Counts::default(),
            config,
        }
    }

    /// Opens the connection, if this end initiates it.
    pub(crate) fn open(&mut self, now: Time, out: &mut Vec<Packet>) {
        match self.config.opening {
            Opening::BySender => self.send_syn(now, now, 0, Kind::Syn, out),
            Opening::ByReceiver => {}
            Opening::Established => {
                self.offered(0, super::receiver::initial_window(&self.config));
                self.asks = self.offers() && self.config.caqm.receiver;
                self.establish(now, None, out);
            }
        }
    }

    /// Takes data that the application writes.
    pub(crate) fn write(&mut self, now: Time, bytes: u64, out: &mut Vec<Packet>) {
        self.written = self.written.saturating_add(bytes);
        self.wake(now, out);
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of bytes that the application may still write.
    pub(crate) fn room(&self) -> u64 {
        self.bound_by_buffer().saturating_sub(self.written)
    }

    /// Records that the application has written all its data.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Discards data that the application has written and the sender has not sent.
    pub(crate) fn cut_short(&mut self) {
        self.written = self.board.nxt();
        self.closed = true;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.closed && self.is_open() && self.board.una() >= self.written
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(crate) fn on_packet(&mut self, now: Time, packet: &Packet, out: &mut Vec<Packet>) {
        match (packet.kind, self.phase) {
            (Kind::Ack, Phase::Open) if self.is_plausible(packet.sequence) => {
                if self.asks {
                    self.take_answer(now, packet);
                }
                self.offered(packet.sequence, packet.length);
                self.on_ack(now, packet);
                self.transmit(now, out);
                if self.recovery.holds_repairs() {
                    self.recovery.release_repairs(self.board.nxt());
                    if !self.recovery.moves_forward() {
                        self.transmit(now, out);
                    }
                }
            }
            (Kind::SynAck, Phase::Opening { since, tries }) => {
                self.offered(0, packet.length);
                // A SYN-ACK after a repeated SYN may be for either SYN (Karn): the echoed timestamp
                // tells which.
                let rtt = if tries == 0 { now.since(since) } else { now.since(packet.stamp) };
                self.asks = self.agrees(packet);
                self.establish(now, Some(rtt), out);
            }
            (Kind::Syn, Phase::Listening) => {
                self.offered(0, packet.length);
                self.asks = self.offers() && packet.flags.has(Flags::SPEAKS);
                self.send_syn(now, now, 0, Kind::SynAck, out);
            }
            (Kind::Ack, Phase::Opening { .. }) => {
                self.offered(0, packet.length);
                self.asks = self.asks && self.agrees(packet);
                self.establish(now, Some(now.since(packet.stamp)), out);
            }
            // Ignore a repeated SYN, whose answer was lost or is in flight, and any other ACK,
            // which is forged, with its tag.
            _ => {}
        }
    }

    /// Returns the time of the next call of [`on_timer`](Self::on_timer).
    #[inline]
    pub(crate) fn timer(&self) -> Time {
        let first = self.reordering_at.or(self.probe.at).unwrap_or(Time::NEVER);
        first.min(self.timeout_at)
    }

    pub(crate) fn on_timer(&mut self, now: Time, out: &mut Vec<Packet>) {
        if let Phase::Opening { since, tries } = self.phase {
            if now >= self.timeout_at {
                let kind = match self.config.opening {
                    Opening::ByReceiver => Kind::SynAck,
                    _ => Kind::Syn,
                };
                self.send_syn(now, since, tries + 1, kind, out);
            }
            return;
        }
        if self.reordering_at.is_some_and(|at| at <= now) {
            self.on_reordering_timer(now);
        } else if self.probe.at.is_some_and(|at| at <= now) {
            self.send_probe(now, out);
        } else if self.timeout_at <= now {
            self.on_timeout(now, out);
        }
        self.transmit(now, out);
    }

    /// Returns the time at which the pacer releases the next burst; `NEVER` if no data waits for
    /// the pacer.
    #[inline]
    pub(crate) fn pace_timer(&self, now: Time) -> Time {
        if self.pacer.next > now && self.is_open() && self.could_send() {
            self.pacer.next
        } else {
            Time::NEVER
        }
    }

    pub(crate) fn on_pace(&mut self, now: Time, out: &mut Vec<Packet>) {
        self.transmit(now, out);
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.board.una()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn smoothed_rtt(&self) -> Option<Span> {
        self.rtt.smoothed()
    }

    pub(crate) fn latest_rtt(&self) -> Option<Span> {
        self.rtt.latest()
    }

    pub(crate) fn min_rtt(&self) -> Option<Span> {
        self.rtt.min()
    }

    /// Returns the algorithm's memory for the next connection.
    pub(crate) fn note(&self) -> Option<cc::Memory> {
        self.algorithm.as_ref()?.note()
    }

    pub(crate) fn inflight(&self) -> u64 {
        self.board.pipe()
    }

    /// Returns the present window: the window of the algorithm, or of a reduction in progress.
    pub(crate) fn window(&self) -> u64 {
        let Some(algorithm) = &self.algorithm else { return 0 };
        self.recovery.window().unwrap_or_else(|| algorithm.cwnd().count())
    }

    pub(crate) fn rate(&self) -> Option<Rate> {
        if self.config.flaw == Some(Flaw::NoPacing) {
            return None;
        }
        let algorithm = self.algorithm.as_deref()?;
        algorithm.pacing_rate().or_else(|| self.host_rate().filter(|_| self.config.paces))
    }

    /// Returns the host's pacing rate, if the algorithm leaves pacing to the host.
    fn host_rate(&self) -> Option<Rate> {
        let algorithm = self.algorithm.as_deref()?;
        let smoothed = self.rtt.smoothed()?;
        // tcp_update_pacing_rate: slow start slows down at half of ssthresh.
        let cwnd = algorithm.cwnd().count();
        let ratio = if cwnd < algorithm.ssthresh().count() / 2 { 200 } else { 120 };
        let window = u128::from(cwnd.max(self.board.pipe()));
        let bits = window * 8 * ratio * 10_000_000 / u128::from(smoothed.nanos().max(1));
        Some(Rate::from_bits_per_second(bits.min(u128::from(u64::MAX)) as u64))
    }

    pub(super) fn mss(&self) -> u64 {
        self.config.mss.count()
    }

    pub(super) fn ticks(&self) -> Ticks {
        Ticks(self.config.tick)
    }

    pub(super) fn rearm(&mut self, now: Time) {
        self.timeout_at = if self.board.nxt() == self.board.una() {
            Time::NEVER
        } else {
            self.ticks().after(now, self.rtt.timeout(&self.config))
        };
    }

    /// Schedules a tail loss probe, unless a repair is in progress.
    pub(super) fn schedule_probe(&mut self, now: Time) {
        let pipe = self.board.pipe();
        if pipe == 0 || self.board.has_sacked() || self.recovery.is_repairing() {
            self.probe.at = None;
            return;
        }
        let alone = self.board.nxt() - self.board.una() <= self.mss();
        self.probe.schedule(now, &self.rtt, alone, self.timeout_at, &self.config);
    }

    pub(super) fn window_limited(&self) -> bool {
        let Some(algorithm) = &self.algorithm else { return false };
        if algorithm.in_slow_start() {
            return algorithm.cwnd().count() < 2 * self.usage.most;
        }
        self.usage.limited
    }

    pub(super) fn ecn(&self) -> Ecn {
        match (self.config.ecn, &self.algorithm) {
            (Ecn::ByAlgorithm, Some(algorithm)) if !algorithm.wants_ecn() => Ecn::Off,
            (ecn, _) => ecn,
        }
    }

    /// Sends a SYN or a SYN-ACK.
    fn send_syn(&mut self, now: Time, since: Time, tries: u32, kind: Kind, out: &mut Vec<Packet>) {
        self.phase = Phase::Opening { since, tries };
        let wait = self.config.rto_initial * (1u64 << tries.min(32));
        self.timeout_at = now + wait.min(self.config.rto_max);
        let mut packet = Packet { kind, ..self.packet(now, 0, 0) };
        if self.asks || kind == Kind::Syn && self.offers() {
            packet.offer(self.config.caqm.tag(Info::question()));
        }
        out.push(packet);
    }

    /// Whether this end offers to send CAQM requests.
    fn offers(&self) -> bool {
        self.identity.algorithm.offers_caqm() && self.config.caqm.sender
    }

    /// Whether the peer accepts the offer, and a port on the path supports CAQM.
    fn agrees(&self, packet: &Packet) -> bool {
        let spoken_to = packet.flags.has(Flags::SPOKEN_TO) || self.config.caqm.trusts_path;
        self.offers() && packet.flags.has(Flags::SPEAKS) && spoken_to
    }

    /// Records the window that the receiver offers from byte `from` on.
    fn offered(&mut self, from: u64, window: u32) {
        self.edge = self.edge.max(from + u64::from(window));
        self.widest = self.widest.max(window.into());
    }

    /// Whether an ACK up to `acknowledged` is valid: at most up to the sent data, and at most one
    /// window below the acknowledged sequence (RFC 5961, section 5).
    fn is_plausible(&self, acknowledged: u64) -> bool {
        let first = self.board.una().saturating_sub(self.widest);
        (first..=self.board.nxt()).contains(&acknowledged)
    }

    fn take_answer(&mut self, now: Time, packet: &Packet) {
        let limited = self.window_limited();
        if let Some(reported) =
            self.config.caqm.read(packet.tag).filter(|reported| !reported.is_request())
            && let Some(algorithm) = &mut self.algorithm
        {
            algorithm.answer(reported, limited, now);
        }
    }

    /// Puts the same CAQM request into each segment of a super-packet.
    fn ask(&mut self, piece: &mut [Packet]) {
        if !self.asks {
            return;
        }
        let most = (SUPER_PACKET / self.mss().max(1)).clamp(1, MOST_SEGMENTS) as usize;
        for piece in piece.chunks_mut(most) {
            let algorithm = self.algorithm.as_mut();
            let Some(asked) = algorithm.and_then(|a| a.request(piece.len() as u32)) else {
                self.asks = false;
                return;
            };
            let tag = self.config.caqm.tag(asked);
            piece.iter_mut().for_each(|packet| packet.bear(tag));
            self.counts.tagged += piece.len() as u64;
        }
    }

    fn establish(&mut self, now: Time, handshake: Option<Span>, out: &mut Vec<Packet>) {
        self.phase = Phase::Open;
        self.timeout_at = Time::NEVER;
        if let Some(rtt) = handshake {
            self.rtt.sample(rtt);
        }
        let path = cc::Path {
            mss: self.config.mss,
            initial_window: Bytes::new(self.mss() * u64::from(self.config.initial_window)),
            handshake_rtt: handshake,
            now,
            seed: self.identity.seed,
            memory: self.config.memory,
            caqm: self.asks.then_some(self.config.caqm.settings),
        };
        let algorithm = self.identity.algorithm;
        self.algorithm = Some(match self.config.flaw {
            Some(Flaw::WrongBeta) => algorithm.start_with_beta(&path, 0.5),
            _ => algorithm.start(&path),
        });
        self.last_sent = now;
        self.transmit(now, out);
    }

    /// Sends new data. Reports an idle period to the algorithm first.
    fn wake(&mut self, now: Time, out: &mut Vec<Packet>) {
        if !self.is_open() {
            return;
        }
        let idle = now.since(self.last_sent);
        let timeout = self.rtt.timeout(&self.config);
        if self.board.nxt() == self.board.una()
            && idle >= timeout
            && self.config.slow_start_after_idle
            && let Some(algorithm) = &mut self.algorithm
        {
            algorithm.on_idle(now, idle);
        }
        self.transmit(now, out);
    }

    /// Returns the length of the next new segment that the receiver's window allows.
    #[inline]
    fn next_new(&self) -> Option<u16> {
        let nxt = self.board.nxt();
        let mut end = self.written;
        if let Some(buffer) = self.config.send_buffer {
            end = end.min(self.board.una() + buffer.count());
        }
        let length = end.saturating_sub(nxt).min(self.mss());
        // Silly window avoidance (RFC 1122, 4.2.3.4): do not split a segment for lack of window.
        (length > 0 && nxt + length <= self.edge).then_some(length as u16)
    }

    #[inline]
    fn could_send(&self) -> bool {
        let pipe = self.board.pipe();
        let room = self.window().saturating_sub(pipe);
        let fits = |length: u64| length <= room || pipe == 0;
        self.board.owes() && fits(self.mss()) || self.next_new().is_some_and(|l| fits(l.into()))
    }

    /// Sends the segments that the window, the pacer and the receiver allow, lost segments first.
    pub(super) fn transmit(&mut self, now: Time, out: &mut Vec<Packet>) {
        let rate = self.rate();
        let mut limited = false;
        // The index at which the current super-packet begins.
        let mut piece = out.len();
        loop {
            let burst = match rate {
                Some(_) if self.pacer.next > now => break,
                Some(rate) => Pacer::burst(rate, self.rtt.min(), self.mss(), &self.config),
                None => u64::MAX,
            };
            let mut sent = 0;
            let mut granted = 0;
            while sent < burst {
                let pipe = self.board.pipe();
                let room = self.window().saturating_sub(pipe);
                let length = if self.board.owes()
                    && !self.recovery.holds_repairs()
                    && let Some(segment) = self.board.next_lost()
                {
                    if u64::from(segment.length) > room && pipe > 0 {
                        limited = true;
                        break;
                    }
                    self.repeat(now, segment.sequence, segment.length, out);
                    piece = out.len();
                    segment.length
                } else if let Some(length) = self.next_new() {
                    // Send one segment if the window is smaller than a segment: otherwise the flow
                    // would stop for ever.
                    if u64::from(length) > room && pipe > 0 {
                        limited = true;
                        break;
                    }
                    if granted < u64::from(length) {
                        self.ask(&mut out[piece..]);
                        piece = out.len();
                        granted = self.super_packet(now, room);
                        if granted == 0 {
                            limited = true;
                            break;
                        }
                    }
                    granted = granted.saturating_sub(length.into());
                    self.send_new(now, length, out);
                    length
                } else {
                    break;
                };
                sent += u64::from(length);
            }
            self.ask(&mut out[piece..]);
            piece = out.len();
            if sent == 0 {
                break;
            }
            match rate {
                Some(rate) => self.pacer.sent(now, sent, rate),
                None => break,
            }
        }
        self.note_usage(limited);
    }

    /// Returns the size of the next super-packet, with `room` in the window. Zero means to wait for
    /// more room (`tcp_tso_should_defer`): ACKs arrive so fast that a third of the window will soon
    /// be free.
    fn super_packet(&self, now: Time, room: u64) -> u64 {
        let mss = self.mss();
        let (Some(head), Some(smoothed)) = (self.board.head(), self.rtt.smoothed()) else {
            return room.max(mss);
        };
        let window = self.window();
        let rate = self.rate().or_else(|| self.host_rate());
        let most = rate.map_or(mss, |r| Pacer::burst(r, self.rtt.min(), mss, &self.config));
        // Limit a super-packet to half of the window, because `tcp_cwnd_test` keeps two of them in
        // flight.
        let piece = room.min(most).min(window / 2).max(mss);
        let left = self.written.saturating_sub(self.board.nxt());
        let waits = self.config.offload
            && !self.recovery.is_repairing()
            && left > mss
            && now.since(self.last_sent) <= DEFERS_FOR
            && room < most
            && room < window / 3
            && (head.sent_at + smoothed).since(now) <= DEFERS_FOR.min(smoothed / 2)
            // Send the end of the stream at once.
            && !(self.closed && left <= room);
        if waits { 0 } else { piece }
    }

    fn note_usage(&mut self, limited: bool) {
        let out = self.board.nxt() - self.board.una();
        let pipe = self.board.pipe();
        // Count a full window as the limit, even if no data is left to send.
        let limited = limited || pipe + self.mss() > self.window();
        let usage = &mut self.usage;
        if self.board.una() >= usage.until || limited || !usage.limited && out > usage.most {
            *usage = WindowUsage { limited, most: out, until: self.board.nxt() };
        }
        let waiting = self.written.min(self.bound_by_buffer()).saturating_sub(self.board.nxt());
        if waiting < self.mss() && !limited && !self.board.owes() {
            self.delivery.app_limited(pipe);
        }
    }

    fn bound_by_buffer(&self) -> u64 {
        self.config.send_buffer.map_or(u64::MAX, |buffer| self.board.una() + buffer.count())
    }

    pub(super) fn send_new(&mut self, now: Time, length: u16, out: &mut Vec<Packet>) {
        let sequence = self.board.nxt();
        let alone = sequence == self.board.una();
        let pipe = self.board.pipe() + u64::from(length);
        let departure = self.delivery.on_send(now, alone, pipe);
        let limited = self.delivery.is_app_limited();
        self.board.send(now, length, departure, limited);
        let mut packet = self.packet(now, sequence, length);
        if std::mem::take(&mut self.tells_reduced) {
            packet.flags.set(Flags::REDUCED);
        }
        self.sent(now, length, packet, out);
        if alone {
            self.rearm(now);
        }
        self.schedule_probe(now);
    }

    pub(super) fn repeat(&mut self, now: Time, sequence: u64, length: u16, out: &mut Vec<Packet>) {
        let pipe = self.board.pipe() + u64::from(length);
        let departure = self.delivery.on_send(now, false, pipe);
        let limited = self.delivery.is_app_limited();
        self.board.repeat(now, sequence, departure, limited);
        self.recovery.on_repeated(now);
        self.counts.repeated_bytes += u64::from(length);
        let packet = self.packet(now, sequence, length);
        self.sent(now, length, packet, out);
        let last = out.len() - 1;
        self.ask(&mut out[last..]);
        // Restart the timer for the oldest segment (`tcp_xmit_retransmit_queue`).
        if sequence == self.board.una() || self.timeout_at == Time::NEVER {
            self.rearm(now);
        }
    }

    fn sent(&mut self, now: Time, length: u16, packet: Packet, out: &mut Vec<Packet>) {
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(length);
        self.recovery.on_sent(u64::from(length));
        self.last_sent = now;
        out.push(packet);
    }

    fn packet(&self, now: Time, sequence: u64, length: u16) -> Packet {
        let mut flags = Flags::of(Flags::FORWARD);
        if length > 0 && self.ecn() != Ecn::Off {
            flags.set(Flags::CAPABLE);
        }
        if length > 0 && self.closed && sequence + u64::from(length) == self.written {
            flags.set(Flags::LAST);
        }
        Packet {
            flow: self.identity.flow,
            route: self.identity.route,
            size: self.config.headers.count() as u32 + u32::from(length),
            length: u32::from(length),
            sequence,
            stamp: now,
            sacks: Sacks::default(),
            kind: Kind::Data,
            flags,
            tag: Tag::NONE,
        }
    }

    /// Sends a probe: new data if there is any, else the last segment again (RFC 8985, 7.3).
    fn send_probe(&mut self, now: Time, out: &mut Vec<Packet>) {
        self.counts.probes += 1;
        if let Some(length) = self.next_new() {
            self.send_new(now, length, out);
            let last = out.len() - 1;
            self.ask(&mut out[last..]);
            self.probe.sent(self.board.nxt(), false);
        } else if let Some(last) = self.board.last() {
            self.repeat(now, last.sequence, last.length, out);
            self.probe.sent(self.board.nxt(), true);
        }
        self.probe.at = None;
        self.rearm(now);
    }
}

/// Maximum time since the last super-packet, and until the next ACK, for which a super-packet
/// waits.
const DEFERS_FOR: Span = Span::from_millis(1);
/// Maximum size of a super-packet in bytes. [`MOST_SEGMENTS`]: maximum number of segments that
/// CAQM's core counts at once.
const SUPER_PACKET: u64 = 65_536;
const MOST_SEGMENTS: u64 = 1024;
