//! Mirrors: copies of the packets of ports for another port or VLAN.

use flow::port_number::PortNumber;

/// A mirror of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The ports whose received packets are copied.
    pub sources: MirroredPorts,
    /// The ports whose sent packets are copied.
    pub destinations: MirroredPorts,
    /// The VLANs whose packets are copied; an empty list means all VLANs.
    pub vlans: Vec<u16>,
    pub output: MirrorOutput,
    /// Maximum length of a copy, in bytes.
    pub snap_length: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirroredPorts {
    All,
    Some(Vec<PortNumber>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorOutput {
    Port(PortNumber),
    /// Copies leave by all ports that carry this VLAN.
    Vlan(u16),
}

impl MirroredPorts {
    #[must_use]
    pub fn takes(&self, port: PortNumber) -> bool {
        match self {
            Self::All => true,
            Self::Some(ports) => ports.contains(&port),
        }
    }
}

impl Mirror {
    /// Maximum number of mirrors of a bridge, as in Open vSwitch.
    pub const MOST: usize = 32;

    #[must_use]
    pub fn takes_vlan(&self, vlan: u16) -> bool {
        self.vlans.is_empty() || self.vlans.contains(&vlan)
    }
}
