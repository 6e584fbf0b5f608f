//! Memory that this process has freed and that its allocator keeps.
#![allow(unsafe_code)]

/// Returns freed memory to the kernel now and then. glibc's allocator returns little on its own: a
/// block that is still in use keeps all freed memory below it.
#[derive(Debug)]
pub struct FreedMemory {
    /// Minimum number of resident bytes that were not in use, since memory was last returned.
    fewest: u64,
    /// The bytes in use at the last call.
    used: u64,
    /// The last return happened without load. Under load, blocks in use share pages with freed
    /// blocks, and such pages cannot be returned.
    is_settled: bool,
}

impl Default for FreedMemory {
    fn default() -> Self {
        bound_tops();
        Self { fewest: 0, used: 0, is_settled: true }
    }
}

impl FreedMemory {
    /// Returns freed memory to the kernel if much was freed since the last return, and once more
    /// when the load has ended. All other calls cost little.
    ///
    /// The allocator's own count of free bytes includes bytes that it has already returned to the
    /// kernel. A burst of work between two calls therefore does not change that count, but it
    /// changes the resident bytes.
    pub fn tend(&mut self) {
        let Some(Memory { used, unused }) = Memory::now() else { return };
        let is_at_rest = used.abs_diff(self.used) < LITTLE;
        (self.used, self.fewest) = (used, self.fewest.min(unused));
        let is_much = unused - self.fewest >= MUCH;
        if is_much || (is_at_rest && !self.is_settled) {
            trim();
            self.fewest = Memory::now().map_or(unused, |memory| memory.unused);
            self.is_settled = !is_much;
        }
    }
}

/// Memory of this process, in bytes.
struct Memory {
    /// Bytes in blocks of the allocator that are in use.
    used: u64,
    /// Resident bytes outside these blocks. Stacks and static data, which change little between two
    /// calls, count as unused.
    unused: u64,
}

impl Memory {
    #[cfg(target_env = "gnu")]
    fn now() -> Option<Self> {
        let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
        let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
        let anonymous = resident.saturating_sub(of_files) * rustix::param::page_size() as u64;
        // SAFETY: the call takes no pointer and returns numbers; the allocator locks its own
        // state.
        let counted = unsafe { libc::mallinfo2() };
        let used = counted.uordblks as u64 + counted.hblkhd as u64;
        Some(Self { used, unused: anonymous.saturating_sub(used) })
    }

    #[cfg(not(target_env = "gnu"))]
    fn now() -> Option<Self> {
        None
    }
}

/// Bounds the free memory at the end of each thread's arena. `malloc_trim` returns only the first
/// arena's end. glibc raises the bound to twice the largest block that was freed, up to 64 MiB,
/// unless a program sets both thresholds.
#[cfg(target_env = "gnu")]
fn bound_tops() {
    // SAFETY: the calls take numbers; the allocator locks its own state.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TOP);
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: the call takes no pointer and frees nothing that is in use; the allocator locks its
    // own state.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn bound_tops() {}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

const MUCH: u64 = 8 << 20;
/// Without load, the bytes in use change by less than this number.
const LITTLE: u64 = 1 << 20;
/// The allocator takes blocks of this size from the kernel and returns them to the kernel.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 4 << 20;
#[cfg(target_env = "gnu")]
const TOP: libc::c_int = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn freed_memory_is_returned_while_a_later_block_is_in_use() {
        let mut memory = FreedMemory::default();
        memory.tend();
        for _ in 0..2 {
            let blocks: Vec<_> = (0..100_000).map(|number| vec![number as u8; 1000]).collect();
            let stays = vec![1_u8; 1000];
            memory.tend();
            let before = resident();
            drop(blocks);
            memory.tend();
            let after = resident();
            assert!(before > after + (64 << 20), "{before} {after}");
            drop(stays);
        }
    }
}
