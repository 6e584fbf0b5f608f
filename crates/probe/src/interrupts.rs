//! The count of each interrupt on each core: `/proc/interrupts`.

use std::collections::BTreeMap;

use units::{Span, Time};

use crate::ProbeError;
use crate::clock;
use crate::core_table::CoreTable;
use crate::error::read_text;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterruptSnapshot {
    pub taken: Time,
    table: CoreTable,
}

impl InterruptSnapshot {
    pub fn read() -> Result<Self, ProbeError> {
        let text = read_text(PATH)?;
        Ok(Self { taken: clock::now(), ..Self::parse(&text)? })
    }

    pub fn parse(text: &str) -> Result<Self, ProbeError> {
        Ok(Self { taken: Time::ZERO, table: CoreTable::parse(PATH, text)? })
    }

    pub fn since(&self, earlier: &Self) -> InterruptUse {
        let describe = |name: &String| {
            let row = self.table.rows.get(name);
            row.map(|row| row.description.clone()).unwrap_or_default()
        };
        InterruptUse {
            elapsed: self.taken.since(earlier.taken),
            lines: self
                .table
                .since(&earlier.table)
                .into_iter()
                .map(|(name, cores)| {
                    let description = describe(&name);
                    (name, InterruptLine { description, cores })
                })
                .collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterruptUse {
    pub elapsed: Span,
    /// The interrupt lines by number (`38`) or, for the processor's internal interrupts, by name
    /// (`LOC`).
    pub lines: BTreeMap<String, InterruptLine>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterruptLine {
    /// Controller and device: `PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0`.
    pub description: String,
    /// Counts by core number.
    pub cores: BTreeMap<usize, u64>,
}

impl InterruptLine {
    pub fn total(&self) -> u64 {
        self.cores.values().sum()
    }
}

impl InterruptUse {
    pub fn per_core(&self) -> BTreeMap<usize, u64> {
        let mut sums = BTreeMap::new();
        for (core, count) in self.lines.values().flat_map(|line| &line.cores) {
            *sums.entry(*core).or_default() += count;
        }
        sums
    }

    pub fn total(&self) -> u64 {
        self.lines.values().map(InterruptLine::total).sum()
    }

    /// Returns the lines whose description contains `word`, such as a device's name.
    pub fn described<'a>(
        &'a self,
        word: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a InterruptLine)> {
        self.lines
            .iter()
            .filter(move |(_, line)| line.description.contains(word))
            .map(|(name, line)| (name.as_str(), line))
    }
}

const PATH: &str = "/proc/interrupts";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_interrupts_file_is_parsed() {
        let snapshot = InterruptSnapshot::parse(RECORDED).unwrap();
        let row = &snapshot.table.rows["38"];
        assert_eq!(row.cores.len(), 2);
        assert!(row.description.ends_with("virtio2-input.0"), "{row:?}");
        assert_eq!(snapshot.table.rows["ERR"].single, Some(0));
        assert_eq!(snapshot.table.rows["ERR"].cores.len(), 0);
        let spent = snapshot.since(&snapshot);
        assert_eq!(spent.total(), 0);
        assert_eq!(spent.described("virtio2-").count(), 3);
    }

    #[test]
    fn the_description_of_an_interrupt_may_start_with_a_number() {
        let text = "CPU0 CPU2\n 9: 5 6 0-level x\nLOC: 1 2 Local timer interrupts\n";
        let earlier = InterruptSnapshot::parse("CPU0 CPU2\n9: 1 1\nLOC: 1 1\n").unwrap();
        let spent = InterruptSnapshot::parse(text).unwrap().since(&earlier);
        assert_eq!(spent.lines["9"].description, "0-level x");
        assert_eq!(spent.per_core(), BTreeMap::from([(0, 4), (2, 6)]));
    }

    const RECORDED: &str = include_str!("../tests/fixtures/interrupts");
}
