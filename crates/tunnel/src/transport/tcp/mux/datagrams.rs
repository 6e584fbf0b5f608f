//! The datagram queues of a connection over TLS.

use bytes::Bytes;
use std::collections::VecDeque;

/// A bounded queue of datagrams. A full queue drops its oldest datagrams.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) all: VecDeque<Bytes>,
    pub(super) bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, datagram: Bytes) {
        self.bytes += datagram.len();
        self.all.push_back(datagram);
        while self.all.len() > DATAGRAMS || self.bytes > DATAGRAM_BYTES {
            self.pop();
        }
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let first = self.all.pop_front()?;
        self.bytes -= first.len();
        Some(first)
    }
}

const DATAGRAMS: usize = 256;
pub(super) const DATAGRAM_BYTES: usize = 256 * 1024;
