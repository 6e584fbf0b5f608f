//! Locks with a fixed order. In builds with debug assertions, a thread that takes a lock out of
//! order panics; other builds do not check the order, and use the locks of the standard library.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError};

/// The kinds of locks, in the order in which a thread takes them. [`ORDER`] has the names of the
/// kinds.
pub(super) mod rank {
    pub(crate) const CHANGES: u8 = 0;
    pub(crate) const LINKS: u8 = 1;
    pub(crate) const SETTINGS: u8 = 2;
    pub(crate) const THREADS: u8 = 3;
    pub(crate) const COVERAGE: u8 = 4;
    pub(crate) const MAIN: u8 = 5;
    pub(crate) const BONDS: u8 = 6;
    pub(crate) const TABLES: u8 = 7;
    pub(crate) const BRIDGES: u8 = 8;
    pub(crate) const PMDS: u8 = 9;
    pub(crate) const PORTS: u8 = 10;
    pub(crate) const PORT_LISTS: u8 = 11;
    pub(crate) const QUEUES: u8 = 12;
    pub(crate) const SHAPER: u8 = 13;
    pub(crate) const DEVICE: u8 = 14;
    pub(crate) const LAST: u8 = 15;
}

/// The names of the kinds, as docs/internals/switch.md lists them.
#[cfg(any(test, debug_assertions))]
const ORDER: [&str; 16] = [
    "changes",
    "links",
    "settings",
    "threads",
    "coverage",
    "main worker",
    "bonds",
    "tables",
    "bridges",
    "packet threads",
    "ports",
    "port lists",
    "egress queues",
    "shaper",
    "device",
    "last",
];

#[derive(Default)]
pub(super) struct Mutex<T, const RANK: u8>(sync::Mutex<T>);

#[derive(Default)]
pub(super) struct RwLock<T, const RANK: u8>(sync::RwLock<T>);

/// A locked value. Dropping the guard unlocks the value.
pub struct Guard<G> {
    guard: G,
    _held: Held,
}

pub(super) type MutexGuard<'a, T> = Guard<sync::MutexGuard<'a, T>>;
pub(super) type ReadGuard<'a, T> = Guard<sync::RwLockReadGuard<'a, T>>;
pub(super) type WriteGuard<'a, T> = Guard<sync::RwLockWriteGuard<'a, T>>;

impl<T, const RANK: u8> Mutex<T, RANK> {
    pub(super) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Locks the value, even if another thread panicked while it held the lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::take(RANK, 0);
        Guard { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), _held: held }
    }
}

impl<T, const RANK: u8> RwLock<T, RANK> {
    pub(super) const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    pub(super) fn read(&self) -> ReadGuard<'_, T> {
        self.read_at(0)
    }

    pub(super) fn write(&self) -> WriteGuard<'_, T> {
        self.write_at(0)
    }

    /// Locks for reading. A thread must take locks of the same kind in ascending order of `place`.
    pub(super) fn read_at(&self, place: usize) -> ReadGuard<'_, T> {
        let held = Held::take(RANK, place);
        Guard { guard: self.0.read().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// Like [`RwLock::read_at`], for writing.
    pub(super) fn write_at(&self, place: usize) -> WriteGuard<'_, T> {
        let held = Held::take(RANK, place);
        Guard { guard: self.0.write().unwrap_or_else(PoisonError::into_inner), _held: held }
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<T: fmt::Debug, const RANK: u8> fmt::Debug for Mutex<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Debug, const RANK: u8> fmt::Debug for RwLock<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

#[cfg(debug_assertions)]
use checked::Held;

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use super::ORDER;

    /// A lock that this thread holds: its rank, and its place among locks of the same rank.
    pub(super) struct Held(u8, usize);

    thread_local! {
        static HELD: RefCell<Vec<(u8, usize)>> = const { RefCell::new(Vec::new()) };
    }

    impl Held {
        /// Records that this thread is about to take a lock.
        pub(super) fn take(rank: u8, place: usize) -> Self {
            let latest = HELD.with_borrow(|held| held.iter().max().copied());
            if let Some(latest) = latest.filter(|latest| *latest >= (rank, place)) {
                let name =
                    |(rank, place): (u8, usize)| format!("{} {place}", ORDER[usize::from(rank)]);
                panic!(
                    "a thread with the lock `{}` takes the lock `{}`, which comes first",
                    name(latest),
                    name((rank, place))
                );
            }
            HELD.with_borrow_mut(|held| held.push((rank, place)));
            Self(rank, place)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // A guard in a thread-local value may be dropped after the thread's list of held locks.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(last) = held.iter().rposition(|one| *one == (self.0, self.1)) {
                    held.remove(last);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
struct Held;

#[cfg(not(debug_assertions))]
impl Held {
    #[inline(always)]
    fn take(_rank: u8, _place: usize) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(debug_assertions)]
    #[test]
    fn a_thread_that_takes_locks_out_of_order_panics() {
        let tables = RwLock::<_, { rank::TABLES }>::new(1);
        let device = Mutex::<_, { rank::DEVICE }>::new(2);
        let in_order = || {
            let first = tables.read_at(3);
            let second = tables.read_at(4);
            let last = device.lock();
            // Threads may release locks in any order.
            drop(first);
            *second + *last
        };
        assert_eq!((in_order(), in_order()), (3, 3));
        let panics = |act: &(dyn Fn() + Sync)| {
            let run = std::thread::scope(|scope| scope.spawn(act).join());
            *run.unwrap_err().downcast::<String>().unwrap()
        };
        let told = panics(&|| drop((device.lock(), tables.read_at(7))));
        let expected =
            "a thread with the lock `device 0` takes the lock `tables 7`, which comes first";
        assert_eq!(told, expected);
        panics(&|| drop((tables.read_at(1), tables.read_at(1))));
        panics(&|| drop((tables.read_at(2), tables.write_at(1))));
        assert_eq!(*device.lock(), 2, "a panic of another thread does not poison the lock");
    }

    #[test]
    fn the_documents_list_the_order_of_the_locks() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/switch.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows =
            text.lines().filter_map(|line| line.strip_prefix("| lock: ")?.split(" |").next());
        assert_eq!(rows.collect::<Vec<_>>(), ORDER);
    }
}
