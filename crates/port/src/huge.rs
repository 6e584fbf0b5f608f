//! Memory for large tables.
#![allow(unsafe_code)]

mod pool;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use pool::Pool;

/// A vector whose memory is in huge pages once it is larger than a 32nd of a huge page, if the
/// kernel provides them (`/sys/kernel/mm/transparent_hugepage/enabled`: `madvise` or `always`).
///
/// With ordinary pages, random accesses to a large table miss the TLB, and each miss costs further
/// memory accesses. The elements begin at a cache line. Huge pages without used elements are never
/// touched. Vectors smaller than a huge page share huge pages.
pub struct HugeVec<T> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    elements: PhantomData<T>,
}

/// A type for which zero bytes are a valid value.
///
/// # Safety
///
/// All bytes zero must be a valid value of the type.
pub unsafe trait Zeroable: Copy {}

// SAFETY: every bit pattern is a number.
unsafe impl Zeroable for u64 {}
// SAFETY: an array holds nothing but its elements.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

// SAFETY: the vector owns its elements, and its memory belongs to the process.
unsafe impl<T: Send> Send for HugeVec<T> {}
// SAFETY: a shared vector only lends shared elements.
unsafe impl<T: Sync> Sync for HugeVec<T> {}

impl<T> HugeVec<T> {
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= LINE) };
        Self { start: NonNull::dangling(), len: 0, capacity: 0, elements: PhantomData }
    }

    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        if capacity == 0 {
            return Self::new();
        }
        let start = allocate(capacity.checked_mul(size_of::<T>())).cast();
        Self { start, capacity, ..Self::new() }
    }

    #[must_use]
    pub fn zeroed(len: usize) -> Self
    where
        T: Zeroable,
    {
        let mut vector = Self::with_capacity(len);
        // New memory is zeroed, and zero is a valid value of the type.
        vector.len = len;
        vector
    }

    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends an element. A full vector moves to a memory block larger by a quarter.
    pub fn push(&mut self, element: T) {
        self.push_within(usize::MAX, element);
    }

    /// Like [`HugeVec::push`], but allocates memory for more than `most` elements only when the
    /// vector already holds `most` elements.
    pub fn push_within(&mut self, most: usize, element: T) {
        if self.len == self.capacity {
            let wanted = (self.capacity + self.capacity / 4).max(FIRST).min(most);
            self.move_to(wanted.max(self.capacity + 1));
        }
        // SAFETY: `len` is below the capacity, so the address is in the vector's memory, and no
        // element is there.
        unsafe { self.start.add(self.len).write(element) };
        self.len += 1;
    }

    fn move_to(&mut self, capacity: usize) {
        let mut larger = Self::with_capacity(capacity);
        // SAFETY: the two memory blocks are distinct and valid for `len` elements, because the new
        // capacity is larger. Once `self.len` is zero, the elements belong to `larger` alone, so
        // they are dropped once.
        unsafe { self.start.copy_to_nonoverlapping(larger.start, self.len) };
        larger.len = std::mem::take(&mut self.len);
        *self = larger;
    }
}

