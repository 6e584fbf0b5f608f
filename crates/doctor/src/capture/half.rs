//! One direction of a connection, with the facts that the sender's kernel would know, as far as the
//! packets show them. The capture may have been taken anywhere between the ends.

use std::collections::{BTreeMap, VecDeque};
use units::{Bytes, Rate, Span};
use wire::tcp::Segment;

/// The sender of one direction. Positions count bytes from the first sequence number in the
/// capture; times are nanoseconds of the capture.
#[derive(Debug, Default)]
pub(super) struct Half {
    base: Option<u32>,
    /// The highest position that was sent so far.
    next: u64,
    acked: u64,
    /// The position of the first acknowledgement in the capture.
    pub(super) first_acked: Option<u64>,
    /// The largest payload of a packet, and the MSS that the ends agreed on.
    largest: u32,
    pub(super) agreed_mss: Option<u32>,
    /// The scale of the windows that the other end offers.
    pub(super) scale: Option<u8>,
    window: Option<u64>,
    /// The acknowledgements whose timestamp the sender may echo next.
    answers: VecDeque<Answer>,
    last_echo: Option<u32>,
    /// The acknowledged position that the sender knew with its last packet.
    known: u64,
    /// Data in flight: the end position and the send time of each packet.
    flying: VecDeque<(u64, u64)>,
    /// Gaps in the data so far: start to (end, time at which the gap opened).
    holes: BTreeMap<u64, (u64, u64)>,
    latest_stamp: Option<u32>,
    /// Data below this end was sent again, and gives no round trip (Karn).
    again_until: u64,
    sacked_until: u64,
    /// A gap that the other end reports, and whether its data was sent again since.
    gap: Option<(u64, bool)>,
    /// Round trips between the capture and the other end, and between the capture and the sender.
    pub(super) there: Trip,
    pub(super) here: Trip,
    /// Delay of acknowledgements, measured against their timestamps.
    back: Lateness,
    /// Delay of data, measured against its timestamps.
    forth: Lateness,
    clock: u64,
    pub(super) limited: bool,
    short: bool,
    busy: u64,
    window_limited: u64,
    pub(super) segments: u64,
    again: u64,
    in_vain: u64,
    reordered: u64,
    timeouts: u16,
    /// Retransmissions of the oldest data without progress.
    repeats: u32,
    repeated_at: u64,
    delivered: u64,
    marked: u64,
    first_data: Option<u64>,
    pub(super) last_data: Option<u64>,
    pub(super) last_answer: Option<u64>,
    last_progress: u64,
    pub(super) has_data: bool,
    pub(super) has_answers: bool,
    /// The latest packets with data, to recognize copies: a capture of several interfaces has a
    /// packet several times.
    seen: VecDeque<Packet>,
    /// The values at the last sample, for the rate of delivery since.
    mark: (u64, u64),
}

/// The fields that distinguish a packet from the recent packets of its connection.
#[derive(Debug, Clone, PartialEq)]
struct Packet {
    sequence: u32,
    payload: u32,
    acknowledgement: u32,
    stamps: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    stamp: u32,
    acked: u64,
    /// The end of the window; `None` if the window's scale is not known.
    edge: Option<u64>,
    at: u64,
}

/// Round trips of one part of the path.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Trip {
    pub(super) least: Option<u64>,
    smoothed: Option<u64>,
    varies: u64,
    /// The least round trip since the last sample.
    recent: Option<u64>,
}

/// The delay from the sender's timestamp to the capture's time of a packet, in nanoseconds.
#[derive(Debug, Default, Clone, Copy)]
struct Lateness {
    first_stamp: Option<u32>,
    least: Option<i64>,
    recent: Option<i64>,
}

impl Lateness {
    /// Records a packet with its timestamp. Linux counts timestamps in milliseconds (tcp_ts_val).
    fn note(&mut self, now: u64, stamp: u32) {
        let first = *self.first_stamp.get_or_insert(stamp);
        let sent = i64::from(stamp.wrapping_sub(first) as i32) * 1_000_000;
        let late = (now as i64).saturating_sub(sent);
        self.least = Some(self.least.map_or(late, |least| least.min(late)));
        self.recent = Some(self.recent.map_or(late, |recent| recent.min(late)));
    }

    fn queue(&self) -> Option<u64> {
        Some(u64::try_from(self.recent?.saturating_sub(self.least?)).unwrap_or(0))
    }
}

