//! Huge pages that several smaller allocations share.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{HUGE, map};

/// The process's shared huge pages, divided into units.
///
/// A table that is divided among threads has parts smaller than a huge page. In ordinary pages,
/// accesses to these parts would miss the TLB as often as accesses to a large table. The pool knows
/// which units have an owner, but only the owners access the memory.
#[derive(Debug)]
pub(super) struct Pool {
    pages: Mutex<Vec<Page>>,
}

#[derive(Debug)]
struct Page {
    start: NonNull<u8>,
    /// A bit for each unit that has an owner.
    used: u32,
    /// A bit for each unit that has had an owner since the page was mapped. The memory of such a
    /// unit may not be zero.
    written: u32,
}

// SAFETY: a page is memory of the process, and the pool itself does not access it.
unsafe impl Send for Page {}

/// Whether an allocation of this size should share a huge page. Smaller allocations need only a few
/// ordinary pages.
pub(super) fn takes(bytes: usize) -> bool {
    (UNIT..HUGE).contains(&bytes)
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self { pages: Mutex::new(Vec::new()) }
    }

    /// Returns zeroed memory of a size that [`takes`] accepts.
    pub(super) fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let (start, is_fresh) = self.units(bytes.div_ceil(UNIT))?;
        if !is_fresh {
            // SAFETY: these bytes are in the units, which have no other owner.
            unsafe { start.write_bytes(0, bytes) };
        }
        Some(start)
    }

    /// Finds adjacent free units. Also returns whether the memory of all these units is still zero.
    fn units(&self, count: usize) -> Option<(NonNull<u8>, bool)> {
        let mut pages = self.pages();
        for page in pages.iter_mut() {
            if let Some(units) = page.take(count) {
                return Some(units);
            }
        }
        let mut page = Page { start: map(HUGE)?, used: 0, written: 0 };
        let units = page.take(count);
        pages.push(page);
        units
    }

    /// # Safety
    ///
    /// `start` must come from [`Pool::take`] of this pool with the same size, and nothing may use
    /// it afterwards.
    pub(super) unsafe fn release(&self, start: NonNull<u8>, bytes: usize) {
        let mut pages = self.pages();
        let address = start.addr().get();
        let found = pages.iter().position(|page| {
            let first = page.start.addr().get();
            (first..first + HUGE).contains(&address)
        });
        let Some(place) = found else { return };
        let page = &mut pages[place];
        let first = (address - page.start.addr().get()) / UNIT;
        page.used &= !(mask(bytes.div_ceil(UNIT)) << first);
        if page.used == 0 {
            let page = pages.swap_remove(place);
            // SAFETY: `map` left this mapping, and no unit of it has an owner.
            unsafe { libc::munmap(page.start.as_ptr().cast(), HUGE) };
        }
    }

    fn pages(&self) -> MutexGuard<'_, Vec<Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn take(&mut self, count: usize) -> Option<(NonNull<u8>, bool)> {
        let first = (0..=UNITS.checked_sub(count)?).find(|first| {
            let wanted = mask(count) << first;
            self.used & wanted == 0
        })?;
        let wanted = mask(count) << first;
        let is_fresh = self.written & wanted == 0;
        self.used |= wanted;
        self.written |= wanted;
        // SAFETY: `first` is below the number of units, so the address is in the page.
        Some((unsafe { self.start.byte_add(first * UNIT) }, is_fresh))
    }
}

/// Returns a mask with the lowest `count` bits set.
fn mask(count: usize) -> u32 {
    u32::MAX >> (UNITS - count.clamp(1, UNITS))
}

/// A size that is a multiple of the cache line size, and of every page size in use except the size
/// of huge pages.
const UNIT: usize = HUGE / UNITS;
const UNITS: usize = u32::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes<'a>(start: NonNull<u8>, len: usize) -> &'a mut [u8] {
        // SAFETY: the tests release the memory last, and make one slice at a time.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// Whether several bytes of the memory, including both ends, have this value.
    fn has(start: NonNull<u8>, len: usize, number: u8) -> bool {
        let bytes = bytes(start, len);
        bytes.last() == Some(&number) && bytes.iter().step_by(509).all(|byte| *byte == number)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn allocations_are_zeroed_disjoint_and_freed(
            steps in prop::collection::vec((any::<bool>(), UNIT..HUGE, 1..=u8::MAX), 1..40),
        ) {
            let pool = Pool::new();
            let mut held: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
            for (is_release, len, number) in steps {
                if is_release && !held.is_empty() {
                    let (start, len, number) = held.swap_remove(usize::from(number) % held.len());
                    prop_assert!(has(start, len, number));
                    // SAFETY: the memory comes from this pool with this size.
                    unsafe { pool.release(start, len) };
                    continue;
                }
                let start = pool.take(len).unwrap();
                prop_assert!(has(start, len, 0));
                bytes(start, len).fill(number);
                held.push((start, len, number));
            }
            for (start, len, number) in held {
                prop_assert!(has(start, len, number));
                // SAFETY: the memory comes from this pool with this size.
                unsafe { pool.release(start, len) };
            }
            prop_assert!(pool.pages().is_empty());
        }
    }

    #[test]
    fn small_allocations_share_a_huge_page() {
        let pool = Pool::new();
        let tables: Vec<_> = (0..32).map(|_| pool.take(UNIT).unwrap()).collect();
        assert_eq!(pool.pages().len(), 1);
        let half = pool.take(HUGE / 2).unwrap();
        let other = pool.take(HUGE / 2 - 1).unwrap();
        assert_eq!(pool.pages().len(), 2);
        for start in tables {
            // SAFETY: the memory comes from this pool with this size.
            unsafe { pool.release(start, UNIT) };
        }
        assert_eq!(pool.pages().len(), 1);
        // SAFETY: the parts come from this pool with these sizes.
        unsafe {
            pool.release(half, HUGE / 2);
            pool.release(other, HUGE / 2 - 1);
        }
        assert!(pool.pages().is_empty());
    }

    #[test]
    fn the_maximum_allocation_fills_a_huge_page() {
        assert!(!takes(UNIT - 1) && takes(UNIT) && takes(HUGE - 1) && !takes(HUGE));
        let pool = Pool::new();
        let start = pool.take(HUGE - 1).unwrap();
        assert_eq!(pool.pages()[0].used, u32::MAX);
        // SAFETY: the memory comes from this pool with this size.
        unsafe { pool.release(start, HUGE - 1) };
    }
}
