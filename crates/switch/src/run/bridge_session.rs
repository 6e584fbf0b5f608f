use std::sync::Arc;

use flow::port_number::PortNumber;
use flow::request::TABLES;
use flow::request::{
    Bridge, Change, ConnectionFlush, FlowEntry, FlowFilter, FlowMod, Flows, Fragments, GroupEntry,
    GroupMod, GroupStatistics, MeterEntry, MeterMod, MeterStatistics, PacketOut, PortDescription,
    PortMod, PortStatistics, Refusal, Resumption, TableEntry, TableMod,
};
use flow::step::MeterId;
use pipeline::{Tables, Translator, config};
use units::Time;

use super::bridge::BridgeState;
use super::snapshots::{self, Snapshots};
use super::switch::Switch;
use super::worker::translate_packet_out;

/// The bridge's side of an OpenFlow session: answers and applies the requests of a connection.
#[derive(Debug)]
pub(super) struct BridgeSession {
    pub(super) bridge: Arc<BridgeState>,
    pub(super) switch: Arc<Switch>,
    pub(super) generation: Option<u64>,
    /// The connection whose request is being answered.
    pub(super) requester: Option<u64>,
    snapshots: Snapshots,
}

impl BridgeSession {
    pub(super) fn new(bridge: Arc<BridgeState>, switch: Arc<Switch>) -> Self {
        Self { bridge, switch, generation: None, requester: None, snapshots: Snapshots::default() }
    }

    fn now_ms(&self) -> u64 {
        self.bridge.clock.now_ms()
    }
}

impl Bridge for BridgeSession {
    fn resume(&mut self, resumption: Resumption) -> Result<(), Refusal> {
        self.switch.resume(&self.bridge, &resumption);
        Ok(())
    }

    fn generation(&mut self) -> &mut Option<u64> {
        &mut self.generation
    }

    fn datapath_id(&self) -> u64 {
        self.bridge.datapath_id()
    }

    fn description(&self) -> String {
        self.bridge.name.clone()
    }

    fn flow_mod(&mut self, change: FlowMod) -> Result<(), Refusal> {
        let now_ms = self.now_ms();
        self.bridge.tables_mut().requested(|tables| tables.flow_mod(change, now_ms))
    }

    fn commit(&mut self, changes: Vec<Change>) -> Result<(), (usize, Refusal)> {
        let now_ms = self.now_ms();
        let mut translated = Vec::new();
        self.bridge.locked(
            || self.bridge.tables_mut(),
            |mut tables, others| {
                let mut visit = |tables: &Tables, packet: &PacketOut| {
                    let translator = Translator::new(tables).with_neighbors(others);
                    translated
                        .push((packet.clone(), translate_packet_out(translator, packet, now_ms)));
                };
                tables.requested(|tables| tables.commit(&changes, now_ms, &mut visit))
            },
        )?;
        for (packet, translation) in &translated {
            self.switch.send_packet_out(&self.bridge, packet, translation);
        }
        for (index, change) in changes.iter().enumerate() {
            if let Change::Port(change) = change {
                self.port_mod(change).map_err(|refusal| (index, refusal))?;
            }
        }
        Ok(())
    }

    fn watch(&mut self) {
        // A thread whose packet changes rules holds the read lock until it has recorded the change
        // and invalidated earlier lists. After this write lock, every list of rules therefore
        // includes all changes that were not recorded.
        self.bridge.tables_mut().is_watched = true;
    }

    fn flows(&self, filter: &FlowFilter) -> Result<Flows, Refusal> {
        self.switch.credit(&self.bridge);
        self.snapshots.flows(&self.bridge.tables(), filter, &self.bridge.clock)
    }

    fn changes(&self, filter: &FlowFilter, since: u64) -> Result<Flows, Refusal> {
        snapshots::changes(&self.bridge.tables(), filter, since, &self.bridge.clock)
    }

    fn has_flow(&self, flow: &FlowEntry) -> bool {
        self.bridge.tables().has_flow(flow)
    }

    fn table_numbers(&self) -> Vec<u8> {
        // First add the megaflows' counts to the rules, because the statistics of the tables are
        // read table by table.
        self.switch.credit(&self.bridge);
        (0..TABLES).collect()
    }

    fn table(&self, number: u8) -> Option<TableEntry> {
        self.bridge.tables().table_entry(number)
    }

    fn table_mod(&mut self, change: &TableMod) -> Result<(), Refusal> {
        self.bridge.tables_mut().table_mod(change)
    }

    fn name_table(&mut self, table: u8, name: &str) -> Result<(), Refusal> {
        self.bridge.tables_mut().name_table(table, name)
    }

    fn port_numbers(&self) -> Vec<PortNumber> {
        self.bridge.tables().port_set().iter().map(|port| port.description.number).collect()
    }

