use crate::Key;
use crate::action::Action;
use crate::port_number::PortNumber;

/// A packet for a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketIn {
    pub frame: Vec<u8>,
    /// The packet's length before it was cut to the controller's `max_len`.
    pub total_len: u16,
    pub reason: PacketInReason,
    pub table: u8,
    pub cookie: u64,
    pub controller: u16,
    /// The packet's metadata: in_port, registers, metadata, tunnel, connection tracking.
    pub metadata: Key,
    pub userdata: Vec<u8>,
    /// The state in which the packet waits until the controller lets it continue.
    pub continuation: Option<u32>,
}

/// A packet that a controller lets continue, perhaps changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumption {
    pub frame: Vec<u8>,
    /// In_port, registers and the like, and what tracking found.
    pub metadata: Key,
    pub state: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketInReason {
    NoMatch,
    Action,
    InvalidTtl,
    ActionSet,
    Group,
    PacketOut,
    /// The action of a table-miss rule: one of priority 0 without conditions.
    ExplicitMiss,
}

/// A packet from a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketOut {
    pub frame: Vec<u8>,
    pub in_port: PortNumber,
    /// The metadata that OpenFlow 1.5 gives beyond the port.
    pub metadata: Key,
    pub actions: Vec<Action>,
}
