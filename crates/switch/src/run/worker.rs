use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::conntrack::{Conntrack, ThreadTracker};
use datapath::{Callees, Datapath, MAX_MEGAFLOWS, Settings, Sink, Statistics, extract};
use flow::port_number::PortNumber;
use flow::request::{PacketIn, PacketOut, Resumption};
use flow::step::{PortIndex, Translate, Translation};
use flow::{Field, Key, Megaflow};
use pipeline::Translator;
use port::Frame;
use text::{PortNames, print_datapath_key, print_steps};
use units::{Span, Time};

use super::bridge::BridgeState;
use super::clock::Clock;
use super::lacp;
use super::port_table::{PortList, PortTable};
use super::ports::SwitchPort;

/// The packet processing of all bridges on one thread.
#[derive(Debug)]
pub(super) struct Worker {
    clock: Arc<Clock>,
    conntrack: Arc<Conntrack>,
    tracker: ThreadTracker,
    outlets: Outlets,
    /// The packet processing of each bridge, by bridge index.
    bridges: Vec<Option<BridgeWorker>>,
    /// The limit of megaflows per bridge.
    limit: usize,
    /// The calls of [`Sink::transmit`] and the frames in these calls, up to the last clearing of
    /// the statistics.
    cleared: Transmissions,
}

#[derive(Debug)]
struct BridgeWorker {
    bridge: Arc<BridgeState>,
    datapath: Datapath,
}

/// The ports to which frames are sent.
#[derive(Debug)]
struct Outlets {
    table: Arc<PortTable>,
    ports: PortList,
    /// The ports with a rate limit or egress queues.
    with_rate: Vec<Arc<SwitchPort>>,
    generation: u64,
    clock: Arc<Clock>,
    now: Time,
    /// The time before which all arrived frames have been received. `None` on a thread that polls
    /// no ports.
    horizon: Option<Time>,
    transmissions: Transmissions,
}

#[derive(Debug, Clone, Copy, Default)]
struct Transmissions {
    batches: u64,
    frames: u64,
}

/// The counts of a worker, summed over all bridges.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerStatistics {
    pub(super) datapath: Statistics,
    pub(super) sent_batches: u64,
    pub(super) sent_frames: u64,
    pub(super) megaflows: usize,
}

impl Worker {
    pub(super) fn new(clock: Arc<Clock>, table: Arc<PortTable>, conntrack: Arc<Conntrack>) -> Self {
        let ports = table.ports();
        let outlets = Outlets {
            generation: u64::MAX,
            ports,
            with_rate: Vec::new(),
            clock: clock.clone(),
            now: Time::ZERO,
            horizon: None,
            table,
            transmissions: Transmissions::default(),
        };
        Self {
            clock,
            tracker: ThreadTracker::new(conntrack.clone()),
            conntrack,
            outlets,
            bridges: Vec::new(),
            limit: MAX_MEGAFLOWS,
            cleared: Transmissions::default(),
        }
    }

    /// Begins a round of polling. Until the round ends, queues with a rate limit advance at most to
    /// the start of the round.
    pub(super) fn begin_round(&mut self) {
        if self.has_rates() {
            self.outlets.horizon = Some(self.now());
        }
    }

    /// Records that the port may hold more frames, which arrived after the last frame of `frames`.
    pub(super) fn expect_more(&mut self, frames: &[Frame]) {
        if let (Some(horizon), Some(last)) = (self.outlets.horizon, frames.last()) {
            let last = self.clock.of_arrival(last.arrival(), horizon);
            self.outlets.horizon = Some(last.min(horizon));
        }
    }

    /// Processes frames that arrived on a port of the bridge.
    pub(super) fn process(
        &mut self,
        bridge: &Arc<BridgeState>,
        port: &SwitchPort,
        frames: &mut Vec<Frame>,
    ) {
        let now = self.now();
        port.police(frames, |frame| self.clock.of_arrival(frame.arrival(), now));
        if frames.is_empty() {
            return;
        }
        self.outlets.refresh(now);
        let datapath = datapath(&mut self.bridges, bridge, self.limit);
        datapath.report_installs(tracing::enabled!(tracing::Level::DEBUG));
        let mut sink = BridgeSink { bridge, outlets: &mut self.outlets };
        let mut callees =
            Callees { slow: &mut SlowPath { bridge }, tracker: &mut self.tracker, sink: &mut sink };
        datapath.process(port.number.0, frames, now, &mut callees);
        for flow in datapath.take_installs() {
            log_install(port, flow);
        }
    }

