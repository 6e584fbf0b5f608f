mod first_data;
mod tunnels;

pub use first_data::FIRST_DATA_WITHIN;

use crate::connection::{Connection, Record};
use crate::event::{Event, EventKind};
use crate::line::Line;
use crate::outcome::{FlowCount, PacketBalance, QueuePoint};
use crate::packet::{Flags, Kind, Packet, Sacks, Tag};
use crate::routes::Routes;
use crate::source::Source;
use crate::tcp::{Identity, Receiver, Sender};
use crate::trace::Trace;
use crate::tunnel::{CLIENT, Datagrams, Tunnel};
use crate::wheel::Wheel;
use crate::{Demand, End, FlowSpec, LinkId, Outcome, SimError, Topology, Traffic, TunnelSpec};
use link::LinkStats;
use std::time::Instant;
use units::{Bytes, Span, Time};

/// The configuration of a world besides its network and its flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldConfig {
    /// The seed of every random stream in the world.
    pub seed: u64,
    /// The latest end of the world.
    pub until: Time,
    /// The time at which the measurement begins. With [`Time::NEVER`], [`World::measure_between`]
    /// begins the measurement.
    pub measure_from: Time,
    /// The end of the opening, in which the world records the peaks of the queues separately.
    pub opening_until: Time,
    /// The number of events after which the world ends at the latest.
    pub max_events: u64,
    /// The interval between points of traces.
    pub sample_every: Span,
    /// Maximum number of points that a trace keeps; at least 2.
    pub sample_limit: usize,
    /// The links whose queues are traced.
    pub traced: Vec<LinkId>,
    /// Tunnels that carry flows.
    pub tunnels: Vec<TunnelSpec>,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            until: Time::ZERO + Span::from_secs(10),
            measure_from: Time::ZERO,
            opening_until: Time::ZERO,
            max_events: u64::MAX,
            sample_every: Span::from_millis(10),
            sample_limit: 4096,
            traced: Vec::new(),
            tunnels: Vec::new(),
        }
    }
}

/// A network in virtual time. Events happen in the order of their times, and events of one time in
/// the order of their insertion. A world therefore depends only on its inputs.
#[derive(Debug)]
pub struct World {
    config: WorldConfig,
    topology: Topology,
    specs: Vec<FlowSpec>,
    now: Time,
    events: u64,
    wheel: Wheel<Event>,
    /// The next event, already taken from the wheel.
    next: Option<(Time, Event)>,
    end: Option<End>,
    routes: Routes,
    /// The indices in the table of routes at which each flow's forward and return paths begin.
    ways: Vec<(u32, u32)>,
    lines: Vec<Line>,
    /// The time of each line's next event in the wheel.
    awaited: Vec<Time>,
    /// The flows' connections by number, followed by the connections from tunnel servers to
    /// applications.
    connections: Vec<Option<Box<Connection>>>,
    /// For each flow, the connection that ends at the receiving application.
    arriving: Vec<u32>,
    tunnels: Vec<Tunnel>,
    datagrams: Datagrams,
    /// The datagrams of one transmit.
    buffer: Vec<u8>,
    /// The start of the tunnels' clocks.
    epoch: Instant,
    records: Vec<Record>,
    /// The number of flows that must finish by themselves and have not.
    unfinished: usize,
    /// The number of flows that begin together and are not connected.
    opening: usize,
    /// The number of flows that have not stopped.
    active: usize,
    out: Vec<Packet>,
    balance: PacketBalance,
    queues: Vec<(LinkId, Trace<QueuePoint>)>,
    /// The links' statistics when the measurement began.
    before: Vec<Option<LinkStats>>,
    policed_before: Vec<u64>,
    counts_before: Vec<FlowCount>,
    opening_peaks: Vec<(LinkId, Bytes)>,
}

