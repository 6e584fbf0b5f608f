//! The count of each type of soft interrupt on each core: `/proc/softirqs`.

use std::collections::BTreeMap;

use units::{Span, Time};

use crate::ProbeError;
use crate::clock;
use crate::core_table::CoreTable;
use crate::error::read_text;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SoftirqSnapshot {
    pub taken: Time,
    table: CoreTable,
}

impl SoftirqSnapshot {
    pub fn read() -> Result<Self, ProbeError> {
        let text = read_text(PATH)?;
        Ok(Self { taken: clock::now(), ..Self::parse(&text)? })
    }

    pub fn parse(text: &str) -> Result<Self, ProbeError> {
        Ok(Self { taken: Time::ZERO, table: CoreTable::parse(PATH, text)? })
    }

    /// Returns the counts of a type since boot, by core.
    pub fn counts(&self, kind: &str) -> Option<&BTreeMap<usize, u64>> {
        self.table.rows.get(kind)
    }

    pub fn since(&self, earlier: &Self) -> SoftirqUse {
        SoftirqUse {
            elapsed: self.taken.since(earlier.taken),
            kinds: self.table.since(&earlier.table),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SoftirqUse {
    pub elapsed: Span,
    /// Counts by type (`NET_RX`, `NET_TX`, `TIMER`, …), then by core.
    pub kinds: BTreeMap<String, BTreeMap<usize, u64>>,
}

impl SoftirqUse {
    pub fn total(&self, kind: &str) -> Option<u64> {
        Some(self.kinds.get(kind)?.values().sum())
    }
}

const PATH: &str = "/proc/softirqs";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_softirqs_file_is_parsed() {
        let earlier = SoftirqSnapshot::parse(RECORDED).unwrap();
        let later =
            SoftirqSnapshot::parse("  CPU0 CPU1\n NET_RX: 4294967295 4294967295\n NEWKIND: 1 2\n")
                .unwrap();
        let spent = later.since(&earlier);
        assert_eq!(spent.kinds.len(), 1);
        assert!(spent.total("NET_RX").unwrap() > 1 << 32);
        assert_eq!(spent.total("NEWKIND"), None);
        assert_eq!(earlier.table.rows.len(), 10);
    }

    #[test]
    fn the_counts_of_a_type_are_those_since_boot() {
        let text = "  CPU0 CPU1\n NET_RX: 5 7\n TIMER: 1 2\n";
        let snapshot = SoftirqSnapshot::parse(text).unwrap();
        assert_eq!(snapshot.counts("NET_RX"), Some(&BTreeMap::from([(0, 5), (1, 7)])));
        assert_eq!(snapshot.counts("NET_TX"), None);
    }

    #[test]
    fn a_softirqs_table_without_cores_is_an_error() {
        for text in ["", "\n", "NET_RX: 1 2\n", "CPU0 CPUx\n"] {
            assert!(SoftirqSnapshot::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_softirqs_of_this_machine_are_counted() {
        let earlier = SoftirqSnapshot::read().unwrap();
        let later = SoftirqSnapshot::read().unwrap();
        assert!(later.since(&earlier).total("NET_RX").is_some());
    }

    const RECORDED: &str = include_str!("../tests/fixtures/softirqs");
}
