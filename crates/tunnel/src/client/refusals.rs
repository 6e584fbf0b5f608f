//! Remembers which servers refuse this client, so that the client prefers other servers.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whether one server refuses this client with its present key.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of this end's present key: the handshake of a former key may fail after a change
    /// of the key.
    key: u64,
    last: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) at: Instant,
    pub(super) cause: Cause,
    pub(super) why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The server may not know this client's key.
    Key,
    /// The client has reached a limit of the server.
    Limit,
}

impl Refusals {
    /// Returns the number of the present key, for [`Self::record`].
    pub(super) fn key(&self) -> u64 {
        self.with(|state| state.key)
    }

    /// Records a refusal of the key with this number. Returns whether the client has preferred this
    /// server until now.
    pub(super) fn record(&self, key: u64, refusal: Refusal) -> bool {
        self.with(|state| {
            if key != state.key {
                return false;
            }
            let was_refusing = state.is_refusing(refusal.at);
            state.last = Some(refusal);
            !was_refusing
        })
    }

    /// Forgets the refusal once the server has kept a connection.
    pub(super) fn forget(&self) {
        self.with(|state| state.last = None);
    }

    /// Forgets the refusal because this end has another key or certificate.
    pub(super) fn on_new_key(&self) {
        self.with(|state| *state = State { key: state.key + 1, last: None });
    }

    /// Returns the last refusal if it still counts.
    pub(super) fn last(&self, now: Instant) -> Option<Refusal> {
        self.with(|state| state.last.clone().filter(|_| state.is_refusing(now)))
    }

    fn with<R>(&self, use_state: impl FnOnce(&mut State) -> R) -> R {
        use_state(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn is_refusing(&self, now: Instant) -> bool {
        let age = |last: &Refusal| now.saturating_duration_since(last.at);
        self.last.as_ref().is_some_and(|last| age(last) < REMEMBERED)
    }
}

/// The servers among which a connection attempt chooses, by their index.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    /// Every server: there is no connection.
    Any,
    /// The server of the current connection, which is to be renewed, and the servers preferred to
    /// that server.
    Renewal(usize),
    /// The servers that are preferred to this server, whose connection works.
    Before(usize),
}

/// Returns the servers of an attempt in their order. `refused` has the time of each server's
/// refusal, and `None` for a server that does not refuse this client.
pub(super) fn order(refused: &[Option<Instant>], choice: Choice) -> Vec<usize> {
    let willing = |index: &usize| refused[*index].is_none();
    let preferred = match choice {
        Choice::Before(index) => return (0..index).filter(willing).collect(),
        Choice::Renewal(index) => (0..=index).filter(willing).collect(),
        Choice::Any => Vec::new(),
    };
    if !preferred.is_empty() {
        return preferred;
    }
    let mut all: Vec<_> = (0..refused.len()).collect();
    // `None` comes first, then the oldest refusal: the attempts alternate among servers that all
    // refuse.
    all.sort_by_key(|index| refused[*index]);
    all
}

/// Time for which a client prefers other servers after a refusal.
const REMEMBERED: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_for_a_minute_and_for_the_key_that_was_refused() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let refusal =
            |seconds| Refusal { at: at(seconds), cause: Cause::Key, why: "unknown key".to_owned() };
        let key = refusals.key();
        assert!(refusals.record(key, refusal(0)));
        assert!(!refusals.record(key, refusal(10)));
        assert_eq!(refusals.last(at(69)), Some(refusal(10)));
        assert_eq!(refusals.last(at(70)), None);
        assert!(refusals.record(key, refusal(70)));
        refusals.on_new_key();
        assert_eq!(refusals.last(at(71)), None);
        // The handshake of the former key ends late.
        assert!(!refusals.record(key, refusal(71)));
        assert_eq!(refusals.last(at(71)), None);
    }

    #[test]
    fn servers_that_refuse_this_client_come_last() {
        let now = Instant::now();
        let (older, newer) = (Some(now), Some(now + Duration::from_secs(1)));
        for (refused, choice, expected) in [
            (vec![None, None, None], Choice::Any, vec![0, 1, 2]),
            (vec![older, None, None], Choice::Any, vec![1, 2, 0]),
            (vec![newer, older], Choice::Any, vec![1, 0]),
            (vec![None, None], Choice::Renewal(0), vec![0]),
            (vec![older, None], Choice::Renewal(0), vec![1, 0]),
            (vec![older, None], Choice::Renewal(1), vec![1]),
            (vec![older, newer], Choice::Renewal(0), vec![0, 1]),
            (vec![older, None, None], Choice::Before(2), vec![1]),
            (vec![older, None], Choice::Before(1), vec![]),
        ] {
            assert_eq!(order(&refused, choice), expected, "{refused:?} {choice:?}");
        }
    }
}
