use super::{FlowMod, GroupMod, PacketOut, PortMod};

/// A change of a bridge that may be one of many: a bundle's.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all changes are of rules")]
pub enum Change {
    Flow(FlowMod),
    Group(GroupMod),
    Port(PortMod),
    /// Finds the rules as the changes before it have left them.
    PacketOut(PacketOut),
}
