//! Limits how many file descriptors of the process tunnels may use.

use std::path::Path;

/// The process's limit of descriptors, and the number of descriptors that were open at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    limit: usize,
    open: usize,
}

impl Descriptors {
    /// Returns `None` if the process has no limit.
    pub(crate) fn of_process() -> Option<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
        let own = std::fs::read_dir(Path::new("/proc/self/fd")).map(Iterator::count);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Some(Self { limit, open: own.unwrap_or(USUAL) })
    }

    #[cfg(test)]
    pub(crate) fn new(limit: usize, open: usize) -> Self {
        Self { limit, open }
    }

    /// Returns the number of tunnels that may be open, each with one descriptor. The number can be
    /// 0.
    pub(crate) fn for_tunnels(&self) -> usize {
        self.limit.saturating_sub(self.open + self.reserved())
    }

    /// Returns the number of concurrent name look-ups. Each look-up uses a few of the reserved
    /// descriptors.
    pub(crate) fn for_lookups(&self) -> usize {
        (self.reserved() / 4).max(2)
    }

    /// Returns the number of reserved descriptors. The reserved descriptors are for status,
    /// metrics, name look-ups, a reload's files, and new connections, which a listener has to
    /// accept before it can refuse them.
    fn reserved(&self) -> usize {
        (self.limit / 8).clamp(LEAST_RESERVED, MOST_RESERVED)
    }
}

/// The assumed number of open descriptors if the process cannot count them.
const USUAL: usize = 64;
const LEAST_RESERVED: usize = 16;
/// Maximum reserve: enough for all name look-ups.
const MOST_RESERVED: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_leave_some_file_descriptors_to_other_uses() {
        let tunnels = |limit, open| Descriptors { limit, open }.for_tunnels();
        assert_eq!(tunnels(64, 24), 24);
        assert_eq!(tunnels(1024, 24), 1024 - 24 - 128);
        assert_eq!(tunnels(524_288, 30), 524_288 - 30 - 512);
        assert_eq!(tunnels(40, 30), 0);
        let lookups = |limit| Descriptors { limit, open: 24 }.for_lookups();
        assert_eq!((lookups(64), lookups(1024), lookups(1 << 20)), (4, 32, 128));
    }

    #[test]
    fn the_process_can_read_its_limit_and_count_its_descriptors() {
        let own = Descriptors::of_process().unwrap();
        assert!(own.open > 2 && own.limit > own.open, "{own:?}");
    }
}
