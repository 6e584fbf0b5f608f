//! A bridge with ports 1 to 4, and a datapath whose output the test collects.

use datapath::{Callees, Datapath, NoTracker, Settings, Sink, Tracker};
use flow::port_number::PortNumber;
use flow::request::{FlowFilter, GroupCommand, GroupMod, PacketIn, PortDescription};
use flow::step::{PortIndex, Translate};
use pipeline::{BridgePort, Tables, Translator};
use port::Frame;
use text::{PortNames, parse_filter, parse_flow_line, parse_group};
use units::Time;

pub(super) struct Bridge {
    pub(super) tables: Tables,
    pub(super) datapath: Datapath,
    pub(super) now: Time,
}

#[derive(Default)]
pub(super) struct Collected {
    pub(super) sent: Vec<(u16, Vec<u8>)>,
    pub(super) packet_ins: Vec<PacketIn>,
    /// The port, the queue and the number of frames of each transmission to a queue.
    pub(super) queued: Vec<(u16, u32, usize)>,
}

impl Sink for Collected {
    fn transmit(&mut self, port: PortIndex, frames: &mut Vec<Frame>) {
        Frame::finish_all(frames);
        self.sent.extend(frames.drain(..).map(|frame| (port.0, frame.bytes().to_vec())));
    }

    fn transmit_to_queue(&mut self, port: PortIndex, queue: u32, frames: &mut Vec<Frame>) {
        self.queued.push((port.0, queue, frames.len()));
        self.transmit(port, frames);
    }

    fn packet_in(&mut self, _: Option<u16>, packet: PacketIn) {
        self.packet_ins.push(packet);
    }
}

/// Builds tables with ports 1 to 4. The index of a port is its number.
pub(super) fn tables(rules: &[impl AsRef<str>]) -> Tables {
    let mut tables = Tables::new();
    for number in 1..=4_u16 {
        tables.insert_port(BridgePort {
            index: PortIndex(number),
            description: PortDescription {
                number: PortNumber(number.into()),
                hardware_address: [2, 0, 0, 0, 0, number as u8],
                name: format!("p{number}"),
                config: 0,
                state: 0,
                current_speed_kbit: 0,
                max_speed_kbit: 0,
            },
        });
    }
    rules.iter().for_each(|rule| add(&mut tables, rule.as_ref()));
    tables
}

/// Adds a rule, or adds or replaces a group.
pub(super) fn add(tables: &mut Tables, rule: &str) {
    if rule.starts_with("group_id=") {
        let change = parse_group(rule, GroupCommand::AddOrModify, &PortNames::none());
        let change = change.unwrap_or_else(|error| panic!("{rule}: {error}"));
        tables.group_mod(change, 0).unwrap_or_else(|refusal| panic!("{rule}: {refusal:?}"));
        return;
    }
    let change = parse_flow_line(rule, &PortNames::none());
    let change = change.unwrap_or_else(|error| panic!("{rule}: {error}"));
    tables.flow_mod(change, 0).unwrap_or_else(|refusal| panic!("{rule}: {refusal:?}"));
}

/// Returns the packets and bytes of all groups and of their buckets.
pub(super) fn group_counts(tables: &Tables) -> Vec<(u64, u64)> {
    let groups = tables.group_statistics(GroupMod::ALL, 0);
    let counts = groups.iter().flat_map(|group| {
        let buckets = group.buckets.iter().map(|bucket| (bucket.packets, bucket.bytes));
        std::iter::once((group.packets, group.bytes)).chain(buckets)
    });
    counts.collect()
}

/// Returns the packets and bytes of all rules, in the order of the tables.
pub(super) fn counts(tables: &Tables) -> Vec<(u64, u64)> {
    let filter: FlowFilter = parse_filter("", &PortNames::none()).expect("a filter");
    let flows = tables.flows(&filter, 0).expect("a valid filter");
    let mut counts: Vec<_> =
        flows.iter().map(|flow| (flow.cookie, flow.packets, flow.bytes)).collect();
    counts.sort_unstable();
    counts.into_iter().map(|(_, packets, bytes)| (packets, bytes)).collect()
}

impl Bridge {
    pub(super) fn new(rules: &[impl AsRef<str>]) -> Self {
        Self::with(tables(rules), Settings::default())
    }

    pub(super) fn with(tables: Tables, settings: Settings) -> Self {
        Self { tables, datapath: Datapath::new(settings), now: Time::ZERO }
    }

    pub(super) fn add(&mut self, rule: &str) {
        add(&mut self.tables, rule);
    }

    pub(super) fn process(&mut self, in_port: u32, frames: &[Vec<u8>]) -> Collected {
        self.process_tracked(in_port, frames, &mut NoTracker)
    }

    pub(super) fn process_tracked(
        &mut self,
        in_port: u32,
        frames: &[Vec<u8>],
        tracker: &mut impl Tracker,
    ) -> Collected {
        let frames = frames.iter().map(|bytes| Frame::from_bytes(bytes, Time::ZERO)).collect();
        self.process_frames(in_port, frames, tracker)
    }

    pub(super) fn process_frames(
        &mut self,
        in_port: u32,
        frames: Vec<Frame>,
        tracker: &mut impl Tracker,
    ) -> Collected {
        let mut frames = frames;
        let mut collected = Collected::default();
        let slow: &mut dyn Translate = &mut Translator::new(&self.tables);
        let mut callees = Callees { slow, tracker, sink: &mut collected };
        self.datapath.process(in_port, &mut frames, self.now, &mut callees);
        collected
    }

    pub(super) fn maintain(&mut self) {
        let mut callees = Callees {
            slow: &mut Translator::new(&self.tables),
            tracker: &mut NoTracker,
            sink: &mut Collected::default(),
        };
        self.datapath.maintain(self.now, &mut callees);
    }

    pub(super) fn counts(&mut self) -> Vec<(u64, u64)> {
        self.datapath.credit();
        counts(&self.tables)
    }
}
