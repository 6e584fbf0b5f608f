//! The memory of one end, and how identities share it.
//!
//! The budget grants each connection a window, which the peer receives as credit. An identity
//! always gets its fair share: the memory divided by the number of busy identities. The identity
//! gets more if other identities leave memory unused. An idle connection has no grant. Credit that
//! a peer has received stays valid, so all peers together may send more than there is memory: a
//! [`Meter`] counts the memory held. Near the limit, the identity that exceeds its fair share most
//! loses tunnels whose readers are stuck. The identity loses a connection if the memory exceeds the
//! limit by an eighth, or stays beyond the limit for longer than a reader takes to count as stuck.

use host::FreedMemory;
use quic::Meter;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use units::Bytes;

#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    meter: Arc<Meter>,
    /// Notified when the meter is near the limit.
    near: Arc<Notify>,
    /// Whether the grants exceed the memory, because some identities got their fair share while
    /// other identities exceeded their fair share.
    is_overdrawn: AtomicBool,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    granted: u64,
    by_owner: HashMap<Arc<str>, Account>,
    holders: Vec<Weak<dyn Holder>>,
}

/// The grants of one identity.
#[derive(Debug, Default, Clone, Copy)]
struct Account {
    granted: u64,
    /// The number of the identity's shares that have a grant.
    busy: u64,
}

/// A connection's grant. Dropping this value returns the grant.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    owner: Arc<str>,
    granted: u64,
}

/// A connection as the budget sees it: it holds memory and can free some.
pub(crate) trait Holder: Debug + Send + Sync {
    fn owner(&self) -> &Arc<str>;

    /// Bytes that the connection holds now, or that the peer may still send without more credit.
    fn held(&self) -> u64;

    /// Returns the grant if the connection has been idle for a while, and copies waiting data out
    /// of shared memory.
    fn sweep(&self);

    /// Ends up to `most` tunnels whose readers are stuck. Returns the number of ended tunnels.
    fn give_up(&self, most: usize) -> usize;

    fn close(&self);
}

impl Budget {
    pub(crate) fn new(limit: Bytes) -> Self {
        let limit = limit.count();
        let near = Arc::new(Notify::new());
        let notified = Arc::clone(&near);
        let meter = Arc::new(Meter::new(mark(limit), move || notified.notify_one()));
        let (is_overdrawn, ledger) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(Shared { limit, meter, near, is_overdrawn, ledger }))
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.0.meter
    }

    pub(crate) fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Whether memory is short, so that tunnels with stuck readers must be reset.
    pub(crate) fn is_near(&self) -> bool {
        self.0.meter.held() > self.0.mark()
    }

    pub(crate) fn granted(&self) -> Bytes {
        Bytes::new(self.ledger().granted)
    }

    pub(crate) fn held(&self) -> Bytes {
        Bytes::new(self.0.meter.held())
    }

    pub(crate) fn share(&self, owner: &Arc<str>) -> Share {
        Share { budget: self.clone(), owner: Arc::clone(owner), granted: 0 }
    }

    pub(crate) fn add(&self, holder: Weak<dyn Holder>) {
        let mut ledger = self.ledger();
        if ledger.holders.len() == ledger.holders.capacity() {
            ledger.holders.retain(|holder| holder.strong_count() > 0);
        }
        ledger.holders.push(holder);
    }

    /// Whether the grants exceed the memory. Connections of an identity above its fair share must
    /// then ask again.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.0.is_overdrawn.load(Ordering::Relaxed)
    }

    /// Runs for ever. Takes back the grants of idle connections, and frees memory when peers use
    /// more credit than there is memory.
    pub(crate) async fn keep(self) {
        let mut sweeps = tokio::time::interval(SWEEP);
        let mut freed = FreedMemory::default();
        let mut tended = Instant::now();
        let mut beyond = None;
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = sweeps.tick() => {
                    for holder in self.holders() {
                        holder.sweep();
                    }
                    if tended.elapsed() >= TEND {
                        // `tend` may take milliseconds, and this thread has packets to carry.
                        let tend = tokio::task::spawn_blocking(move || {
                            freed.tend();
                            freed
                        });
                        freed = tend.await.unwrap_or_default();
                        tended = Instant::now();
                    }
                    // The meter notifies only when it rises, so notify here while it stays high.
                    match self.held().count() > self.0.limit {
                        true => self.0.near.notify_one(),
                        false => beyond = None,
                    }
                }
                () = self.0.near.notified() => {
                    beyond = match self.held().count() > self.0.limit {
                        true => Some(Beyond::again(beyond)),
                        false => None,
                    };
                    self.relieve(beyond);
                    // A reset tunnel takes a moment to free its memory.
                    tokio::time::sleep(RELIEF).await;
                }
            }
        }
    }

    /// Frees memory.
    fn relieve(&self, beyond: Option<Beyond>) {
        let held = self.0.meter.held();
        let mut holders: Vec<_> =
            self.holders().into_iter().map(|holder| (holder.held(), holder)).collect();
        let mut owners = HashMap::<Arc<str>, u64>::new();
        for (held, holder) in &holders {
            if *held > 0 {
                *owners.entry(Arc::clone(holder.owner())).or_default() += held;
            }
        }
        let fair = self.0.mark() / (owners.len() as u64).max(1);
        holders.sort_by_cached_key(|(held, holder)| {
            std::cmp::Reverse((owners.get(holder.owner()).copied().unwrap_or(0), *held))
        });
        // An identity within its fair share loses no tunnel and no connection.
        let is_greedy = |owners: &HashMap<Arc<str>, u64>, holder: &dyn Holder| {
            owners.get(holder.owner()).is_some_and(|all| *all > fair)
        };
        let most = self.0.limit + self.0.limit / 8;
        // Data may arrive faster than resets free memory, and before the first reader counts as
        // stuck. Keep tunnels whose readers read meanwhile.
        if held <= most && beyond.is_none_or(Beyond::may_pass) {
            let mut left = if beyond.is_some() { AT_ONCE } else { 1 };
            for (_, holder) in &holders {
                if left > 0 && is_greedy(&owners, &**holder) {
                    left = left.saturating_sub(holder.give_up(left));
                }
            }
            return;
        }
        let mut excess = held.saturating_sub(self.0.limit);
        for (held, holder) in holders {
            if excess == 0 {
                return;
            }
            if is_greedy(&owners, &*holder) {
                holder.close();
                *owners.entry(Arc::clone(holder.owner())).or_default() -= held;
                excess = excess.saturating_sub(held);
            }
        }
    }

    fn holders(&self) -> Vec<Arc<dyn Holder>> {
        let mut ledger = self.ledger();
        ledger.holders.retain(|holder| holder.strong_count() > 0);
        ledger.holders.iter().filter_map(Weak::upgrade).collect()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// Grants `wanted`, or as much of it as this identity is entitled to or other identities leave.
    pub(crate) fn ask(&mut self, wanted: u64) -> u64 {
        let shared = Arc::clone(&self.budget.0);
        let mut ledger = shared.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = ledger.grant(&self.owner, self.granted, wanted, shared.grants());
        shared.is_overdrawn.store(ledger.granted > shared.grants(), Ordering::Relaxed);
        self.granted = granted;
        granted
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.ask(0);
    }
}

