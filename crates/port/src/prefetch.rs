//! Starts memory accesses whose results are needed later. A processor ignores a prefetch that it
//! cannot start.
#![allow(unsafe_code)]

#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_address(std::ptr::from_ref(place).addr());
}

/// Starts to load the cache line of an address, which need not be valid.
#[inline(always)]
pub fn prefetch_address(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of SSE, which every x86-64 processor has; it reads and writes
    // nothing that a program can see, and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Like [`prefetch_address`], for a cache line that will be written: also takes the line from the
/// caches of other processors.
#[inline(always)]
pub fn prefetch_to_write(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; x86-64 processors without this instruction ignore it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
