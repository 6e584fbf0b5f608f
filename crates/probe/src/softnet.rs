//! The backlog of received packets on each core: `/proc/net/softnet_stat` (net/core/net-procfs.c,
//! softnet_seq_show). The file covers the whole machine, not a namespace.

use std::collections::BTreeMap;

use units::{Span, Time};

use crate::ProbeError;
use crate::clock;
use crate::core_table::counted_32;
use crate::error::read_text;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SoftnetSnapshot {
    pub taken: Time,
    /// The counters by core number. Kernels before 5.14 do not report the number; the line's number
    /// is then used.
    pub cores: BTreeMap<usize, SoftnetCore>,
}

/// One core's counters. `None` is a counter that an older kernel does not provide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SoftnetCore {
    pub processed: u64,
    /// Packets dropped because the backlog (`net.core.netdev_max_backlog`) was full.
    pub dropped: u64,
    /// How often polling stopped with work left (`net.core.netdev_budget`).
    pub time_squeeze: u64,
    /// How often another core woke this core (RPS).
    pub received_rps: Option<u64>,
    pub flow_limit: Option<u64>,
    /// Packets waiting now; a gauge, not a counter.
    pub backlog: Option<u64>,
}

impl SoftnetSnapshot {
    pub fn read() -> Result<Self, ProbeError> {
        let text = read_text(PATH)?;
        Ok(Self { taken: clock::now(), ..Self::parse(&text)? })
    }

    pub fn parse(text: &str) -> Result<Self, ProbeError> {
        let mut cores = BTreeMap::new();
        for (row, line) in text.lines().enumerate() {
            let malformed = || ProbeError::malformed(PATH, format!("{line:?}"));
            let columns = line
                .split_ascii_whitespace()
                .map(|word| u64::from_str_radix(word, 16))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|_| malformed())?;
            if columns.len() < COLUMNS_MIN {
                return Err(malformed());
            }
            let column = |index: usize| columns.get(index).copied();
            let core = SoftnetCore {
                processed: columns[0],
                dropped: columns[1],
                time_squeeze: columns[2],
                received_rps: column(9),
                flow_limit: column(10),
                backlog: column(11),
            };
            let number = column(12).map_or(Ok(row), usize::try_from);
            cores.insert(number.map_err(|_| malformed())?, core);
        }
        Ok(Self { taken: Time::ZERO, cores })
    }

    pub fn since(&self, earlier: &Self) -> SoftnetUse {
        SoftnetUse {
            elapsed: self.taken.since(earlier.taken),
            cores: self
                .cores
                .iter()
                .filter_map(|(core, now)| Some((*core, now.since(earlier.cores.get(core)?))))
                .collect(),
        }
    }
}

impl SoftnetCore {
    fn since(&self, earlier: &Self) -> Self {
        let both = |later: Option<u64>, earlier: Option<u64>| {
            later.zip(earlier).map(|(later, earlier)| counted_32(later, earlier))
        };
        Self {
            processed: counted_32(self.processed, earlier.processed),
            dropped: counted_32(self.dropped, earlier.dropped),
            time_squeeze: counted_32(self.time_squeeze, earlier.time_squeeze),
            received_rps: both(self.received_rps, earlier.received_rps),
            flow_limit: both(self.flow_limit, earlier.flow_limit),
            backlog: self.backlog,
        }
    }
}

/// The counts between two snapshots; `backlog` is the backlog of the later snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SoftnetUse {
    pub elapsed: Span,
    pub cores: BTreeMap<usize, SoftnetCore>,
}

const PATH: &str = "/proc/thread-self/net/softnet_stat";
/// Number of columns from Linux 2.6 to 2.6.34.
const COLUMNS_MIN: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_recorded_softnet_file_is_parsed() {
        let snapshot = SoftnetSnapshot::parse(RECORDED).unwrap();
        assert_eq!(snapshot.cores.len(), 2);
        assert_eq!(snapshot.cores[&1].backlog, Some(0));
        assert!(SoftnetSnapshot::read().unwrap().since(&snapshot).cores.len() <= 2);
    }

    #[test]
    fn the_columns_of_each_kernel_version_are_read() {
        let columns =
            ["0000001f", "2", "3", "0", "0", "0", "0", "0", "0", "9", "a", "b", "7", "d", "e"];
        for count in 0..=columns.len() {
            let read = SoftnetSnapshot::parse(&columns[..count].join(" "));
            if (1..9).contains(&count) {
                assert!(read.is_err(), "{count}");
                continue;
            }
            let cores = read.unwrap().cores;
            let Some((number, core)) = cores.first_key_value() else {
                assert_eq!(count, 0);
                continue;
            };
            assert_eq!((core.processed, core.dropped, core.time_squeeze), (31, 2, 3));
            assert_eq!(core.received_rps, (count > 9).then_some(9));
            assert_eq!(core.flow_limit, (count > 10).then_some(10));
            assert_eq!(core.backlog, (count > 11).then_some(11));
            assert_eq!(*number, if count > 12 { 7 } else { 0 });
        }
    }

    #[test]
    fn wrapped_softnet_counters_give_correct_differences() {
        let line = |processed| format!("{processed} 0 0 0 0 0 0 0 0\n");
        let earlier = SoftnetSnapshot::parse(&line("ffffffff")).unwrap();
        let spent = SoftnetSnapshot::parse(&line("1")).unwrap().since(&earlier);
        assert_eq!(spent.cores[&0].processed, 2);
        assert_eq!((spent.cores[&0].dropped, spent.cores[&0].time_squeeze), (0, 0));
    }

    proptest! {
        #[test]
        fn the_parser_of_the_softnet_file_never_panics(text in "(([0-9a-f]{1,17} ){0,16}\n|.{0,20}\n){0,4}") {
            if let Ok(snapshot) = SoftnetSnapshot::parse(&text) {
                let _ = snapshot.since(&snapshot);
            }
        }
    }

    const RECORDED: &str = include_str!("../tests/fixtures/softnet_stat");
}
