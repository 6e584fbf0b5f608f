//! One stream of a connection over TLS: credit, queued bytes and the state of both halves.

use bytes::{Bytes, BytesMut};
use quic::{Allowed, Granted};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) granted: Granted,
    pub(super) allowed: Allowed,
    pub(super) outgoing: VecDeque<Bytes>,
    pub(super) queued: u64,
    pub(super) is_ready: bool,
    /// The state of this end's sending half.
    pub(super) sending: Half,
    pub(super) is_delivered: bool,
    pub(super) sender_gone: bool,
    pub(super) stopped: Option<u32>,
    /// The chunks that have arrived; the first chunk begins at `offset`.
    pub(super) incoming: VecDeque<BytesMut>,
    pub(super) offset: u64,
    pub(super) end: Option<Result<(), u32>>,
    /// Whether the application has stopped reading.
    pub(super) discarded: bool,
    pub(super) receiver_gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Open,
    /// The application has ended the half, and queued data is still to be sent.
    Finishing,
    Ended,
}

impl Stream {
    pub(super) fn new() -> Self {
        Self {
            granted: Granted::new(),
            allowed: Allowed::new(),
            outgoing: VecDeque::new(),
            queued: 0,
            is_ready: false,
            sending: Half::Open,
            is_delivered: false,
            sender_gone: false,
            stopped: None,
            incoming: VecDeque::new(),
            offset: 0,
            end: None,
            discarded: false,
            receiver_gone: false,
        }
    }

    /// Returns how many more bytes this stream accepts from the application.
    pub(super) fn room(&self) -> u64 {
        self.allowed
            .room()
            .saturating_sub(self.queued)
            .min(STREAM_QUEUE.saturating_sub(self.queued))
    }

    pub(super) fn is_over(&self) -> bool {
        let is_sent = self.sending == Half::Ended && (self.is_delivered || self.stopped.is_some());
        self.sender_gone && self.receiver_gone && is_sent && self.end.is_some()
    }
}

/// Maximum number of bytes of one stream in its send queue.
const STREAM_QUEUE: u64 = 256 * 1024;
