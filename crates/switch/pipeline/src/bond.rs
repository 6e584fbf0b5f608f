//! Bonds: several ports that NORMAL and mirrors use as one port.

use flow::port_number::PortNumber;

/// The present state of a bond. The switch decides which members may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bond {
    /// The members. The first one represents the bond.
    pub members: Vec<PortNumber>,
    /// The members that may send, sorted by name.
    pub enabled: Vec<PortNumber>,
    /// The member that sends all packets of an active-backup bond, and that receives multicast.
    pub active: Option<PortNumber>,
    pub balance: Balance,
    /// Part of the hash that chooses a member for a packet.
    pub basis: u32,
    /// Whether all members receive multicast.
    pub all_active: bool,
}

/// How a bond chooses a member for a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Balance {
    #[default]
    ActiveBackup,
    /// By source MAC address and VLAN.
    Slb,
    /// By the addresses and ports of the packet.
    Tcp,
}
