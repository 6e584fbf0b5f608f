use crate::frame::{Answer, FrameError, OPENING_LIMIT, Opening};
use crate::reassembly::{Reassembly, Windows};
use crate::transport::{Connection, Receiving, StreamError};
use std::future::Future;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The side of a stream that brings bytes, in order.
#[derive(Debug)]
pub(crate) struct Inbound<C: Connection> {
    receiving: C::Receiving,
    reassembly: Reassembly,
    windows: Arc<Windows<C>>,
    ended: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the stream ended before it said what it is")]
    Cut,
}

impl<C: Connection> Inbound<C> {
    pub(crate) fn new(receiving: C::Receiving, windows: Arc<Windows<C>>) -> Self {
        Self { receiving, reassembly: Reassembly::default(), windows, ended: false }
    }

    pub(crate) fn ready(&self) -> usize {
        self.reassembly.ready()
    }

    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        self.reassembly.slices(out)
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.reassembly.consume(count);
    }

    /// Waits until something is ready or all has come, and takes whatever else is there without waiting.
    pub(crate) async fn fill(&mut self) -> Result<(), StreamError> {
        while self.reassembly.ready() == 0 && !self.ended {
            let before = self.reassembly.held();
            let Some((offset, bytes)) = self.receiving.read().await? else {
                self.ended = true;
                return Ok(());
            };
            let mut received = bytes.len();
            self.reassembly.insert(offset, bytes);
            let result = self.take_all(&mut received);
            self.windows.on_read(received, before, self.reassembly.held());
            result?;
        }
        Ok(())
    }

    fn take_all(&mut self, received: &mut usize) -> Result<(), StreamError> {
        let mut context = Context::from_waker(Waker::noop());
        while self.reassembly.ready() < AT_ONCE {
            // What would have to be waited for is asked for again by whoever can wait.
            let Poll::Ready(read) = pin!(self.receiving.read()).poll(&mut context) else {
                return Ok(());
            };
            let Some((offset, bytes)) = read? else {
                self.ended = true;
                return Ok(());
            };
            *received += bytes.len();
            self.reassembly.insert(offset, bytes);
        }
        Ok(())
    }

    pub(crate) async fn opening(&mut self) -> Result<Opening, HeadError> {
        self.head(Opening::decode).await
    }

    pub(crate) async fn answer(&mut self) -> Result<Answer, HeadError> {
        self.head(Answer::decode).await
    }

    pub(crate) fn stop(&mut self, code: u32) {
        self.receiving.stop(code);
    }

    async fn head<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<Option<(T, usize)>, FrameError>,
    ) -> Result<T, HeadError> {
        loop {
            let known = self.reassembly.ready();
            if let Some((head, length)) = decode(&self.reassembly.peek(OPENING_LIMIT))? {
                self.reassembly.consume(length);
                return Ok(head);
            }
            if self.ended {
                return Err(HeadError::Cut);
            }
            self.more(known).await?;
        }
    }

    /// As `fill`, past what is ready already.
    async fn more(&mut self, known: usize) -> Result<(), StreamError> {
        while self.reassembly.ready() <= known && !self.ended {
            let before = self.reassembly.held();
            match self.receiving.read().await? {
                Some((offset, bytes)) => {
                    let received = bytes.len();
                    self.reassembly.insert(offset, bytes);
                    self.windows.on_read(received, before, self.reassembly.held());
                }
                None => self.ended = true,
            }
        }
        Ok(())
    }
}

impl<C: Connection> Drop for Inbound<C> {
    fn drop(&mut self) {
        self.windows.on_read(0, self.reassembly.held(), 0);
    }
}

/// Enough for one write.
const AT_ONCE: usize = 256 * 1024;