    fn port(&self, number: PortNumber) -> Option<PortDescription> {
        self.bridge.port(number)?.reported()
    }

    fn settle_ports(&self) {
        self.switch.credit_patches(&self.bridge);
    }

    fn port_statistics(&self, number: PortNumber) -> Option<PortStatistics> {
        let port = self.bridge.port(number)?;
        let now = Time::from_nanos(self.bridge.clock.now_ns());
        let queues = port.queue_statistics(now);
        Some(PortStatistics { duration: port.age(now), queues, ..port.statistics() })
    }

    fn port_mod(&mut self, change: &PortMod) -> Result<(), Refusal> {
        self.bridge.tables().port_set().check(change)?;
        let Some(port) = self.bridge.port(change.number) else { return Err(Refusal::BadPort) };
        let former = port.config();
        let config = former & !change.mask | change.config & change.mask;
        let was_disabled = port.is_disabled_by_kernel();
        if change.mask & config::PORT_DOWN != 0 {
            port.enable_interface(config & config::PORT_DOWN == 0);
        }
        port.configure(config);
        if config != former || port.is_disabled_by_kernel() != was_disabled {
            self.bridge.port_configured(&port, self.requester);
        }
        Ok(())
    }

    fn group_mod(&mut self, change: GroupMod) -> Result<(), Refusal> {
        let now_ms = self.now_ms();
        self.bridge.tables_mut().requested(|tables| tables.group_mod(change, now_ms))
    }

    fn group_numbers(&self, group: u32) -> Vec<u32> {
        // First add the megaflows' counts to the groups, because the statistics are read group by
        // group.
        self.switch.credit(&self.bridge);
        self.bridge.tables().group_numbers(group)
    }

    fn group(&self, group: u32) -> Option<GroupEntry> {
        self.bridge.tables().groups(group).pop()
    }

    fn group_statistics(&self, group: u32) -> Option<GroupStatistics> {
        self.bridge.tables().group_statistics(group, self.now_ms()).pop()
    }

    fn meter_mod(&mut self, change: MeterMod) -> Result<(), Refusal> {
        let number = change.meter;
        let now_ms = self.now_ms();
        let mut tables = self.bridge.tables_mut();
        tables.requested(|tables| tables.meter_mod(change, now_ms))?;
        let now = Time::from_nanos(self.bridge.clock.now_ns());
        let meters = &self.bridge.meters;
        let id = MeterId { bridge: self.bridge.place(), meter: number };
        if number == MeterMod::ALL {
            // The number `ALL` is valid only for a deletion.
            meters.of_bridge(id.bridge).into_iter().for_each(|gone| meters.remove(gone));
        } else if let Ok([entry]) = tables.meters(number).as_deref() {
            meters.configure_at(id, entry, now);
        } else {
            meters.remove(id);
        }
        Ok(())
    }

    fn meter_numbers(&self, meter: u32) -> Result<Vec<u32>, Refusal> {
        self.bridge.tables().meter_numbers(meter)
    }

    fn meter(&self, meter: u32) -> Option<MeterEntry> {
        self.bridge.tables().meters(meter).ok()?.pop()
    }

    fn meter_statistics(&self, meter: u32) -> Option<MeterStatistics> {
        let statistics = self.bridge.tables().meter_statistics(meter, self.now_ms());
        let mut statistics = statistics.ok()?.pop()?;
        let id = MeterId { bridge: self.bridge.place(), meter };
        if let Some(counts) = self.bridge.meters.counts(id) {
            statistics.packets = counts.packets;
            statistics.bytes = counts.bytes;
            statistics.bands = counts.bands;
        }
        Some(statistics)
    }

    fn fragments(&self) -> Fragments {
        self.bridge.tables().fragments()
    }

    fn set_fragments(&mut self, fragments: Fragments) {
        self.bridge.tables_mut().set_fragments(fragments);
    }

    fn flush_connections(&mut self, flush: &ConnectionFlush) {
        let conntrack = self.switch.conntrack();
        match (flush.original, flush.reply) {
            (None, None) => conntrack.flush(flush.zone),
            (original, reply) => {
                let (original, reply) = (original.unwrap_or_default(), reply.unwrap_or_default());
                conntrack.flush_tuples(flush.zone, &original, &reply)
            }
        };
    }

    fn packet_out(&mut self, packet: PacketOut) -> Result<(), Refusal> {
        self.bridge.tables().check_packet_out(&packet)?;
        let now_ms = self.now_ms();
        let translation = self
            .bridge
            .translate(|translator, _| translate_packet_out(translator, &packet, now_ms));
        self.switch.send_packet_out(&self.bridge, &packet, &translation);
        Ok(())
    }
}
