//! TCP flows through a QUIC tunnel in virtual time: every byte arrives, and one seed gives one run.
//!
//! `WEIR_TRANSFERS` is how many random transfers there are, `WEIR_SEED` the first one's seed: a
//! failure names the seed that repeats it.

#![allow(clippy::unwrap_used)]

use cc::Algorithm;
use link::{LinkConfig, Stream};
use sim::{
    Congestion, Demand, End, FlowSpec, Node, Outcome, Topology, TunnelSpec, World, WorldConfig,
};
use std::time::Instant;
use units::{Bytes, Rate, Share, Span, Time};

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn link(rate: &str, delay: &str, loss: &str, queue: &str) -> LinkConfig {
    LinkConfig {
        rate: rate.parse().unwrap(),
        delay: delay.parse().unwrap(),
        loss: loss.parse().unwrap(),
        queue: queue.parse().unwrap(),
        ..LinkConfig::default()
    }
}

fn congestion(name: &str) -> Congestion {
    name.parse().unwrap()
}

/// Two hosts with a link in each direction.
fn hosts(there: &LinkConfig, back: &LinkConfig) -> (Topology, Node, Node) {
    let mut topology = Topology::new();
    let (from, to) = (topology.node(), topology.node());
    topology.link("there", from, to, there);
    topology.link("back", to, from, back);
    (topology, from, to)
}

fn run(
    (topology, from, to): &(Topology, Node, Node),
    demands: &[Demand],
    by: &str,
    config: WorldConfig,
) -> Outcome {
    let tunnels = vec![TunnelSpec::new(*from, *to, congestion(by))];
    let flow = |demand: &Demand| FlowSpec::tunnelled(*from, *to, 0, *demand);
    let flows = demands.iter().map(flow).collect();
    World::new(topology, flows, WorldConfig { tunnels, ..config }).unwrap().run()
}

#[test]
fn a_tunnel_fills_a_clean_link() {
    let link = link("100mbit", "10ms", "0%", "droptail:250KB");
    for by in ["tcpa", "bbr", "cubic"] {
        let hosts = hosts(&link, &link);
        let config = WorldConfig { measure_from: seconds(2), ..WorldConfig::default() };
        let began = Instant::now();
        let outcome = run(&hosts, &[Demand::Bulk], by, config);
        let flow = &outcome.flows[0];
        let tunnel = &outcome.tunnels[0];
        println!(
            "{by}: {} in {:?}, {} hops, {tunnel:?}",
            flow.goodput,
            began.elapsed(),
            outcome.hops
        );
        assert_eq!(outcome.end, End::TimeUp);
        assert!(flow.goodput > Rate::from_mbit(90), "{by}: {}", flow.goodput);
        assert_eq!(tunnel.lost, None);
        assert!(outcome.packets.holds(), "{:?}", outcome.packets);
        assert!(tunnel.min_rtt.unwrap() >= Span::from_millis(20));
    }
}
