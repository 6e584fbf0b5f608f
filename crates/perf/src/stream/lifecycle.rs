use super::guard;
use crate::event::Stop;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;
use units::Time;

/// State shared by the local streams of a test. The streams start together and end in two steps:
/// first the senders, then the receivers.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    step: AtomicU8,
    /// Time of the cut ([`Self::cut`]) in nanoseconds; [`NEVER`] before the cut.
    cut: AtomicU64,
    started: Mutex<Option<Instant>>,
    opened: Condvar,
    stop: Stop,
}

impl Lifecycle {
    pub(crate) fn new(stop: Stop) -> Self {
        Self {
            step: AtomicU8::new(RUNS),
            cut: AtomicU64::new(NEVER),
            started: Mutex::new(None),
            opened: Condvar::new(),
            stop,
        }
    }

    pub(crate) fn go(&self) {
        guard(&self.started).get_or_insert_with(Instant::now);
        self.opened.notify_all();
    }

    pub(crate) fn stop_sending(&self) {
        self.step.fetch_max(DRAINS, Ordering::Relaxed);
    }

    /// Ends the test at `at`: datagrams that the kernel received later do not count; earlier
    /// datagrams count, even if not yet read.
    pub(crate) fn cut(&self, at: Time) {
        self.cut.fetch_min(at.nanos(), Ordering::Release);
    }

    pub(crate) fn cut_at(&self) -> Option<Time> {
        let nanos = self.cut.load(Ordering::Acquire);
        (nanos != NEVER).then(|| Time::from_nanos(nanos))
    }

    pub(crate) fn finish(&self) {
        self.step.fetch_max(OVER, Ordering::Relaxed);
        // Takes the lock before notifying: a thread between its check of the step and its wait
        // would otherwise miss the notification.
        drop(guard(&self.started));
        self.opened.notify_all();
    }

    /// Waits for the start; returns false if the streams end before the start.
    pub(crate) fn wait(&self) -> bool {
        let mut started = guard(&self.started);
        while started.is_none() && !self.is_over() {
            started = self.opened.wait(started).unwrap_or_else(PoisonError::into_inner);
        }
        !self.is_over()
    }

    /// Returns the start time, which is the same for all streams.
    pub(crate) fn started(&self) -> Instant {
        guard(&self.started).unwrap_or_else(Instant::now)
    }

    pub(crate) fn may_send(&self) -> bool {
        self.step.load(Ordering::Relaxed) == RUNS && !self.stop.is_called()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.step.load(Ordering::Relaxed) == OVER
    }
}

const RUNS: u8 = 0;
const DRAINS: u8 = 1;
const OVER: u8 = 2;
const NEVER: u64 = u64::MAX;
