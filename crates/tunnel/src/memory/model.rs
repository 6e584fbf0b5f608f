//! Explores the states of a budget with three connections of two identities, in every order of
//! events up to a depth. The model uses the real ledger and the real relief.

use super::holding::Holding;
use super::*;
use proptest::prelude::*;
use quic::FIRST_CREDIT;
use std::collections::HashSet;

/// A connection: its grant, the credit that its peer may still use, and the bytes that nobody has
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Session {
    granted: u64,
    credit: u64,
    held: u64,
}

type State = [Session; 3];

/// The application of the last connection reads; the applications of the other connections never
/// read.
const OWNERS: [&str; 3] = ["hoarder", "hoarder", "reader"];
const READER: usize = 2;
const NEW: Session = Session { granted: 0, credit: FIRST_CREDIT, held: 0 };
const STEP: u64 = FIRST_CREDIT;
const LIMIT: u64 = 8 * STEP;
/// The memory beyond which connections are closed.
const MOST: u64 = LIMIT + LIMIT / 8;
const GRANTS: u64 = LIMIT - LIMIT / 4;
const DEPTH: usize = 14;

fn all_held(state: &State) -> u64 {
    state.iter().map(|session| session.held).sum()
}

/// Builds the ledger of these grants.
fn ledger<'a>(grants: impl Iterator<Item = (&'a str, u64)>) -> Ledger {
    let mut ledger = Ledger::default();
    for (owner, granted) in grants.filter(|(_, granted)| *granted > 0) {
        ledger.granted += granted;
        let account = ledger.by_owner.entry(Arc::from(owner)).or_default();
        account.granted += granted;
        account.busy += 1;
    }
    ledger
}

fn grants_of(state: &State) -> impl Iterator<Item = (&'static str, u64)> {
    OWNERS.into_iter().zip(state.iter().map(|session| session.granted))
}

fn assert_same(found: &Ledger, expected: &Ledger) {
    assert_eq!(found.granted, expected.granted);
    let accounts = |ledger: &Ledger| {
        let all = ledger.by_owner.iter();
        let mut all: Vec<_> =
            all.map(|(owner, of)| (Arc::clone(owner), of.granted, of.busy)).collect();
        all.sort();
        all
    };
    assert_eq!(accounts(found), accounts(expected));
}

/// The connection asks for a window, and tells its peer the credit that follows.
fn ask(state: &State, index: usize, wanted: u64) -> State {
    let mut next = *state;
    let owner = Arc::from(OWNERS[index]);
    let mut ledger_now = ledger(grants_of(state));
    let granted = ledger_now.grant(&owner, state[index].granted, wanted, GRANTS);
    next[index].granted = granted;
    tell(&mut next[index]);
    assert_same(&ledger_now, &ledger(grants_of(&next)));
    let busy = next.iter().zip(OWNERS).filter(|(session, _)| session.granted > 0);
    let owners = busy.map(|(_, owner)| owner).collect::<HashSet<_>>().len() as u64;
    if index == READER && wanted > 0 {
        assert!(granted >= wanted.min(GRANTS / owners), "less than the fair share: {state:?}");
    }
    next
}

fn tell(session: &mut Session) {
    let credit = session.granted.saturating_sub(session.held);
    if credit >= session.credit + session.granted / 16 {
        session.credit = credit;
    }
}

fn relieve(state: &State, beyond: Option<Beyond>) -> State {
    let budget = Budget::new(Bytes::new(LIMIT));
    let holders = [0, 1, 2].map(|index| {
        // Each step of unread bytes is one tunnel.
        let stuck: fn(u64) -> u64 =
            if index == READER { |_| 0 } else { |held| held.div_ceil(STEP) };
        Holding::add(&budget, OWNERS[index], state[index].held, stuck, STEP)
    });
    budget.relieve(beyond);
    let mut next = *state;
    for (session, holder) in next.iter_mut().zip(&holders) {
        session.held = holder.held();
        if holder.is_closed() {
            // The peer connects again.
            *session = NEW;
        }
    }
    let must_end = all_held(state) > MOST || beyond.is_some_and(|beyond| !beyond.may_pass());
    assert!(!must_end || all_held(&next) <= LIMIT, "memory stays beyond the limit: {state:?}");
    let identities = [state[0].held + state[1].held, state[2].held];
    let fair = mark(LIMIT) / identities.iter().filter(|held| **held > 0).count().max(1) as u64;
    if next[READER] != state[READER] {
        assert!(identities[1] > fair, "a reader within its share lost its session: {state:?}");
        let hoarded = next[0].held + next[1].held;
        let is_greediest = identities[1] >= identities[0];
        assert!(hoarded <= fair || is_greediest, "a hoarder outlived a reader: {state:?}");
    }
    next
}

