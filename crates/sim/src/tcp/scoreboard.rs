use super::ranges::Ranges;
use super::rate::{Departure, Sample};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use units::Time;

/// Every segment between the acknowledged sequence and the last sent segment, with its state (RFC
/// 6675's pipe, RFC 8985's times). The cost of an ACK depends on the segments that it newly
/// acknowledges, not on the width of the window.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Segment>,
    known: Ranges,
    una: u64,
    nxt: u64,
    sacked: u64,
    lost: u64,
    repeated: u64,
    /// The highest sequence acknowledged, cumulatively or selectively.
    reached: u64,
    /// The sequence below which no first transmission is in flight.
    judged: u64,
    /// Retransmissions in the order of their sending times.
    again: VecDeque<(Time, u64)>,
    /// Lost segments that are not retransmitted yet. Some of these segments may have been
    /// acknowledged meanwhile.
    to_repeat: BinaryHeap<Reverse<u64>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) sequence: u64,
    pub(crate) sent_at: Time,
    pub(crate) departure: Departure,
    pub(crate) length: u16,
    state: u8,
}

/// The changes that an ACK made to the scoreboard.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) sample: Sample,
    /// Bytes of `sample.acked` that were acknowledged selectively.
    pub(crate) sacked: u64,
    /// The most recently sent transmission that has arrived, by time and end (RACK).
    pub(crate) latest: Option<Arrival>,
    /// Whether a segment that was sent once arrived after a segment sent later.
    pub(crate) reordered: bool,
    /// The smallest end of a segment that arrived and was sent once.
    pub(crate) original: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) sent_at: Time,
    pub(crate) end: u64,
    pub(crate) repeated: bool,
}

impl Segment {
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.sequence + u64::from(self.length)
    }

    /// Whether the segment was ever retransmitted (Karn).
    #[inline]
    pub(crate) fn was_repeated(&self) -> bool {
        self.state & TWICE != 0
    }

    #[inline]
    pub(crate) fn app_limited(&self) -> bool {
        self.state & APP_LIMITED != 0
    }

    #[inline]
    fn is(&self, state: u8) -> bool {
        self.state & state != 0
    }
}