    /// Processes a packet-out.
    pub(super) fn packet_out(
        &mut self,
        bridge: &Arc<BridgeState>,
        packet: &PacketOut,
        translation: &Translation,
    ) {
        let now = self.now();
        self.execute(bridge, packet.in_port.0, &packet.frame, translation, now);
    }

    /// Runs datapath steps for a single frame.
    fn execute(
        &mut self,
        bridge: &Arc<BridgeState>,
        port: u32,
        frame: &[u8],
        translation: &Translation,
        now: Time,
    ) {
        self.outlets.refresh(now);
        let datapath = datapath(&mut self.bridges, bridge, self.limit);
        let mut sink = BridgeSink { bridge, outlets: &mut self.outlets };
        let mut callees =
            Callees { slow: &mut SlowPath { bridge }, tracker: &mut self.tracker, sink: &mut sink };
        let frame = Frame::from_bytes(frame, Time::ZERO);
        datapath.execute(port, frame, translation, now, &mut callees);
    }

    /// Resumes a packet that waited for a controller.
    pub(super) fn resume(&mut self, bridge: &Arc<BridgeState>, resumption: &Resumption) {
        let now = self.now();
        let port = resumption.metadata.read(Field::InPort) as u32;
        let key = extract(port, &resumption.frame);
        let now_ms = now.nanos() / NANOS_PER_MS;
        let translation =
            bridge.translate(|translator, _| translator.resume(resumption, &key, now_ms));
        match translation {
            Some(translation) => {
                self.execute(bridge, port, &resumption.frame, &translation, now);
            }
            None => tracing::warn!(
                "bridge {}: a controller lets a packet continue that waits no more",
                bridge.name
            ),
        }
    }

    /// Does the regular maintenance of all bridges.
    pub(super) fn maintain(&mut self) {
        let now = self.now();
        self.outlets.refresh(now);
        self.conntrack.expire(now);
        for worker in self.bridges.iter_mut().flatten() {
            let bridge = &worker.bridge;
            let mut sink = BridgeSink { bridge, outlets: &mut self.outlets };
            let mut callees = Callees {
                slow: &mut SlowPath { bridge },
                tracker: &mut self.tracker,
                sink: &mut sink,
            };
            worker.datapath.maintain(now, &mut callees);
        }
    }

    /// Whether any port has a rate.
    pub(super) fn has_rates(&self) -> bool {
        !self.outlets.with_rate.is_empty()
    }

    /// Sends the queued frames that may leave now. Returns the time until a further frame may
    /// leave.
    pub(super) fn release(&mut self) -> Option<Span> {
        let now = self.now();
        let horizon = self.outlets.horizon.unwrap_or(now);
        let mut next: Option<Time> = None;
        for port in &self.outlets.with_rate {
            // An error is ignored here: the next receive or send reports a missing device.
            if let Ok(Some(time)) = port.release(horizon) {
                next = Some(next.map_or(time, |next| next.min(time)));
            }
        }
        next.map(|next| next.since(now))
    }

    /// Adds the packet counts of a bridge's megaflows to the counters of their rules.
    pub(super) fn credit(&mut self, bridge: usize) {
        if let Some(worker) = self.bridges.get_mut(bridge).and_then(Option::as_mut) {
            worker.datapath.credit();
        }
    }

    pub(super) fn megaflows(&self, bridge: usize) -> Vec<Megaflow> {
        let worker = self.bridges.get(bridge).and_then(Option::as_ref);
        worker.map(|worker| worker.datapath.megaflows().collect()).unwrap_or_default()
    }

