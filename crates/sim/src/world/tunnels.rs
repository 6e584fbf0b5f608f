//! Tunnels in a world: the packets and timers of tunnels, and the connections within the hosts at
//! their ends.

use super::World;
use crate::connection::{Connection, TunnelLeg};
use crate::event::{Event, EventKind};
use crate::outcome::TunnelOutcome;
use crate::packet::{Flags, Kind, Packet, Sacks, Tag};
use crate::routes::Routes;
use crate::source::Source;
use crate::tcp::{Identity, Receiver, Sender};
use crate::topology::LinkSpec;
use crate::tunnel::{Arrival, CLIENT, SERVER, Tunnel};
use crate::{Demand, FlowSpec, Node, SimError, Topology, Traffic, WorldConfig};
use bytes::BytesMut;
use cc::Algorithm;
use link::LinkConfig;
use quic::{EcnCodepoint, StreamId, Transmit};
use std::time::{Duration, Instant};
use units::{Span, Time};

/// Adds each tunnel's applications to the topology: a node for either host, and wires to the node.
pub(super) fn with_applications(
    topology: &Topology,
    config: &WorldConfig,
) -> Result<Topology, SimError> {
    let nodes = topology.len() as u32;
    let mut all = topology.clone();
    for tunnel in &config.tunnels {
        tunnel.validate(nodes)?;
        let wire = LinkConfig { delay: tunnel.local_delay, ..LinkConfig::default() };
        for host in [tunnel.from, tunnel.to] {
            let application = all.node();
            all.cable("", application, host, &wire);
        }
    }
    Ok(all)
}

/// Returns the node of the applications at one end.
pub(super) fn application(nodes: u32, tunnel: usize, side: usize) -> Node {
    Node(nodes + 2 * tunnel as u32 + side as u32)
}

/// The tunnels of a new world.
#[derive(Debug)]
pub(super) struct NewTunnels {
    pub(super) tunnels: Vec<Tunnel>,
    pub(super) arriving: Vec<u32>,
    pub(super) epoch: Instant,
}

impl NewTunnels {
    /// Creates the tunnels. `ways` holds the paths of the flows; the function appends the paths of
    /// the connections from servers.
    pub(super) fn new(
        (nodes, link_specs): (u32, &[LinkSpec]),
        flows: &[FlowSpec],
        config: &WorldConfig,
        routes: &mut Routes,
        ways: &mut Vec<(u32, u32)>,
    ) -> Result<Self, SimError> {
        let epoch = Instant::now();
        let mut arriving: Vec<u32> = (0..flows.len() as u32).collect();
        let mut carried = vec![Vec::new(); config.tunnels.len()];
        for (flow, spec) in flows.iter().enumerate() {
            let Traffic::Tunnelled { tunnel, .. } = spec.traffic else { continue };
            let application = application(nodes, tunnel, SERVER);
            arriving[flow] = ways.len() as u32;
            carried[tunnel].push((flow, ways.len()));
            let there = routes.way(link_specs, spec.to, application, 0)?;
            ways.push((there, routes.way(link_specs, application, spec.to, 0)?));
        }
        let mut tunnels = Vec::new();
        for (index, (spec, carried)) in config.tunnels.iter().zip(carried).enumerate() {
            let seed = link::mix(config.seed ^ link::mix(index as u64 + 1).rotate_left(43));
            let there = routes.way(link_specs, spec.from, spec.to, seed)?;
            let back = routes.way(link_specs, spec.to, spec.from, !seed)?;
            let number = (ways.len() + index) as u32;
            let begin = (epoch, seed);
            tunnels.push(Tunnel::new(spec.clone(), begin, (there, back), number, carried));
        }
        Ok(Self { tunnels, arriving, epoch })
    }
}

/// Whether any link duplicates packets.
pub(super) fn duplicates(topology: &Topology) -> bool {
    let later = topology.changes().iter().map(|change| &change.config);
    let configs = topology.link_specs().iter().map(|link_spec| &link_spec.config).chain(later);
    configs.into_iter().any(|config| !config.duplicate.is_zero())
}