impl Scoreboard {
    #[inline]
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    #[inline]
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Returns the bytes sent and neither acknowledged nor marked as lost.
    #[inline]
    pub(crate) fn pipe(&self) -> u64 {
        (self.nxt - self.una) + self.repeated - self.sacked - self.lost
    }

    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached
    }

    pub(crate) fn has_sacked(&self) -> bool {
        self.sacked > 0
    }

    pub(crate) fn sacked(&self) -> u64 {
        self.sacked
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Returns the bytes of the retransmissions in flight.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Whether a lost segment is not retransmitted yet.
    pub(crate) fn owes(&self) -> bool {
        self.lost > self.repeated
    }

    pub(crate) fn head(&self) -> Option<&Segment> {
        self.segments.front()
    }

    #[inline]
    pub(crate) fn send(&mut self, now: Time, length: u16, departure: Departure, app_limited: bool) {
        let state = if app_limited { APP_LIMITED } else { 0 };
        let segment = Segment { sequence: self.nxt, sent_at: now, departure, length, state };
        self.segments.push_back(segment);
        self.nxt += u64::from(length);
    }

    /// Processes a selective acknowledgement.
    pub(crate) fn sack(&mut self, now: Time, start: u64, end: u64, change: &mut Change) {
        let (start, end) = (start.max(self.una), end.min(self.nxt));
        let mut known = std::mem::take(&mut self.known);
        known.add(start, end, |start, end| {
            let mut index = self.index_of(start);
            while let Some(segment) = self.segments.get_mut(index).filter(|s| s.sequence < end) {
                index += 1;
                if segment.is(SACKED) {
                    continue;
                }
                let length = u64::from(segment.length);
                note_arrival(segment, now, self.reached, change);
                if segment.is(LOST) {
                    self.lost -= length;
                }
                if segment.is(AGAIN) {
                    self.repeated -= length;
                }
                segment.state = segment.state & !(LOST | AGAIN) | SACKED;
                self.sacked += length;
                change.sacked += length;
                self.reached = self.reached.max(segment.end());
            }
        });
        self.known = known;
    }

    /// Processes a cumulative acknowledgement of all data below `sequence`. `before` is the highest
    /// sequence acknowledged before this ACK, because the ACK's own SACKs show no reordering
    /// (`prior_fack` in `tcp_ack`).
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        now: Time,
        sequence: u64,
        before: u64,
        change: &mut Change,
    ) {
        while let Some(segment) = self.segments.front().filter(|s| s.end() <= sequence) {
            let length = u64::from(segment.length);
            if segment.is(SACKED) {
                self.sacked -= length;
            } else {
                note_arrival(segment, now, before, change);
            }
            if segment.is(LOST) {
                self.lost -= length;
            }
            if segment.is(AGAIN) {
                self.repeated -= length;
            }
            self.una = segment.end();
            self.segments.pop_front();
        }
        self.reached = self.reached.max(self.una);
        if !self.known.is_empty() {
            self.known.remove_below(self.una);
        }
        if self.segments.is_empty() {
            self.forget();
        }
    }

    /// Marks segments as lost that were sent before `latest` and not after `until` (RFC 8985, 6.2,
    /// step 5). Returns the bytes, and whether any other segment sent before `latest` is
    /// outstanding.
    pub(crate) fn lose_before(&mut self, latest: Arrival, until: Time) -> (u64, bool) {
        let mut bytes = 0;
        let mut awaited = false;
        let mut index = self.index_of(self.judged.max(self.una));
        while let Some(segment) = self.segments.get_mut(index) {
            if segment.state & (SACKED | LOST | AGAIN) == 0 {
                if (segment.sent_at, segment.end()) >= (latest.sent_at, latest.end) {
                    break;
                }
                if segment.sent_at > until {
                    awaited = true;
                    break;
                }
                segment.state |= LOST;
                bytes += u64::from(segment.length);
                self.to_repeat.push(Reverse(segment.sequence));
            }
            index += 1;
        }
        self.judged = self.segments.get(index).map_or(self.nxt, |segment| segment.sequence);
        self.lost += bytes;
        while let Some((sent_at, sequence)) = self.again.front().copied() {
            let index = self.index_of(sequence);
            let current = self.segments.get_mut(index).filter(|segment| {
                segment.sequence == sequence && segment.is(AGAIN) && segment.sent_at == sent_at
            });
            let Some(segment) = current else {
                self.again.pop_front();
                continue;
            };
            if (sent_at, segment.end()) >= (latest.sent_at, latest.end) {
                break;
            }
            if sent_at > until {
                awaited = true;
                break;
            }
            let length = u64::from(segment.length);
            self.repeated -= length;
            if !segment.is(LOST) {
                self.lost += length;
            }
            segment.state = segment.state & !AGAIN | LOST;
            bytes += length;
            self.to_repeat.push(Reverse(sequence));
            self.again.pop_front();
        }
        (bytes, awaited)
    }

    /// Marks the first segment and all segments sent by `until` as lost after a timeout (RFC 8985,
    /// 6.3). Returns the bytes newly marked.
    pub(crate) fn lose_all(&mut self, until: Time) -> u64 {
        let mut bytes = 0;
        self.to_repeat.clear();
        for (index, segment) in self.segments.iter_mut().enumerate() {
            if segment.is(SACKED) {
                continue;
            }
            let length = u64::from(segment.length);
            let stays = index > 0 && segment.sent_at > until;
            if segment.is(AGAIN) && !stays {
                segment.state &= !AGAIN;
                self.repeated -= length;
                if segment.is(LOST) {
                    bytes += length;
                }
            }
            if !segment.is(LOST) && !stays {
                segment.state |= LOST;
                self.lost += length;
                bytes += length;
            }
            if segment.is(LOST) && !segment.is(AGAIN) {
                self.to_repeat.push(Reverse(segment.sequence));
            }
        }
        bytes
    }

    /// Removes the lost mark of all segments, because it was spurious.
    pub(crate) fn lose_nothing(&mut self) {
        for segment in &mut self.segments {
            segment.state &= !LOST;
        }
        self.lost = 0;
        self.judged = self.una;
        self.to_repeat.clear();
    }

    /// Returns the first segment to retransmit.
    pub(crate) fn next_lost(&mut self) -> Option<Segment> {
        while let Some(Reverse(sequence)) = self.to_repeat.peek().copied() {
            let index = self.index_of(sequence);
            let segment = self.segments.get(index).filter(|segment| {
                segment.sequence == sequence && segment.is(LOST) && !segment.is(AGAIN)
            });
            if segment.is_some() {
                return segment.copied();
            }
            self.to_repeat.pop();
        }
        None
    }

    /// Records the retransmission of the segment at `sequence`.
    pub(crate) fn repeat(&mut self, now: Time, sequence: u64, departure: Departure, limited: bool) {
        let index = self.index_of(sequence);
        let Some(segment) = self.segments.get_mut(index) else { return };
        if !segment.is(AGAIN) {
            self.repeated += u64::from(segment.length);
        }
        segment.state = segment.state & !APP_LIMITED | AGAIN | TWICE;
        if limited {
            segment.state |= APP_LIMITED;
        }
        segment.sent_at = now;
        segment.departure = departure;
        self.again.push_back((now, sequence));
    }

    pub(crate) fn last(&self) -> Option<Segment> {
        self.segments.back().copied()
    }

    /// Returns the index of a segment. Computes the index as if all earlier segments were full; if
    /// that fails, searches it.
    #[inline]
    fn index_of(&self, sequence: u64) -> usize {
        let Some(first) = self.segments.front() else { return 0 };
        let ahead = sequence.saturating_sub(first.sequence);
        let guess = if ahead <= u64::from(u32::MAX) {
            (ahead as u32 / u32::from(first.length).max(1)) as usize
        } else {
            (ahead / u64::from(first.length).max(1)) as usize
        };
        match self.segments.get(guess) {
            Some(segment) if segment.sequence == sequence => guess,
            _ => self.segments.partition_point(|segment| segment.sequence < sequence),
        }
    }

    /// Frees the tables of an idle flow.
    fn forget(&mut self) {
        self.known.clear();
        self.again.clear();
        self.to_repeat.clear();
        if self.segments.capacity() > ROOM_KEPT {
            self.segments = VecDeque::new();
            self.again = VecDeque::new();
            self.to_repeat = BinaryHeap::new();
        }
    }
}

#[inline]
fn note_arrival(segment: &Segment, now: Time, reached: u64, change: &mut Change) {
    change.sample.take(now, segment);
    let arrival =
        Arrival { sent_at: segment.sent_at, end: segment.end(), repeated: segment.was_repeated() };
    let newer = |latest: Arrival| (arrival.sent_at, arrival.end) > (latest.sent_at, latest.end);
    if change.latest.is_none_or(newer) {
        change.latest = Some(arrival);
    }
    if !segment.was_repeated() {
        let end = segment.end();
        change.original = Some(change.original.map_or(end, |known| known.min(end)));
        change.reordered |= end < reached;
    }
}

const SACKED: u8 = 1;
const LOST: u8 = 2;
/// The flag of a segment whose retransmission is in flight.
const AGAIN: u8 = 4;
const TWICE: u8 = 8;
const APP_LIMITED: u8 = 16;
const ROOM_KEPT: usize = 8;
