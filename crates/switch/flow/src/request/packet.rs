use crate::Key;
use crate::action::Action;
use crate::port_number::PortNumber;

/// A packet-in for a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketIn {
    pub frame: Vec<u8>,
    /// The packet's length before truncation to the controller's `max_len`.
    pub total_len: u16,
    pub reason: PacketInReason,
    pub table: u8,
    pub cookie: u64,
    pub controller: u16,
    /// The packet's metadata: in_port, registers, metadata, tunnel, connection tracking.
    pub metadata: Key,
    pub userdata: Vec<u8>,
    /// The number of the state in which the packet waits until the controller resumes it.
    pub continuation: Option<u32>,
}

/// A packet that a controller resumes, perhaps after changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumption {
    pub frame: Vec<u8>,
    /// The metadata: in_port, registers and other metadata fields, and the results of connection
    /// tracking.
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
    /// The action of a table-miss rule: a rule of priority 0 that matches every packet.
    ExplicitMiss,
}

/// A packet-out of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketOut {
    pub frame: Vec<u8>,
    pub in_port: PortNumber,
    /// The metadata that an OpenFlow 1.5 controller gives besides the port.
    pub metadata: Key,
    pub actions: Vec<Action>,
}
