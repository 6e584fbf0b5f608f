//! Bonds: ports that NORMAL and mirrors use as one.

use flow::port_number::PortNumber;

/// A bond as it is now. The switch says which of its members may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bond {
    /// The members, the first of which stands for the bond.
    pub members: Vec<PortNumber>,
    /// The members that send, in the order of their names.
    pub enabled: Vec<PortNumber>,
    /// The member that sends all packets of an active-backup bond, and that receives multicast.
    pub active: Option<PortNumber>,
    pub balance: Balance,
    /// Another basis gives other members to the same packets.
    pub basis: u32,
    /// All members receive multicast.
    pub all_active: bool,
}

/// The way in which a bond chooses the member for a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Balance {
    #[default]
    ActiveBackup,
    /// By source address and VLAN.
    Slb,
    /// By addresses and ports.
    Tcp,
}
