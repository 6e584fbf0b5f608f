//! The network of a cell: its shape, and the endpoints of its flows.

use super::scene::Scene;
use crate::bench::simulator::Way;
use crate::model::file::{DirectionSettings, Shape};
use link::{Capacity, LinkConfig};
use sim::{Dumbbell, FatTree, Incast, LinkId, Node, ParkingLot, Topology};
use units::Time;

/// A topology and the endpoints of its flows.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) topology: Topology,
    /// The endpoints of the competing flows, which are the world's first flows. If there are more
    /// flows than endpoint pairs, flows reuse the pairs round-robin.
    beside: Vec<Way>,
    own: Vec<Way>,
    /// The endpoints of cross traffic.
    pub(super) cross: Vec<(Node, Node)>,
    pub(super) bottlenecks: Vec<LinkId>,
}

impl Network {
    pub(super) fn of(scene: &Scene) -> Self {
        let mut network = match scene.topology.shape {
            Shape::Dumbbell => dumbbell(scene),
            Shape::ParkingLot { hops } => parking_lot(scene, hops as usize),
            Shape::Incast => incast(scene),
            Shape::FatTree { ports } => fat_tree(scene, ports as usize),
        };
        for link in network.bottlenecks.clone() {
            network.conditions(link, &scene.there, scene.measured_from());
        }
        network
    }

    /// Returns the endpoints of the flow under test `number`.
    pub(super) fn own(&self, number: usize) -> Way {
        self.own[number % self.own.len()]
    }

    pub(super) fn beside(&self, number: usize) -> Way {
        self.beside[number % self.beside.len()]
    }

    /// Returns the number of endpoint pairs for flows under test.
    pub(super) fn ways(&self) -> usize {
        self.own.len()
    }

    fn conditions(&mut self, link: LinkId, of: &DirectionSettings, measured_from: Time) {
        for (after, rate) in &of.steps {
            let config = LinkConfig { rate: Capacity::Fixed(*rate), ..of.config.clone() };
            self.topology.change(link, measured_from + *after, &config);
        }
        if let Some(policer) = of.policer {
            self.topology.police(link, policer);
        }
        if let Some(every) = of.aggregate {
            self.topology.release_every(link, every);
        }
    }
}

fn dumbbell(scene: &Scene) -> Network {
    let link = scene.round_trip();
    let rtts = scene.topology.rtts.on(link);
    let (there, back) = (&scene.there.config, &scene.back.config);
    let far = rtts.iter().any(|rtt| *rtt > link);
    let (mut network, way_back) = if far || scene.topology.access.is_some() {
        let own = if scene.flows.arrivals.is_some() { 1 } else { scene.flows.own as usize };
        let beside = scene.beside_count();
        // Arrivals share one host pair per configured round-trip time.
        let pairs = (own + beside).max(rtts.len());
        let access = |number: usize| LinkConfig {
            rate: scene.topology.access.clone().unwrap_or_default(),
            delay: (rtts[number % rtts.len()] - link) / 4,
            ..LinkConfig::default()
        };
        let mut hosts: Vec<LinkConfig> = (0..pairs).map(access).collect();
        hosts.push(LinkConfig::default());
        let shape = Dumbbell::new(&hosts, there, back);
        let way = |number: usize| Way {
            from: shape.senders[number],
            to: shape.receivers[number],
            round_trip: rtts[number % rtts.len()],
        };
        // Assign the round-trip times first to the flows under test, then to the competing flows.
        let ways: Vec<Way> = (0..pairs).map(way).collect();
        let (own, beside) = match scene.flows.arrivals {
            Some(_) => (ways.clone(), ways[..beside.max(1)].to_vec()),
            None => (ways[..own].to_vec(), ways[own..].to_vec()),
        };
        let network = Network {
            own,
            beside,
            cross: vec![(shape.senders[pairs], shape.receivers[pairs])],
            bottlenecks: vec![shape.bottleneck],
            topology: shape.topology,
        };
        (network, shape.back)
    } else {
        let mut topology = Topology::new();
        let (from, to) = (topology.node(), topology.node());
        let bottleneck = topology.link("there", from, to, there);
        let way_back = topology.link("back", to, from, back);
        let way = vec![Way { from, to, round_trip: link }];
        let network = Network {
            own: way.clone(),
            beside: way,
            cross: vec![(from, to)],
            bottlenecks: vec![bottleneck],
            topology,
        };
        (network, way_back)
    };
    network.conditions(way_back, &scene.back, scene.measured_from());
    network
}

fn parking_lot(scene: &Scene, hops: usize) -> Network {
    let access = LinkConfig {
        rate: scene.topology.access.clone().unwrap_or_default(),
        ..LinkConfig::default()
    };
    let (there, back) = (&scene.there.config, &scene.back.config);
    let shape = ParkingLot::with_ways_back(hops, &access, there, back);
    let hop = scene.round_trip();
    let crossing = |(from, to): &(Node, Node)| Way { from: *from, to: *to, round_trip: hop };
    let mut network = Network {
        own: vec![Way { from: shape.first, to: shape.last, round_trip: hop * hops as u64 }],
        beside: shape.crossing.iter().map(crossing).collect(),
        cross: shape.crossing,
        bottlenecks: shape.bottlenecks,
        topology: shape.topology,
    };
    for link in shape.backs {
        network.conditions(link, &scene.back, scene.measured_from());
    }
    network
}

fn incast(scene: &Scene) -> Network {
    let hosts = scene.own_hosts() + scene.beside_count();
    let (there, back) = (&scene.there.config, &scene.back.config);
    // The cross traffic has a host of its own.
    let shape = Incast::with_ways_back(hosts + 1, &scene.access(), there, back);
    let round_trip = scene.round_trip();
    let way = |from: &Node| Way { from: *from, to: shape.receiver, round_trip };
    let ways: Vec<Way> = shape.senders.iter().map(way).collect();
    let own = scene.own_hosts();
    Network {
        own: ways[..own].to_vec(),
        beside: ways[own..].to_vec(),
        cross: vec![(ways[hosts].from, shape.receiver)],
        bottlenecks: vec![shape.port],
        topology: shape.topology,
    }
}

/// Builds a fat tree. Every host sends through the core to the host half the tree away (stride(n/2)
/// of Al-Fares et al. 2008).
fn fat_tree(scene: &Scene, ports: usize) -> Network {
    let there = &scene.there.config;
    let access = LinkConfig { delay: there.delay, ..scene.access() };
    let shape = FatTree::new(ports, &access, there);
    let hosts = shape.hosts.len();
    // Each of the six links of the path in either direction has the lab link's settings.
    let round_trip = (access.delay + there.delay * 5) * 2;
    let way = |number: usize| Way {
        from: shape.hosts[number],
        to: shape.hosts[(number + hosts / 2) % hosts],
        round_trip,
    };
    let own: Vec<Way> = (0..hosts).map(way).collect();
    // Assign competing flows from the end of the list, so that few competing flows share a host
    // with flows under test.
    let beside = own.iter().rev().copied().collect();
    Network {
        cross: vec![(own[0].from, own[0].to)],
        own,
        beside,
        bottlenecks: shape.ports,
        topology: shape.topology,
    }
}
