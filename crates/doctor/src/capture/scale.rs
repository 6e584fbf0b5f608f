//! The scale of the windows in a capture without the handshake, which alone states the scale. A
//! sender never sends beyond the window. If the sender often fills the window, one scale makes the
//! window as large as the data in flight; the next scales make the window two and four times as
//! large.

use std::collections::VecDeque;
use wire::tcp::Segment;

/// A direction of a connection, with the windows that the receiver of the direction offers.
#[derive(Debug, Default)]
pub(super) struct Scale {
    base: Option<u32>,
    next: u64,
    acked: u64,
    /// The window field of the last acknowledgement.
    window: Option<u64>,
    /// Acknowledgements with timestamps: the timestamp, the position and the window field.
    answers: VecDeque<(u32, u64, u64)>,
    largest: u64,
    packets: u64,
    /// The smallest scale at which all data fits.
    least: u8,
    /// Packets at the end of the window, at [`Self::least`].
    full: u64,
    /// Packets that end exactly where the window ends, at [`Self::least`].
    exact: Exact,
}

/// Windows that the sender filled to the last byte, as a sender does with its last segment before
/// the sender waits for the window.
#[derive(Debug, Default)]
struct Exact {
    count: u64,
    /// The number of filled windows whose size is unusual for a message.
    odd: u64,
    /// The first window fields of different values among the filled windows.
    fields: [Option<u64>; FIELDS],
}

impl Exact {
    fn note(&mut self, field: u64, window: u64) {
        self.count += 1;
        self.odd += u64::from(MESSAGES.iter().all(|size| !window.is_multiple_of(*size)));
        let is_same = |slot: &&mut Option<u64>| slot.is_none_or(|known| known == field);
        if let Some(slot) = self.fields.iter_mut().find(is_same) {
            *slot = Some(field);
        }
    }

    /// Whether windows explain the matches. At one scale the messages of a program may be as large
    /// as a window that stays the same.
    fn is_sure(&self) -> bool {
        let differ = self.fields.iter().all(Option::is_some);
        self.count >= FEWEST_EXACT && (differ || self.odd >= FEWEST_EXACT)
    }
}

impl Scale {
    fn position(&self, sequence: u32) -> u64 {
        let Some(base) = self.base else { return 0 };
        let now = base.wrapping_add(self.next as u32);
        self.next.saturating_add_signed(i64::from(sequence.wrapping_sub(now) as i32))
    }

    pub(super) fn sends(&mut self, segment: &Segment) {
        if segment.payload == 0 || segment.flags.syn() {
            return;
        }
        let end = u64::from(segment.payload);
        self.base.get_or_insert(segment.sequence);
        let end = self.position(segment.sequence).saturating_add(end);
        let is_new = end > self.next;
        self.next = self.next.max(end);
        self.largest = self.largest.max(segment.payload.into());
        let echo = segment.options.timestamps.map(|(_, echo)| echo);
        let Some((acked, window)) = self.known(echo).filter(|(_, window)| *window > 0) else {
            return;
        };
        if !is_new || end <= acked {
            return;
        }
        self.packets += 1;
        let flying = end - acked;
        let fits = (0..=MOST_SCALE).find(|scale| window << scale >= flying);
        let scale = fits.unwrap_or(MOST_SCALE);
        if scale > self.least {
            (self.least, self.full, self.exact) = (scale, 0, Exact::default());
        }
        let field = window;
        let window = field << self.least;
        let Some(left) = window.checked_sub(flying) else { return };
        if left == 0 && window >= FEW_SEGMENTS * USUAL_SEGMENT {
            self.exact.note(field, window);
        }
        // A longer packet is a super-packet of several segments.
        let segment = if self.largest > LONGEST { USUAL_SEGMENT } else { self.largest };
        self.full += u64::from(left < 2 * segment && window >= MANY_SEGMENTS * segment);
    }

    /// Returns the last acknowledgement that the sender knew: with timestamps, the newest
    /// acknowledgement that the sender may have echoed.
    fn known(&mut self, echo: Option<u32>) -> Option<(u64, u64)> {
        let Some(echo) = echo.filter(|_| !self.answers.is_empty()) else {
            return Some((self.acked, self.window?));
        };
        let is_until = |stamp: u32| echo.wrapping_sub(stamp) < 1 << 31;
        while self.answers.get(1).is_some_and(|(stamp, ..)| is_until(*stamp)) {
            self.answers.pop_front();
        }
        let (_, acked, window) = self.answers.front().filter(|(stamp, ..)| is_until(*stamp))?;
        Some((*acked, *window))
    }

    pub(super) fn is_answered(&mut self, segment: &Segment) {
        if !segment.flags.ack() || segment.flags.rst() || segment.flags.syn() {
            return;
        }
        self.base.get_or_insert(segment.acknowledgement);
        let acked = self.position(segment.acknowledgement);
        if acked < self.acked || acked.saturating_sub(self.next) > MOST_UNSEEN {
            return;
        }
        self.acked = acked;
        self.next = self.next.max(acked);
        self.window = Some(segment.window.into());
        if let Some((stamp, _)) = segment.options.timestamps {
            if self.answers.len() >= MOST_ANSWERS {
                self.answers.pop_front();
            }
            self.answers.push_back((stamp, acked, segment.window.into()));
        }
    }

    /// Returns the scale if the sender often filled the window, or filled different windows to the
    /// last byte.
    pub(super) fn found(&self) -> Option<u8> {
        let is_often = self.full as f64 >= OFTEN * self.packets as f64;
        let is_exact =
            self.exact.is_sure() && self.exact.count as f64 >= OFTEN_EXACT * self.packets as f64;
        (self.packets >= FEWEST && (is_often || is_exact)).then_some(self.least)
    }
}

/// The largest scale (RFC 7323 section 2.3).
const MOST_SCALE: u8 = 14;
const FEWEST: u64 = 40;
/// Minimum share of the packets that end where the window ends. A receiver sees the segments of a
/// burst one by one, of which only the last segment fills the window.
const OFTEN: f64 = 0.1;
/// Minimum window, in segments. One scale always makes a smaller window about as large as a few
/// segments in flight.
const MANY_SEGMENTS: u64 = 16;
/// Minimum window that counts as filled exactly, in segments.
const FEW_SEGMENTS: u64 = 2;
const FEWEST_EXACT: u64 = 8;
/// Minimum share of the packets that end exactly where the window ends. Senders that a slow reader
/// held had 3 to 37 %, and senders that no window held had none (recorded).
const OFTEN_EXACT: f64 = 0.02;
/// Window fields that differ, of which each has a match.
const FIELDS: usize = 3;
/// Programs write messages of multiples of these sizes.
const MESSAGES: [u64; 2] = [512, 1000];
const USUAL_SEGMENT: u64 = 1448;
/// The payload of a jumbo frame.
const LONGEST: u64 = 8960;
const MOST_ANSWERS: usize = 4096;
const MOST_UNSEEN: u64 = 1 << 30;
