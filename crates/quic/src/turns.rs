//! The order in which the streams of a connection write: messages write before bulk transfers.
//!
//! A connection buffers several congestion windows of unacknowledged data, and bulk transfers keep
//! this buffer full. A message that waited for room would arrive several round trips late. Messages
//! therefore write first, up to [`RESERVE`] bytes beyond the buffer's limit, and the engine sends
//! messages first.

use quinn_proto::StreamId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The way in which a stream sends, as measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The stream has written less than its allowance since it last paused.
    Message,
    Bulk,
}

impl Class {
    /// Returns the priority in the engine, which sends streams of a higher priority first.
    pub(crate) fn priority(self) -> i32 {
        match self {
            Self::Message => 1,
            Self::Bulk => 0,
        }
    }
}

/// Measures how a stream sends.
///
/// A stream begins with an allowance of [`BURST`] bytes. Each written byte takes a byte of the
/// allowance, and time without bytes to write restores the allowance. Once the allowance is used
/// up, the stream is bulk until half of the allowance is restored.
#[derive(Debug)]
pub(crate) struct Habit {
    allowance: u64,
    sends_messages: bool,
    /// The time of the last write.
    last: Option<Instant>,
    /// Whether bytes of the last write still wait to be taken.
    waits: bool,
}

impl Habit {
    pub(crate) fn new() -> Self {
        Self { allowance: BURST, sends_messages: true, last: None, waits: false }
    }

    /// Records that the application has bytes to write.
    pub(crate) fn offer(&mut self, now: Instant) {
        let since = self.last.map(|last| now.saturating_duration_since(last));
        self.last = Some(now);
        let pause = since.filter(|_| !self.waits).unwrap_or_default();
        let restored = pause.as_micros() * u128::from(BURST) / RESTORED_WITHIN.as_micros();
        let restored = u64::try_from(restored).unwrap_or(BURST);
        self.allowance = self.allowance.saturating_add(restored).min(BURST);
        self.sends_messages |= self.allowance >= BURST / 2;
    }

    /// Records that the connection has taken `bytes`.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        self.allowance = self.allowance.saturating_sub(bytes);
        self.sends_messages &= self.allowance > 0;
    }

    /// Records that `bytes` of the last write still wait.
    pub(crate) fn left(&mut self, bytes: usize) {
        self.waits = bytes > 0;
    }

    /// Returns the number of bytes that the stream may write as a message.
    pub(crate) fn allowance(&self) -> u64 {
        self.allowance
    }
}

/// The streams of a connection that wait for credit or for room in the send window.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    messages: VecDeque<StreamId>,
    bulk: VecDeque<StreamId>,
    /// The number of bytes that messages have written and for which bulk has not written an equal
    /// number since.
    ahead: u64,
}

impl Turns {
    /// Returns the class in which a stream writes now. Messages that are far ahead of bulk wait
    /// with bulk, so that they get at most half of the connection in the long run.
    pub(crate) fn class(&self, habit: &Habit) -> Class {
        match habit.sends_messages && self.ahead < MOST_AHEAD {
            true => Class::Message,
            false => Class::Bulk,
        }
    }

    /// Whether this stream is the next stream to write.
    pub(crate) fn is_in_turn(&self, class: Class, id: StreamId) -> bool {
        let is_first = |queue: &VecDeque<StreamId>| queue.front().is_none_or(|first| *first == id);
        match class {
            Class::Message => is_first(&self.messages),
            Class::Bulk => self.messages.is_empty() && is_first(&self.bulk),
        }
    }

    /// Returns the stream that must write next.
    pub(crate) fn next(&self) -> Option<StreamId> {
        self.messages.front().or(self.bulk.front()).copied()
    }

    pub(crate) fn join(&mut self, class: Class, id: StreamId) {
        self.queue(class).push_back(id);
    }

    pub(crate) fn leave(&mut self, class: Class, id: StreamId) {
        self.queue(class).retain(|waiting| *waiting != id);
    }

    /// Records that a stream has written `bytes` in this class.
    pub(crate) fn wrote(&mut self, class: Class, bytes: u64) {
        self.ahead = match class {
            Class::Message => self.ahead.saturating_add(bytes),
            Class::Bulk => self.ahead.saturating_sub(bytes),
        };
    }

    fn queue(&mut self, class: Class) -> &mut VecDeque<StreamId> {
        match class {
            Class::Message => &mut self.messages,
            Class::Bulk => &mut self.bulk,
        }
    }
}

