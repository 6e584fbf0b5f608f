use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Progress of a session at a server. A session whose client takes longer than a live client would
/// loses its slot, but only if another client needs the slot.
#[derive(Debug, Clone)]
pub(crate) struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    moves_until: Instant,
    gives_way_at: Instant,
    has_begun: bool,
}

impl Default for Progress {
    fn default() -> Self {
        let now = Instant::now();
        let gives_way_at = now + LONGEST_STEP;
        let state = State { moves_until: now, gives_way_at, has_begun: false };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl Progress {
    /// Records that the session now waits for the client's next step of the protocol.
    pub(crate) fn step(&self) {
        let now = Instant::now();
        self.change(now, now + LONGEST_STEP);
    }

    /// Records that traffic has begun, and that bytes were last transferred at `last`. `end`: the
    /// agreed end, by which the client should end the test.
    pub(crate) fn traffic(&self, last: Instant, end: Option<Instant>) {
        let end = end.unwrap_or(last + LONGEST_PAUSE);
        self.change((last + PAUSE).min(end), (last + LONGEST_PAUSE).min(end + LONGEST_STEP));
        self.state().has_begun = true;
    }

    /// Records that the session no longer needs its slot.
    pub(crate) fn end(&self) {
        let now = Instant::now();
        self.change(now, now);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.state().has_begun
    }

    /// Returns the time at which the session may lose its slot if its client does nothing until
    /// then; `None` while bytes are transferred.
    pub(crate) fn gives_way_at(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        (now >= state.moves_until).then_some(state.gives_way_at)
    }

    fn change(&self, moves_until: Instant, gives_way_at: Instant) {
        let mut state = self.state();
        (state.moves_until, state.gives_way_at) = (moves_until, gives_way_at);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client on a path of 600 ms that loses a SYN takes a step within this time.
const LONGEST_STEP: Duration = Duration::from_secs(2);
/// Traffic that paused this long may have stopped.
const PAUSE: Duration = Duration::from_millis(500);
/// A sender that lost everything for a while sends again within this time, after four
/// retransmission timeouts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_session_without_traffic_loses_its_slot() {
        let (progress, now) = (Progress::default(), Instant::now());
        assert!(!progress.has_begun());
        progress.step();
        assert!(progress.gives_way_at(Instant::now()).is_some_and(|at| at > now));
        progress.traffic(now, None);
        assert!(progress.has_begun());
        assert_eq!(progress.gives_way_at(now), None);
        assert_eq!(progress.gives_way_at(now + PAUSE), Some(now + LONGEST_PAUSE));
        // Traffic after the agreed end does not protect a session.
        progress.traffic(now + LONGEST_PAUSE, Some(now));
        assert_eq!(progress.gives_way_at(now), Some(now + LONGEST_STEP));
    }
}
