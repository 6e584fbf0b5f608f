use std::time::Duration;

use flow::request::{MeterEntry, MeterMod, MeterStatistics};

/// A meter's configuration, which the datapath applies.
#[derive(Debug, Clone)]
pub struct Meter {
    pub entry: MeterEntry,
    pub created_ms: u64,
}

impl Meter {
    #[must_use]
    pub fn new(change: &MeterMod, created_ms: u64) -> Self {
        let entry = MeterEntry {
            meter: change.meter,
            is_in_packets: change.is_in_packets,
            has_burst: change.has_burst,
            has_statistics: change.has_statistics,
            bands: change.bands.clone(),
        };
        Self { entry, created_ms }
    }

    /// Returns the statistics of a meter without counts of packets, because the datapath counts
    /// packets.
    #[must_use]
    pub fn statistics(&self, flows: u32, now_ms: u64) -> MeterStatistics {
        MeterStatistics {
            meter: self.entry.meter,
            flows,
            packets: 0,
            bytes: 0,
            duration: Duration::from_millis(now_ms.saturating_sub(self.created_ms)),
            bands: vec![(0, 0); self.entry.bands.len()],
        }
    }
}
