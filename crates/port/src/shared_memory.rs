#![allow(unsafe_code)]
//! Memory that another process or the kernel may write at any time.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::fault::Guard;
use crate::prefetch::{prefetch_address, prefetch_to_write};

/// A mapping. Bytes are copied in and out, and words are accessed atomically, so that no reference
/// to bytes exists that the other side may change. Every access is checked against the length,
/// because the offset may come from the other side.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    guard: Option<Guard>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and this is its only owner.
unsafe impl Send for SharedMemory {}
// SAFETY: all accesses copy bytes, whose source or target nobody borrows, or use atomics.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps `len` bytes of a file, starting at `offset`, a multiple of the page size. The caller
    /// guarantees that the file always has these bytes.
    pub(crate) fn map(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        Self::map_with(file.as_fd().as_raw_fd(), offset, len, libc::MAP_SHARED)
    }

    /// Like [`Self::map`], for a file that its owner may truncate: see [`Self::is_cut`].
    pub(crate) fn map_guarded(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let mut memory = Self::map(file, offset, len)?;
        // SAFETY: `memory` owns the mapping and drops the guard first. References into the mapping
        // are to atomics only, and another process may change the bytes anyway.
        memory.guard = unsafe { Guard::new(memory.start.as_ptr().expose_provenance(), len) };
        match memory.guard {
            Some(_) => Ok(memory),
            None => Err(io::Error::other("its owner could cut it off, which cannot be survived")),
        }
    }

    /// Whether the owner has truncated guarded memory and an access has noticed the truncation.
    /// Since then, reads may return zeros.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_cut)
    }

    /// Like [`Self::map`], but loads all pages at once.
    pub(crate) fn map_present(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::map_with(file.as_fd().as_raw_fd(), offset, len, flags)
    }

    /// Allocates zeroed memory of this process that the kernel can share.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Self::map_with(-1, 0, len, flags)
    }

    fn map_with(file: i32, offset: u64, len: usize, flags: i32) -> io::Result<Self> {
        let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let offset = libc::off_t::try_from(offset).map_err(too_large)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing of ours; the
        // kernel refuses a length of 0 and one that does not fit.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Self { start, len, guard: None })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the first byte, for the kernel and for peers that use addresses.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Copies bytes out of the mapping. Returns false if some of the bytes are outside the mapping.
    #[inline]
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) -> bool {
        if !self.holds(at, out.len()) {
            return false;
        }
        // SAFETY: the source is within the mapping and `out` is ours alone. The other side may
        // write meanwhile; any bytes are valid, and only the copy is looked at.
        unsafe {
            let source = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(source, out.as_mut_ptr(), out.len());
        }
        true
    }

    /// Copies bytes into the mapping. If the bytes do not all fit, returns false and writes
    /// nothing.
    #[inline]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> bool {
        if !self.holds(at, bytes.len()) {
            return false;
        }
        // SAFETY: the target is within the mapping. No reference points into the mapping, so
        // `bytes` is outside.
        unsafe {
            let target = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
        true
    }

    #[inline]
    pub(crate) fn word16(&self, at: usize) -> Option<&AtomicU16> {
        let place = self.aligned(at, 2)?;
        // SAFETY: aligned, within the mapping, and mapped as long as `self` lives.
        Some(unsafe { AtomicU16::from_ptr(place.cast()) })
    }

    #[inline]
    pub(crate) fn word32(&self, at: usize) -> Option<&AtomicU32> {
        let place = self.aligned(at, 4)?;
        // SAFETY: as above.
        Some(unsafe { AtomicU32::from_ptr(place.cast()) })
    }

    #[inline]
    pub(crate) fn word64(&self, at: usize) -> Option<&AtomicU64> {
        let place = self.aligned(at, 8)?;
        // SAFETY: as above.
        Some(unsafe { AtomicU64::from_ptr(place.cast()) })
    }

    /// Starts to load the cache line of a byte. For a later write, also takes the line from the
    /// caches of the other side. Ignores an offset outside the mapping.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, is_written: bool) {
        if self.holds(at, 1) {
            let address = self.start.addr().get() + at;
            match is_written {
                false => prefetch_address(address),
                true => prefetch_to_write(address),
            }
        }
    }

    #[inline]
    fn aligned(&self, at: usize, size: usize) -> Option<*mut u8> {
        // A mapping begins at the start of a page.
        if !at.is_multiple_of(size) || !self.holds(at, size) {
            return None;
        }
        // SAFETY: `at` is within the mapping.
        Some(unsafe { self.start.as_ptr().add(at) })
    }

    #[inline]
    fn holds(&self, at: usize, len: usize) -> bool {
        at <= self.len && len <= self.len - at
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: the mapping is ours, has this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_outside_the_mapping_are_refused() {
        let memory = SharedMemory::anonymous(4096).unwrap();
        for at in [0, 4095, 4096, usize::MAX] {
            memory.prefetch(at, false);
            memory.prefetch(at, true);
        }
        assert!(memory.write(4090, b"abcdef"));
        let mut six = [0; 6];
        assert!(memory.read(4090, &mut six) && six == *b"abcdef");
        for (at, len) in [(4091, 6), (4096, 1), (4097, 0), (usize::MAX, 2), (usize::MAX - 1, 0)] {
            assert!(!memory.read(at, &mut vec![0; len]), "{at} {len}");
            assert!(!memory.write(at, &vec![0; len]), "{at} {len}");
        }
        assert!(memory.word32(4092).is_some());
        for at in [4093, 4094, 4096, usize::MAX - 3] {
            assert!(memory.word32(at).is_none(), "{at}");
        }
    }
}
