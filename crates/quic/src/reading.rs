use std::sync::{Arc, Mutex, PoisonError};
use units::{Bytes, Rate, Share, Span};

/// A snapshot of a connection's congestion control.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reading {
    /// The latest round-trip sample; zero before the first sample.
    pub rtt: Span,
    /// The path's minimum round-trip time; zero for an unknown time.
    pub min_rtt: Span,
    /// The algorithm's congestion window.
    pub cwnd: Bytes,
    /// Bytes in flight after the last acknowledgement.
    pub inflight: Bytes,
    /// The path's random loss, if the algorithm distinguishes it from congestion.
    pub path_loss: Option<Share>,
    /// The algorithm's pacing rate; `None` if the algorithm sets no pacing rate.
    pub pacing_rate: Option<Rate>,
    /// The last delivery rate sample that was not application-limited.
    pub delivery_rate: Rate,
}

/// The latest reading. The connection writes the reading, and callers read it.
#[derive(Debug, Clone, Default)]
pub struct Readings(Arc<Mutex<Reading>>);

impl Readings {
    /// Returns the latest reading. All fields are zero or `None` before the first acknowledgement.
    pub fn now(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Reading)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
