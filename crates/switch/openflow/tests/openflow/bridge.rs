//! A bridge that only stores rules, groups and meters.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use flow::action::Action;
use flow::port_number::PortNumber;
use flow::request::{
    BucketStatistics, Change, ConnectionFlush, FlowCommand, FlowEntry, FlowFilter, FlowMod, Flows,
    Fragments, GroupCommand, GroupEntry, GroupMod, GroupStatistics, MeterCommand, MeterEntry,
    MeterMod, MeterStatistics, PacketOut, PortDescription, PortMod, PortStatistics,
    QueueStatistics, Refusal, Resumption, TableConfig, TableEntry, TableMod,
};
use openflow::{FlowChange, FlowRemovedReason};

#[derive(Debug, Default, Clone)]
pub(crate) struct Bridge {
    pub(crate) flows: Vec<FlowEntry>,
    pub(crate) groups: Vec<GroupEntry>,
    pub(crate) meters: Vec<MeterEntry>,
    pub(crate) packets: Vec<PacketOut>,
    pub(crate) port_config: [u32; 3],
    pub(crate) generation: Option<u64>,
    pub(crate) fragments: Fragments,
    /// The names of tables that requests have set.
    pub(crate) names: HashMap<u8, String>,
    pub(crate) flushes: Vec<ConnectionFlush>,
    /// All changes of rules, as monitors get them.
    pub(crate) events: Vec<(FlowChange, FlowEntry)>,
    pub(crate) is_watched: bool,
    /// Whether a request listed rules before the bridge was told to record changes.
    pub(crate) has_listed_unwatched: Cell<bool>,
}

impl Bridge {
    fn change(&mut self, change: FlowMod) -> Result<(), Refusal> {
        match change.command {
            FlowCommand::Add => self.add(change),
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                let mut found = false;
                for flow in &mut self.flows {
                    if is_changed(flow, &change) {
                        found = true;
                        flow.actions.clone_from(&change.actions);
                        flow.cookie = change.cookie.unwrap_or(flow.cookie);
                        flow.changed = self.events.len() as u64 + 1;
                        self.events.push((FlowChange::Modified, flow.clone()));
                    }
                }
                if !found && change.cookie_filter.mask == 0 && change.cookie.is_some() {
                    self.add(change);
                }
            }
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                let events = &mut self.events;
                self.flows.retain(|flow| {
                    let is_gone = is_changed(flow, &change);
                    if is_gone {
                        let reason = FlowRemovedReason::Delete;
                        events.push((FlowChange::Deleted(reason), flow.clone()));
                    }
                    !is_gone
                });
            }
        }
        Ok(())
    }

    fn add(&mut self, change: FlowMod) {
        let table = change.table.unwrap_or(0);
        self.flows.retain(|flow| {
            flow.table != table
                || flow.priority != change.priority
                || flow.matching != change.matching
        });
        let flow = FlowEntry {
            table,
            priority: change.priority,
            cookie: change.cookie.unwrap_or(0),
            matching: change.matching,
            actions: change.actions,
            idle_timeout: change.idle_timeout,
            hard_timeout: change.hard_timeout,
            importance: change.importance,
            flags: change.flags,
            duration: Duration::from_millis(1500),
            idle_age: Duration::from_secs(1),
            hard_age: Duration::from_secs(1),
            packets: 7,
            bytes: 420,
            added: self.events.len() as u64 + 1,
            changed: self.events.len() as u64 + 1,
        };
        self.events.push((FlowChange::Added, flow.clone()));
        self.flows.push(flow);
    }
}

impl flow::request::Bridge for Bridge {
    fn resume(&mut self, _: Resumption) -> Result<(), Refusal> {
        Ok(())
    }

    fn fragments(&self) -> Fragments {
        self.fragments
    }

    fn set_fragments(&mut self, fragments: Fragments) {
        self.fragments = fragments;
    }

    fn generation(&mut self) -> &mut Option<u64> {
        &mut self.generation
    }

    fn datapath_id(&self) -> u64 {
        0x00aa_bbcc_ddee
    }

    fn description(&self) -> String {
        "br0".into()
    }

    fn flow_mod(&mut self, change: FlowMod) -> Result<(), Refusal> {
        self.change(change)
    }