impl Trip {
    pub(super) fn note(&mut self, sample: u64) {
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        self.recent = Some(self.recent.map_or(sample, |recent| recent.min(sample)));
        // RFC 6298 section 2.
        match self.smoothed {
            None => (self.smoothed, self.varies) = (Some(sample), sample / 2),
            Some(smoothed) => {
                let deviation = smoothed.abs_diff(sample);
                self.varies = self.varies / 4 * 3 + deviation / 4;
                self.smoothed = Some(smoothed / 8 * 7 + sample / 8);
            }
        }
    }
}

impl Half {
    fn position(&self, sequence: u32) -> u64 {
        self.next.saturating_add_signed(self.distance(sequence))
    }

    /// Whether the sequence number is before the first of the capture: [`Self::position`] is 0.
    fn is_before_capture(&self, sequence: u32) -> bool {
        self.next.checked_add_signed(self.distance(sequence)).is_none()
    }

    /// Returns the distance from the highest position that was sent so far.
    fn distance(&self, sequence: u32) -> i64 {
        let Some(base) = self.base else { return 0 };
        let now = base.wrapping_add(self.next as u32);
        i64::from(sequence.wrapping_sub(now) as i32)
    }

    fn mss(&self) -> u64 {
        // Timestamps take room in each segment.
        let stamps = if self.latest_stamp.is_some() { STAMPS } else { 0 };
        let seen = self.largest.min(MOST_SEGMENT - stamps);
        u64::from(self.agreed_mss.unwrap_or(seen).max(1))
    }

    /// Whether the capture is nearer to the sender than to the other end.
    fn is_near(&self) -> bool {
        match (self.here.least, self.there.least) {
            (Some(here), Some(there)) => here <= there,
            (Some(_), None) => false,
            _ => true,
        }
    }

    pub(super) fn rtt(&self) -> Option<Span> {
        let there = self.there.smoothed;
        let here = self.here.recent.or(self.here.smoothed);
        let sum = match (self.is_near(), there, here) {
            (true, Some(there), here) => {
                there.saturating_add(self.here.least.or(here).unwrap_or(0))
            }
            (false, there, Some(here)) => {
                self.there.least.or(there).unwrap_or(0).saturating_add(here)
            }
            _ => return None,
        };
        Some(Span::from_nanos(sum))
    }

    fn least_rtt(&self) -> Option<Span> {
        let known = match self.is_near() {
            true => self.there.least,
            false => self.here.least,
        };
        known.map(|_| {
            let (there, here) = (self.there.least.unwrap_or(0), self.here.least.unwrap_or(0));
            Span::from_nanos(there.saturating_add(here))
        })
    }

    /// Adds the time since the last packet to the state that held in that time.
    fn advance(&mut self, now: u64) {
        let spent = now.saturating_sub(self.clock);
        self.clock = self.clock.max(now);
        let flying = self.next > self.acked;
        if self.limited {
            self.window_limited += spent;
            self.busy += spent;
        } else if flying {
            self.busy += spent;
        } else if !self.is_near()
            && let Some(last) = self.last_data
        {
            // The sender still has data in flight until the acknowledgement reaches the sender.
            let trip = self.rtt().unwrap_or_default().nanos();
            let until = last.saturating_add(trip).min(now);
            self.busy += until.saturating_sub(now - spent);
        }
    }

    /// Processes a packet from the sender.
    pub(super) fn sends(&mut self, now: u64, segment: &Segment) {
        self.advance(now);
        let sequence = segment.sequence.wrapping_add(u32::from(segment.flags.syn()));
        if self.base.is_none() {
            self.base = Some(sequence);
        }
        if segment.payload == 0 {
            return;
        }
        if self.is_copy(now, segment) {
            return;
        }
        let start = self.position(sequence);
        let is_before = self.is_before_capture(sequence);
        let end = match is_before {
            true => self.position(sequence.wrapping_add(segment.payload)),
            false => start.saturating_add(segment.payload.into()),
        };
        // A zero-window probe carries no new data.
        if end <= self.acked && segment.payload == 1 && self.window == Some(0) {
            return;
        }
        self.has_data = true;
        self.first_data.get_or_insert(now);
        self.largest = self.largest.max(segment.payload);
        let count = u64::from(segment.payload).div_ceil(self.mss());
        self.segments += count;
        let stamp = segment.options.timestamps;
        if end > self.next {
            if start > self.next && self.holes.len() < MOST_HOLES {
                self.holes.insert(self.next, (start, now));
            }
            self.next = end;
            if self.flying.len() < MOST_FLYING {
                self.flying.push_back((end, now));
            }
            self.repeats = 0;
        } else {
            let stamp = stamp.map(|(value, _)| value);
            let is_late = match is_before {
                true => self.is_late_from_before(now, stamp),
                false => Some(false),
            };
            match is_late {
                Some(false) => self.old_data(now, start, end, count, stamp),
                Some(true) => self.reordered += count,
                None => self.fill_gap(start),
            }
        }
        if let Some((value, echo)) = stamp {
            self.forth.note(now, value);
            let is_later = self.latest_stamp.is_none_or(|latest| is_after(value, latest));
            if is_later {
                self.latest_stamp = Some(value);
            }
            self.echo(now, echo);
        }
        self.see_window(now, segment);
        self.last_data = Some(now);
    }