fn next(state: &State, expired: Beyond) -> Vec<State> {
    let mut all = Vec::new();
    let held = all_held(state);
    if held > mark(LIMIT) {
        let fresh = (held > LIMIT).then(|| Beyond::again(None));
        all.push(relieve(state, fresh));
        all.extend((held > LIMIT).then(|| relieve(state, Some(expired))));
    }
    for (index, session) in state.iter().enumerate() {
        all.extend([3, 8].map(|steps| ask(state, index, steps * STEP)));
        if session.held == 0 && session.granted > 0 {
            all.push(ask(state, index, 0));
        }
        // Above this memory the relief comes before further data.
        let sent = session.credit.min(STEP);
        if sent > 0 && held <= MOST {
            let mut after = *state;
            after[index].credit -= sent;
            after[index].held += sent;
            all.push(after);
        }
    }
    if state[READER].held > 0 {
        let mut after = *state;
        after[READER].held = after[READER].held.saturating_sub(STEP);
        tell(&mut after[READER]);
        all.push(after);
    }
    all
}

fn check(state: &State) {
    assert!(all_held(state) <= MOST + STEP, "{state:?}");
    let reader = state[READER];
    if reader.held == 0 && reader.credit == 0 {
        let after = ask(state, READER, STEP);
        assert!(after[READER].credit > 0, "a reader waits for ever: {state:?}");
    }
}

#[test]
fn no_order_of_events_exceeds_the_memory_or_ends_a_reader_within_its_share() {
    let expired = Beyond {
        since: Instant::now().checked_sub(UNTIL_STUCK * 2).unwrap(),
        checks: PATIENCE + 1,
    };
    let mut seen = HashSet::from([[NEW; 3]]);
    let mut level = vec![[NEW; 3]];
    for _ in 0..DEPTH {
        let mut deeper = Vec::new();
        for state in &level {
            check(state);
            deeper.extend(next(state, expired).into_iter().filter(|state| seen.insert(*state)));
        }
        level = deeper;
    }
    level.iter().for_each(check);
    eprintln!("{} states up to depth {DEPTH}", seen.len());
    assert!(seen.len() > 10_000, "{} states", seen.len());
}

proptest! {
    /// The first invariant of the model, for any number of identities and any windows.
    #[test]
    fn grants_are_conserved_and_no_identity_gets_less_than_its_share(
        events in proptest::collection::vec((0_usize..12, 0_u64..16 << 20), 1..200)
    ) {
        let names = ["a", "b", "c", "d"];
        let mut grants = [0; 12];
        let of = |grants: &[u64; 12]| {
            let all = grants.iter().enumerate();
            ledger(all.map(|(index, granted)| (names[index % 4], *granted)))
        };
        let mut running = Ledger::default();
        for (index, wanted) in events {
            let owner = Arc::from(names[index % 4]);
            let granted = running.grant(&owner, grants[index], wanted, GRANTS);
            grants[index] = granted;
            assert_same(&running, &of(&grants));
            prop_assert!(granted <= wanted);
            let account = running.by_owner.get(&owner).copied().unwrap_or_default();
            let fair = GRANTS / (running.by_owner.len() as u64).max(1);
            let share = fair / account.busy.max(1);
            prop_assert!(granted >= wanted.min(share), "{granted} of {wanted}, share {share}");
        }
        // A connection of an identity above its share asks again: then the grants fit.
        for _ in 0..2 {
            for (index, grant) in grants.iter_mut().enumerate().filter(|(_, grant)| **grant > 0) {
                *grant = running.grant(&Arc::from(names[index % 4]), *grant, *grant, GRANTS);
            }
        }
        prop_assert!(running.granted <= GRANTS + 12 * LEAST_GRANT, "{}", running.granted);
    }
}
