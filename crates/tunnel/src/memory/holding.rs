//! A connection with unread bytes, for the tests of a budget.

use super::{Budget, Holder};
use quic::Charge;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

#[derive(Debug)]
pub(super) struct Holding {
    owner: Arc<str>,
    charge: Mutex<Charge>,
    /// Returns the number of stuck tunnels of a connection that holds these bytes.
    stuck: fn(u64) -> u64,
    /// The bytes that the reset of a stuck tunnel frees.
    freed: u64,
    has_reset: AtomicBool,
    is_closed: AtomicBool,
}

impl Holding {
    /// Adds a connection that holds these bytes to the budget.
    pub(super) fn add(
        budget: &Budget,
        owner: &str,
        held: u64,
        stuck: fn(u64) -> u64,
        freed: u64,
    ) -> Arc<Self> {
        let holding = Arc::new(Self {
            owner: Arc::from(owner),
            charge: Mutex::new(Charge::new(budget.meter(), held)),
            stuck,
            freed,
            has_reset: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        let weak: Weak<Self> = Arc::downgrade(&holding);
        budget.add(weak);
        holding
    }

    /// Whether the budget made the connection reset stuck tunnels since the last call.
    pub(super) fn was_reset(&self) -> bool {
        self.has_reset.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

impl Holder for Holding {
    fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    fn held(&self) -> u64 {
        self.charge.lock().unwrap().bytes()
    }

    fn sweep(&self) {}

    fn give_up(&self, most: usize) -> usize {
        let mut charge = self.charge.lock().unwrap();
        let stuck = (self.stuck)(charge.bytes());
        let reset = stuck.min(most as u64);
        let left = charge.bytes().saturating_sub(reset * self.freed);
        charge.set(left);
        self.has_reset.store(stuck > 0, Ordering::Relaxed);
        reset as usize
    }

    fn close(&self) {
        self.charge.lock().unwrap().set(0);
        self.is_closed.store(true, Ordering::Relaxed);
    }
}