    /// Removes the megaflows of all bridges.
    pub(super) fn clear_megaflows(&mut self) {
        self.bridges.iter_mut().flatten().for_each(|worker| worker.datapath.clear());
    }

    /// Limits the megaflows of each bridge.
    pub(super) fn limit_megaflows(&mut self, limit: usize) {
        self.limit = limit;
        let workers = self.bridges.iter_mut().flatten();
        workers.for_each(|worker| worker.datapath.limit_megaflows(limit));
    }

    pub(super) fn forget_bridge(&mut self, bridge: usize) {
        if let Some(worker) = self.bridges.get_mut(bridge) {
            *worker = None;
        }
    }

    /// Drops the references to removed ports.
    pub(super) fn forget_ports(&mut self) {
        let now = self.now();
        self.outlets.refresh(now);
    }

    pub(super) fn statistics(&self) -> WorkerStatistics {
        let mut total = WorkerStatistics::default();
        for worker in self.bridges.iter().flatten() {
            add(&mut total.datapath, worker.datapath.statistics());
        }
        let Transmissions { batches, frames } = self.outlets.transmissions;
        total.sent_batches = batches - self.cleared.batches;
        total.sent_frames = frames - self.cleared.frames;
        total.megaflows = self.megaflow_count();
        total
    }

    /// Returns the number of megaflows of all bridges.
    pub(super) fn megaflow_count(&self) -> usize {
        self.bridges.iter().flatten().map(|worker| worker.datapath.len()).sum()
    }

    pub(super) fn clear_statistics(&mut self) {
        self.bridges.iter_mut().flatten().for_each(|worker| worker.datapath.clear_statistics());
        self.cleared = self.outlets.transmissions;
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.now_ns())
    }
}

fn datapath<'a>(
    bridges: &'a mut Vec<Option<BridgeWorker>>,
    bridge: &Arc<BridgeState>,
    limit: usize,
) -> &'a mut Datapath {
    if bridges.len() <= bridge.index {
        bridges.resize_with(bridge.index + 1, || None);
    }
    let new = || {
        let meters = bridge.meters.clone();
        let settings = Settings { meters, ticks: host::cycles, ..Settings::default() };
        let mut datapath = Datapath::new(settings);
        datapath.limit_megaflows(limit);
        BridgeWorker { bridge: bridge.clone(), datapath }
    };
    &mut bridges[bridge.index].get_or_insert_with(new).datapath
}

/// Translates a packet-out.
pub(super) fn translate_packet_out(
    translator: Translator<'_>,
    packet: &PacketOut,
    now_ms: u64,
) -> Translation {
    let key = extract(packet.in_port.0, &packet.frame);
    translator.packet_out(packet, &key, now_ms)
}

/// Logs a new megaflow in Open vSwitch's format, with all fields of its first packet.
fn log_install(port: &SwitchPort, mut flow: Megaflow) {
    flow.key.write(Field::InPort, port.index.0.into());
    let key = print_datapath_key(&flow.key, &flow.mask);
    let steps = print_steps(&flow.steps, &flow.key, &PortNames::none());
    tracing::debug!("flow_add: {key}, actions:{steps}");
}

/// The pipeline of a bridge and of the bridges that patch ports reach. A translation locks the
/// tables, so packets that need no translation take no lock.
struct SlowPath<'a> {
    bridge: &'a BridgeState,
}

impl Translate for SlowPath<'_> {
    fn translate(&mut self, key: &Key, frame: &[u8], now_ms: u64) -> Translation {
        // A packet that continues after a recirculation is not a newly arrived frame.
        if key.read(Field::EthType) as u16 == lacp::ETHER_TYPE
            && key.read(Field::RecircId) == 0
            && self.bridge.has_lacp()
        {
            self.bridge.lacp_received(PortNumber(key.read(Field::InPort) as u32), frame);
        }
        let mut translation =
            self.bridge.translate(|mut translator, _| translator.translate(key, frame, now_ms));
        if self.bridge.is_exact.load(Ordering::Relaxed) {
            translation.mask = Key { words: [u64::MAX; flow::WORDS] };
        }
        translation
    }

    fn generation(&self) -> u64 {
        self.bridge.generation()
    }
}

