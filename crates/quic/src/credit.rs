//! The credit that limits a peer, and the control stream that carries the credit.
//!
//! quinn-proto's own flow control grants credit when its user reads data. An endpoint of this crate
//! reads every stream immediately. So the endpoint grants its own credit when the application
//! consumes data, for each stream and for the whole connection. Each end opens one unidirectional
//! stream, the control stream, and writes 16-byte records to this stream. Limits never shrink.

use quinn_proto::{Dir, Side, StreamId, VarInt};
use std::collections::BTreeMap;

/// The initial credit of a stream, and the initial credit of a connection for all its streams
/// together.
pub const FIRST_CREDIT: u64 = 512 * 1024;

/// A record of a control stream: a type in the two highest bits, a stream ID, and a limit or size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// The peer may send up to this offset of a stream.
    Stream(StreamId, u64),
    /// The number of bytes that the peer may send on all streams together.
    Connection(u64),
    /// The sender of a stream reports its final size, and sends no byte after this offset.
    Final(StreamId, u64),
}

impl Record {
    pub(crate) const LENGTH: usize = 16;

    pub(crate) fn encode(self) -> [u8; Self::LENGTH] {
        let (key, value) = match self {
            Self::Stream(stream, limit) => (STREAM | number(stream), limit),
            Self::Connection(limit) => (CONNECTION, limit),
            Self::Final(stream, size) => (FINAL | number(stream), size),
        };
        let mut out = [0; Self::LENGTH];
        out[..8].copy_from_slice(&key.to_be_bytes());
        out[8..].copy_from_slice(&value.to_be_bytes());
        out
    }

    /// Decodes a record; `None` for a malformed record.
    pub(crate) fn decode(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let whole = u128::from_be_bytes(bytes);
        let (key, value) = ((whole >> 64) as u64, whole as u64);
        let (kind, stream) = (key & KINDS, key & !KINDS);
        if value > VarInt::MAX.into_inner() {
            return None;
        }
        match kind {
            STREAM => Some(Self::Stream(bidirectional(stream)?, value)),
            CONNECTION if stream == 0 => Some(Self::Connection(value)),
            FINAL => Some(Self::Final(bidirectional(stream)?, value)),
            _ => None,
        }
    }
}

fn number(stream: StreamId) -> u64 {
    VarInt::from(stream).into_inner()
}

/// RFC 9000, section 2.1: the lowest bit gives the initiator, the next bit the direction.
fn bidirectional(number: u64) -> Option<StreamId> {
    let side = if number & 1 == 0 { Side::Client } else { Side::Server };
    (number & 2 == 0).then(|| StreamId::new(side, Dir::Bi, number >> 2))
}

/// Memory of one early final size: a map entry with its share of the map's nodes.
const EARLY_FINAL_MEMORY: u64 = 40;
/// Number of times per window that an endpoint reports credit.
const STEPS: u64 = 16;
const KINDS: u64 = 3 << 62;
const STREAM: u64 = 0;
const CONNECTION: u64 = 1 << 62;
const FINAL: u64 = 2 << 62;

/// Credit granted to the peer, for one stream or for the connection.
#[derive(Debug, Clone, Copy)]
pub struct Granted {
    limit: u64,
    received: u64,
    consumed: u64,
}

impl Granted {
    /// Starts with the initial credit.
    pub fn new() -> Self {
        Self { limit: FIRST_CREDIT, received: 0, consumed: 0 }
    }

    /// Returns the bytes received, on one stream or on all streams together.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of received bytes that the application has consumed.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns the number of received bytes that the application has not consumed.
    pub fn unread(&self) -> u64 {
        self.received - self.consumed
    }

    /// Counts received bytes. Returns `false` if the peer has exceeded its credit.
    pub fn receive(&mut self, bytes: u64) -> bool {
        self.received = self.received.saturating_add(bytes);
        self.received <= self.limit
    }

    /// Counts bytes that the application consumed. The count never exceeds the received bytes.
    pub fn consume(&mut self, bytes: u64) {
        self.consumed = (self.consumed + bytes).min(self.received);
    }

    /// Raises the limit, and returns the new limit for the peer. Returns `None` and changes nothing
    /// if the increase would be smaller than a step.
    pub fn raise(&mut self, window: u64) -> Option<u64> {
        let limit = (self.consumed + window).min(VarInt::MAX.into_inner());
        let due = limit >= self.limit + window / STEPS;
        due.then(|| {
            self.limit = limit;
            limit
        })
    }
}