    fn commit(&mut self, changes: Vec<Change>) -> Result<(), (usize, Refusal)> {
        let mut next = self.clone();
        for (index, change) in changes.into_iter().enumerate() {
            let outcome = match change {
                Change::Flow(change) if change.table == Some(200) => Err(Refusal::BadTable),
                Change::Flow(change) => next.change(change),
                Change::Group(change) => next.group_mod(change),
                Change::Port(change) => next.port_mod(&change),
                Change::PacketOut(packet) => next.packet_out(packet),
            };
            outcome.map_err(|refusal| (index, refusal))?;
        }
        *self = next;
        Ok(())
    }

    fn watch(&mut self) {
        self.is_watched = true;
    }

    fn flows(&self, filter: &FlowFilter) -> Result<Flows, Refusal> {
        self.has_listed_unwatched.set(!self.is_watched);
        let flows = self.flows.iter().filter(|flow| is_listed(flow, filter));
        Ok(flows.cloned().collect::<Vec<_>>().into())
    }

    fn changes(&self, filter: &FlowFilter, since: u64) -> Result<Flows, Refusal> {
        let is_changed = |flow: &FlowEntry| flow.changed > since;
        let mut flows: Vec<_> = self.flows(filter)?.filter(is_changed).collect();
        flows.sort_by_key(|flow| flow.changed);
        Ok(flows.into())
    }

    fn has_flow(&self, flow: &FlowEntry) -> bool {
        self.flows.iter().any(|known| {
            (known.table, known.priority, known.added) == (flow.table, flow.priority, flow.added)
                && known.matching == flow.matching
        })
    }

    fn table_numbers(&self) -> Vec<u8> {
        (0..254).collect()
    }

    fn table(&self, number: u8) -> Option<TableEntry> {
        Some(TableEntry {
            table: number,
            name: self.names.get(&number).cloned().unwrap_or_default(),
            active: self.flows.iter().filter(|flow| flow.table == number).count() as u32,
            lookups: 11,
            matched: 5,
            max_entries: 1_000_000,
            config: TableConfig::default(),
            vacancy: 100,
        })
    }

    fn table_mod(&mut self, _: &TableMod) -> Result<(), Refusal> {
        Ok(())
    }

    fn name_table(&mut self, table: u8, name: &str) -> Result<(), Refusal> {
        self.names.insert(table, name.to_owned());
        Ok(())
    }

    fn port_numbers(&self) -> Vec<PortNumber> {
        PORTS.iter().map(|(number, _)| *number).collect()
    }

    fn port(&self, number: PortNumber) -> Option<PortDescription> {
        let index = PORTS.iter().position(|(known, _)| *known == number)?;
        Some(PortDescription {
            number,
            hardware_address: [2, 0, 0, 0, 0, number.0 as u8],
            name: PORTS[index].1.into(),
            config: self.port_config[index],
            state: 4,
            current_speed_kbit: 10_000_000,
            max_speed_kbit: 10_000_000,
        })
    }

    fn port_statistics(&self, number: PortNumber) -> Option<PortStatistics> {
        (1..=2).contains(&number.0).then(|| PortStatistics {
            number: number.0,
            received_packets: 100,
            received_bytes: 6400,
            sent_packets: 50,
            sent_bytes: 3200,
            received_dropped: Some(0),
            received_errors: Some(0),
            sent_dropped: Some(3),
            sent_errors: Some(0),
            queues: if number.0 == 2 { queues() } else { Vec::new() },
            duration: Duration::from_secs(9),
            ..PortStatistics::default()
        })
    }

    fn port_mod(&mut self, change: &PortMod) -> Result<(), Refusal> {
        let index = match change.number.0 {
            number @ 1..=2 => number as usize - 1,
            _ => return Err(Refusal::BadPort),
        };
        self.port_config[index] = self.port_config[index] & !change.mask | change.config;
        Ok(())
    }

    fn group_mod(&mut self, change: GroupMod) -> Result<(), Refusal> {
        let exists = self.groups.iter().any(|group| group.group == change.group);
        match change.command {
            GroupCommand::Add if exists => return Err(Refusal::GroupExists),
            GroupCommand::Modify if !exists => return Err(Refusal::UnknownGroup),
            GroupCommand::Delete if change.group == GroupMod::ALL => self.groups.clear(),
            GroupCommand::Delete => self.groups.retain(|group| group.group != change.group),
            GroupCommand::InsertBucket | GroupCommand::RemoveBucket => {
                let group = self.groups.iter_mut().find(|group| group.group == change.group);
                let group = group.ok_or(Refusal::UnknownGroup)?;
                if change.command == GroupCommand::InsertBucket {
                    group.buckets.extend(change.buckets);
                } else {
                    group.buckets.retain(|bucket| bucket.id != change.bucket);
                }
            }
            _ => {
                self.groups.retain(|group| group.group != change.group);
                self.groups.push(GroupEntry {
                    group: change.group,
                    kind: change.kind,
                    buckets: change.buckets,
                    selection: change.selection,
                });
            }
        }
        Ok(())
    }

