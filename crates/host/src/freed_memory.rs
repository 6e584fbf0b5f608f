//! Memory that this process has freed and that its allocator keeps.
#![allow(unsafe_code)]

/// Returns freed memory to the kernel now and then. glibc's allocator returns little on its own: a
/// block that is still in use keeps all freed memory below it.
#[derive(Debug, Default)]
pub struct FreedMemory {
    /// The fewest freed bytes since the last return.
    fewest: usize,
}

impl FreedMemory {
    /// Returns what was freed, if that is much. Costs little otherwise.
    pub fn tend(&mut self) {
        let freed = freed();
        self.fewest = self.fewest.min(freed);
        if freed - self.fewest >= MUCH {
            self.fewest = freed;
            trim();
        }
    }
}

/// The bytes that the allocator has and this process does not use, those that were returned to the
/// kernel included.
#[cfg(target_env = "gnu")]
fn freed() -> usize {
    // SAFETY: the call takes no pointer and returns numbers; the allocator locks its own state.
    unsafe { libc::mallinfo2() }.fordblks
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: the call takes no pointer and frees nothing that is in use; the allocator locks its
    // own state.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn freed() -> usize {
    0
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

const MUCH: usize = 8 << 20;

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
