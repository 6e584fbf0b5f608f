use super::{
    Change, ConnectionFlush, FlowEntry, FlowFilter, FlowMod, Flows, Fragments, GroupEntry,
    GroupMod, GroupStatistics, MeterEntry, MeterMod, MeterStatistics, PacketOut, PortDescription,
    PortMod, PortStatistics, Refusal, Resumption, TableEntry, TableMod,
};
use crate::port_number::PortNumber;

/// A bridge as an OpenFlow connection sees it.
pub trait Bridge {
    fn datapath_id(&self) -> u64;

    /// The name that `ovs-ofctl show` prints as `dp_desc`.
    fn description(&self) -> String;

    fn flow_mod(&mut self, change: FlowMod) -> Result<(), Refusal>;

    /// Changes all or nothing; an error names the change that was refused.
    fn commit(&mut self, changes: Vec<Change>) -> Result<(), (usize, Refusal)>;

    /// Begins to record changes of rules for monitors, those that packets make too. A change that
    /// was not recorded is in each list of rules that is made later.
    fn watch(&mut self);

    /// The rules that a filter takes now, by table, then the highest priority first.
    fn flows(&self, filter: &FlowFilter) -> Result<Flows, Refusal>;

    /// The rules that a filter takes now and that were added or changed behind the change of this
    /// number, in the order of their changes.
    fn changes(&self, filter: &FlowFilter, since: u64) -> Result<Flows, Refusal>;

    /// Whether a rule is still there, perhaps with other actions.
    fn has_flow(&self, flow: &FlowEntry) -> bool;

    /// The numbers of all tables, in their order.
    fn table_numbers(&self) -> Vec<u8>;

    fn table(&self, number: u8) -> Option<TableEntry>;

    fn table_mod(&mut self, change: &TableMod) -> Result<(), Refusal>;

    /// Gives a table a name, for people.
    fn name_table(&mut self, table: u8, name: &str) -> Result<(), Refusal>;

    /// The numbers of all ports, in their order.
    fn port_numbers(&self) -> Vec<PortNumber>;

    fn port(&self, number: PortNumber) -> Option<PortDescription>;

    /// Brings the statistics of ports up to date, before they are read one by one.
    fn settle_ports(&self) {}

    fn port_statistics(&self, number: PortNumber) -> Option<PortStatistics>;

    fn port_mod(&mut self, change: &PortMod) -> Result<(), Refusal>;

    fn group_mod(&mut self, change: GroupMod) -> Result<(), Refusal>;

    /// The number of a group if it is there, or of all if `group` is [`GroupMod::ALL`].
    fn group_numbers(&self, group: u32) -> Vec<u32>;

    fn group(&self, group: u32) -> Option<GroupEntry>;

    fn group_statistics(&self, group: u32) -> Option<GroupStatistics>;

    fn meter_mod(&mut self, change: MeterMod) -> Result<(), Refusal>;

    /// The number of a meter, or of all if `meter` is [`MeterMod::ALL`].
    fn meter_numbers(&self, meter: u32) -> Result<Vec<u32>, Refusal>;

    fn meter(&self, meter: u32) -> Option<MeterEntry>;

    fn meter_statistics(&self, meter: u32) -> Option<MeterStatistics>;

    fn packet_out(&mut self, packet: PacketOut) -> Result<(), Refusal>;

    fn fragments(&self) -> Fragments;

    fn set_fragments(&mut self, fragments: Fragments);

    /// Lets a packet continue that waited for a controller.
    fn resume(&mut self, resumption: Resumption) -> Result<(), Refusal>;

    /// Forgets tracked connections.
    fn flush_connections(&mut self, flush: &ConnectionFlush);

    /// The generation of the last election among controllers.
    fn generation(&mut self) -> &mut Option<u64>;
}