impl World {
    /// Connects an application to the tunnel on its host.
    pub(super) fn start_tunnelled(&mut self, flow: usize, seed: u64) {
        let Traffic::Tunnelled { tunnel: index, demand } = self.specs[flow].traffic else { return };
        let tunnel = &mut self.tunnels[index];
        let Some(place) = tunnel.flows.iter().position(|one| one.flow == flow) else { return };
        tunnel.begin(place);
        let mut near = self.leg(index, place, flow, (seed, demand));
        let piece = near.source.first(self.now, Some(demand));
        if piece.last {
            near.sender.close();
        }
        near.sender.write(self.now, piece.bytes, &mut self.out);
        self.connections[flow] = Some(near);
        self.open_leg(flow);
        self.plan_write(flow, piece.next);
        self.open_streams(index);
        self.settle(flow);
        self.settle_end(index, CLIENT);
    }

    /// Makes a connection within a host.
    fn leg(
        &self,
        tunnel: usize,
        place: usize,
        number: usize,
        (seed, demand): (u64, Demand),
    ) -> Box<Connection> {
        let config = &self.tunnels[tunnel].spec.local;
        let is_far = number >= self.specs.len();
        let (there, back) = self.ways[number];
        let identity =
            Identity { flow: number as u32, route: there, algorithm: Algorithm::Cubic, seed };
        let sender = Sender::new(config.clone(), identity);
        let receiver = Receiver::new(config.clone(), number as u32, back);
        let receiver = if is_far { receiver } else { receiver.with_reader() };
        let source = Source::of_demand(demand, config.mss, seed);
        let mut leg = Connection::new(sender, receiver, source);
        leg.leg = Some(TunnelLeg { tunnel: tunnel as u32, place: place as u32, is_far });
        Box::new(leg)
    }

    fn open_leg(&mut self, number: usize) {
        if let Some(leg) = &mut self.connections[number] {
            leg.sender.open(self.now, &mut self.out);
            leg.receiver.open(self.now, &mut self.out);
        }
    }

    /// Moves data after progress of a connection within a host.
    pub(super) fn leg_moved(&mut self, leg: TunnelLeg) {
        let (index, place) = (leg.tunnel as usize, leg.place as usize);
        if !leg.is_far {
            if self.feed(index, place) {
                self.settle_end(index, CLIENT);
            }
            return;
        }
        if self.hand_on(index, place) {
            self.settle_end(index, SERVER);
        }
        let tunnel_flow = &self.tunnels[index].flows[place];
        let flow = tunnel_flow.flow;
        if !tunnel_flow.carried.is_handed_on() {
            return;
        }
        let Some(far) = &self.connections[tunnel_flow.far] else { return };
        if far.receiver.received() == far.sender.written() {
            self.records[flow].completed.get_or_insert(self.now);
        }
        if far.sender.is_done() {
            self.finish_tunnelled(index, place);
        }
    }

    fn finish_tunnelled(&mut self, index: usize, place: usize) {
        let tunnel = &mut self.tunnels[index];
        let (flow, far) = (tunnel.flows[place].flow, tunnel.flows[place].far);
        tunnel.left -= 1;
        if let Some(far) = self.connections[far].take() {
            self.records[flow].received = far.receiver.received();
        }
        self.connections[flow] = None;
        self.active -= 1;
        self.unfinished -= usize::from(self.specs[flow].finishes());
        let last = tunnel.left == 0;
        if last {
            tunnel.measured();
            let now = self.epoch + Duration::from_nanos(self.now.nanos());
            let end = &mut self.tunnels[index].ends[CLIENT];
            if let Some(connection) = end.connection() {
                connection.close(now, "");
            }
            end.touch(now);
            self.settle_end(index, CLIENT);
        }
    }

    /// Lets an end of a tunnel process arrived packets and its timers.
    pub(super) fn wake_end(&mut self, whose: usize) {
        let (index, side) = (whose / 2, whose % 2);
        let (now, instant) = (self.now, self.instant());
        let tunnel = &mut self.tunnels[index];
        // An earlier event has replaced this event.
        if tunnel.ends[side].armed != now {
            return;
        }
        tunnel.ends[side].armed = Time::NEVER;
        self.events += 1;
        if side == CLIENT && tunnel.ends[CLIENT].key.is_none() && tunnel.lost.is_none() {
            tunnel.connect(instant);
        }
        let epoch = self.epoch;
        let end = &mut tunnel.ends[side];
        if end.look_at <= now {
            end.look_at = Time::NEVER;
            let from = tunnel.ends[1 - side].address;
            let end = &mut tunnel.ends[side];
            for Arrival { at, payload, ecn } in end.inbox.drain(..) {
                let arrived = epoch + Duration::from_nanos(at.nanos());
                end.endpoint.handle(instant, arrived, from, None, ecn, payload);
            }
            end.endpoint.handled(instant);
        }
        let end = &mut tunnel.ends[side];
        if end.endpoint.next_timeout().is_some_and(|at| at <= instant) {
            end.endpoint.handle_timeouts(instant);
        }
        self.settle_end(index, side);
    }