impl<T> Default for HugeVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for HugeVec<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` elements are initialised; without memory, `len` is zero and the
        // pointer aligned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for HugeVec<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; the vector is mutably borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for HugeVec<T> {
    fn drop(&mut self) {
        // SAFETY: the elements are dropped once, and nothing uses them afterwards.
        unsafe { std::ptr::drop_in_place(std::ptr::from_mut::<[T]>(self)) };
        if self.capacity > 0 {
            // SAFETY: the memory came from `allocate` with this size.
            unsafe { release(self.start.cast(), self.capacity * size_of::<T>()) };
        }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for HugeVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Allocates zeroed memory. `bytes`: the size; `None` if the computation of the size has
/// overflowed.
fn allocate(bytes: Option<usize>) -> NonNull<u8> {
    let fits = |bytes: &usize| *bytes <= isize::MAX as usize - 2 * HUGE;
    let Some(bytes) = bytes.filter(fits) else {
        handle_alloc_error(Layout::new::<u8>());
    };
    let layout = layout(bytes);
    let memory = if pool::takes(bytes) {
        POOL.take(bytes)
    } else if bytes < HUGE {
        // SAFETY: the size is not zero, because neither an element's size nor the capacity is.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    } else {
        map(bytes)
    };
    memory.unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
///
/// `start` must come from [`allocate`] with the same size, and nothing may use it afterwards.
unsafe fn release(start: NonNull<u8>, bytes: usize) {
    if pool::takes(bytes) {
        // SAFETY: `allocate` took the memory from the pool with this size.
        unsafe { POOL.release(start, bytes) };
    } else if bytes < HUGE {
        // SAFETY: `allocate` took the memory with this layout.
        unsafe { dealloc(start.as_ptr(), layout(bytes)) };
    } else {
        // SAFETY: `map` left this mapping, as long as whole pages need.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes.next_multiple_of(PAGE)) };
    }
}

/// Maps memory that begins at a huge page. An incomplete last huge page gets ordinary pages,
/// because the kernel would allocate a whole huge page at its first use.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let length = bytes.next_multiple_of(PAGE);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no other.
    let mapped =
        unsafe { libc::mmap(std::ptr::null_mut(), length + HUGE, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let before = mapped.addr().next_multiple_of(HUGE) - mapped.addr();
    // SAFETY: `before` is less than HUGE, so `length` bytes of the mapping follow. The
    // calls concern the mapping alone, which nothing else knows yet. Advice changes no contents,
    // and a kernel without huge pages ignores it.
    unsafe {
        let start = mapped.byte_add(before);
        if before > 0 {
            libc::munmap(mapped, before);
        }
        libc::munmap(start.byte_add(length), HUGE - before);
        libc::madvise(start, bytes / HUGE * HUGE, libc::MADV_HUGEPAGE);
        NonNull::new(start.cast())
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, LINE).unwrap_or_else(|_| Layout::new::<u8>())
}

static POOL: Pool = Pool::new();
const FIRST: usize = 8;
const LINE: usize = 64;
/// A size that is a multiple of every page size in use except the size of huge pages.
const PAGE: usize = 64 << 10;
const HUGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_vector_keeps_its_elements_while_it_grows_beyond_a_huge_page() {
        let mut vector = HugeVec::new();
        for number in 0..600_000_u64 {
            vector.push(number);
        }
        assert!(vector.iter().copied().eq(0..600_000));
        assert_eq!(vector.as_ptr().addr() % HUGE, 0);
        assert!(vector.capacity() < 600_000 / 4 * 5 + FIRST);
        vector[3] = 7;
        assert_eq!(vector[3], 7);
    }

    #[test]
    fn elements_of_a_zeroed_vector_start_at_a_cache_line() {
        for len in [0, 1, 5, 40_000, 300_000] {
            let vector = HugeVec::<[u64; 8]>::zeroed(len);
            assert_eq!(vector.len(), len);
            assert!(vector.iter().flatten().all(|word| *word == 0));
            assert!(len == 0 || vector.as_ptr().addr().is_multiple_of(LINE));
        }
    }

    #[test]
    fn a_bounded_vector_allocates_beyond_its_bound_only_for_more_elements() {
        let mut vector = HugeVec::new();
        for number in 0..100_u64 {
            vector.push_within(100, number);
            assert!(vector.capacity() <= 100);
        }
        vector.push_within(100, 100);
        assert!(vector.iter().copied().eq(0..=100));
    }

    #[test]
    fn a_dropped_vector_drops_each_element_once() {
        let element = Rc::new(());
        let mut vector = HugeVec::with_capacity(2);
        for _ in 0..300_000 {
            vector.push(element.clone());
        }
        assert_eq!(Rc::strong_count(&element), 300_001);
        drop(vector);
        assert_eq!(Rc::strong_count(&element), 1);
    }
}
