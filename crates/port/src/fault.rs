#![allow(unsafe_code)]
//! Handling of shared memory whose owner truncates it.
//!
//! An access beyond the end of a mapped file raises SIGBUS. For guarded memory, the handler
//! replaces the mapping by zeroed memory of this process and marks it as cut, so that the access
//! continues. Other faults go to the former handler.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// The guard of a mapping. The guard must be dropped before the mapping.
#[derive(Debug)]
pub(crate) struct Guard {
    place: &'static Place,
}

/// A slot with a guarded mapping, or a free slot. The signal handler reads the slots without a
/// lock.
#[derive(Debug)]
struct Place {
    is_taken: AtomicBool,
    /// The value is odd while `start` and `len` change.
    version: AtomicUsize,
    start: AtomicUsize,
    /// The length of the mapping; 0 for a free slot.
    len: AtomicUsize,
    is_cut: AtomicBool,
}

impl Guard {
    /// Guards a mapping. `None` if the kernel refuses the handler, or if too many mappings are
    /// guarded.
    ///
    /// # Safety
    ///
    /// `start` and `len` are a mapping of the caller, in whole pages, which lasts longer than the
    /// guard and to which there are no references. Any bytes in the mapping are valid at any time.
    pub(crate) unsafe fn new(start: usize, len: usize) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let is_free = |place: &&Place| {
            let order = Ordering::AcqRel;
            place.is_taken.compare_exchange(false, true, order, Ordering::Relaxed).is_ok()
        };
        let place = PLACES.iter().find(is_free)?;
        place.is_cut.store(false, Ordering::Relaxed);
        place.set(start, len);
        Some(Self { place })
    }

    /// Whether the owner has truncated the memory. Since then, reads may return zeros.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.place.is_cut.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.place.set(0, 0);
        self.place.is_taken.store(false, Ordering::Release);
    }
}

impl Place {
    /// Sets the mapping. Only the owner of the slot may call this function.
    fn set(&self, start: usize, len: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the mapping if it contains `address`. Skips a slot that changes meanwhile, because
    /// the mapping of such a slot is not in use.
    fn mapping_with(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_stable =
            version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (is_stable && address.wrapping_sub(start) < len).then_some((start, len))
    }
}

/// Whether the handler is installed. The first call installs the handler.
fn is_installed() -> bool {
    static IS_INSTALLED: OnceLock<bool> = OnceLock::new();
    *IS_INSTALLED.get_or_init(|| {
        // SAFETY: sigaction(2) accesses only the structures passed to it, and all-zero bytes are a
        // valid value of them. The former handler is stored before this handler can run. This
        // handler calls only system calls, the former handler, and atomics.
        unsafe {
            let mut former: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut former) != 0 {
                return false;
            }
            let _ = FORMER.set(Former(former));
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handle;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) == 0
        }
    })
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure, and for this signal and code it has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if code == libc::BUS_ADRERR && replace(address) {
        return;
    }
    let Some(Former(former)) = FORMER.get() else { return };
    let is_function = !matches!(former.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    if is_function && former.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with this flag, the kernel would have called the former handler in this way.
        unsafe {
            let former: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(former.sa_sigaction);
            former(signal, info, context);
        }
        return;
    }
    // SAFETY: the former action is restored. The access repeats, and its fault goes to that action.
    unsafe { libc::sigaction(signal, &raw const *former, null_mut()) };
}

/// Replaces the guarded mapping that contains `address`. Returns false if no guarded mapping
/// contains the address.
fn replace(address: usize) -> bool {
    for place in &PLACES {
        let Some((start, len)) = place.mapping_with(address) else { continue };
        place.is_cut.store(true, Ordering::Release);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the faulting thread uses the mapping, so the guard and the mapping exist until
        // that thread continues, and the replaced pages belong to the mapping. By the contract of
        // `Guard::new`, its bytes may change at any time. The value of errno belongs to the
        // faulting code.
        return unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            let start = std::ptr::with_exposed_provenance_mut(start);
            let replaced = libc::mmap(start, len, protection, flags, -1, 0);
            *errno = before;
            replaced != libc::MAP_FAILED
        };
    }
    false
}

struct Former(libc::sigaction);

// SAFETY: the action is written once and then only read, and the handler that the action names is
// the process's.
unsafe impl Send for Former {}
// SAFETY: as above.
unsafe impl Sync for Former {}

static FORMER: OnceLock<Former> = OnceLock::new();

static PLACES: [Place; MOST] = [const {
    Place {
        is_taken: AtomicBool::new(false),
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        is_cut: AtomicBool::new(false),
    }
}; MOST];

/// Maximum number of guarded mappings. A front end shares a few regions, and a switch may have
/// hundreds of ports.
const MOST: usize = 4096;