    /// Delivers a tunnel's packet at the end of its path.
    pub(super) fn receive_tunnelled(&mut self, packet: &Packet) {
        let Some(payload) = self.datagrams.take(packet.sequence) else { return };
        let index = packet.flow as usize - self.connections.len();
        let side = if packet.flags.has(Flags::FORWARD) { SERVER } else { CLIENT };
        let ecn = match (packet.flags.has(Flags::MARKED), packet.flags.has(Flags::CAPABLE)) {
            (true, _) => Some(EcnCodepoint::Ce),
            (false, true) => Some(EcnCodepoint::Ect0),
            (false, false) => None,
        };
        let (now, instant) = (self.now, self.instant());
        let tunnel = &mut self.tunnels[index];
        let from = tunnel.ends[1 - side].address;
        let gather = tunnel.spec.gather;
        let end = &mut tunnel.ends[side];
        if gather == Span::ZERO {
            end.endpoint.handle(instant, instant, from, None, ecn, payload);
            end.endpoint.handled(instant);
            self.settle_end(index, side);
            return;
        }
        end.inbox.push_back(Arrival { at: now, payload, ecn });
        if end.look_at == Time::NEVER {
            end.look_at = now + gather;
            self.arm_end(index, side);
        }
    }

    /// Lets an end of a tunnel handle its events, reads, writes and sends of this time.
    fn settle_end(&mut self, index: usize, side: usize) {
        let instant = self.instant();
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            let mut idle = !self.tunnels[index].accept(side, instant);
            while let Some((key, event)) = self.tunnels[index].ends[side].endpoint.next_event() {
                if self.tunnels[index].ends[side].key == Some(key) {
                    self.on_tunnel_event(index, side, event);
                }
                idle = false;
            }
            buffer.clear();
            while let Some(transmit) = self.tunnels[index].ends[side].endpoint.poll_transmit(
                instant,
                SEGMENTS,
                &mut buffer,
            ) {
                self.send_tunnelled(index, side, &transmit, &buffer);
                buffer.clear();
                idle = false;
            }
            if idle {
                break;
            }
        }
        self.buffer = buffer;
        self.arm_end(index, side);
    }

    fn arm_end(&mut self, index: usize, side: usize) {
        let epoch = self.epoch;
        let end = &mut self.tunnels[index].ends[side];
        let timeout = end.endpoint.next_timeout().map_or(Time::NEVER, |at| {
            let nanos = at.saturating_duration_since(epoch).as_nanos();
            Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        });
        let at = timeout.min(end.look_at);
        if at < end.armed {
            let at = at.max(self.now);
            end.armed = at;
            self.wheel.push(at, Event::new(EventKind::Tunnel, 2 * index + side));
        }
    }

    fn on_tunnel_event(&mut self, index: usize, side: usize, event: quic::Event) {
        let place = |world: &Self, id| world.tunnels[index].place_of(id);
        match event {
            quic::Event::Connected | quic::Event::MayOpen if side == CLIENT => {
                self.open_streams(index);
            }
            quic::Event::Opened => self.accept_streams(index),
            quic::Event::Writable(id) if side == CLIENT => {
                if let Some(place) = place(self, id) {
                    self.feed(index, place);
                }
            }
            quic::Event::Delivered(id) if side == CLIENT => {
                if let Some(place) = place(self, id) {
                    let Tunnel { ends, flows, .. } = &mut self.tunnels[index];
                    if let Some(connection) = ends[CLIENT].connection() {
                        flows[place].carried.on_delivered(connection);
                    }
                }
            }
            quic::Event::Readable(id) if side == SERVER => {
                if let Some(place) = place(self, id) {
                    self.take(index, place, id);
                }
            }
            quic::Event::Lost(why) => {
                let tunnel = &mut self.tunnels[index];
                if tunnel.left > 0 {
                    tunnel.lost.get_or_insert_with(|| why.to_string());
                    tunnel.measured();
                }
            }
            _ => {}
        }
        let instant = self.instant();
        self.tunnels[index].ends[side].touch(instant);
    }

    fn open_streams(&mut self, index: usize) {
        for place in self.tunnels[index].open() {
            self.feed(index, place);
        }
        let instant = self.instant();
        self.tunnels[index].ends[CLIENT].touch(instant);
    }

    /// Connects the server to the receiving application, for each new stream.
    fn accept_streams(&mut self, index: usize) {
        loop {
            let tunnel = &mut self.tunnels[index];
            let accepted = tunnel.ends[SERVER].connection().and_then(|one| one.accept().ok()?);
            let Some(stream) = accepted else { return };
            let Some(place) = tunnel.place_of(stream) else { continue };
            let Some(far) = tunnel.flows.get(place).map(|one| one.far) else { continue };
            tunnel.flows[place].carried.accept(stream);
            let seed = link::mix(self.config.seed ^ link::mix(far as u64 + 1).rotate_left(31));
            self.connections[far] = Some(self.leg(index, place, far, (seed, Demand::Bulk)));
            self.open_leg(far);
            self.leave(far);
            self.take(index, place, stream);
        }
    }

    /// Lets the client read the part of the application's data that the stream takes.
    fn feed(&mut self, index: usize, place: usize) -> bool {
        let Tunnel { ends, flows, .. } = &mut self.tunnels[index];
        let tunnel_flow = &mut flows[place];
        let flow = tunnel_flow.flow;
        let (Some(near), Some((connection, windows))) =
            (&mut self.connections[flow], ends[CLIENT].parts())
        else {
            return false;
        };
        let moved = tunnel_flow.carried.feed(near, connection, windows, &mut self.out);
        if moved {
            let instant = self.instant();
            self.tunnels[index].ends[CLIENT].touch(instant);
        }
        self.leave(flow);
        moved
    }

    fn take(&mut self, index: usize, place: usize, stream: StreamId) {
        let (now, instant) = (self.now, self.instant());
        let Tunnel { ends, flows, .. } = &mut self.tunnels[index];
        let tunnel_flow = &mut flows[place];
        let far = tunnel_flow.far;
        if let (Some(leg), Some((connection, windows))) =
            (&mut self.connections[far], ends[SERVER].parts())
        {
            let out = &mut self.out;
            tunnel_flow.carried.take(stream, (now, instant), leg, connection, windows, out);
        }
        self.leave(far);
    }

    fn hand_on(&mut self, index: usize, place: usize) -> bool {
        let (now, instant) = (self.now, self.instant());
        let Tunnel { ends, flows, .. } = &mut self.tunnels[index];
        let tunnel_flow = &mut flows[place];
        let far = tunnel_flow.far;
        let (Some(leg), Some((connection, _))) = (&mut self.connections[far], ends[SERVER].parts())
        else {
            return false;
        };
        let moved = tunnel_flow.carried.hand_on(now, leg, connection, &mut self.out);
        if moved {
            self.tunnels[index].ends[SERVER].touch(instant);
            self.leave(far);
        }
        moved
    }

    fn send_tunnelled(&mut self, index: usize, side: usize, transmit: &Transmit, buffer: &[u8]) {
        let tunnel = &self.tunnels[index];
        let (flow, mtu) = (tunnel.number, tunnel.spec.mtu.count() as usize);
        let (route, direction) = match side {
            CLIENT => (tunnel.ways.0, Flags::FORWARD),
            _ => (tunnel.ways.1, 0),
        };
        let capable = if transmit.ecn.is_some() { Flags::CAPABLE } else { 0 };
        let segment = transmit.segment_size.unwrap_or(buffer.len());
        let mut rest = BytesMut::from(buffer);
        while !rest.is_empty() {
            let payload = rest.split_to(segment.clamp(1, rest.len()));
            let length = payload.len();
            if length + IP_AND_UDP > mtu {
                continue;
            }
            if self.datagrams.is_sweep_due() {
                let lines = &self.lines;
                self.datagrams.sweep(|needed| {
                    let mut see = |packet: &Packet| {
                        if packet.kind == Kind::Tunnelled {
                            needed(packet.sequence);
                        }
                    };
                    lines.iter().for_each(|line| line.for_each(&mut see));
                });
            }
            let sequence = self.datagrams.insert(payload);
            self.send(Packet {
                flow,
                route,
                size: (length + IP_AND_UDP + MAC) as u32,
                length: length as u32,
                sequence,
                stamp: self.now,
                sacks: Sacks::default(),
                kind: Kind::Tunnelled,
                flags: Flags::of(direction | capable),
                tag: Tag::NONE,
            });
        }
    }

    pub(super) fn measure_tunnels(&mut self) {
        for tunnel in &mut self.tunnels {
            tunnel.before = tunnel.measured().count;
        }
    }

    pub(super) fn tunnel_outcomes(&mut self) -> Vec<TunnelOutcome> {
        let outcome = |tunnel: &mut Tunnel| {
            let reported = tunnel.measured();
            TunnelOutcome {
                from: tunnel.spec.from,
                to: tunnel.spec.to,
                flows: tunnel.flows.iter().map(|tunnel_flow| tunnel_flow.flow).collect(),
                lost: tunnel.lost.clone(),
                total: reported.count,
                measured: reported.count - tunnel.before,
                min_rtt: Some(reported.reading.min_rtt).filter(|rtt| *rtt > Span::ZERO),
                smoothed_rtt: reported.rtt,
            }
        };
        self.tunnels.iter_mut().map(outcome).collect()
    }

    fn instant(&self) -> Instant {
        self.epoch + Duration::from_nanos(self.now.nanos())
    }
}

