//! The memory that peers make an endpoint hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the memory that peers make one or several endpoints hold, and calls a function when the
/// count exceeds a mark.
///
/// An endpoint cannot revoke credit from a peer (RFC 9000, section 4.1). Few peers use all their
/// credit at the same time, so an endpoint grants more credit than it has memory. Such an endpoint
/// must count the memory in use.
pub struct Meter {
    held: AtomicU64,
    mark: u64,
    exceeded: Box<dyn Fn() + Send + Sync>,
}

/// A part of a [`Meter`]'s count. Dropping the value subtracts this part.
#[derive(Debug)]
pub struct Charge {
    meter: Arc<Meter>,
    bytes: u64,
}

impl Meter {
    /// Creates a meter that calls `exceeded` after each addition that leaves the count above
    /// `mark`.
    pub fn new(mark: u64, exceeded: impl Fn() + Send + Sync + 'static) -> Self {
        Self { held: AtomicU64::new(0), mark, exceeded: Box::new(exceeded) }
    }

    /// Creates a meter without a mark.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX, || {})
    }

    /// Returns the memory counted now, in bytes.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether more than an eighth of the memory up to the mark is in use. Saving memory then
    /// matters more than speed.
    pub fn is_filling(&self) -> bool {
        self.held() > self.mark / 8
    }

    fn add(&self, bytes: u64) {
        if self.held.fetch_add(bytes, Ordering::Relaxed) + bytes > self.mark {
            (self.exceeded)();
        }
    }

    fn remove(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Charge {
    /// Adds `bytes` to the count of `meter` until the value is dropped.
    pub fn new(meter: &Arc<Meter>, bytes: u64) -> Self {
        meter.add(bytes);
        Self { meter: Arc::clone(meter), bytes }
    }

    /// Returns the bytes of this contribution.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes this contribution to `bytes`, and the meter's count by the difference.
    pub fn set(&mut self, bytes: u64) {
        match bytes.checked_sub(self.bytes) {
            Some(0) => {}
            Some(more) => self.meter.add(more),
            None => self.meter.remove(self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.remove(self.bytes);
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("held", &self.held()).field("mark", &self.mark).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_and_exceeding_the_mark_is_reported() {
        let reported = Arc::new(AtomicU64::new(0));
        let reporter = Arc::clone(&reported);
        let meter = Arc::new(Meter::new(100, move || {
            reporter.fetch_add(1, Ordering::Relaxed);
        }));
        let reported = || reported.load(Ordering::Relaxed);
        let mut one = Charge::new(&meter, 60);
        let two = Charge::new(&meter, 40);
        assert_eq!((meter.held(), reported()), (100, 0));
        one.set(61);
        assert_eq!((meter.held(), reported()), (101, 1));
        one.set(61);
        one.set(20);
        assert_eq!((meter.held(), reported()), (60, 1));
        drop(two);
        assert_eq!((meter.held(), one.bytes()), (20, 20));
        drop(one);
        assert_eq!(meter.held(), 0);
    }
}