impl Default for Granted {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Allowed {
    fn default() -> Self {
        Self::new()
    }
}

/// Credit granted by the peer, for one stream or for the connection.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    limit: u64,
    used: u64,
}

impl Allowed {
    /// Starts with the initial credit.
    pub fn new() -> Self {
        Self { limit: FIRST_CREDIT, used: 0 }
    }

    /// Returns the number of bytes that this end may still send.
    pub fn room(&self) -> u64 {
        self.limit - self.used
    }

    /// Returns the bytes sent.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Counts sent bytes. Counts at most [`Self::room`] bytes.
    pub fn take(&mut self, bytes: u64) {
        self.used = (self.used + bytes).min(self.limit);
    }

    /// Sets a new limit from the peer, in bytes since the beginning. A lower limit has no effect.
    pub fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }
}

/// Final sizes of streams that have not begun at this end. These records arrive early, because the
/// control stream may overtake other streams.
#[derive(Debug, Default)]
pub(crate) struct EarlyFinals {
    /// The number of streams that have begun. Streams begin in the order of their numbers.
    begun: u64,
    early: BTreeMap<u64, u64>,
}

impl EarlyFinals {
    /// Records that a stream of the peer begins. Returns the stream's final size if this size
    /// arrived earlier.
    pub(crate) fn begin(&mut self, id: StreamId) -> Option<u64> {
        self.begun = self.begun.max(id.index() + 1);
        self.early.remove(&id.index())
    }

    pub(crate) fn memory(&self) -> u64 {
        self.early.len() as u64 * EARLY_FINAL_MEMORY
    }

    /// Keeps the final size of a stream that has not begun. Ignores a stream that has begun: the
    /// caller no longer has the stream, so the stream has ended.
    pub(crate) fn keep(&mut self, id: StreamId, size: u64, most: u32) -> Result<(), &'static str> {
        if id.index() >= self.begun + u64::from(most) {
            return Err("the peer ended a stream that it was not allowed to open");
        }
        if id.index() >= self.begun {
            self.early.insert(id.index(), size);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_encoded_credit_record_decodes_to_the_same_record(
            index in 0u64..(1 << 59), client in any::<bool>(), value in 0u64..(1 << 62), kind in 0..3,
        ) {
            let side = if client { Side::Client } else { Side::Server };
            let stream = StreamId::new(side, Dir::Bi, index);
            let record = match kind {
                0 => Record::Stream(stream, value),
                1 => Record::Connection(value),
                _ => Record::Final(stream, value),
            };
            prop_assert_eq!(Record::decode(record.encode()), Some(record));
        }

        #[test]
        fn arbitrary_credit_records_are_decoded_or_refused(bytes in any::<[u8; 16]>()) {
            if let Some(record) = Record::decode(bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_final_size_that_arrives_before_its_stream_is_kept() {
        let stream = |index| StreamId::new(Side::Client, Dir::Bi, index);
        let mut finals = EarlyFinals::default();
        finals.keep(stream(3), 30, 4).unwrap();
        assert!(finals.keep(stream(4), 40, 4).is_err());
        assert_eq!((finals.begin(stream(0)), finals.begin(stream(1))), (None, None));
        finals.keep(stream(4), 40, 4).unwrap();
        // Stream 0 has ended and is forgotten, so this size is ignored.
        finals.keep(stream(0), 10, 4).unwrap();
        assert_eq!((finals.begin(stream(2)), finals.begin(stream(3))), (None, Some(30)));
        assert_eq!((finals.begin(stream(4)), finals.early.len()), (Some(40), 0));
    }

    #[test]
    fn credit_is_reported_in_steps_of_the_window() {
        let mut granted = Granted::new();
        assert!(granted.receive(FIRST_CREDIT));
        assert_eq!(granted.raise(FIRST_CREDIT), None);
        granted.consume(FIRST_CREDIT / 32);
        assert_eq!(granted.raise(FIRST_CREDIT), None);
        granted.consume(FIRST_CREDIT / 32);
        assert_eq!(granted.raise(FIRST_CREDIT), Some(FIRST_CREDIT * 17 / 16));
        // A smaller window revokes no credit, and a larger window takes effect at once.
        assert_eq!(granted.raise(1), None);
        assert_eq!(granted.raise(4 * FIRST_CREDIT), Some(FIRST_CREDIT * 65 / 16));
        assert!(!granted.receive(4 * FIRST_CREDIT));
    }
}