impl World {
    /// Creates a world at time zero. Fails if a link, a flow, a tunnel or a setting is invalid, or
    /// if no path joins the ends of a flow.
    pub fn new(
        topology: &Topology,
        flows: Vec<FlowSpec>,
        config: WorldConfig,
    ) -> Result<Self, SimError> {
        check_size("flows", flows.len())?;
        check_size("links", topology.link_specs().len())?;
        for (index, flow) in flows.iter().enumerate() {
            check_flow(topology, &config, index, flow)?;
        }
        let nodes = topology.len() as u32;
        let topology = &tunnels::with_applications(topology, &config)?;
        let link_specs = topology.link_specs();
        let mut lines = Vec::with_capacity(link_specs.len());
        for (index, link_spec) in link_specs.iter().enumerate() {
            let seed = link::mix(config.seed ^ link::mix(index as u64 + 1));
            let changes = topology.changes_later(index);
            let line = Line::new(&link_spec.config, &link_spec.conditions, changes, seed)
                .map_err(|source| SimError::Link { name: link_spec.name.clone(), source })?;
            lines.push(line);
        }
        for change in topology.changes() {
            let named = |source| {
                let name =
                    link_specs.get(change.link.0 as usize).map(|link_spec| link_spec.name.clone());
                SimError::Link { name: name.unwrap_or_default(), source }
            };
            change.config.validate().map_err(named)?;
        }
        let mut routes = Routes::new(topology.len(), link_specs);
        let mut ways = Vec::with_capacity(flows.len());
        let mut wheel = Wheel::new();
        for (index, flow) in flows.iter().enumerate() {
            let hash = link::mix(config.seed ^ link::mix(index as u64 + 1).rotate_left(17));
            let (from, to) = match flow.traffic {
                Traffic::Tunnelled { tunnel, .. } => {
                    (tunnels::application(nodes, tunnel, CLIENT), flow.from)
                }
                _ => (flow.from, flow.to),
            };
            let there = routes.way(link_specs, from, to, hash)?;
            let back = routes.way(link_specs, to, from, !hash)?;
            ways.push((there, back));
            wheel.push(flow.start, Event::new(EventKind::Start, index));
            if let Some(stop) = flow.stop {
                wheel.push(stop, Event::new(EventKind::Stop, index));
            }
        }
        let new_tunnels =
            tunnels::NewTunnels::new((nodes, link_specs), &flows, &config, &mut routes, &mut ways)?;
        for (index, tunnel) in config.tunnels.iter().enumerate() {
            wheel.push(tunnel.start, Event::new(EventKind::Tunnel, 2 * index + CLIENT));
        }
        if config.measure_from != Time::NEVER {
            wheel.push(config.measure_from, Event::new(EventKind::Measure, 0));
        }
        if config.opening_until > Time::ZERO {
            wheel.push(config.opening_until, Event::new(EventKind::Opened, 0));
        }
        for (index, change) in topology.changes().iter().enumerate() {
            wheel.push(change.at, Event::new(EventKind::Change, index));
        }
        let queues: Vec<_> =
            config.traced.iter().map(|id| (*id, Trace::new(config.sample_limit))).collect();
        if config.sample_every > Span::ZERO
            && (!queues.is_empty() || flows.iter().any(|f| f.traced))
        {
            wheel.push(Time::ZERO, Event::new(EventKind::Sample, 0));
        }
        let records =
            flows.iter().map(|flow| Record::new(flow.traced, config.sample_limit)).collect();
        let ways_count = ways.len();
        Ok(Self {
            topology: topology.clone(),
            now: Time::ZERO,
            events: 0,
            wheel,
            next: None,
            end: None,
            routes,
            ways,
            awaited: vec![Time::NEVER; lines.len()],
            before: Vec::new(),
            policed_before: Vec::new(),
            counts_before: Vec::new(),
            opening_peaks: Vec::new(),
            lines,
            connections: (0..ways_count).map(|_| None).collect(),
            arriving: new_tunnels.arriving,
            tunnels: new_tunnels.tunnels,
            datagrams: Datagrams::new(tunnels::duplicates(topology)),
            buffer: Vec::new(),
            epoch: new_tunnels.epoch,
            records,
            unfinished: flows.iter().filter(|flow| flow.finishes()).count(),
            opening: flows.iter().filter(|flow| flow.begins_together()).count(),
            active: flows.len(),
            out: Vec::new(),
            balance: PacketBalance::default(),
            queues,
            specs: flows,
            config,
        })
    }

