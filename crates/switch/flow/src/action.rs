//! The actions and instructions of OpenFlow rules, as one list.
//!
//! OpenFlow 1.1's instructions have their order of execution: meter, the actions that apply at
//! once, clear_actions, write_actions, write_metadata, goto_table.
//!
//! The table of actions (`action/table.rs`) has a variant of [`Action`] and its [`Row`] for each
//! action. The parser and printer of rules, the messages of OpenFlow, and the checks read the rows.

mod row;
mod table;

pub use row::{
    ActionSetPlace, Form, Instruction, Limit, MOST_NUMBERS, Mirroring, Numbers, Row, Style, Tags,
    Values,
};
pub use table::{Action, heap_bytes};

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use crate::Field;
use crate::port_number::PortNumber;

/// A part of a field: `width` bits from bit `start` up, as in `NXM_NX_REG0[0..15]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subfield {
    pub field: Field,
    pub start: u8,
    pub width: u8,
}

impl Subfield {
    #[must_use]
    pub fn whole(field: Field) -> Self {
        Self { field, start: 0, width: field.place().width }
    }

    #[must_use]
    pub fn is_whole(self) -> bool {
        self.start == 0 && self.width == self.field.place().width
    }
}

/// `controller(…)` with options besides the length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub max_len: u16,
    pub id: u16,
    pub reason: u8,
    pub userdata: Vec<u8>,
    pub pause: bool,
    pub meter: Option<u32>,
}

/// `ct(…)`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ct {
    pub commit: bool,
    pub force: bool,
    pub zone: CtZone,
    /// The table in which the tracked packet continues.
    pub table: Option<u8>,
    pub nat: Option<Nat>,
    /// `exec(…)`: only changes of ct_mark and ct_label.
    pub exec: Vec<Action>,
    /// The port of `alg=`: 21 for ftp, 69 for tftp, 0 without `alg=`.
    pub alg: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CtZone {
    Number(u16),
    From(Subfield),
}

impl Default for CtZone {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// `nat` within `ct(…)`. `nat` without a direction applies a connection's existing translation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nat {
    pub direction: Option<NatDirection>,
    pub addresses: Option<NatAddresses>,
    pub ports: Option<RangeInclusive<u16>>,
    pub persistent: bool,
    pub hash: bool,
    pub random: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatDirection {
    Source,
    Destination,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NatAddresses {
    V4(RangeInclusive<Ipv4Addr>),
    V6(RangeInclusive<Ipv6Addr>),
}

/// `learn(…)`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learn {
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub fin_idle_timeout: u16,
    pub fin_hard_timeout: u16,
    pub priority: u16,
    pub cookie: u64,
    pub send_flow_removed: bool,
    pub delete_learned: bool,
    pub table: u8,
    /// Maximum number of learned rules; 0 for no limit.
    pub limit: u32,
    /// The field to which the action writes whether the limit allowed the new rule.
    pub result: Option<Subfield>,
    pub specs: Vec<LearnSpec>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnSpec {
    pub source: LearnSource,
    pub destination: LearnDestination,
    pub width: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LearnSource {
    Field(Subfield),
    Value(u128),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LearnDestination {
    Match(Subfield),
    Load(Subfield),
    Output,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipath {
    pub fields: HashFields,
    pub basis: u16,
    pub algorithm: MultipathAlgorithm,
    /// The highest link number: the number of links to choose from, minus 1, as in the OpenFlow
    /// action.
    pub max_link: u16,
    pub argument: u32,
    pub destination: Subfield,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashFields {
    EthSrc,
    Symmetric,
    SymmetricL4,
    SymmetricL3L4,
    SymmetricL3L4Udp,
    NwSrc,
    NwDst,
    SymmetricL3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MultipathAlgorithm {
    ModuloN,
    HashThreshold,
    HighestRandomWeight,
    IterativeHash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    pub highest_random_weight: bool,
    pub fields: HashFields,
    pub basis: u16,
    pub destination: Option<Subfield>,
    pub members: Vec<PortNumber>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub probability: u16,
    pub collector_set: u32,
    pub observation_domain: u32,
    pub observation_point: u32,
    pub sampling_port: Option<PortNumber>,
    pub direction: SampleDirection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleDirection {
    Default,
    Ingress,
    Egress,
}
