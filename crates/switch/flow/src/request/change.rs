use super::{FlowMod, GroupMod, PacketOut, PortMod};

/// A change of a bridge, alone or in a bundle.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all changes are of rules")]
pub enum Change {
    Flow(FlowMod),
    Group(GroupMod),
    Port(PortMod),
    /// A packet-out. The rules that process the packet include the earlier changes of the bundle.
    PacketOut(PacketOut),
}