/// Maximum number of datagrams in one system call.
const SEGMENTS: usize = 44;
const IP_AND_UDP: usize = 20 + 8;
const MAC: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TunnelSpec;
    use crate::line::Line;

    fn world(link: &LinkConfig) -> World {
        let mut topology = Topology::new();
        let (from, to) = (topology.node(), topology.node());
        topology.link("there", from, to, link);
        topology.link("back", to, from, link);
        let tunnels = vec![TunnelSpec::new(from, to, "tcpa".parse().unwrap())];
        let flow = FlowSpec::tunnelled(from, to, 0, Demand::Bulk);
        let until = Time::ZERO + Span::from_secs(60);
        let config = WorldConfig { tunnels, until, ..WorldConfig::default() };
        World::new(&topology, vec![flow], config).unwrap()
    }

    /// The world forgets the payloads of packets that links drop or duplicate.
    #[test]
    fn payloads_of_lost_tunnel_packets_do_not_accumulate() {
        let mut link = LinkConfig {
            rate: "50mbit".parse().unwrap(),
            delay: Span::from_millis(10),
            loss: "5%".parse().unwrap(),
            ..LinkConfig::default()
        };
        for copies in ["0%", "5%"] {
            link.duplicate = copies.parse().unwrap();
            let mut world = world(&link);
            let mut most = 0;
            for second in 1..=20 {
                world.run_until(Time::ZERO + Span::from_secs(second));
                let inside: u64 = world.lines.iter().map(Line::inside).sum();
                let held = world.datagrams.held() as u64;
                assert!(held <= 1024 + 2 * inside, "{held} for {inside}");
                most = most.max(held);
            }
            assert!(most > 0 && world.balance.sent > 50_000, "{}", world.balance.sent);
        }
    }

    #[test]
    fn a_slow_tunnel_slows_its_application_down() {
        let link = LinkConfig {
            rate: "1mbit".parse().unwrap(),
            delay: Span::from_millis(10),
            ..LinkConfig::default()
        };
        let mut world = world(&link);
        world.run_until(Time::ZERO + Span::from_secs(30));
        let [Some(near), Some(far)] = &world.connections[..] else { panic!("both stand") };
        let (sent, arrived) = (near.sender.counts().sent_bytes, far.receiver.received());
        assert!((3_000_000..4_000_000).contains(&arrived), "{arrived}");
        // The application is ahead by a window of its connection, and by the data that the tunnel
        // keeps for retransmissions.
        assert!(near.receiver.unread() <= 1 << 20, "{}", near.receiver.unread());
        assert!(sent - arrived < 3 << 20, "{sent} {arrived}");
    }
}
