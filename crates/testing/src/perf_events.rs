//! Whether the kernel lets this process sample the stacks of a CPU.

#![allow(unsafe_code)]

/// Opens a perf event of all programs and of the kernel on the first CPU (perf_event_open(2)).
pub(crate) fn are_allowed() -> bool {
    let attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        other: [PERF_COUNT_SW_CPU_CLOCK, 0, 0, 0, 0, 0, 0],
    };
    // SAFETY: the kernel reads `size` bytes of the attributes, which live until the call ends.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            -1,
            0,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if opened < 0 {
        return false;
    }
    // SAFETY: the call returned this descriptor, and nothing else owns it.
    unsafe { libc::close(opened as libc::c_int) };
    true
}

/// The first fields of `perf_event_attr`, 64 bytes (PERF_ATTR_SIZE_VER0).
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    other: [u64; 7],
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
