use std::sync::{Arc, Mutex, PoisonError};
use units::{Bytes, Rate, Share, Span};

/// A snapshot of a connection's congestion control.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reading {
    pub rtt: Span,
    pub min_rtt: Span,
    pub cwnd: Bytes,
    pub inflight: Bytes,
    /// The path's random loss, if the algorithm distinguishes it from congestion.
    pub path_loss: Option<Share>,
    pub pacing_rate: Option<Rate>,
    /// The last delivery rate sample that was not application-limited.
    pub delivery_rate: Rate,
}

/// The latest reading: the connection writes it, and callers read it.
#[derive(Debug, Clone, Default)]
pub struct Readings(Arc<Mutex<Reading>>);

impl Readings {
    pub fn now(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Reading)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