/// A time during which the memory held was beyond the limit at each check.
#[derive(Debug, Clone, Copy)]
struct Beyond {
    since: Instant,
    checks: u32,
}

impl Beyond {
    fn again(earlier: Option<Self>) -> Self {
        let Self { since, checks } = earlier.unwrap_or(Self { since: Instant::now(), checks: 0 });
        Self { since, checks: checks + 1 }
    }

    /// Whether resets of tunnels may still bring the memory back within the limit.
    fn may_pass(self) -> bool {
        self.checks <= PATIENCE || self.since.elapsed() <= UNTIL_STUCK
    }
}

impl Shared {
    /// Returns how much memory may be granted. The rest is reserved for credit that idle
    /// connections still have.
    fn grants(&self) -> u64 {
        self.limit - self.limit / 4
    }

    fn mark(&self) -> u64 {
        mark(self.limit)
    }
}

impl Ledger {
    /// Replaces the grant of one share.
    fn grant(&mut self, owner: &Arc<str>, before: u64, wanted: u64, limit: u64) -> u64 {
        let mut account = self.by_owner.get(owner).copied().unwrap_or_default();
        account.granted -= before;
        account.busy -= u64::from(before > 0);
        let others = self.granted - before;
        let owners = self.by_owner.len() as u64 + u64::from(!self.by_owner.contains_key(owner));
        let fair = limit / owners;
        // Connections of one identity share its fair share in the same way.
        let entitled = fair.saturating_sub(account.granted).max(fair / (account.busy + 1));
        let free = limit.saturating_sub(others);
        let granted = wanted.min(entitled.max(free).max(LEAST_GRANT));
        account.granted += granted;
        account.busy += u64::from(granted > 0);
        self.granted = others + granted;
        if account.busy > 0 {
            self.by_owner.insert(Arc::clone(owner), account);
        } else {
            self.by_owner.remove(owner);
        }
        granted
    }
}

/// Returns the mark above which memory counts as near the limit. The last eighth is reserved for
/// data that arrives until reset tunnels have freed their memory.
fn mark(limit: u64) -> u64 {
    limit - limit / 8
}

/// Minimum grant: enough for a connection to make progress, whatever other connections hold.
const LEAST_GRANT: u64 = 16 * 1024;
const SWEEP: Duration = Duration::from_secs(1);
/// The interval at which freed memory is returned to the kernel.
const TEND: Duration = Duration::from_secs(5);
const RELIEF: Duration = Duration::from_millis(10);
/// Number of times that the end resets tunnels beyond the limit before it closes a connection.
const PATIENCE: u32 = 10;
/// Time that the end waits beyond the limit for readers to count as stuck.
const UNTIL_STUCK: Duration = Duration::from_millis(1500);
/// Number of tunnels that the end resets at once beyond the limit.
const AT_ONCE: usize = 8;

