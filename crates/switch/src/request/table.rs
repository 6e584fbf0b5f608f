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
