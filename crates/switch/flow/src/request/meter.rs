use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterCommand {
    Add,
    Modify,
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterMod {
    pub command: MeterCommand,
    /// [`MeterMod::ALL`] deletes all meters.
    pub meter: u32,
    /// Whether rates are in packets per second; otherwise they are in kilobits per second.
    pub is_in_packets: bool,
    /// Whether the bands' burst sizes apply.
    pub has_burst: bool,
    pub has_statistics: bool,
    pub bands: Vec<Band>,
}

impl MeterMod {
    pub const ALL: u32 = 0xffff_ffff;
    /// Virtual meters: `SLOW_PATH` for packets on a slow path, [`MeterMod::CONTROLLER`] for
    /// packet-ins.
    pub const SLOW_PATH: u32 = 0xffff_fffd;
    pub const CONTROLLER: u32 = 0xffff_fffe;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Band {
    pub kind: BandKind,
    pub rate: u32,
    pub burst: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BandKind {
    Drop,
    DscpRemark { precedence: u8 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterEntry {
    pub meter: u32,
    pub is_in_packets: bool,
    pub has_burst: bool,
    pub has_statistics: bool,
    pub bands: Vec<Band>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterStatistics {
    pub meter: u32,
    pub flows: u32,
    pub packets: u64,
    pub bytes: u64,
    pub duration: Duration,
    /// Packets and bytes of each band.
    pub bands: Vec<(u64, u64)>,
}
