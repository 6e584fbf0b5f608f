use super::{FlowMod, GroupMod, PacketOut, PortMod};

/// A change of a bridge, alone or in a bundle.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all changes are of rules")]
pub enum Change {
    Flow(FlowMod),
    Group(GroupMod),
    Port(PortMod),
    /// A packet-out; it is processed with the rules as the earlier changes of the bundle left them.
    PacketOut(PacketOut),
}