    /// Whether the packet is a copy that another interface recorded.
    fn is_copy(&mut self, now: u64, segment: &Segment) -> bool {
        let packet = Packet {
            sequence: segment.sequence,
            payload: segment.payload,
            acknowledgement: segment.acknowledgement,
            stamps: segment.options.timestamps,
        };
        let soon = now.saturating_sub(self.last_data.unwrap_or(0)) < COPIED_WITHIN;
        if soon && self.seen.contains(&packet) {
            return true;
        }
        if self.seen.len() >= MOST_COPIES {
            self.seen.pop_front();
        }
        self.seen.push_back(packet);
        false
    }

    /// Whether data from before the first position of the capture is late; if not, the sender sent
    /// the data again. `None` if the capture does not show which, because the capture lacks the
    /// packets before. A sender sends each byte for the first time before the bytes behind, so that
    /// late data has an older timestamp than the first data of the capture.
    fn is_late_from_before(&self, now: u64, stamp: Option<u32>) -> Option<bool> {
        if let Some((stamp, first)) = stamp.zip(self.forth.first_stamp)
            && stamp != first
        {
            return Some(is_after(first, stamp));
        }
        let trip = self.least_rtt().unwrap_or(Span::from_millis(3)).nanos();
        let is_begin = now.saturating_sub(self.first_data.unwrap_or(now)) <= trip;
        (!is_begin).then_some(false)
    }

    /// Processes data that was seen before or that fills a hole.
    fn old_data(&mut self, now: u64, start: u64, end: u64, count: u64, stamp: Option<u32>) {
        let waits = now.saturating_sub(self.last_data.unwrap_or(0).max(self.last_progress));
        if let Some((opened, is_oldest)) = self.fill(start, end) {
            let waited = now.saturating_sub(opened);
            let trip = self.least_rtt().unwrap_or(Span::from_millis(3)).nanos();
            let is_late = match (stamp, self.latest_stamp) {
                (Some(stamp), Some(latest)) if stamp != latest => is_after(latest, stamp),
                _ => waited < trip / 2,
            };
            if is_late {
                self.reordered += count;
                return;
            }
            self.again += count;
            self.timeouts = self.timeouts.saturating_add(u16::from(is_oldest && waits >= TIMEOUT));
            return;
        }
        self.again += count;
        self.again_until = self.again_until.max(end);
        self.fill_gap(start);
        let is_oldest = start <= self.acked;
        if is_oldest && waits >= TIMEOUT {
            self.timeouts = self.timeouts.saturating_add(1);
        }
        if is_oldest && end > self.acked {
            let same = self.repeated_at == self.acked && self.repeats > 0;
            self.repeats = if same { self.repeats + 1 } else { 1 };
            self.repeated_at = self.acked;
        }
    }

    /// Notes that the data of a reported gap passed again.
    fn fill_gap(&mut self, start: u64) {
        if let Some((gap, sent)) = &mut self.gap
            && start <= *gap
        {
            *sent = true;
        }
    }

    /// Closes the holes that this data fills. Returns the time at which the first of these holes
    /// opened, and whether that hole was the first of all holes.
    fn fill(&mut self, start: u64, end: u64) -> Option<(u64, bool)> {
        let (&at, &(until, opened)) = self.holes.range(..end).next_back()?;
        if until <= start {
            return None;
        }
        let is_oldest = self.holes.first_key_value().is_some_and(|(first, _)| *first == at);
        self.holes.remove(&at);
        if at < start {
            self.holes.insert(at, (start, opened));
        }
        if end < until {
            self.holes.insert(end, (until, opened));
        }
        Some((opened, is_oldest))
    }

