//! The applications of one proxy that have not named their targets yet. The number of these
//! applications is bounded: at the maximum number, a new application evicts the oldest application.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct Negotiations {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    serial: u64,
    /// The open negotiations in ascending order of the serial number.
    under_way: VecDeque<(u64, CancellationToken)>,
}

/// The slot of one application's negotiation. Dropping this value frees the slot.
#[derive(Debug)]
pub(super) struct Negotiation {
    negotiations: Arc<Negotiations>,
    serial: u64,
    evicted: CancellationToken,
}

impl Negotiations {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    pub(super) fn begin(self: &Arc<Self>) -> Negotiation {
        let evicted = CancellationToken::new();
        let mut state = self.lock();
        if state.under_way.len() >= self.most
            && let Some((_, oldest)) = state.under_way.pop_front()
        {
            oldest.cancel();
        }
        state.serial += 1;
        let serial = state.serial;
        state.under_way.push_back((serial, evicted.clone()));
        drop(state);
        Negotiation { negotiations: Arc::clone(self), serial, evicted }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Negotiation {
    /// Waits until a newer application evicts this application.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Negotiation {
    fn drop(&mut self) {
        let mut state = self.negotiations.lock();
        if let Ok(at) = state.under_way.binary_search_by_key(&self.serial, |(serial, _)| *serial) {
            state.under_way.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_negotiation_evicts_the_oldest_when_the_limit_is_reached() {
        let negotiations = Negotiations::new(2);
        let is_evicted = |one: &Negotiation| one.evicted.is_cancelled();
        let (first, second) = (negotiations.begin(), negotiations.begin());
        drop(first);
        let third = negotiations.begin();
        assert!(!is_evicted(&second) && !is_evicted(&third));
        let fourth = negotiations.begin();
        assert!(is_evicted(&second) && !is_evicted(&third) && !is_evicted(&fourth));
        drop((second, third, fourth));
        assert!(negotiations.lock().under_way.is_empty());
    }
}
