//! Memory that this process has freed and that its allocator keeps.
#![allow(unsafe_code)]

/// Returns freed memory to the kernel now and then. glibc's allocator returns little on its own: a
/// block that is still in use keeps all freed memory below it.
#[derive(Debug)]
pub struct FreedMemory {
    /// The fewest bytes since the last return that were resident and not in use.
    fewest: u64,
}

impl Default for FreedMemory {
    fn default() -> Self {
        bound_tops();
        Self { fewest: 0 }
    }
}

impl FreedMemory {
    /// Returns the memory that was freed since the last return, if it is much. Costs little
    /// otherwise.
    ///
    /// The allocator's own count of free bytes includes the bytes that the kernel already took
    /// back: that count is the same before and after a burst of work between two calls. The
    /// resident bytes differ.
    pub fn tend(&mut self) {
        let Some(unused) = unused() else { return };
        self.fewest = self.fewest.min(unused);
        if unused - self.fewest >= MUCH {
            trim();
            self.fewest = self::unused().unwrap_or(unused);
        }
    }
}

/// The resident bytes of this process that no block of the allocator uses. Stacks and static data
/// count as unused: they change little between two calls.
#[cfg(target_env = "gnu")]
fn unused() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = statm.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, of_files) = (pages.next()?.ok()?, pages.next()?.ok()?);
    let anonymous = resident.saturating_sub(of_files) * rustix::param::page_size() as u64;
    // SAFETY: the call takes no pointer and returns numbers; the allocator locks its own state.
    let counted = unsafe { libc::mallinfo2() };
    let used = counted.uordblks as u64 + counted.hblkhd as u64;
    Some(anonymous.saturating_sub(used))
}

/// Bounds the free memory at the end of each thread's arena. `malloc_trim` returns that end for
/// the first arena alone. glibc raises the bound to twice the largest block that was freed, up to
/// 64 MiB, unless a program sets both thresholds.
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
fn unused() -> Option<u64> {
    None
}

#[cfg(not(target_env = "gnu"))]
fn bound_tops() {}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

const MUCH: u64 = 8 << 20;
/// Blocks of this size come from the kernel and return to the kernel.
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
    fn freed_memory_is_returned_although_a_later_block_stays() {
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