    fn group_numbers(&self, group: u32) -> Vec<u32> {
        let numbers = self.groups.iter().map(|entry| entry.group);
        numbers.filter(|number| group == GroupMod::ALL || *number == group).collect()
    }

    fn group(&self, group: u32) -> Option<GroupEntry> {
        self.groups.iter().find(|entry| entry.group == group).cloned()
    }

    fn group_statistics(&self, group: u32) -> Option<GroupStatistics> {
        let group = self.group(group)?;
        Some(GroupStatistics {
            group: group.group,
            references: 1,
            packets: 4,
            bytes: 240,
            duration: Duration::from_secs(3),
            buckets: vec![BucketStatistics { packets: 2, bytes: 120 }; group.buckets.len()],
        })
    }

    fn meter_mod(&mut self, change: MeterMod) -> Result<(), Refusal> {
        let exists = self.meters.iter().any(|meter| meter.meter == change.meter);
        match change.command {
            MeterCommand::Add if exists => return Err(Refusal::MeterExists),
            MeterCommand::Modify if !exists => return Err(Refusal::UnknownMeter),
            MeterCommand::Delete if change.meter == MeterMod::ALL => self.meters.clear(),
            MeterCommand::Delete => self.meters.retain(|meter| meter.meter != change.meter),
            _ => {
                self.meters.retain(|meter| meter.meter != change.meter);
                self.meters.push(MeterEntry {
                    meter: change.meter,
                    is_in_packets: change.is_in_packets,
                    has_burst: change.has_burst,
                    has_statistics: change.has_statistics,
                    bands: change.bands,
                });
            }
        }
        Ok(())
    }

    fn meter_numbers(&self, meter: u32) -> Result<Vec<u32>, Refusal> {
        let numbers = self.meters.iter().map(|entry| entry.meter);
        Ok(numbers.filter(|number| meter == MeterMod::ALL || *number == meter).collect())
    }

    fn meter(&self, meter: u32) -> Option<MeterEntry> {
        self.meters.iter().find(|entry| entry.meter == meter).cloned()
    }

    fn meter_statistics(&self, meter: u32) -> Option<MeterStatistics> {
        let meter = self.meter(meter)?;
        Some(MeterStatistics {
            meter: meter.meter,
            flows: 1,
            packets: 8,
            bytes: 480,
            duration: Duration::from_secs(5),
            bands: vec![(1, 60); meter.bands.len()],
        })
    }

    fn flush_connections(&mut self, flush: &ConnectionFlush) {
        self.flushes.push(*flush);
    }

    fn packet_out(&mut self, packet: PacketOut) -> Result<(), Refusal> {
        self.packets.push(packet);
        Ok(())
    }
}

fn is_changed(flow: &FlowEntry, change: &FlowMod) -> bool {
    let is_strict = matches!(change.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
    change.table.is_none_or(|table| table == flow.table)
        && change.cookie_filter.takes(flow.cookie)
        && (change.out_port == PortNumber::NONE || sends_to(flow, change.out_port))
        && match is_strict {
            true => flow.priority == change.priority && flow.matching == change.matching,
            false => flow.matching.is_within(&change.matching),
        }
}

fn is_listed(flow: &FlowEntry, filter: &FlowFilter) -> bool {
    filter.table.is_none_or(|table| table == flow.table)
        && filter.cookie.takes(flow.cookie)
        && flow.matching.is_within(&filter.matching)
        && (filter.out_port == PortNumber::NONE || sends_to(flow, filter.out_port))
}

fn sends_to(flow: &FlowEntry, wanted: PortNumber) -> bool {
    let mut actions = flow.actions.iter();
    actions.any(|action| matches!(action, Action::Output { port, .. } if *port == wanted))
}

/// The numbers and names of the ports. The bridge's own port has no counters.
const PORTS: [(PortNumber, &str); 3] =
    [(PortNumber(1), "p1"), (PortNumber(2), "p2"), (PortNumber::LOCAL, "br0")];

/// The egress queues of port 2.
fn queues() -> Vec<QueueStatistics> {
    let queue = |queue, sent_packets| QueueStatistics {
        queue,
        sent_packets,
        sent_bytes: sent_packets * 64,
        dropped: sent_packets / 5,
        duration: Duration::from_secs(9),
    };
    vec![queue(1, 10), queue(7, 0)]
}
