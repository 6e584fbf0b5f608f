use std::time::Duration;

use crate::Match;
use crate::action::Action;
use crate::port_number::PortNumber;
use crate::request::TableConfig;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowCommand {
    Add,
    Modify,
    ModifyStrict,
    Delete,
    DeleteStrict,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowFlags {
    pub send_flow_removed: bool,
    pub check_overlap: bool,
    pub reset_counts: bool,
    pub no_packet_counts: bool,
    pub no_byte_counts: bool,
}

impl FlowFlags {
    /// Returns the flags that still matter after the rule was added.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { check_overlap: false, reset_counts: false, ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowMod {
    pub command: FlowCommand,
    /// `None`: table 0 for an addition, all tables for a deletion or a modification.
    pub table: Option<u8>,
    pub priority: u16,
    pub matching: Match,
    /// The cookie of an added rule; `None` for a modification that does not change cookies.
    pub cookie: Option<u64>,
    /// Whether a modification keeps the cookies of existing rules, and uses `cookie` only for a new
    /// rule.
    pub keeps_cookie: bool,
    /// Limits a modification or deletion to rules whose cookie has these bits.
    pub cookie_filter: CookieFilter,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub importance: u16,
    pub flags: FlowFlags,
    /// Limits a deletion to rules that output to this port and this group.
    pub out_port: PortNumber,
    pub out_group: u32,
    /// The buffered packet of OpenFlow 1.0 that the new rule shall process.
    pub buffer: Option<u32>,
    pub actions: Vec<Action>,
}

impl FlowMod {
    pub const DEFAULT_PRIORITY: u16 = 0x8000;
    pub const ANY_GROUP: u32 = 0xffff_ffff;

    #[must_use]
    pub fn new(command: FlowCommand) -> Self {
        Self {
            command,
            table: None,
            priority: Self::DEFAULT_PRIORITY,
            matching: Match::any(),
            cookie: None,
            keeps_cookie: false,
            cookie_filter: CookieFilter::default(),
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags::default(),
            out_port: PortNumber::NONE,
            out_group: Self::ANY_GROUP,
            buffer: None,
            actions: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CookieFilter {
    pub value: u64,
    pub mask: u64,
}

impl CookieFilter {
    #[must_use]
    pub fn takes(self, cookie: u64) -> bool {
        (cookie ^ self.value) & self.mask == 0
    }
}

/// The conditions by which a request for statistics selects rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowFilter {
    pub table: Option<u8>,
    pub matching: Match,
    pub cookie: CookieFilter,
    pub out_port: PortNumber,
    pub out_group: u32,
}

impl FlowFilter {
    /// Selects every rule.
    #[must_use]
    pub fn all() -> Self {
        Self {
            table: None,
            matching: Match::any(),
            cookie: CookieFilter::default(),
            out_port: PortNumber::NONE,
            out_group: FlowMod::ANY_GROUP,
        }
    }
}

/// A rule with its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowEntry {
    pub table: u8,
    pub priority: u16,
    pub cookie: u64,
    pub matching: Match,
    pub actions: Vec<Action>,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub importance: u16,
    pub flags: FlowFlags,
    pub duration: Duration,
    /// The time since the rule's last packet, and the time since its last change.
    pub idle_age: Duration,
    pub hard_age: Duration,
    pub packets: u64,
    pub bytes: u64,
    /// The number of the change that added the rule, and the number of its last change. A bridge
    /// numbers its changes, so that a monitor knows which changes it has reported.
    pub added: u64,
    pub changed: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Aggregate {
    pub packets: u64,
    pub bytes: u64,
    pub flows: u32,
}

impl Aggregate {
    pub fn count(&mut self, flow: &FlowEntry) {
        self.packets += flow.packets;
        self.bytes += flow.bytes;
        self.flows += 1;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    pub table: u8,
    pub name: String,
    pub active: u32,
    pub lookups: u64,
    pub matched: u64,
    pub max_entries: u32,
    pub config: TableConfig,
    /// The percentage of free entries.
    pub vacancy: u8,
}
