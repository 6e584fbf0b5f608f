//! Common networks for experiments.

use crate::{LinkId, Node, Topology};
use link::LinkConfig;

/// Hosts on both sides of one bottleneck.
#[derive(Debug, Clone)]
pub struct Dumbbell {
    /// The network.
    pub topology: Topology,
    /// The hosts that send, in the order of `access` in [`Self::new`].
    pub senders: Vec<Node>,
    /// The hosts that receive, in the same order.
    pub receivers: Vec<Node>,
    /// The link from the senders to the receivers.
    pub bottleneck: LinkId,
    /// The link from the receivers to the senders.
    pub back: LinkId,
}

impl Dumbbell {
    /// Builds the network. Host `i` on either side has links like `access[i]`, whose delay counts
    /// four times in the round trip of a pair.
    pub fn new(access: &[LinkConfig], bottleneck: &LinkConfig, back: &LinkConfig) -> Self {
        let mut topology = Topology::new();
        let (left, right) = (topology.node(), topology.node());
        let there = topology.link("bottleneck", left, right, bottleneck);
        let back = topology.link("back", right, left, back);
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for (index, config) in access.iter().enumerate() {
            let (sender, receiver) = (topology.node(), topology.node());
            topology.cable(&format!("sender {index}"), sender, left, config);
            topology.cable(&format!("receiver {index}"), right, receiver, config);
            senders.push(sender);
            receivers.push(receiver);
        }
        Self { topology, senders, receivers, bottleneck: there, back }
    }
}

/// Bottlenecks in a row. One flow crosses all bottlenecks, and every other flow crosses a single
/// bottleneck.
#[derive(Debug, Clone)]
pub struct ParkingLot {
    /// The network.
    pub topology: Topology,
    /// The ends of the flow that crosses all bottlenecks.
    pub first: Node,
    /// The receiver of the flow that crosses all bottlenecks.
    pub last: Node,
    /// The ends of the flow that crosses bottleneck `i` alone.
    pub crossing: Vec<(Node, Node)>,
    /// The bottlenecks in the direction of the flows.
    pub bottlenecks: Vec<LinkId>,
    /// The return links of the bottlenecks.
    pub backs: Vec<LinkId>,
}

impl ParkingLot {
    /// Builds the network with the same bottlenecks in both directions.
    pub fn new(hops: usize, access: &LinkConfig, bottleneck: &LinkConfig) -> Self {
        Self::with_ways_back(hops, access, bottleneck, bottleneck)
    }

    /// Builds the network with separate return links. Each host has links like `access`, whose
    /// delay counts four times in the round trip of a pair.
    pub fn with_ways_back(
        hops: usize,
        access: &LinkConfig,
        bottleneck: &LinkConfig,
        back: &LinkConfig,
    ) -> Self {
        let mut topology = Topology::new();
        let routers = topology.nodes(hops + 1);
        let host = |topology: &mut Topology, name: String, router: Node| {
            let host = topology.node();
            topology.cable(&name, host, router, access);
            host
        };
        let first = host(&mut topology, "first".into(), routers[0]);
        let last = host(&mut topology, "last".into(), routers[hops]);
        let (mut crossing, mut bottlenecks, mut backs) = (Vec::new(), Vec::new(), Vec::new());
        for hop in 0..hops {
            let name = format!("bottleneck {hop}");
            let (from, to) = (routers[hop], routers[hop + 1]);
            bottlenecks.push(topology.link(format!("{name} >"), from, to, bottleneck));
            backs.push(topology.link(format!("{name} <"), to, from, back));
            crossing.push((
                host(&mut topology, format!("sender {hop}"), routers[hop]),
                host(&mut topology, format!("receiver {hop}"), routers[hop + 1]),
            ));
        }
        Self { topology, first, last, crossing, bottlenecks, backs }
    }
}

/// Many senders, one receiver, one switch.
#[derive(Debug, Clone)]
pub struct Incast {
    /// The network.
    pub topology: Topology,
    /// The hosts that send.
    pub senders: Vec<Node>,
    /// The host that receives from all senders.
    pub receiver: Node,
    /// The switch's port to the receiver.
    pub port: LinkId,
}

impl Incast {
    /// Builds the network. `access` is the link from a host, `port` the link from the switch.
    pub fn new(senders: usize, access: &LinkConfig, port: &LinkConfig) -> Self {
        Self::with_ways_back(senders, access, port, port)
    }

    /// Builds the network with `back` as the link from the switch to each sender.
    pub fn with_ways_back(
        senders: usize,
        access: &LinkConfig,
        port: &LinkConfig,
        back: &LinkConfig,
    ) -> Self {
        let mut topology = Topology::new();
        let (switch, receiver) = (topology.node(), topology.node());
        let to_receiver = topology.link("port", switch, receiver, port);
        topology.link("receiver", receiver, switch, access);
        let senders = (0..senders)
            .map(|index| {
                let sender = topology.node();
                topology.link(format!("sender {index}"), sender, switch, access);
                topology.link(format!("port {index}"), switch, sender, back);
                sender
            })
            .collect();
        Self { topology, senders, receiver, port: to_receiver }
    }
}

/// A fat tree of switches with `k` ports (Al-Fares, Loukissas, Vahdat 2008): k pods of k/2 edge and
/// k/2 aggregation switches, (k/2)² core switches, k³/4 hosts.
#[derive(Debug, Clone)]
pub struct FatTree {
    /// The network.
    pub topology: Topology,
    /// The hosts in the order of pods, then of edge switches.
    pub hosts: Vec<Node>,
    /// The links from switches.
    pub ports: Vec<LinkId>,
}

impl FatTree {
    /// Builds the network. `k` is rounded up to an even number. `access` is the link from a host,
    /// `port` the link from a switch.
    pub fn new(k: usize, access: &LinkConfig, port: &LinkConfig) -> Self {
        let half = k.div_ceil(2).max(1);
        let mut topology = Topology::new();
        let core = topology.nodes(half * half);
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        for pod in 0..2 * half {
            let aggregation = topology.nodes(half);
            for (a, switch) in aggregation.iter().enumerate() {
                for (c, above) in core[a * half..(a + 1) * half].iter().enumerate() {
                    let name = format!("pod {pod} aggregation {a} core {c}");
                    ports.extend(<[LinkId; 2]>::from(topology.cable(&name, *switch, *above, port)));
                }
            }
            for e in 0..half {
                let edge = topology.node();
                for (a, switch) in aggregation.iter().enumerate() {
                    let name = format!("pod {pod} edge {e} aggregation {a}");
                    ports.extend(<[LinkId; 2]>::from(topology.cable(&name, edge, *switch, port)));
                }
                for h in 0..half {
                    let host = topology.node();
                    let name = format!("pod {pod} edge {e} host {h}");
                    topology.link(format!("{name} >"), host, edge, access);
                    ports.push(topology.link(format!("{name} <"), edge, host, port));
                    hosts.push(host);
                }
            }
        }
        Self { topology, hosts, ports }
    }
}
