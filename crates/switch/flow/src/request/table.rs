/// The treatment of a packet that matches no rule of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TableMiss {
    /// The controllers' OpenFlow version decides: a controller of OpenFlow 1.0 gets the packet;
    /// with controllers of later versions the packet is dropped.
    #[default]
    Default,
    Controller,
    Continue,
    Drop,
}

impl TableMiss {
    /// Returns the setting's number in OpenFlow 1.1 and 1.2.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Default | Self::Controller => 0,
            Self::Continue => 1,
            Self::Drop => 2,
        }
    }
}

/// A table's settings, as OpenFlow changes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableConfig {
    pub miss: TableMiss,
    pub is_evicting: bool,
    /// The percentages of free entries below and above which the table reports its vacancy.
    pub vacancy: Option<(u8, u8)>,
}

/// A change of a table's settings. `None` keeps a setting that the OpenFlow version cannot express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableMod {
    /// `None`: all tables.
    pub table: Option<u8>,
    pub miss: Option<TableMiss>,
    pub is_evicting: Option<bool>,
    pub vacancy: Option<Option<(u8, u8)>>,
}

/// Maximum number of rules of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableLimit {
    /// `None`: no limit.
    pub rules: Option<u32>,
    /// Whether rules with timeouts are evicted for new rules, even if OpenFlow does not ask for
    /// evictions.
    pub is_evicting: bool,
}

/// A change of a table's vacancy. The values are OpenFlow's reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum VacancyChange {
    /// The vacancy has fallen below the lower limit.
    Down = 3,
    /// The vacancy has risen above the upper limit.
    Up = 4,
}

/// The event that a table's vacancy has crossed a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStatus {
    pub change: VacancyChange,
    pub table: u8,
    pub config: TableConfig,
    /// The percentage of free entries.
    pub vacancy: u8,
}

/// The number of tables: 0 to 253.
pub const TABLES: u8 = 254;
