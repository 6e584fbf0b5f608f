//! The actions and instructions of OpenFlow rules, as one list.
//!
//! OpenFlow 1.1's instructions have their order of execution: meter, the actions that apply at
//! once, clear_actions, write_actions, write_metadata, goto_table.

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `max_len`: how many bytes of the packet the port CONTROLLER gets. A rule keeps the length
    /// for any port, but only CONTROLLER uses it.
    Output {
        port: PortNumber,
        max_len: u16,
    },
    OutputRegister {
        source: Subfield,
        max_len: u16,
    },
    OutputTruncated {
        port: PortNumber,
        max_len: u32,
    },
    Controller(Box<Controller>),
    Enqueue {
        port: PortNumber,
        queue: u32,
    },
    Group(u32),
    /// `set_field:value/mask->field`
    SetField {
        field: Field,
        value: u128,
        mask: u128,
    },
    /// `load:value->field[]`
    Load {
        destination: Subfield,
        value: u128,
    },
    /// `move:source->destination`
    Move {
        source: Subfield,
        destination: Subfield,
    },
    StackPush(Subfield),
    StackPop(Subfield),
    /// `mod_vlan_vid`: adds a tag to an untagged packet.
    SetVlanVid(u16),
    SetVlanPcp(u8),
    StripVlan,
    PushVlan(u16),
    PushMpls(u16),
    PopMpls(u16),
    SetMplsLabel(u32),
    SetMplsTc(u8),
    SetMplsTtl(u8),
    DecMplsTtl,
    SetEthSrc([u8; 6]),
    SetEthDst([u8; 6]),
    SetIpv4Src(Ipv4Addr),
    SetIpv4Dst(Ipv4Addr),
    /// `mod_nw_tos`: the two ECN bits of the value are 0.
    SetIpTos(u8),
    SetIpEcn(u8),
    SetIpTtl(u8),
    SetTpSrc(u16),
    SetTpDst(u16),
    /// `dec_ttl`: the controllers that get packets with an expired TTL; `[0]` if the rule names
    /// none.
    DecTtl(Vec<u16>),
    SetTunnel(u64),
    SetQueue(u32),
    PopQueue,
    FinTimeout {
        idle: u16,
        hard: u16,
    },
    Resubmit {
        port: Option<PortNumber>,
        table: Option<u8>,
        with_ct: bool,
    },
    Learn(Box<Learn>),
    Conjunction {
        id: u32,
        clause: u8,
        clauses: u8,
    },
    Multipath(Box<Multipath>),
    Bundle(Box<Bundle>),
    Note(Vec<u8>),
    Exit,
    Sample(Box<Sample>),
    Ct(Box<Ct>),
    CtClear,
    /// Recirculates the packet in the datapath, for tests.
    DebugRecirculate,
    /// Keeps the packets of the rule out of the datapath's cache, for tests.
    DebugSlow,
    CheckPacketLarger {
        destination: Subfield,
        length: u16,
    },
    Clone(Vec<Action>),
    Meter(u32),
    ClearActions,
    WriteActions(Vec<Action>),
    WriteMetadata {
        value: u64,
        mask: u64,
    },
    GotoTable(u8),
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
    /// The port of `alg=`: 21 for ftp, 69 for tftp, 0 for none.
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

/// `nat` within `ct(…)`; without a direction it applies a connection's existing translation.
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
    /// Maximum number of rules that the action adds; 0 for no limit.
    pub limit: u32,
    /// The field to which the action writes whether the limit allowed the rule.
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
    /// The number of links to choose from minus 1, as in the OpenFlow action.
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