    /// Measures the round trip between the capture and the sender: from an acknowledgement to the
    /// first data that echoes its timestamp (RFC 7323).
    fn echo(&mut self, now: u64, echo: u32) {
        if self.last_echo.is_some_and(|last| !is_after(echo, last)) {
            return;
        }
        self.last_echo = Some(echo);
        while self.answers.front().is_some_and(|one| is_after(echo, one.stamp)) {
            // Keep the newest acknowledgement up to the echo: the sender uses its window until a
            // newer acknowledgement arrives.
            if self.answers.get(1).is_none_or(|next| is_after(next.stamp, echo)) {
                break;
            }
            self.answers.pop_front();
        }
        // Older acknowledgements were removed above, so the first with this timestamp is in front.
        if let Some(first) = self.answers.front().filter(|one| one.stamp == echo) {
            self.here.note(now.saturating_sub(first.at));
        }
    }

    /// Updates `limited`: whether the receive window that the sender knows has no room for the next
    /// burst.
    fn see_window(&mut self, now: u64, segment: &Segment) {
        let near = (self.acked, self.window.map(|window| self.acked.saturating_add(window)));
        let known = match (self.is_near(), segment.options.timestamps) {
            (false, Some((_, echo))) => {
                let least = self.here.least.unwrap_or(0) / 20 * 19;
                let arrived = now.saturating_sub(least);
                let is_known = |one: &Answer| !is_after(one.stamp, echo) && one.at <= arrived;
                let found = last_while(&self.answers, is_known);
                found.map_or(near, |one| (one.acked, one.edge))
            }
            _ => near,
        };
        let mss = self.mss();
        self.known = known.0;
        let (_, Some(edge)) = known else {
            self.limited = false;
            self.short = !u64::from(segment.payload).is_multiple_of(mss);
            return;
        };
        let left = edge.saturating_sub(self.next);
        let window = edge.saturating_sub(known.0);
        // The kernel keeps a burst back until a third of the window is open
        // (tcp_tso_should_defer).
        let burst = (window / 20 * 7).min(MOST_DEFERRED);
        self.limited = left < mss.max(burst);
        self.short = !u64::from(segment.payload).is_multiple_of(mss) && !self.limited;
    }

    /// Processes a packet from the other end.
    pub(super) fn is_answered(&mut self, now: u64, segment: &Segment) {
        if !segment.flags.ack() || segment.flags.rst() {
            return;
        }
        self.advance(now);
        if self.base.is_none() {
            self.base = Some(segment.acknowledgement);
        }
        self.has_answers = true;
        self.last_answer = Some(now);
        let acked = self.position(segment.acknowledgement);
        self.first_acked.get_or_insert(acked.min(self.next));
        let scale = if segment.flags.syn() { Some(0) } else { self.scale };
        let window = scale.map(|scale| u64::from(segment.window) << scale);
        let before = self.acked;
        if acked > self.acked && acked.saturating_sub(self.next) <= MOST_UNSEEN {
            self.progress(now, acked, segment);
        }
        if acked >= before
            && let Some(window) = window
        {
            self.window = Some(window);
        }
        self.sacks(segment, acked);
        let edge = self.acked.saturating_add(self.window.unwrap_or(0));
        if let Some((stamp, _)) = segment.options.timestamps {
            self.back.note(now, stamp);
        }
        // Without the handshake the capture shows the round trips, but not the windows.
        if let Some((stamp, _)) = segment.options.timestamps {
            let edge = self.window.map(|window| self.acked.saturating_add(window));
            if self.answers.len() >= MOST_ANSWERS {
                self.answers.pop_front();
            }
            self.answers.push_back(Answer { stamp, acked: self.acked, edge, at: now });
        }
        if self.is_near() && edge.saturating_sub(self.next) >= self.mss() {
            self.limited = false;
        }
    }

    fn progress(&mut self, now: u64, acked: u64, segment: &Segment) {
        let bytes = acked - self.acked;
        let count = bytes.div_ceil(self.mss());
        self.delivered += count;
        if segment.flags.ece() {
            self.marked += count;
        }
        if let Some((_, sent)) = self.gap.take()
            && !sent
            && self.is_near()
        {
            self.reordered += 1;
        }
        let mut sample = None;
        while let Some((end, at)) = self.flying.front().copied().filter(|(end, _)| *end <= acked) {
            self.flying.pop_front();
            if end > self.again_until && end > self.sacked_until {
                sample = Some(now.saturating_sub(at));
            }
        }
        if let Some(sample) = sample {
            self.there.note(sample);
        }
        self.acked = acked;
        self.next = self.next.max(acked);
        self.last_progress = now;
        self.repeats = 0;
    }