#[cfg(test)]
mod holding;
#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::holding::Holding;
    use super::*;

    const KIB: u64 = 1024;
    const LONG: Duration = Duration::from_secs(2);

    fn beyond(checks: u32, lasted: Duration) -> Option<Beyond> {
        Some(Beyond { since: Instant::now().checked_sub(lasted).unwrap(), checks })
    }

    fn budget() -> Budget {
        Budget::new(Bytes::kib(4000))
    }

    fn share(budget: &Budget, owner: &str) -> Share {
        budget.share(&Arc::from(owner))
    }

    #[test]
    fn a_single_identity_gets_all_memory_and_returns_it() {
        let budget = budget();
        let (mut one, mut two) = (share(&budget, "a"), share(&budget, "a"));
        assert_eq!(one.ask(2000 * KIB), 2000 * KIB);
        // The budget grants three quarters of the memory, and divides them fairly among the
        // connections of one identity.
        assert_eq!(two.ask(3000 * KIB), 1500 * KIB);
        assert!(budget.is_overdrawn());
        assert_eq!(one.ask(2000 * KIB), 1500 * KIB);
        assert!(!budget.is_overdrawn());
        drop(two);
        assert_eq!(one.ask(9000 * KIB), 3000 * KIB);
        assert_eq!(one.ask(0), 0);
        assert_eq!(budget.granted(), Bytes::ZERO);
    }

    #[test]
    fn an_identity_gets_its_fair_share_although_another_holds_all_memory() {
        let budget = budget();
        let mut greedy: Vec<_> = (0..8).map(|_| share(&budget, "greedy")).collect();
        greedy.iter_mut().for_each(|share| _ = share.ask(3000 * KIB));
        let mut other = share(&budget, "other");
        assert_eq!(other.ask(1500 * KIB), 1500 * KIB);
        for _ in 0..8 {
            greedy.iter_mut().for_each(|share| _ = share.ask(3000 * KIB));
        }
        assert_eq!(other.ask(2000 * KIB), 1500 * KIB);
        let all: u64 = greedy.iter().map(Share::granted).sum();
        assert!(all <= 1600 * KIB && !budget.is_overdrawn(), "{all}");
        // An idle identity takes no share of the memory.
        drop(other);
        assert_eq!(greedy[0].ask(3000 * KIB), 3000 * KIB - (all - 187 * KIB - KIB / 2));
    }

    #[test]
    fn only_the_greediest_identity_loses_tunnels_and_connections() {
        let budget = budget();
        let add = |owner: &str, kib: u64, has_stuck: bool| {
            let stuck: fn(u64) -> u64 = if has_stuck { |_| 1 } else { |_| 0 };
            Holding::add(&budget, owner, kib * KIB, stuck, 0)
        };
        let modest = add("modest", 1100, true);
        let greedy = [add("greedy", 1500, false), add("greedy", 1000, true)];
        // Near the limit, the connection with a stuck tunnel resets it.
        budget.relieve(None);
        assert!(greedy[1].was_reset());
        assert_eq!((greedy[0].held(), greedy[1].held()), (1500 * KIB, 1000 * KIB));
        // Above the limit, the same connection resets another tunnel.
        let more = add("greedy", 900, false);
        budget.relieve(beyond(1, Duration::ZERO));
        assert!(greedy[1].was_reset());
        budget.relieve(beyond(PATIENCE, LONG));
        assert!(greedy[1].was_reset());
        assert_eq!(
            (greedy[0].held(), greedy[1].held(), more.held()),
            (1500 * KIB, 1000 * KIB, 900 * KIB)
        );
        // After `PATIENCE` times and a while, the largest connection is closed.
        budget.relieve(beyond(PATIENCE + 1, LONG));
        assert_eq!((greedy[0].held(), greedy[1].held(), more.held()), (0, 1000 * KIB, 900 * KIB));
        // Far above the limit, the largest connection is closed without delay.
        let most = add("greedy", 2000, true);
        budget.relieve(beyond(1, Duration::ZERO));
        assert_eq!((most.held(), greedy[1].held(), more.held()), (0, 1000 * KIB, 900 * KIB));
        assert!(!greedy[1].was_reset());
        assert_eq!(modest.held(), 1100 * KIB);
        assert!(!modest.was_reset());
    }

    #[test]
    fn a_connection_without_a_tunnel_to_reset_is_closed_once_tunnels_had_time_to_count_as_stuck() {
        let budget = budget();
        let holding = Holding::add(&budget, "greedy", 4100 * KIB, |_| 0, 0);
        budget.relieve(beyond(PATIENCE + 1, Duration::ZERO));
        assert_eq!(holding.held(), 4100 * KIB);
        budget.relieve(beyond(PATIENCE + 1, LONG));
        assert_eq!(holding.held(), 0);
    }
}