/// The priority of credit records. Bulk and messages of the peer wait for these records.
pub(crate) const CREDIT_PRIORITY: i32 = 2;
/// Maximum number of bytes by which messages may exceed the send window.
pub(crate) const RESERVE: u64 = 128 * 1024;
/// Maximum number of bytes that a stream may send as a message without a pause.
const BURST: u64 = 64 * 1024;
/// The time without bytes to write after which the whole allowance is restored.
const RESTORED_WITHIN: Duration = Duration::from_millis(250);
/// Maximum number of bytes that messages may write before bulk must write an equal number.
const MOST_AHEAD: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::{Dir, Side};

    fn stream(index: u64) -> StreamId {
        StreamId::new(Side::Client, Dir::Bi, index)
    }

    fn class(habit: &Habit) -> Class {
        Turns::default().class(habit)
    }

    #[test]
    fn a_stream_becomes_bulk_after_a_burst_and_sends_messages_again_after_a_pause() {
        let start = Instant::now();
        let millis = |count| start + Duration::from_millis(count);
        let mut habit = Habit::new();
        habit.offer(start);
        assert_eq!((class(&habit), habit.allowance()), (Class::Message, BURST));
        habit.wrote(BURST - 1);
        assert_eq!((class(&habit), habit.allowance()), (Class::Message, 1));
        habit.wrote(1);
        assert_eq!(class(&habit), Class::Bulk);
        // A pause of a few milliseconds restores too little of the allowance.
        habit.left(0);
        habit.offer(millis(20));
        assert_eq!(class(&habit), Class::Bulk);
        habit.wrote(BURST);
        habit.offer(millis(160));
        assert_eq!(class(&habit), Class::Message);
        habit.offer(millis(10_000));
        assert_eq!(habit.allowance(), BURST);
    }

    #[test]
    fn time_in_which_bytes_wait_is_no_pause() {
        let start = Instant::now();
        let seconds = |count| start + Duration::from_secs(count);
        let mut habit = Habit::new();
        habit.offer(start);
        habit.wrote(BURST);
        habit.left(1000);
        for second in 1..10 {
            habit.offer(seconds(second));
            assert_eq!(class(&habit), Class::Bulk, "after {second} s");
            habit.wrote(100);
            habit.left(1000);
        }
        habit.left(0);
        habit.offer(seconds(10));
        assert_eq!(class(&habit), Class::Message);
    }

    #[test]
    fn a_stream_of_small_messages_stays_a_message_stream() {
        let start = Instant::now();
        let mut habit = Habit::new();
        for message in 0..10_000 {
            habit.offer(start + Duration::from_millis(message * 40));
            assert_eq!(class(&habit), Class::Message, "message {message}");
            habit.wrote(4096);
            habit.left(0);
        }
    }

    #[test]
    fn a_message_writes_before_bulk_that_waits_longer() {
        let mut turns = Turns::default();
        turns.join(Class::Bulk, stream(0));
        turns.join(Class::Bulk, stream(1));
        assert_eq!(turns.next(), Some(stream(0)));
        assert!(turns.is_in_turn(Class::Bulk, stream(0)));
        assert!(!turns.is_in_turn(Class::Bulk, stream(1)));
        assert!(turns.is_in_turn(Class::Message, stream(2)));
        turns.join(Class::Message, stream(2));
        assert_eq!(turns.next(), Some(stream(2)));
        assert!(!turns.is_in_turn(Class::Bulk, stream(0)));
        assert!(!turns.is_in_turn(Class::Message, stream(3)));
        turns.leave(Class::Message, stream(2));
        assert_eq!(turns.next(), Some(stream(0)));
        turns.leave(Class::Bulk, stream(0));
        assert_eq!(turns.next(), Some(stream(1)));
    }

    #[test]
    fn many_messages_get_half_of_a_connection_at_most() {
        let mut turns = Turns::default();
        let (mut messages, mut bulk) = (0, 0);
        for _ in 0..10_000 {
            // A new stream has its whole allowance.
            match turns.class(&Habit::new()) {
                Class::Message => messages += 1000,
                Class::Bulk => bulk += 1000,
            }
            turns.wrote(turns.class(&Habit::new()), 1000);
        }
        assert!(messages <= bulk + MOST_AHEAD + 1000, "{messages} beside {bulk}");
        assert!(bulk <= messages, "{messages} beside {bulk}");
    }

    /// Between two whole bursts, the path may carry only a single packet of bulk data.
    #[test]
    fn bursts_beside_single_packets_get_half_of_a_connection_at_most() {
        let mut turns = Turns::default();
        let (mut messages, mut bulk) = (0, 0);
        for _ in 0..100_000 {
            match turns.class(&Habit::new()) {
                Class::Message => {
                    messages += BURST;
                    turns.wrote(Class::Message, BURST);
                }
                Class::Bulk => {
                    bulk += 1200;
                    turns.wrote(Class::Bulk, 1200);
                }
            }
        }
        assert!(messages <= bulk + MOST_AHEAD + BURST, "{messages} beside {bulk}");
        assert!(bulk <= messages, "{messages} beside {bulk}");
    }
}