    /// Runs to the end, and returns the results.
    pub fn run(mut self) -> Outcome {
        let end = self.run_until(self.config.until).unwrap_or(End::TimeUp);
        self.now = match end {
            End::TimeUp | End::Unfinished { .. } => self.config.until,
            _ => self.now,
        };
        self.outcome(end)
    }

    /// Runs to `from`, measures from there, and ends at `until`. Serves a world whose measurement
    /// begins at an event of the world, so that its time could not be configured.
    pub fn measure_between(mut self, from: Time, until: Time) -> Outcome {
        if self.run_until(from).is_none() {
            self.now = from;
            self.config.measure_from = from;
            self.config.until = until;
            self.measure();
        }
        self.run()
    }

    /// Runs up to `until`. Returns the reason if the world has ended; otherwise another call
    /// continues the world.
    pub fn run_until(&mut self, until: Time) -> Option<End> {
        if self.end.is_none() {
            self.end = self.advance(until.min(self.config.until));
        }
        self.end
    }

    /// Ends the world before the configured end, and returns the results so far.
    pub fn end_here(self) -> Outcome {
        let end = self.end.unwrap_or(match self.unfinished {
            0 => End::TimeUp,
            flows => End::Unfinished { flows },
        });
        self.outcome(end)
    }

    /// Returns the number of flows that must still finish.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn advance(&mut self, until: Time) -> Option<End> {
        loop {
            let next = match self.next.take() {
                Some(next) => Some(next),
                None => self.wheel.pop(),
            };
            let Some((at, event)) = next else { break };
            if at > until {
                self.next = Some((at, event));
                return (until == self.config.until).then_some(match self.unfinished {
                    0 if self.active == 0 => End::Finished,
                    0 => End::TimeUp,
                    flows => End::Unfinished { flows },
                });
            }
            if self.events >= self.config.max_events {
                return Some(End::EventBudget);
            }
            self.now = at;
            self.happen(event);
        }
        Some(match self.unfinished {
            0 => End::Finished,
            flows => End::Stalled { flows },
        })
    }

    #[inline]
    fn happen(&mut self, event: Event) {
        let whose = event.whose();
        match event.kind() {
            EventKind::Delivery => {
                if self.awaited[whose] == self.now {
                    self.events += 1;
                    self.deliver(whose);
                }
            }
            EventKind::Start => self.start(whose),
            EventKind::Stop => self.stop(whose),
            EventKind::Write => self.write(whose),
            EventKind::Sender => self.timer(whose, SENDER),
            EventKind::Pace => self.timer(whose, PACE),
            EventKind::Receiver => self.timer(whose, RECEIVER),
            EventKind::Sample => self.sample(),
            EventKind::Measure => self.measure(),
            EventKind::Opened => self.opened(),
            EventKind::Change => self.change(whose),
            EventKind::Tunnel => self.wake_end(whose),
        }
    }

    fn deliver(&mut self, index: usize) {
        while let Some(mut packet) = self.lines[index].deliver(self.now) {
            match self.routes.hop(packet.route) {
                Some(next) => {
                    packet.route += 1;
                    self.enter(next, packet);
                }
                None => self.receive(&packet),
            }
        }
        self.awaited[index] = Time::NEVER;
        self.await_line(index);
    }

    /// Puts a packet into a link.
    #[inline]
    fn enter(&mut self, index: usize, packet: Packet) {
        self.lines[index].arrive(self.now, packet);
        self.await_line(index);
    }

    #[inline]
    fn await_line(&mut self, index: usize) {
        if let Some(due) = self.lines[index].due()
            && due < self.awaited[index]
        {
            self.awaited[index] = due;
            self.wheel.push(due, Event::new(EventKind::Delivery, index));
        }
    }

    /// Delivers a packet at the end of its path.
    fn receive(&mut self, packet: &Packet) {
        self.balance.arrived += 1;
        if packet.flags.has(Flags::CORRUPT) {
            self.balance.corrupt += 1;
            return;
        }
        let flow = packet.flow as usize;
        match packet.kind {
            Kind::Datagram => {
                self.records[flow].received += u64::from(packet.length);
                return;
            }
            Kind::Tunnelled => {
                self.events += 1;
                return self.receive_tunnelled(packet);
            }
            _ => {}
        }
        // After the end of a flow, its packets have no receiver.
        let Some(connection) = &mut self.connections[flow] else { return };
        if packet.flags.has(Flags::FORWARD) {
            connection.receiver.on_packet(self.now, packet, &mut self.out);
        } else {
            connection.sender.on_packet(self.now, packet, &mut self.out);
        }
        self.settle(flow);
    }

    /// Completes an action of a flow: sends its packets and sets its timers.
    #[inline]
    fn settle(&mut self, flow: usize) {
        if let Some(connection) = &mut self.connections[flow] {
            connection.arm(self.now, flow, &mut self.wheel);
            if let Some(leg) = connection.leg {
                if !leg.is_far && connection.sender.is_open() {
                    self.connected(flow);
                }
                self.leave(flow);
                return self.leg_moved(leg);
            }
            let record = &mut self.records[flow];
            if record.completed.is_none() && connection.receiver.is_complete() {
                record.completed = Some(self.now);
            }
            let is_done = connection.sender.is_done();
            if record.connected.is_none() && connection.sender.is_open() {
                self.connected(flow);
            }
            if is_done {
                self.finish(flow);
            }
        }
        self.send_all();
    }

    /// Records that a flow's connection is open. Flows that begin together begin when the last of
    /// these connections is open.
    fn connected(&mut self, flow: usize) {
        let record = &mut self.records[flow];
        if record.connected.is_some() {
            return;
        }
        record.connected = Some(self.now);
        if !self.specs[flow].begins_together() {
            return;
        }
        self.opening -= 1;
        if self.opening == 0 {
            for flow in 0..self.specs.len() {
                if self.specs[flow].begins_together() {
                    self.plan_write(flow, Some(self.now));
                }
            }
        }
    }

    /// Sends the packets of a connection and sets its timers.
    fn leave(&mut self, number: usize) {
        if let Some(connection) = &mut self.connections[number] {
            connection.arm(self.now, number, &mut self.wheel);
        }
        self.send_all();
    }

    #[inline]
    fn send_all(&mut self) {
        let mut out = std::mem::take(&mut self.out);
        for packet in out.drain(..) {
            self.send(packet);
        }
        self.out = out;
    }

    fn send(&mut self, mut packet: Packet) {
        self.balance.sent += 1;
        if let Some(first) = self.routes.hop(packet.route) {
            packet.route += 1;
            self.enter(first, packet);
        }
    }

    fn finish(&mut self, flow: usize) {
        if let Some(connection) = self.connections[flow].take() {
            let record = &mut self.records[flow];
            record.take(&connection);
            record.completed.get_or_insert(self.now);
            self.active -= 1;
            self.unfinished -= usize::from(self.specs[flow].finishes());
        }
    }

    fn timer(&mut self, flow: usize, which: usize) {
        let Some(connection) = &mut self.connections[flow] else { return };
        // An earlier event has replaced this event.
        if connection.armed[which] != self.now {
            return;
        }
        connection.armed[which] = Time::NEVER;
        if connection.wanted(self.now)[which] <= self.now || which == PACE {
            self.events += 1;
            match which {
                SENDER => connection.sender.on_timer(self.now, &mut self.out),
                PACE => connection.sender.on_pace(self.now, &mut self.out),
                _ => connection.receiver.on_timer(self.now, &mut self.out),
            }
        }
        self.settle(flow);
    }

    fn start(&mut self, flow: usize) {
        self.events += 1;
        let spec = &self.specs[flow];
        let (there, back) = self.ways[flow];
        let seed = link::mix(self.config.seed ^ link::mix(flow as u64 + 1).rotate_left(31));
        match &spec.traffic {
            Traffic::Tcp { algorithm, demand, config } => {
                let identity =
                    Identity { flow: flow as u32, route: there, algorithm: *algorithm, seed };
                let mut source = Source::of_demand(*demand, config.mss, seed);
                let mut sender = Sender::new(config.clone(), identity);
                let mut receiver = Receiver::new(config.clone(), flow as u32, back);
                let piece = source.first(self.now, Some(*demand));
                if piece.last {
                    sender.close();
                }
                sender.write(self.now, piece.bytes, &mut self.out);
                sender.open(self.now, &mut self.out);
                receiver.open(self.now, &mut self.out);
                self.connections[flow] = Some(Box::new(Connection::new(sender, receiver, source)));
                self.plan_write(flow, piece.next);
                self.settle(flow);
            }
            Traffic::Tunnelled { .. } => self.start_tunnelled(flow, seed),
            Traffic::Datagrams { rate, size, spacing } => {
                let mut source = Source::of_datagrams(*rate, *size, *spacing, seed);
                let piece = source.first(self.now, None);
                self.records[flow].datagrams = Some(Box::new(source));
                self.send_datagram(flow, piece.bytes);
                self.plan_write(flow, piece.next);
            }
        }
    }

    fn stop(&mut self, flow: usize) {
        self.events += 1;
        if self.records[flow].datagrams.take().is_some() {
            self.active -= 1;
        }
        if let Some(connection) = &mut self.connections[flow] {
            connection.sender.cut_short();
            self.settle(flow);
        }
    }

    fn write(&mut self, flow: usize) {
        self.events += 1;
        let now = self.now;
        if let Some(source) = &mut self.records[flow].datagrams {
            let piece = source.next(now);
            self.send_datagram(flow, piece.bytes);
            self.plan_write(flow, piece.next);
        } else if let Some(connection) = &mut self.connections[flow]
            && !connection.sender.is_closed()
        {
            let piece = connection.source.next(now);
            connection.sender.write(now, piece.bytes, &mut self.out);
            self.plan_write(flow, piece.next);
            self.settle(flow);
        }
    }

    fn plan_write(&mut self, flow: usize, at: Option<Time>) {
        if let Some(at) = at {
            // Advance by at least a nanosecond, so that the application cannot write for ever at
            // one time.
            let at = at.max(self.now + Span::from_nanos(1));
            self.wheel.push(at, Event::new(EventKind::Write, flow));
        }
    }

    fn send_datagram(&mut self, flow: usize, size: u64) {
        if size == 0 {
            return;
        }
        let record = &mut self.records[flow];
        record.counts.sent += 1;
        record.counts.sent_bytes += size;
        self.send(Packet {
            flow: flow as u32,
            route: self.ways[flow].0,
            size: size as u32,
            length: size as u32,
            sequence: 0,
            stamp: self.now,
            sacks: Sacks::default(),
            kind: Kind::Datagram,
            flags: Flags::of(Flags::FORWARD),
            tag: Tag::NONE,
        });
    }

    fn sample(&mut self) {
        let now = self.now;
        for (flow, record) in self.records.iter_mut().enumerate() {
            let arriving = self.connections[self.arriving[flow] as usize].as_deref();
            match self.specs[flow].traffic {
                Traffic::Tunnelled { tunnel, .. } => {
                    let reading = self.tunnels[tunnel].measured().reading;
                    record.sample_tunnelled(now, arriving, &reading);
                }
                _ => record.sample(now, arriving),
            }
        }
        for (id, trace) in &mut self.queues {
            let Some(line) = self.lines.get(id.0 as usize) else { continue };
            trace.offer(|| QueuePoint { at: now, queued: line.queued() });
        }
        if self.active > 0 {
            let next = now + self.config.sample_every;
            self.wheel.push(next, Event::new(EventKind::Sample, 0));
        }
    }

    fn measure(&mut self) {
        self.catch_up();
        self.before = self.lines.iter().map(|line| line.stats().cloned()).collect();
        for (record, arriving) in self.records.iter_mut().zip(&self.arriving) {
            record.measure_from(self.connections[*arriving as usize].as_deref());
        }
        self.measure_tunnels();
        self.policed_before = self.lines.iter().map(|line| line.policed().packets).collect();
        self.counts_before = self.counts();
    }

    /// Returns the acknowledged payload of each flow; for a flow in a tunnel, the payload that
    /// reached the application.
    pub fn acknowledged(&self) -> Vec<Bytes> {
        let bytes = |(record, arriving): (&Record, &u32)| {
            let connection = self.connections[*arriving as usize].as_ref();
            Bytes::new(match connection {
                None => record.received,
                Some(connection) if connection.leg.is_some() => connection.receiver.received(),
                Some(connection) => connection.sender.acknowledged(),
            })
        };
        self.records.iter().zip(&self.arriving).map(bytes).collect()
    }

    /// Returns the counts of each flow so far.
    pub fn counts(&self) -> Vec<FlowCount> {
        let count = |(record, arriving): (&Record, &u32)| {
            let connection = self.connections[*arriving as usize].as_ref();
            // The tunnel counts the packets that it sends for its flows.
            let tcp = connection.filter(|connection| connection.leg.is_none());
            let counts = tcp.map_or(record.counts, |c| c.sender.counts());
            FlowCount {
                received: Bytes::new(connection.map_or(record.received, |c| c.receiver.received())),
                sent: Bytes::new(counts.sent_bytes),
                retransmitted: Bytes::new(counts.repeated_bytes),
            }
        };
        self.records.iter().zip(&self.arriving).map(count).collect()
    }

    fn opened(&mut self) {
        self.catch_up();
        let peaks = self.lines.iter().enumerate().filter_map(|(index, line)| {
            Some((LinkId(index as u32), line.stats()?.occupancy.max()))
        });
        self.opening_peaks = peaks.collect();
    }

    fn change(&mut self, index: usize) {
        self.events += 1;
        let Some(change) = self.topology.changes().get(index) else { return };
        let line = change.link.0 as usize;
        // Let the old link deliver the packets that are due.
        self.deliver(line);
        let Some(change) = self.topology.changes().get(index) else { return };
        if let Some(changed) = self.lines.get_mut(line) {
            let valid = changed.reconfigure(self.now, &change.config);
            debug_assert!(valid.is_ok(), "it was checked before the world began");
            self.await_line(line);
        }
    }

    /// Advances the links' own clocks to the present time.
    fn catch_up(&mut self) {
        for index in 0..self.lines.len() {
            if !matches!(self.lines[index], Line::Wire(_)) {
                self.deliver(index);
            }
        }
    }

    fn outcome(mut self, end: End) -> Outcome {
        self.catch_up();
        if self.before.is_empty() {
            self.before = self.lines.iter().map(|_| None).collect();
        }
        let (at, from) = (self.now, self.config.measure_from);
        let measured = at.since(from.min(at));
        let mut links = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            self.balance.inside += line.inside();
            let Some(stats) = line.stats() else { continue };
            let policed = line.policed();
            self.balance.dropped += stats.dropped.total().packets + policed.packets;
            self.balance.duplicated += stats.duplicated.packets;
            let trace = self.queues.iter().find(|(id, _)| id.0 as usize == index);
            let mut link = crate::connection::link_outcome(
                LinkId(index as u32),
                &self.topology.link_specs()[index].name,
                (stats, self.before[index].as_ref()),
                measured,
                trace.map(|(_, trace)| trace.clone()),
            );
            // Count a policer's drops as early drops, like those of active queue management.
            link.dropped.early = link.dropped.early + policed;
            let before = self.policed_before.get(index).copied().unwrap_or(0);
            link.dropped_measured += policed.packets - before;
            links.push(link);
        }
        let hops = self.lines.iter().map(Line::delivered).sum();
        let tunnels = self.tunnel_outcomes();
        let mut flows = Vec::with_capacity(self.specs.len());
        for (flow, mut record) in self.records.into_iter().enumerate() {
            let arriving = self.connections[self.arriving[flow] as usize].as_deref();
            match (&self.specs[flow].traffic, arriving) {
                (Traffic::Tunnelled { tunnel, .. }, arriving) => {
                    record.take_tunnelled(arriving, &self.tunnels[*tunnel].measured());
                }
                (_, Some(connection)) => record.take(connection),
                _ => {}
            }
            flows.push(record.outcome(&self.specs[flow], from, at));
        }
        Outcome {
            end,
            at,
            events: self.events,
            hops,
            tunnels,
            flows,
            links,
            packets: self.balance,
            before: self.counts_before,
            opening_peaks: self.opening_peaks,
        }
    }
}