    fn sacks(&mut self, segment: &Segment, acked: u64) {
        let [first, second, ..] = segment.options.sack;
        // Distances from the acknowledgement also order data from before the capture.
        let distance = |sequence: u32| sequence.wrapping_sub(segment.acknowledgement) as i32;
        // RFC 2883: a first block below the acknowledgement, or within the second block, reports
        // data that arrived twice.
        let is_twice = first.is_some_and(|(left, right)| {
            let is_within = |(from, until): (u32, u32)| {
                distance(left) >= distance(from) && distance(right) <= distance(until)
            };
            distance(right) <= 0 || second.is_some_and(is_within)
        });
        // A report about data that was sent again before the capture is no report about a
        // retransmission in the capture.
        if is_twice {
            self.in_vain = (self.in_vain + 1).min(self.again);
        }
        let blocks = segment.options.sack.iter().flatten();
        for (left, right) in blocks.skip(usize::from(is_twice)) {
            let (left, right) = (self.position(*left), self.position(*right));
            if left > acked && right <= self.next {
                self.sacked_until = self.sacked_until.max(right);
                self.gap.get_or_insert((acked, self.again_until > acked));
            }
        }
    }

    /// Returns the fields of `tcp_info` at `now`.
    pub(super) fn facts(&mut self, now: u64, is_one_way: bool) -> crate::recording::Tcp {
        self.advance(now);
        let mss = self.mss();
        let rtt = self.rtt();
        let flying = self.next.saturating_sub(self.acked);
        let acked = if is_one_way && !self.has_answers { self.next } else { self.acked };
        let (earlier, busy) = std::mem::replace(&mut self.mark, (acked, self.busy));
        let (moved, spent) = (acked.saturating_sub(earlier), self.busy.saturating_sub(busy));
        let idle = now.saturating_sub(self.last_data.unwrap_or(now));
        let rests = rtt.is_some_and(|rtt| idle / 3 > rtt.nanos() / 2) && flying == 0;
        let waits = self.limited || !self.short && !rests;
        let ago = |at: Option<u64>| at.map(|at| Span::from_nanos(now.saturating_sub(at)));
        let seen = |value: u64| (!is_one_way).then_some(value);
        let narrow = |value: u64| seen(value).map(|value| u32::try_from(value).unwrap_or(u32::MAX));
        let varies = if self.is_near() { self.there.varies } else { self.here.varies };
        let facts = crate::recording::Tcp {
            rtt,
            min_rtt: self.least_rtt(),
            rttvar: rtt.map(|_| Span::from_nanos(varies)),
            rto: rtt.map(|rtt| rtt + Span::from_nanos(varies.saturating_mul(4).max(200_000_000))),
            backoff: seen(self.repeats.into()).map(|repeats| repeats.min(255) as u8),
            mss: (self.has_data || self.agreed_mss.is_some()).then(|| Bytes::new(mss)),
            unacked: narrow(self.unacknowledged(now).div_ceil(mss)),
            peer_window: self.window.map(Bytes::new),
            delivery_rate: (spent >= LEAST_BUSY && moved > 0)
                .then(|| Rate::from_bits_per_second((moved as f64 * 8e9 / spent as f64) as u64)),
            application_limited: Some(!waits),
            // The kernel also counts the SYN.
            bytes_acked: Some(Bytes::new(acked + u64::from(self.has_answers))),
            bytes_sent: Some(Bytes::new(self.next)),
            unsent: seen(if waits { mss } else { 0 }).map(Bytes::new),
            data_segments_out: Some(u32::try_from(self.segments).unwrap_or(u32::MAX)),
            segments_out: Some(u32::try_from(self.segments).unwrap_or(u32::MAX)),
            retransmitted: narrow(self.again),
            spurious: narrow(self.in_vain),
            reordered: narrow(self.reordered),
            delivered: narrow(self.delivered),
            delivered_marked: narrow(self.marked),
            timeouts: seen(self.timeouts.into()).map(|count| count as u16),
            busy: seen(self.busy).map(Span::from_nanos),
            window_limited: seen(self.window_limited)
                .filter(|_| self.window.is_some() || !self.has_answers)
                .map(Span::from_nanos),
            back_queue: self.back_queue(rtt).map(Span::from_nanos),
            last_sent: ago(self.last_data),
            last_acknowledged: ago(self.last_answer),
            ..crate::recording::Tcp::default()
        };
        self.here.recent = None;
        (self.back.recent, self.forth.recent) = (None, None);
        facts
    }

