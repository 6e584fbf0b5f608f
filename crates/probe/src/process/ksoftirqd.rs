use std::collections::BTreeMap;

use units::{Span, Time};

use super::set::Processes;
use super::stat::CpuTime;
use crate::error::ProbeError;

/// The CPU time of the kernel's `ksoftirqd/N` threads: packet processing that exceeded the budget
/// of the interrupts themselves.
#[derive(Debug, Clone)]
pub struct KsoftirqdSnapshot(Processes);

impl KsoftirqdSnapshot {
    /// Searches all of `/proc` for the threads. [`Self::again`] makes later readings cheaper.
    pub fn read() -> Result<Self, ProbeError> {
        let found = Processes::matching(|process| core_of(&process.name).is_some())?;
        if found.is_empty() {
            return Err(ProbeError::NotSupported {
                feature: "ksoftirqd threads in /proc",
                hint: "they are only seen from the first process ID namespace",
            });
        }
        Ok(Self(found))
    }

    pub fn again(&self) -> Result<Self, ProbeError> {
        self.0.again().map(Self)
    }

    pub fn taken(&self) -> Time {
        self.0.taken
    }

    pub fn since(&self, earlier: &Self) -> KsoftirqdUse {
        let spent = self.0.since(&earlier.0);
        KsoftirqdUse {
            elapsed: spent.elapsed,
            cores: spent
                .each
                .into_values()
                .filter_map(|each| Some((core_of(&each.name)?, each.cpu)))
                .collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KsoftirqdUse {
    pub elapsed: Span,
    pub cores: BTreeMap<usize, CpuTime>,
}

impl KsoftirqdUse {
    pub fn sum(&self) -> CpuTime {
        self.cores.values().fold(CpuTime::default(), |sum, each| sum.plus(each))
    }
}

fn core_of(name: &str) -> Option<usize> {
    name.strip_prefix("ksoftirqd/")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_has_a_ksoftirqd_thread() {
        let earlier = match KsoftirqdSnapshot::read() {
            Ok(snapshot) => snapshot,
            Err(error) if error.is_not_supported() => {
                return testing::skip_because(testing::Need::KernelThreads, error);
            }
            Err(error) => panic!("{error}"),
        };
        let spent = earlier.again().unwrap().since(&earlier);
        let online = crate::cpu::CpuSnapshot::read().unwrap();
        for core in online.online() {
            assert!(spent.cores.contains_key(&core), "core {core}");
        }
        assert!(spent.sum().precise.is_some());
    }

    #[test]
    fn only_names_of_ksoftirqd_threads_give_a_core() {
        assert_eq!(core_of("ksoftirqd/12"), Some(12));
        assert_eq!(core_of("ksoftirqd/"), None);
        assert_eq!(core_of("kworker/0:1"), None);
    }
}
