#![allow(unsafe_code)]

/// Reads the processor's time-stamp counter, for differences on the same CPU; nanoseconds on a
/// processor without a time-stamp counter.
#[inline]
#[must_use]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC reads a counter and touches no memory; every x86-64 processor has it, and
        // Linux lets user space execute it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}