struct BridgeSink<'a> {
    bridge: &'a BridgeState,
    outlets: &'a mut Outlets,
}

impl Sink for BridgeSink<'_> {
    fn transmit(&mut self, port: PortIndex, frames: &mut Vec<Frame>) {
        self.transmit_to_queue(port, 0, frames);
    }

    fn transmit_to_queue(&mut self, port: PortIndex, queue: u32, frames: &mut Vec<Frame>) {
        self.outlets.transmissions.batches += 1;
        self.outlets.transmissions.frames += frames.len() as u64;
        let Outlets { clock, now, horizon, ports, .. } = &*self.outlets;
        let arrival = |frame: &Frame| clock.of_arrival(frame.arrival(), *now);
        let Some(port) = ports.get(usize::from(port.0)).and_then(Option::as_ref) else { return };
        if let Err(error) = port.send(queue, frames, arrival, horizon.unwrap_or(*now)) {
            tracing::warn!("port {}: {error}; the other ports go on", port.name);
            self.port_changed(port);
        }
    }

    fn packet_in(&mut self, bridge: Option<u16>, packet: PacketIn) {
        match bridge {
            None => self.bridge.packet_in(packet),
            Some(place) => {
                let neighbors = self.bridge.neighbors();
                // A removed bridge has no controllers.
                if let Some(bridge) = neighbors.iter().find(|bridge| bridge.place() == place) {
                    bridge.packet_in(packet);
                }
            }
        }
    }
}

impl BridgeSink<'_> {
    /// Reports a change of a port. The port may belong to another bridge that patch ports reach.
    fn port_changed(&self, port: &SwitchPort) {
        if port.bridge == self.bridge.index {
            return self.bridge.port_changed(port);
        }
        let neighbors = self.bridge.neighbors();
        if let Some(bridge) = neighbors.iter().find(|bridge| bridge.index == port.bridge) {
            bridge.port_changed(port);
        }
    }
}

impl WorkerStatistics {
    pub(super) fn add(&mut self, other: &Self) {
        add(&mut self.datapath, &other.datapath);
        self.sent_batches += other.sent_batches;
        self.sent_frames += other.sent_frames;
        self.megaflows += other.megaflows;
    }
}

fn add(total: &mut Statistics, more: &Statistics) {
    let pairs = [
        (&mut total.received, more.received),
        (&mut total.recirculated, more.recirculated),
        (&mut total.batches, more.batches),
        (&mut total.megaflow_hits, more.megaflow_hits),
        (&mut total.masks_probed, more.masks_probed),
        (&mut total.upcalls, more.upcalls),
        (&mut total.revalidated, more.revalidated),
        (&mut total.dropped, more.dropped),
        (&mut total.dropped_by_meter, more.dropped_by_meter),
        (&mut total.dropped_by_tracker, more.dropped_by_tracker),
        (&mut total.dropped_by_depth, more.dropped_by_depth),
        (&mut total.sent, more.sent),
        (&mut total.packet_ins, more.packet_ins),
        (&mut total.expired, more.expired),
        (&mut total.stages.packets, more.stages.packets),
        (&mut total.stages.parse, more.stages.parse),
        (&mut total.stages.cache, more.stages.cache),
        (&mut total.stages.classifier, more.stages.classifier),
        (&mut total.stages.conntrack, more.stages.conntrack),
        (&mut total.stages.actions, more.stages.actions),
        (&mut total.stages.transmit, more.stages.transmit),
    ];
    for (sum, more) in pairs {
        *sum += more;
    }
}

impl Outlets {
    fn refresh(&mut self, now: Time) {
        self.now = now;
        let generation = self.table.generation();
        if generation != self.generation {
            self.ports = self.table.ports();
            let with_rate = self.ports.iter().flatten().filter(|port| port.holds_frames());
            self.with_rate = with_rate.cloned().collect();
            self.generation = generation;
        }
    }
}

const NANOS_PER_MS: u64 = 1_000_000;
