use super::{
    Change, ConnectionFlush, FlowEntry, FlowFilter, FlowMod, Flows, Fragments, GroupEntry,
    GroupMod, GroupStatistics, MeterEntry, MeterMod, MeterStatistics, PacketOut, PortDescription,
    PortMod, PortStatistics, Refusal, Resumption, TableEntry, TableMod,
};
use crate::port_number::PortNumber;

/// A bridge as an OpenFlow connection sees it.
pub trait Bridge {
    fn datapath_id(&self) -> u64;

    /// Returns the name that `ovs-ofctl show` prints as `dp_desc`.
    fn description(&self) -> String;

    fn flow_mod(&mut self, change: FlowMod) -> Result<(), Refusal>;

    /// Makes all changes. If a change is refused, makes no change and returns the index of the
    /// refused change.
    fn commit(&mut self, changes: Vec<Change>) -> Result<(), (usize, Refusal)>;

    /// Starts to record changes of rules for monitors, including changes that packets cause. A list
    /// of rules after this call shows the effect of all earlier changes, which are not recorded.
    fn watch(&mut self);

    /// Returns the rules that match a filter now, sorted by table, then by descending priority.
    fn flows(&self, filter: &FlowFilter) -> Result<Flows, Refusal>;

    /// Returns the rules that match a filter now and whose last change is later than the change
    /// with number `since`, in the order of their changes.
    fn changes(&self, filter: &FlowFilter, since: u64) -> Result<Flows, Refusal>;

    /// Whether the bridge still has a rule. The rule's actions may have changed.
    fn has_flow(&self, flow: &FlowEntry) -> bool;

    /// Returns the numbers of all tables, in ascending order.
    fn table_numbers(&self) -> Vec<u8>;

    fn table(&self, number: u8) -> Option<TableEntry>;

    fn table_mod(&mut self, change: &TableMod) -> Result<(), Refusal>;

    /// Gives a table a name for users.
    fn name_table(&mut self, table: u8, name: &str) -> Result<(), Refusal>;

    /// Returns the numbers of all ports, in ascending order.
    fn port_numbers(&self) -> Vec<PortNumber>;

    fn port(&self, number: PortNumber) -> Option<PortDescription>;

    /// Updates the statistics of all ports. Called before the caller reads the statistics of single
    /// ports.
    fn settle_ports(&self) {}

    fn port_statistics(&self, number: PortNumber) -> Option<PortStatistics>;

    fn port_mod(&mut self, change: &PortMod) -> Result<(), Refusal>;

    fn group_mod(&mut self, change: GroupMod) -> Result<(), Refusal>;

    /// Returns the number of a group if the group exists, or the numbers of all groups if `group`
    /// is [`GroupMod::ALL`].
    fn group_numbers(&self, group: u32) -> Vec<u32>;

    fn group(&self, group: u32) -> Option<GroupEntry>;

    fn group_statistics(&self, group: u32) -> Option<GroupStatistics>;

    fn meter_mod(&mut self, change: MeterMod) -> Result<(), Refusal>;

    /// Returns the number of a meter, or the numbers of all meters if `meter` is [`MeterMod::ALL`].
    fn meter_numbers(&self, meter: u32) -> Result<Vec<u32>, Refusal>;

    fn meter(&self, meter: u32) -> Option<MeterEntry>;

    fn meter_statistics(&self, meter: u32) -> Option<MeterStatistics>;

    fn packet_out(&mut self, packet: PacketOut) -> Result<(), Refusal>;

    fn fragments(&self) -> Fragments;

    fn set_fragments(&mut self, fragments: Fragments);

    /// Continues a packet that waited for a controller.
    fn resume(&mut self, resumption: Resumption) -> Result<(), Refusal>;

    /// Removes tracked connections.
    fn flush_connections(&mut self, flush: &ConnectionFlush);

    /// Returns the generation ID of the last change of the master controller.
    fn generation(&mut self) -> &mut Option<u64>;
}
