//! Applications at both endpoints. The applications write bytes of a known pattern to streams, and
//! check the bytes on arrival.

use bytes::Bytes;
use quic::{Connection, Readable, Reassembly, StreamError, StreamId};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::LazyLock;

/// The numbers of bytes that a stream carries: `up` from the initiator, and `down` in reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct Transfer {
    pub up: u64,
    pub down: u64,
    /// The number of bytes after which the initiator resets its half.
    pub reset_after: Option<u64>,
    /// The number of bytes after which the other endpoint stops reading.
    pub stop_after: Option<u64>,
}

/// The streams of one endpoint.
#[derive(Debug, Default)]
pub struct Application {
    streams: BTreeMap<StreamId, Stream>,
    /// Bytes that arrived and matched the pattern.
    pub received: u64,
    /// Stream halves that arrived completely.
    pub whole: u64,
    /// Stream halves that the peer reset.
    pub given_up: u64,
    /// Streams with both halves closed.
    pub over: u64,
}

#[derive(Debug)]
struct Stream {
    pattern: u64,
    length: u64,
    sent: u64,
    reset_after: Option<u64>,
    sending: bool,
    delivered: bool,
    expected: u64,
    arrived: Reassembly,
    checked: u64,
    stop_after: Option<u64>,
    receiving: bool,
}

impl Application {
    pub fn initiate(&mut self, id: StreamId, transfer: &Transfer) {
        let stream = Stream {
            reset_after: transfer.reset_after,
            ..Stream::new(id, transfer.up, transfer.down)
        };
        self.streams.insert(id, stream);
    }

    pub fn accept(&mut self, id: StreamId, transfer: &Transfer) {
        let stream = Stream {
            stop_after: transfer.stop_after,
            ..Stream::new(id, transfer.down, transfer.up)
        };
        self.streams.insert(id, stream);
    }

    pub fn write(&mut self, connection: &mut Connection, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        while stream.sending {
            let end = stream.reset_after.unwrap_or(stream.length).min(stream.length);
            if stream.sent >= end {
                match stream.reset_after {
                    Some(_) => connection.reset(id, RESET),
                    None => connection.finish(id),
                }
                stream.sending = false;
                stream.delivered = stream.reset_after.is_some();
                break;
            }
            let mut piece = pattern(stream.pattern + stream.sent, end - stream.sent);
            let before = piece.len();
            match connection.write(id, &mut piece) {
                Ok(()) => stream.sent += (before - piece.len()) as u64,
                Err(StreamError::GivenUp(_) | StreamError::Scattered) => {
                    stream.sending = false;
                    stream.delivered = true;
                }
                Err(StreamError::Lost(_)) => return,
            }
            if !piece.is_empty() {
                return;
            }
        }
        self.settle(connection, id);
    }

    pub fn delivered(&mut self, connection: &mut Connection, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.sending = false;
        stream.delivered = true;
        self.settle(connection, id);
    }

    pub fn read(&mut self, connection: &mut Connection, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        while stream.receiving {
            let mut chunks = Vec::new();
            let readable = connection.read(id, MOST_READ, &mut chunks);
            for (offset, bytes) in chunks {
                stream.arrived.insert(offset, bytes);
            }
            let checked = stream.check();
            self.received += checked;
            connection.consume(id, checked);
            match readable {
                Ok(Readable::Some)
                    if stream.stop_after.is_some_and(|end| stream.checked >= end) =>
                {
                    connection.stop(id, STOP);
                    stream.receiving = false;
                }
                Ok(Readable::Some) => {}
                Ok(Readable::Later) => return,
                Ok(Readable::Ended) => {
                    assert_eq!(stream.checked, stream.expected, "{id} ended early or late");
                    connection.stop(id, 0);
                    stream.receiving = false;
                    self.whole += 1;
                }
                Err(StreamError::GivenUp(code)) => {
                    assert_eq!(code, RESET, "{id}");
                    connection.stop(id, 0);
                    stream.receiving = false;
                    self.given_up += 1;
                }
                Err(StreamError::Scattered) => panic!("{id} arrived in chunks that are too small"),
                Err(StreamError::Lost(_)) => return,
            }
        }
        self.settle(connection, id);
    }

    pub fn open(&self) -> usize {
        self.streams.len()
    }

    fn settle(&mut self, connection: &mut Connection, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        if stream.delivered && !stream.receiving {
            connection.drop_sending(id);
            self.streams.remove(&id);
            self.over += 1;
        }
    }
}

impl Stream {
    fn new(id: StreamId, length: u64, expected: u64) -> Self {
        Self {
            pattern: id.index() * 7919,
            length,
            sent: 0,
            reset_after: None,
            sending: true,
            delivered: false,
            expected,
            arrived: Reassembly::default(),
            checked: 0,
            stop_after: None,
            receiving: true,
        }
    }

    /// Compares the bytes in order with the pattern, and consumes them.
    fn check(&mut self) -> u64 {
        let before = self.checked;
        while self.arrived.ready() > 0 {
            let mut slices = [IoSlice::new(&[]); 64];
            let count = self.arrived.slices(&mut slices);
            let mut taken = 0;
            for slice in &slices[..count] {
                let mut rest = &slice[..];
                while !rest.is_empty() {
                    let expected = pattern(self.pattern + self.checked, rest.len() as u64);
                    let (piece, behind) = rest.split_at(expected.len());
                    assert!(piece == expected, "the received bytes differ from those sent");
                    self.checked += piece.len() as u64;
                    rest = behind;
                }
                taken += slice.len();
            }
            self.arrived.consume(taken);
        }
        self.checked - before
    }
}

/// Returns bytes of the pattern from offset `at`: at least one and at most `most`.
fn pattern(at: u64, most: u64) -> Bytes {
    let start = (at % PERIOD) as usize;
    let end = start.saturating_add(most.min(MOST_WRITTEN) as usize).min(PERIOD as usize);
    PATTERN.slice(start..end)
}

static PATTERN: LazyLock<Bytes> = LazyLock::new(|| {
    let mut random = link::Stream::new(1, "pattern");
    (0..PERIOD).map(|_| random.bits() as u8).collect::<Vec<_>>().into()
});

/// The period of the pattern. The period is a prime, so that no power of two is a multiple of it.
const PERIOD: u64 = 1_048_583;
const MOST_WRITTEN: u64 = 64 * 1024;
const MOST_READ: usize = 256 * 1024;
const RESET: u32 = 9;
const STOP: u32 = 10;
