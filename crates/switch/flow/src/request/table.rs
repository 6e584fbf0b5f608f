/// The fate of a packet that no rule of a table takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TableMiss {
    /// As the version of the controllers says: OpenFlow 1.0 sends it to them, later ones drop it.
    #[default]
    Default,
    Controller,
    Continue,
    Drop,
}

impl TableMiss {
    /// The number in OpenFlow 1.1 and 1.2.
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
    /// The percentages of free entries below and above which a table reports.
    pub vacancy: Option<(u8, u8)>,
}

/// A change of a table's settings. Parts that the version of OpenFlow has no words for stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableMod {
    /// `None`: all tables.
    pub table: Option<u8>,
    pub miss: Option<TableMiss>,
    pub is_evicting: Option<bool>,
    pub vacancy: Option<Option<(u8, u8)>>,
}

/// The most rules of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableLimit {
    /// `None`: there is no limit.
    pub rules: Option<u32>,
    /// Rules with timeouts make room for others, also if OpenFlow does not ask for that.
    pub is_evicting: bool,
}

/// A change of a table's vacancy, by its number among OpenFlow's reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum VacancyChange {
    /// It has fallen below the lower limit.
    Down = 3,
    /// It has risen above the upper limit.
    Up = 4,
}

/// A table's vacancy has crossed a limit, for controllers that are told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStatus {
    pub change: VacancyChange,
    pub table: u8,
    pub config: TableConfig,
    /// The percentage of free places.
    pub vacancy: u8,
}

/// The number of tables: 0 to 253.
pub const TABLES: u8 = 254;
