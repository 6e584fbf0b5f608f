#![allow(unsafe_code)]
//! The perf event of a CPU and its ring in memory (perf_event_open(2)).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{Span, Time};

use crate::ProbeError;

/// The stack of one sample as addresses, the innermost first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Raw {
    pub taken: Time,
    pub cpu: usize,
    pub pid: u32,
    pub tid: u32,
    pub kernel: Vec<u64>,
    pub user: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Ring {
    _event: File,
    memory: NonNull<u8>,
    length: usize,
    page: usize,
}

// SAFETY: the mapping belongs to this value alone, and the kernel allows any thread to read it.
unsafe impl Send for Ring {}

/// `perf_event_attr` of include/uapi/linux/perf_event.h, up to PERF_ATTR_SIZE_VER3.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    registers: u64,
    stack: u32,
    clock: i32,
}

impl Ring {
    /// Opens the event of `cpu`, with one stack per `interval`.
    pub(super) fn open(cpu: usize, interval: Span) -> Result<Self, ProbeError> {
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_CPU_CLOCK,
            sample_period: interval.nanos(),
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_CALLCHAIN | SAMPLE_CPU,
            flags: USE_CLOCK_ID,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads `size` bytes of the attributes, which live until the call ends.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                -1,
                cpu as libc::c_int,
                -1,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if opened < 0 {
            return Err(refusal(io::Error::last_os_error()));
        }
        // SAFETY: the call returned this descriptor, and nothing else owns it.
        let event = unsafe { File::from_raw_fd(opened as i32) };
        let page = rustix::param::page_size();
        let length = page * (1 + DATA_PAGES);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no other.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(refusal(io::Error::last_os_error()));
        }
        let memory =
            NonNull::new(memory.cast()).ok_or_else(|| refusal(io::Error::other("null")))?;
        Ok(Self { _event: event, memory, length, page })
    }

    /// Moves the stacks that `keep` selects from the ring to `into`, at most `room`. Returns the
    /// number of lost stacks.
    pub(super) fn read(
        &self,
        into: &mut Vec<Raw>,
        room: usize,
        keep: impl Fn(&Raw) -> bool,
    ) -> u64 {
        let (head, tail) = (self.position(DATA_HEAD), self.position(DATA_TAIL));
        let (end, mut at) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let most = into.len() + room;
        let mut lost = 0;
        while end - at >= 8 {
            let header = self.word(at);
            let (kind, size) = (header as u32, header >> 48);
            if size < 8 || size > end - at {
                break;
            }
            let body: Vec<u64> = (1..size / 8).map(|word| self.word(at + word * 8)).collect();
            match kind {
                RECORD_SAMPLE => match sample(&body).filter(&keep) {
                    Some(raw) if into.len() < most => into.push(raw),
                    Some(_) => lost += 1,
                    None => {}
                },
                RECORD_LOST => lost += body.get(1).copied().unwrap_or(0),
                _ => {}
            }
            at += size;
        }
        tail.store(at, Ordering::Release);
        lost
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping has these aligned words, and lives as long as self.
        unsafe { &*self.memory.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Reads the word at a position of the data. Records are multiples of 8 bytes.
    fn word(&self, position: u64) -> u64 {
        let offset = self.page + (position as usize % (self.page * DATA_PAGES));
        // SAFETY: the offset is aligned and within the mapping. The kernel does not overwrite a
        // record before the tail has passed it.
        unsafe { self.memory.as_ptr().add(offset).cast::<u64>().read_volatile() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `open` made this mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}

/// Parses a sample with the fields of `sample_type`: pid and tid, time, CPU, number of addresses,
/// addresses.
fn sample(body: &[u64]) -> Option<Raw> {
    let [ids, taken, cpu, count, addresses @ ..] = body else { return None };
    let mut raw = Raw {
        taken: Time::from_nanos(*taken),
        cpu: *cpu as u32 as usize,
        pid: *ids as u32,
        tid: (*ids >> 32) as u32,
        ..Raw::default()
    };
    let mut is_user = false;
    for address in addresses.iter().take(*count as usize) {
        match *address {
            CONTEXT_USER => is_user = true,
            other if other >= CONTEXT_MOST => is_user = false,
            // If the interrupted function has no frame pointer, its caller's address is
            // meaningless.
            other if is_user && other < LOWEST_USER => {}
            other if is_user => raw.user.push(other),
            other => raw.kernel.push(other),
        }
    }
    Some(raw)
}

fn refusal(source: io::Error) -> ProbeError {
    match source.raw_os_error() {
        Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            ProbeError::NotSupported {
                feature: "perf events",
                hint: "use a kernel with CONFIG_PERF_EVENTS",
            }
        }
        Some(libc::EACCES | libc::EPERM) => ProbeError::NotSupported {
            feature: "perf events to this user",
            hint: "run as root outside of a container, or set kernel.perf_event_paranoid to -1",
        },
        _ => ProbeError::Kernel { what: "a perf event", source },
    }
}

/// The number of pages of a ring for records, a power of two.
const DATA_PAGES: usize = 64;
// Offsets of fields in `perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const SAMPLE_CPU: u64 = 1 << 7;
const USE_CLOCK_ID: u64 = 1 << 25;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const CONTEXT_USER: u64 = -512_i64 as u64;
const CONTEXT_MOST: u64 = -4095_i64 as u64;
const LOWEST_USER: u64 = 0x1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_split_into_kernel_and_user_and_a_cut_record_is_ignored() {
        let kernel = -128_i64 as u64;
        let ids = u64::from(7_u32) | 9 << 32;
        let body = [ids, 50, 3, 6, kernel, 0xffff_1000, CONTEXT_USER, 0x5500, 0x1, 0x5600];
        let raw = sample(&body).unwrap();
        assert_eq!((raw.pid, raw.tid, raw.cpu), (7, 9, 3));
        assert_eq!((raw.kernel, raw.user), (vec![0xffff_1000], vec![0x5500, 0x5600]));
        assert_eq!(sample(&body[..3]), None);
        assert_eq!(sample(&body[..4]).unwrap().kernel, Vec::<u64>::new());
    }

    #[test]
    fn the_error_of_a_refused_perf_event_names_the_sysctl() {
        let text = refusal(io::Error::from_raw_os_error(libc::EACCES)).to_string();
        assert!(text.contains("kernel.perf_event_paranoid"), "{text}");
    }
}
