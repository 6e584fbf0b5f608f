//! The state of one bidirectional stream.

use crate::credit::{Allowed, Granted};
use crate::lost::Lost;
use crate::turns::{Class, Habit};
use bytes::Bytes;
use std::collections::VecDeque;

/// The reason for which a stream ended early.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum StreamError {
    /// The peer reset the stream or stopped reading it. The value is the peer's code, or 0 if this
    /// end no longer sends on the stream or no longer knows the stream.
    #[error("the peer reset the stream (code {0})")]
    GivenUp(u32),
    /// The chunks of the stream are so small that they take far more memory than their bytes.
    #[error("the peer sent too many pieces that are too small")]
    Scattered,
    /// The stream's connection has ended.
    #[error("the connection is lost: {0}")]
    Lost(#[from] Lost),
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    /// At least one chunk was taken.
    Some,
    /// No data has arrived; [`crate::Event::Readable`] follows.
    Later,
    /// The application has read all of the stream.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) granted: Granted,
    pub(crate) allowed: Allowed,
    /// Chunks that have arrived and that the application has not read.
    chunks: VecDeque<(u64, Bytes)>,
    /// The number of leading chunks that already have separate memory.
    own: usize,
    /// Whether the application has read since the last [`Self::compact`].
    was_read: bool,
    end: Option<Result<(), u32>>,
    /// Whether the application has stopped reading.
    discarded: bool,
    /// The final size of the peer's half, if the peer has reported it.
    pub(crate) final_size: Option<u64>,
    /// The peer's code, if the peer has stopped reading this end's half.
    pub(crate) stopped: Option<u32>,
    pub(crate) delivered: bool,
    pub(crate) said_final: bool,
    pub(crate) sender_gone: bool,
    pub(crate) habit: Habit,
    /// The class by which the engine decides when the stream sends.
    pub(crate) class: Class,
    /// The queue in which the stream waits to write.
    pub(crate) queued: Option<Class>,
    /// Whether the connection counts the stream in `unreported_streams`.
    pub(crate) is_unreported: bool,
}

impl Stream {
    pub(crate) fn new() -> Self {
        Self {
            granted: Granted::new(),
            allowed: Allowed::new(),
            chunks: VecDeque::new(),
            own: 0,
            was_read: false,
            end: None,
            discarded: false,
            final_size: None,
            stopped: None,
            delivered: false,
            said_final: false,
            sender_gone: false,
            habit: Habit::new(),
            class: Class::Bulk,
            queued: None,
            is_unreported: false,
        }
    }

    pub(crate) fn push(&mut self, offset: u64, bytes: Bytes) {
        if !self.discarded && !bytes.is_empty() {
            self.chunks.push_back((offset, bytes));
        }
    }

    pub(crate) fn end(&mut self, end: Result<(), u32>) {
        self.end = Some(end);
    }

    /// Whether the peer could use more credit.
    pub(crate) fn may_grow(&self) -> bool {
        self.end.is_none() && self.final_size.is_none() && !self.discarded
    }

    pub(crate) fn is_discarded(&self) -> bool {
        self.discarded || matches!(self.end, Some(Err(_)))
    }

    pub(crate) fn discard(&mut self) {
        self.discarded = true;
        self.chunks = VecDeque::new();
        self.own = 0;
    }

    /// Copies chunks that the application has not read since the last call into separate memory.
    /// Before the copy, the chunks keep whole packets in memory.
    pub(crate) fn compact(&mut self) {
        if !std::mem::take(&mut self.was_read) {
            for (_, chunk) in self.chunks.range_mut(self.own..) {
                *chunk = Bytes::copy_from_slice(chunk);
            }
            self.own = self.chunks.len();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_given_up() && self.final_size.is_some()
    }

    /// Whether the application no longer uses either half.
    pub(crate) fn is_given_up(&self) -> bool {
        self.discarded && self.sender_gone
    }

    /// Whether the chunks are so many and so small that they take far more memory than the stream's
    /// credit.
    pub(crate) fn is_scattered(&self) -> bool {
        self.chunks.len() as u64 > MOST_CHUNKS + self.granted.unread() / 256
    }

    /// Takes chunks that have arrived. Returns `None` if no chunk waits.
    pub(crate) fn read(
        &mut self,
        most: usize,
        out: &mut Vec<(u64, Bytes)>,
    ) -> Option<Result<Readable, StreamError>> {
        if let Some(Err(code)) = self.end {
            return Some(Err(StreamError::GivenUp(code)));
        }
        self.was_read = true;
        let mut read = 0;
        while read < most
            && let Some(chunk) = self.chunks.pop_front()
        {
            read += chunk.1.len();
            self.own = self.own.saturating_sub(1);
            out.push(chunk);
        }
        if self.chunks.is_empty() && self.chunks.capacity() > FEW {
            self.chunks = VecDeque::new();
        }
        if read > 0 {
            return Some(Ok(Readable::Some));
        }
        (self.end == Some(Ok(()))).then_some(Ok(Readable::Ended))
    }
}

const MOST_CHUNKS: u64 = 4096;
/// The capacity that an empty queue of chunks keeps.
const FEW: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacting_copies_unread_chunks_out_of_their_packets() {
        let packet = Bytes::from(vec![7; 100]);
        let mut stream = Stream::new();
        for offset in [0, 50] {
            stream.push(offset, packet.slice(offset as usize..offset as usize + 50));
        }
        let mut out = Vec::new();
        assert_eq!(stream.read(50, &mut out), Some(Ok(Readable::Some)));
        out.clear();
        // The application read the stream since the last call.
        stream.compact();
        assert!(!packet.is_unique());
        stream.compact();
        assert!(packet.is_unique());
        stream.push(100, packet.slice(..1));
        assert_eq!(stream.read(1000, &mut out), Some(Ok(Readable::Some)));
        assert_eq!(out, [(50, Bytes::from(vec![7; 50])), (100, Bytes::from(vec![7]))]);
    }
}