    /// Returns the queueing delay on the return path. A capture near the sender shows the delay of
    /// acknowledgements. A capture near the other end shows the delay of data, and the rest of the
    /// queueing delay belongs to the return path.
    fn back_queue(&self, rtt: Option<Span>) -> Option<u64> {
        let queue = (rtt? - self.least_rtt()?).nanos();
        match self.is_near() {
            true => self.back.queue().map(|back| back.min(queue)),
            false => self.forth.queue().map(|forth| queue.saturating_sub(forth)),
        }
    }

    /// Returns the bytes in flight as the sender counts them. An acknowledgement that left the
    /// other end counts as soon as the sender may have got that acknowledgement. Later packets of
    /// the other end, such as a long answer to one message, acknowledge no further data.
    fn unacknowledged(&self, now: u64) -> u64 {
        let trip = self.here.least.unwrap_or(0);
        let is_new = now.saturating_sub(self.last_progress) < trip;
        let known = if self.is_near() || !is_new { self.acked } else { self.known };
        self.next.saturating_sub(known)
    }

    /// Returns the bytes that no acknowledgement in the capture covers.
    pub(super) fn flying(&self) -> u64 {
        self.next.saturating_sub(self.acked)
    }

    pub(super) fn repeats(&self) -> u32 {
        self.repeats
    }

    pub(super) fn is_closed(&self) -> bool {
        self.window == Some(0)
    }

    /// Returns the bytes that arrived at the other end, or the bytes sent if no acknowledgement was
    /// seen.
    pub(super) fn moved(&self) -> u64 {
        if self.has_answers { self.acked } else { self.next }
    }
}

/// Returns the last acknowledgement for which `is_known` holds. The search is binary, because
/// timestamps and times grow. In a capture with decreasing timestamps or times, the search may
/// return another acknowledgement.
fn last_while(
    answers: &VecDeque<Answer>,
    is_known: impl FnMut(&Answer) -> bool,
) -> Option<&Answer> {
    answers.get(answers.partition_point(is_known).checked_sub(1)?)
}

/// Whether `one` is after `other`, modulo 2^32: timestamps and sequence numbers wrap.
fn is_after(one: u32, other: u32) -> bool {
    one != other && one.wrapping_sub(other) < 1 << 31
}

/// Maximum payload of a packet on the wire: longer packets are super-packets of TSO or GRO.
const MOST_SEGMENT: u32 = 1460;
/// The option of timestamps, with its padding (RFC 7323 appendix A).
const STAMPS: u32 = 12;
/// A burst of this size leaves without waiting for more data.
const MOST_DEFERRED: u64 = 65_536;
const MOST_HOLES: usize = 4096;
const MOST_FLYING: usize = 65_536;
const MOST_ANSWERS: usize = 16_384;
/// An acknowledgement that covers more bytes missing from the capture counts as damaged.
const MOST_UNSEEN: u64 = 1 << 30;
/// Shortest pause that counts as a retransmission timeout, in nanoseconds. The kernel's minimum is
/// 200 ms; clocks and queues shorten the pause in a capture.
const TIMEOUT: u64 = 180_000_000;
const COPIED_WITHIN: u64 = 1_000_000;
const MOST_COPIES: usize = 64;
const LEAST_BUSY: u64 = 500_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_known_acknowledgement_is_found_in_few_steps() {
        let answer = |at: u64| Answer { stamp: (at / 40) as u32, acked: at, edge: Some(at), at };
        let most = MOST_ANSWERS as u64;
        let answers: VecDeque<Answer> = (0..most).map(answer).collect();
        for (echo, arrived) in [(0, 10), (7, 300), (7, 285), (400, most), (0, 0), (9, 0)] {
            let is_known = |one: &Answer| !is_after(one.stamp, echo) && one.at <= arrived;
            let mut looked = 0;
            let found = last_while(&answers, |one| {
                looked += 1;
                is_known(one)
            });
            let expected = answers.iter().rev().find(|one| is_known(one));
            assert_eq!(found.map(|one| one.at), expected.map(|one| one.at), "{echo} {arrived}");
            assert!(looked <= 16, "{looked}");
        }
        assert!(last_while(&answers, |_| false).is_none());
        assert!(last_while(&VecDeque::new(), |_| true).is_none());
    }
}
