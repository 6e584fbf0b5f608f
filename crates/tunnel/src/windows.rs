use crate::transport::{Connection, carried_over};
use quic::{FIRST_CREDIT, PathWindow, Reading};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use units::Bytes;

/// The memory that all connections of one end share for what they hold.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: u64,
    granted: AtomicU64,
}

/// What one connection has of it; given back with it.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    granted: u64,
}

/// How much one connection may hold out of the budget: what its path asks for ([`PathWindow`]).
///
/// The peer has credit for as much, and gets more as the application consumes ([`quic`] counts). A stream whose
/// application does not read keeps its credit, so the connection gets as much beside it, as far as the budget
/// goes. Where the budget does not reach, one stuck stream after the other is reset, or they would stop all
/// others.
#[derive(Debug)]
pub(crate) struct Windows<C> {
    connection: C,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    share: Share,
    least: u64,
    held: u64,
    /// What the path asks for, without what stuck streams have.
    path: PathWindow,
    stuck: u64,
    /// As told to the connection.
    window: u64,
    send_window: u64,
}

impl Budget {
    pub(crate) fn new(total: Bytes) -> Self {
        Self(Arc::new(Shared { total: total.count(), granted: AtomicU64::new(0) }))
    }

    pub(crate) fn granted(&self) -> Bytes {
        Bytes::new(self.0.granted.load(Ordering::Relaxed))
    }

    pub(crate) fn share(&self) -> Share {
        Share { budget: self.clone(), granted: 0 }
    }
}

impl Share {
    /// `wanted`, or as much more than before as is left.
    pub(crate) fn ask(&mut self, wanted: u64) -> u64 {
        let shared = &self.budget.0;
        let before = self.granted;
        let result = shared.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |granted| {
            let others = granted - before;
            Some(others + wanted.min(shared.total.saturating_sub(others)))
        });
        if let Ok(all) = result {
            self.granted = wanted.min(shared.total.saturating_sub(all - before));
        }
        self.granted
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.granted.fetch_sub(self.granted, Ordering::Relaxed);
    }
}

impl<C: Connection> Windows<C> {
    /// `None`: the budget has not even `least` left, and the connection is one too many.
    pub(crate) fn new(connection: C, budget: &Budget) -> Option<Self> {
        let mut share = budget.share();
        let least = FIRST_CREDIT;
        if share.ask(least) < least {
            return None;
        }
        let state = State {
            share,
            least,
            held: 0,
            path: PathWindow::new(Instant::now(), least),
            stuck: 0,
            window: least,
            send_window: least,
        };
        Some(Self { connection, state: Mutex::new(state) })
    }

    /// `received` bytes came on some stream, and what it holds behind gaps went from `before` to `after`.
    pub(crate) fn on_read(&self, received: usize, before: usize, after: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.held = (state.held + after as u64).saturating_sub(before as u64);
        let rtt = || {
            carried_over(self.path(&self.connection.reading()));
            self.connection.rtt()
        };
        if state.path.receive(Instant::now(), received as u64, rtt).is_some() {
            state.ask();
            self.connection.set_stream_window(Bytes::new(state.stream_window()));
        }
        self.apply(state);
    }

    /// The application of one stream does not read: the others go on.
    pub(crate) fn on_stuck(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.stuck += 1;
        state.ask();
        self.apply(state);
    }

    /// It reads again, or is no more.
    pub(crate) fn on_unstuck(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.stuck = state.stuck.saturating_sub(1);
        state.ask();
        self.apply(state);
    }

    /// Whether a stuck stream has to go because what it holds is missing elsewhere. Each that goes is no longer
    /// asked for, so that no more go than have to.
    pub(crate) fn has_to_go(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.ask();
        state.share.granted < state.wanted()
    }

    fn apply(&self, state: &mut State) {
        let window = state.share.granted;
        // Each change costs a lock and maybe a frame.
        if window.abs_diff(state.window) >= (state.share.granted / 16).max(1) {
            state.window = window;
            self.connection.set_receive_window(Bytes::new(window));
        }
    }

    /// What is held behind gaps now, and how much may be.
    pub(crate) fn held(&self) -> (Bytes, Bytes) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (Bytes::new(state.held), Bytes::new(state.share.granted))
    }

    /// Something was written.
    pub(crate) fn on_write(&self) {
        let reading = self.connection.reading();
        carried_over(self.path(&reading));
        let cwnd = reading.cwnd.count();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wanted) = quic::send_window(cwnd, state.least, state.send_window) {
            state.send_window = wanted;
            drop(state);
            self.connection.set_send_window(Bytes::new(wanted));
        }
    }

    /// No stream is left: what was granted is others'.
    pub(crate) fn on_idle(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        state.held = 0;
        state.path.forget();
        state.stuck = 0;
        state.ask();
        state.window = state.share.granted;
        self.connection.set_stream_window(Bytes::new(state.stream_window()));
        self.connection.set_receive_window(Bytes::new(state.window));
    }

    fn path(&self, reading: &Reading) -> Duration {
        let least = reading.min_rtt.as_duration();
        if least.is_zero() { self.connection.rtt() } else { least }
    }
}

impl State {
    fn ask(&mut self) {
        self.share.ask(self.wanted());
    }

    fn wanted(&self) -> u64 {
        (self.path.bound() + self.stuck * self.stream_window()).max(self.held)
    }

    /// How much one stream may bring that was not consumed: as much as all of them, so that one alone is not held up.
    fn stream_window(&self) -> u64 {
        self.path.bound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_budget_and_come_back() {
        let budget = Budget::new(Bytes::new(1000));
        let (mut one, mut two) = (budget.share(), budget.share());
        assert_eq!(one.ask(600), 600);
        assert_eq!(two.ask(600), 400);
        assert_eq!(one.ask(2000), 600);
        assert_eq!(one.ask(100), 100);
        assert_eq!(two.ask(600), 600);
        assert_eq!(budget.granted(), Bytes::new(700));
        drop(two);
        assert_eq!(one.ask(2000), 1000);
        drop(one);
        assert_eq!(budget.granted(), Bytes::ZERO);
    }
}
