//! Parses the sizes and numbers of the messages in one cell.

use super::{MESSAGES, SIZE};
use crate::model::file::{Document, FileError, bounded};
use results::Axes;
use units::Bytes;

/// Small messages. The peer answers each message with a message of the same size before the next
/// message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageSettings {
    pub(crate) size: Bytes,
    /// Maximum number of messages for each connection.
    pub(crate) count: u32,
    /// The number of connections that exchange messages at the same time.
    pub(crate) streams: u32,
}

impl MessageSettings {
    pub(super) fn parse(document: &Document, axes: &Axes, streams: u32) -> Result<Self, FileError> {
        let size = document.workload_key(axes, SIZE, message_size)?.unwrap_or(USUAL_SIZE);
        let count = document.workload_count(axes, MESSAGES, 1..=MOST_MESSAGES)?;
        Ok(Self { size, count: count.unwrap_or(USUAL_COUNT), streams })
    }
}

pub(in crate::workloads) fn message_size(text: &str) -> Result<Bytes, String> {
    bounded(text, Bytes::new(1)..=LARGEST, || format!("a message has from 1 byte to {LARGEST}"))
}

/// Size of the messages in the reference reports' own test.
const USUAL_SIZE: Bytes = Bytes::new(1_000);
const USUAL_COUNT: u32 = 500;
const LARGEST: Bytes = Bytes::kib(64);
const MOST_MESSAGES: u32 = 1_000_000;