fn check_size(what: &'static str, count: usize) -> Result<(), SimError> {
    if count > MOST { Err(SimError::TooMany { what, limit: MOST }) } else { Ok(()) }
}

fn check_flow(
    topology: &Topology,
    world: &WorldConfig,
    index: usize,
    flow: &FlowSpec,
) -> Result<(), SimError> {
    let nodes = topology.len() as u32;
    for node in [flow.from.0, flow.to.0] {
        if node >= nodes {
            return Err(SimError::NoNode { node, nodes });
        }
    }
    if flow.from == flow.to {
        return Err(SimError::SameNode { flow: index, node: flow.from.0 });
    }
    let refuse = |setting, advice| Err(SimError::Setting { setting, advice });
    match &flow.traffic {
        Traffic::Tcp { demand, config, .. } => {
            check_demand(demand)?;
            config.validate()
        }
        Traffic::Tunnelled { tunnel, demand } => {
            let ends = |tunnel: &TunnelSpec| (tunnel.from, tunnel.to) == (flow.from, flow.to);
            if !world.tunnels.get(*tunnel).is_some_and(ends) {
                return Err(SimError::NoTunnel { flow: index, tunnel: *tunnel });
            }
            check_demand(demand)
        }
        Traffic::Datagrams { rate, size, .. } => {
            if rate.bits_per_second() == 0 || !(1..=65_535).contains(&size.count()) {
                return refuse("datagrams", "give a rate above 0 and frames of 1 to 65535 bytes");
            }
            Ok(())
        }
    }
}

fn check_demand(demand: &Demand) -> Result<(), SimError> {
    let refuse = |setting, advice| Err(SimError::Setting { setting, advice });
    match demand {
        Demand::Size(Bytes::ZERO) => {
            refuse("size", "a flow of 0 bytes never ends: give at least 1 byte")
        }
        Demand::Pieces { size, every } if *size == Bytes::ZERO || *every == Span::ZERO => {
            refuse("pieces", "give a size and a time above 0")
        }
        Demand::OnOff { rate, on, .. } if rate.bits_per_second() == 0 || *on == Span::ZERO => {
            refuse("on-off", "give a rate and a time to be on above 0")
        }
        _ => Ok(()),
    }
}

pub(crate) const SENDER: usize = 0;
pub(crate) const PACE: usize = 1;
pub(crate) const RECEIVER: usize = 2;
/// Maximum number of flows and of routes. A flow's number, an event's owner and an index in the
/// table of routes have 32 bits.
const MOST: usize = 1 << 27;
