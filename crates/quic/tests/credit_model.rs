//! Explores every state of one connection's credit, up to a number of sent bytes: the credit that
//! an end grants, the credit that its peer may use, and the messages between the two.

use quic::{Allowed, FIRST_CREDIT, Granted};
use std::collections::{HashSet, VecDeque};

#[derive(Debug, Clone)]
struct State {
    granted: Granted,
    allowed: Allowed,
    /// The limit that this end has sent to the peer.
    limit: u64,
    window: u64,
    /// Bytes that the peer has sent and the end has not received.
    data: u64,
    /// Limits that the end has sent and the peer has not received.
    records: VecDeque<u64>,
}

type Key = ([u64; 7], VecDeque<u64>);

impl State {
    fn first() -> Self {
        let (granted, allowed) = (Granted::new(), Allowed::new());
        let (limit, window) = (FIRST_CREDIT, FIRST_CREDIT);
        Self { granted, allowed, limit, window, data: 0, records: VecDeque::new() }
    }

    fn key(&self) -> Key {
        let Self { granted, allowed, limit, window, data, records } = self;
        let (granted, allowed) =
            ([granted.received(), granted.consumed()], [allowed.used(), allowed.room()]);
        let numbers = [granted[0], granted[1], allowed[0], allowed[1], *limit, *window, *data];
        (numbers, records.clone())
    }

    /// Returns the states after each possible event.
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut after = |event: &dyn Fn(&mut Self)| {
            let mut state = self.clone();
            event(&mut state);
            all.push(state);
        };
        let sent = self.allowed.room().min(STEP).min(MOST - self.allowed.used());
        if sent > 0 {
            after(&|state| {
                state.allowed.take(sent);
                state.data += sent;
            });
        }
        if self.data > 0 {
            after(&|state| {
                let arrived = state.data.min(STEP);
                state.data -= arrived;
                assert!(state.granted.receive(arrived), "beyond the credit: {self:?}");
            });
        }
        if self.granted.unread() > 0 {
            after(&|state| state.granted.consume(STEP));
        }
        if self.records.len() < MOST_RECORDS
            && let Some(limit) = self.granted.clone().raise(self.window)
        {
            after(&|state| {
                state.granted.raise(state.window);
                state.limit = limit;
                state.records.push_back(limit);
            });
        }
        if let Some(limit) = self.records.front() {
            after(&|state| {
                state.allowed.raise(*limit);
                state.records.pop_front();
            });
        }
        for window in WINDOWS {
            after(&|state| state.window = window);
        }
        all
    }

    fn check(&self) {
        let Self { granted, allowed, limit, window, data, records } = self;
        assert_eq!(allowed.used(), granted.received() + data, "bytes are conserved: {self:?}");
        let usable = allowed.used() + allowed.room();
        assert!(usable <= *limit, "the peer has credit that nobody granted: {self:?}");
        assert!(!records.is_empty() || usable == *limit, "credit is lost: {self:?}");
        // The number of bytes that the peer can send without a further record.
        let most = WINDOWS.into_iter().max().unwrap_or_default();
        assert!(limit - granted.consumed() <= most, "more credit than the window: {self:?}");
        let is_quiet = *data == 0 && records.is_empty() && granted.unread() == 0;
        let is_stuck = is_quiet && allowed.room() == 0 && granted.clone().raise(*window).is_none();
        assert!(!is_stuck, "both ends wait for ever: {self:?}");
    }
}

#[test]
fn no_order_of_events_loses_credit_exceeds_it_or_makes_both_ends_wait() {
    let first = State::first();
    let mut seen = HashSet::from([first.key()]);
    let mut left = VecDeque::from([first]);
    while let Some(state) = left.pop_front() {
        state.check();
        for next in state.next() {
            if seen.insert(next.key()) {
                left.push_back(next);
            }
        }
    }
    eprintln!("{} states", seen.len());
    assert!(seen.len() > 10_000, "{} states", seen.len());
}

const STEP: u64 = FIRST_CREDIT / 4;
/// Total number of bytes that the peer sends.
const MOST: u64 = 10 * STEP;
/// Windows that the budget may grant: below, equal to, and above the first credit.
const WINDOWS: [u64; 3] = [FIRST_CREDIT / 4, FIRST_CREDIT, 2 * FIRST_CREDIT];
const MOST_RECORDS: usize = 2;
