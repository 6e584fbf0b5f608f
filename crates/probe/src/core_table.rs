use std::collections::BTreeMap;

use crate::ProbeError;

/// A table of counters with a column for each online core, such as `/proc/softirqs`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CoreTable {
    /// The counts by row and core number; empty for a row without a column for each core.
    pub(crate) rows: BTreeMap<String, BTreeMap<usize, u64>>,
}

impl CoreTable {
    pub(crate) fn parse(origin: &str, text: &str) -> Result<Self, ProbeError> {
        let mut lines = text.lines();
        let cores = lines
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .map(|word| word.strip_prefix("CPU")?.parse().ok())
            .collect::<Option<Vec<usize>>>()
            .filter(|cores| !cores.is_empty())
            .ok_or_else(|| ProbeError::malformed(origin, "the first line names no cores"))?;
        let mut rows = BTreeMap::new();
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let (name, rest) = line
                .split_once(':')
                .ok_or_else(|| ProbeError::malformed(origin, format!("no name in {line:?}")))?;
            let words = rest.split_ascii_whitespace().take(cores.len());
            let counts: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let whole = counts.len() == cores.len();
            let row = cores.iter().copied().zip(counts).filter(|_| whole).collect();
            rows.insert(name.trim().to_owned(), row);
        }
        Ok(Self { rows })
    }

    /// Returns the increments of each row that both snapshots have.
    pub(crate) fn since(&self, earlier: &Self) -> BTreeMap<String, BTreeMap<usize, u64>> {
        self.rows
            .iter()
            .filter_map(|(name, row)| {
                let before = earlier.rows.get(name)?;
                let cores = row
                    .iter()
                    .filter_map(|(core, count)| {
                        Some((*core, counted_32(*count, *before.get(core)?)))
                    })
                    .collect();
                Some((name.clone(), cores))
            })
            .collect()
    }
}

/// Returns the increment of a counter that the kernel keeps in 32 bits and that therefore wraps.
pub(crate) fn counted_32(later: u64, earlier: u64) -> u64 {
    later.checked_sub(earlier).unwrap_or_else(|| {
        (later.saturating_add(1 << 32)).saturating_sub(earlier) & u64::from(u32::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counters_wrap_at_32_bits() {
        assert_eq!(counted_32(10, 4), 6);
        assert_eq!(counted_32(3, u64::from(u32::MAX)), 4);
        assert_eq!(counted_32(0, u64::MAX), 0);
        assert_eq!(counted_32(u64::MAX, 0), u64::MAX);
    }

    proptest! {
        #[test]
        fn the_parser_of_core_tables_never_panics(text in "( *CPU[0-9]{1,9}){0,3}\n(.{0,10}:?( [0-9]{1,21}){0,4}.{0,9}\n){0,5}") {
            if let Ok(table) = CoreTable::parse("/proc/softirqs", &text) {
                let _ = table.since(&table);
            }
        }
    }
}
