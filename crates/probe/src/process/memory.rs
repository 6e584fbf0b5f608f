//! The resident memory of a process.

use super::{Processes, stat::ended};
use crate::error::{ProbeError, read_text};
use units::Bytes;

/// Resident pages, including pages shared with other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resident {
    pub now: Bytes,
    /// Maximum resident memory since the start of the process.
    pub peak: Bytes,
}

impl Resident {
    pub fn read(pid: u32) -> Result<Self, ProbeError> {
        let text = read_text(format!("/proc/{pid}/status")).map_err(|error| ended(pid, error))?;
        Self::parse(&text)
    }

    /// Returns the sum over a process and all its descendants. Peaks are added even if they were at
    /// different times.
    pub fn tree(root: u32) -> Result<Self, ProbeError> {
        let mut sum = Self::default();
        for pid in Processes::tree(root)?.each.keys() {
            match Self::read(*pid) {
                Ok(one) => sum = Self { now: sum.now + one.now, peak: sum.peak + one.peak },
                // A descendant may have ended; only the root must still exist.
                Err(ProbeError::Ended { .. }) if *pid != root => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sum)
    }

    /// Reads `/proc/PID/status`. Kernel threads and zombies have no memory, and no such lines.
    pub fn parse(text: &str) -> Result<Self, ProbeError> {
        let kibibytes = |name: &str| match text.lines().find_map(|line| line.strip_prefix(name)) {
            None => Ok(Bytes::ZERO),
            Some(rest) => {
                let number = rest.trim().strip_suffix(" kB").and_then(|text| text.parse().ok());
                number.map(Bytes::kib).ok_or_else(|| {
                    ProbeError::malformed("/proc/PID/status", format!("odd {name} {rest:?}"))
                })
            }
        };
        Ok(Self { now: kibibytes("VmRSS:")?, peak: kibibytes("VmHWM:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_and_peak_memory_are_read() {
        let text = "Name:\tweir\nVmHWM:\t    9052 kB\nVmRSS:\t    8040 kB\nThreads:\t3\n";
        let resident = Resident::parse(text).unwrap();
        assert_eq!(resident, Resident { now: Bytes::kib(8040), peak: Bytes::kib(9052) });
        assert_eq!(Resident::parse("Name:\tkthreadd\n").unwrap(), Resident::default());
        assert!(Resident::parse("VmRSS:\tmuch\n").is_err());
    }

    #[test]
    fn this_process_has_resident_memory() {
        let own = Resident::tree(std::process::id()).unwrap();
        assert!(own.now > Bytes::ZERO && own.peak >= own.now);
    }
}
