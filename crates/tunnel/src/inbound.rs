use crate::frame::{Answer, FrameError, OPENING_LIMIT, Opening};
use crate::transport::{Connection, Receiving, StreamError, carried};
use crate::windows::Windows;
use bytes::Bytes;
use quic::Reassembly;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The receiving side of a stream, in order.
#[derive(Debug)]
pub(crate) struct Inbound<C: Connection> {
    receiving: C::Receiving,
    chunks: Vec<(u64, Bytes)>,
    reassembly: Reassembly,
    windows: Arc<Windows<C>>,
    /// The offset of the most recent gap, and the time at which this end first saw the gap.
    gap: Option<(u64, Instant)>,
    ended: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OpeningError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the stream ended before its opening or answer")]
    Truncated,
}

impl<C: Connection> Inbound<C> {
    pub(crate) fn new(receiving: C::Receiving, windows: Arc<Windows<C>>) -> Self {
        let (chunks, reassembly) = (Vec::new(), Reassembly::default());
        Self { receiving, chunks, reassembly, windows, gap: None, ended: false }
    }

    pub(crate) fn ready(&self) -> usize {
        self.reassembly.ready()
    }

    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        self.reassembly.slices(out)
    }

    /// Copies the ready bytes out of their packets, which would otherwise keep data of other
    /// streams in memory.
    pub(crate) fn compact(&mut self) {
        self.reassembly.compact_ready();
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.reassembly.consume(count);
        self.receiving.consumed(count);
    }

    /// Returns the received bytes that the application has not consumed.
    pub(crate) fn unread(&self) -> u64 {
        self.receiving.unread().count()
    }

    /// Waits until bytes are ready or the stream has ended, and takes all bytes that have arrived.
    pub(crate) async fn fill(&mut self) -> Result<(), StreamError> {
        self.more(0).await
    }

    pub(crate) async fn opening(&mut self) -> Result<Opening, OpeningError> {
        self.head(Opening::decode).await
    }

    pub(crate) async fn answer(&mut self) -> Result<Answer, OpeningError> {
        self.head(Answer::decode).await
    }

    pub(crate) fn stop(&mut self, code: u32) {
        self.receiving.stop(code);
    }

    async fn head<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Option<(T, usize)>, FrameError>,
    ) -> Result<T, OpeningError> {
        loop {
            let known = self.reassembly.ready();
            if let Some((head, length)) = decode(&self.reassembly.peek(OPENING_LIMIT))? {
                self.consume(length);
                return Ok(head);
            }
            if self.ended {
                return Err(OpeningError::Truncated);
            }
            self.more(known).await?;
        }
    }

    /// Like `fill`, but waits for more than the `known` ready bytes.
    async fn more(&mut self, known: usize) -> Result<(), StreamError> {
        while self.reassembly.ready() <= known && !self.ended {
            let Some(more) = self.read().await else { continue };
            self.ended = !more?;
            let before = self.reassembly.held();
            let mut received = 0;
            for (offset, bytes) in self.chunks.drain(..) {
                received += bytes.len();
                self.reassembly.insert(offset, bytes);
            }
            // A stream that receives little needs no large buffer.
            if self.chunks.capacity() > FEW && received < AT_ONCE / 8 {
                self.chunks = Vec::new();
            }
            // Count bytes behind a gap, too: after a loss, in-order delivery stalls and then
            // bursts.
            carried(received);
            self.windows.on_read(received, before, self.reassembly.held());
            if self.reassembly.is_scattered() {
                return Err(StreamError::Scattered);
            }
        }
        Ok(())
    }
}

impl<C: Connection> Inbound<C> {
    /// Takes the bytes that have arrived. If a gap persists, copies the bytes behind the gap and
    /// returns `None`.
    async fn read(&mut self) -> Option<Result<bool, StreamError>> {
        if self.reassembly.held() == 0 {
            self.gap = None;
            return Some(self.receiving.read(AT_ONCE, &mut self.chunks).await);
        }
        let (next, now) = (self.reassembly.next(), Instant::now());
        let (at, since) = self.gap.filter(|(at, _)| *at == next).unwrap_or((next, now));
        self.gap = Some((at, since));
        if now.saturating_duration_since(since) >= OLD_GAP {
            self.gap = Some((at, now));
            self.reassembly.compact();
        }
        let read = self.receiving.read(AT_ONCE, &mut self.chunks);
        tokio::time::timeout(OLD_GAP, read).await.ok()
    }
}

impl<C: Connection> Drop for Inbound<C> {
    fn drop(&mut self) {
        self.windows.on_read(0, self.reassembly.held(), 0);
    }
}

/// Minimum age at which a gap counts as persistent. The sender normally retransmits lost packets
/// sooner.
const OLD_GAP: Duration = Duration::from_secs(1);
/// Number of bytes to take at once: enough for one write.
const AT_ONCE: usize = 128 * 1024;
/// Maximum capacity that a mostly silent stream keeps for chunks.
const FEW: usize = 8;
