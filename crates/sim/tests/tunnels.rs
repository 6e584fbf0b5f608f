//! TCP flows through a QUIC tunnel in virtual time: every byte arrives, and one seed gives one run.
//!
//! `WEIR_TRANSFERS` is the number of random transfers, `WEIR_SEED` the seed of the first transfer.
//! A failure reports the seed that reproduces the failure.

#![allow(clippy::unwrap_used)]

use cc::Algorithm;
use link::{LinkConfig, Stream};
use sim::{
    Congestion, Demand, End, FlowSpec, Node, Outcome, Topology, Traffic, TunnelSpec, World,
    WorldConfig,
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

/// Builds two hosts with a link in each direction.
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
        let config = WorldConfig { measure_from: seconds(2), ..WorldConfig::default() };
        let outcome = run(&hosts(&link, &link), &[Demand::Bulk], by, config);
        let (flow, tunnel) = (&outcome.flows[0], &outcome.tunnels[0]);
        assert_eq!(outcome.end, End::TimeUp);
        assert!(flow.goodput > Rate::from_mbit(92), "{by}: {}", flow.goodput);
        assert!(flow.goodput < Rate::from_mbit(96), "{by}: {}", flow.goodput);
        assert_eq!(tunnel.lost, None);
        assert!(outcome.packets.holds(), "{:?}", outcome.packets);
        assert!(tunnel.min_rtt.unwrap() >= Span::from_millis(20));
        assert!(flow.min_rtt == tunnel.min_rtt && flow.sent == Bytes::ZERO);
    }
}

#[test]
fn a_tunnel_fills_a_lossy_path_with_tcpa_and_bbr_but_not_with_cubic() {
    let link = link("50mbit", "15ms", "2%", "droptail:200KB");
    let goodput = |by| {
        let config = WorldConfig { measure_from: seconds(3), ..WorldConfig::default() };
        let outcome = run(&hosts(&link, &link), &[Demand::Bulk], by, config);
        let count = outcome.tunnels[0].measured;
        let lost = count.packets_lost as f64 / count.packets as f64;
        assert!((0.015..0.03).contains(&lost), "{by}: {lost}");
        outcome.flows[0].goodput
    };
    assert!(goodput("tcpa") > Rate::from_mbit(42));
    assert!(goodput("bbr") > Rate::from_mbit(42));
    assert!(goodput("cubic") < Rate::from_mbit(10));
}

/// On the way back, 200 kbit/s carry some 300 acknowledgements a second. With more
/// acknowledgements, the queue of the return path grows until the tunnel sends no more than 6
/// Mbit/s.
#[test]
fn a_thin_way_back_carries_the_acknowledgements_of_a_tunnel() {
    let there = link("100mbit", "20ms", "0%", "droptail:500KB");
    let back = link("200kbit", "20ms", "0%", "droptail:100p");
    for by in ["tcpa", "bbr"] {
        let config = WorldConfig { measure_from: seconds(4), ..WorldConfig::default() };
        let outcome = run(&hosts(&there, &back), &[Demand::Bulk], by, config);
        let goodput = outcome.flows[0].goodput;
        assert!(goodput > Rate::from_mbit(10), "{by}: {goodput}");
    }
}

#[test]
fn a_tunnel_shares_a_queue_with_flows_outside_it() {
    let link = link("50mbit", "10ms", "0%", "droptail:125KB");
    let (topology, from, to) = hosts(&link, &link);
    let tunnels = vec![TunnelSpec::new(from, to, congestion("cubic"))];
    let flows = vec![
        FlowSpec::bulk(from, to, Algorithm::Cubic),
        FlowSpec::tunnelled(from, to, 0, Demand::Bulk).traced(),
    ];
    let config = WorldConfig {
        tunnels,
        until: seconds(30),
        measure_from: seconds(5),
        ..WorldConfig::default()
    };
    let outcome = World::new(&topology, flows, config).unwrap().run();
    let rates: Vec<f64> = outcome.flows.iter().map(|f| f.goodput.mbit_per_second()).collect();
    assert!(rates.iter().sum::<f64>() > 45.0, "{rates:?}");
    assert!(rates.iter().all(|rate| *rate > 12.0), "{rates:?}");
    let points = outcome.flows[1].trace.as_ref().unwrap().points();
    assert!(points.iter().any(|point| point.window > Bytes::ZERO && point.rtt.is_some()));
    assert!(points.last().unwrap().received > Bytes::ZERO);
}

#[test]
fn equal_seeds_give_equal_tunnel_runs() {
    let link = link("20mbit", "10ms", "1%", "droptail:50KB");
    let hash = |seed| {
        let config = WorldConfig { seed, ..WorldConfig::default() };
        run(&hosts(&link, &link), &[Demand::Bulk, Demand::Bulk], "tcpa", config).hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn packet_batching_and_a_small_mtu_change_goodput_little() {
    let link = link("50mbit", "10ms", "1%", "droptail:200KB");
    let (topology, from, to) = hosts(&link, &link);
    let goodput = |spec: TunnelSpec| {
        let flow = FlowSpec::tunnelled(from, to, 0, Demand::Bulk);
        let config =
            WorldConfig { tunnels: vec![spec], measure_from: seconds(2), ..WorldConfig::default() };
        let outcome = World::new(&topology, vec![flow], config).unwrap().run();
        outcome.flows[0].goodput.mbit_per_second()
    };
    let spec = TunnelSpec::new(from, to, congestion("tcpa"));
    let usual = goodput(spec.clone());
    let merged = goodput(TunnelSpec { gather: Span::from_micros(200), ..spec.clone() });
    let small = goodput(TunnelSpec { mtu: Bytes::new(1280), ..spec });
    for goodput in [usual, merged, small] {
        assert!(goodput > 40.0, "{usual} {merged} {small}");
    }
}

#[test]
fn data_sent_before_an_application_stops_is_delivered() {
    let link = link("10mbit", "10ms", "1%", "droptail:50KB");
    let (topology, from, to) = hosts(&link, &link);
    let tunnels = vec![TunnelSpec::new(from, to, congestion("tcpa"))];
    let every = Demand::Pieces { size: Bytes::new(10_000), every: Span::from_millis(20) };
    let flow = FlowSpec::tunnelled(from, to, 0, every).stopping(seconds(2));
    let config = WorldConfig { tunnels, until: seconds(60), ..WorldConfig::default() };
    let outcome = World::new(&topology, vec![flow], config).unwrap().run();
    assert_eq!(outcome.end, End::Finished);
    let received = outcome.flows[0].received.count();
    assert!((990_000..=1_010_000).contains(&received), "{received}");
    assert!(outcome.flows[0].completion.unwrap() < Span::from_secs(3));
}

#[test]
fn a_tunnel_goes_down_when_its_path_is_cut() {
    let link = link("10mbit", "10ms", "0%", "droptail:50KB");
    let cut = LinkConfig { loss: "100%".parse().unwrap(), ..link.clone() };
    let mut topology = Topology::new();
    let (from, to) = (topology.node(), topology.node());
    let there = topology.link("there", from, to, &link);
    topology.link("back", to, from, &link);
    topology.change(there, seconds(2), &cut);
    let tunnels = vec![TunnelSpec::new(from, to, congestion("tcpa"))];
    let flow = FlowSpec::tunnelled(from, to, 0, Demand::Size(Bytes::new(100_000_000)));
    let config = WorldConfig { tunnels, until: seconds(60), ..WorldConfig::default() };
    let outcome = World::new(&topology, vec![flow], config).unwrap().run();
    assert_eq!(outcome.end, End::Stalled { flows: 1 });
    assert!(outcome.tunnels[0].lost.as_ref().unwrap().contains("does not answer"));
    assert!(outcome.tunnels[0].total.packets > 1000);
}

#[test]
fn an_invalid_tunnel_is_refused() {
    let link = link("10mbit", "10ms", "0%", "droptail:50KB");
    let (topology, from, to) = hosts(&link, &link);
    let refused = |flow: FlowSpec, spec: TunnelSpec| {
        let config = WorldConfig { tunnels: vec![spec], ..WorldConfig::default() };
        World::new(&topology, vec![flow], config).unwrap_err().to_string()
    };
    let spec = TunnelSpec::new(from, to, congestion("tcpa"));
    let flow = |tunnel| FlowSpec::tunnelled(from, to, tunnel, Demand::Bulk);
    assert!(refused(flow(1), spec.clone()).contains("flow 0 is in tunnel 1"));
    let back = FlowSpec::tunnelled(to, from, 0, Demand::Bulk);
    assert!(refused(back, spec.clone()).contains("does not join its ends"));
    let small = TunnelSpec { mtu: Bytes::new(1000), ..spec.clone() };
    assert!(refused(flow(0), small).contains("QUIC needs 1228 bytes"));
    let alone = TunnelSpec { to: from, ..spec };
    assert!(refused(FlowSpec::bulk(from, to, Algorithm::Reno), alone).contains("two hosts"));
}

#[test]
fn random_transfers_arrive_whole() {
    transfer_all(number("WEIR_SEED", 1), number("WEIR_TRANSFERS", 300));
}

#[test]
#[ignore = "takes minutes in the release profile"]
fn ten_thousand_random_transfers_arrive_whole() {
    transfer_all(number("WEIR_SEED", 1_000_000), number("WEIR_TRANSFERS", 10_000));
}

fn transfer_all(first: u64, count: u64) {
    let began = Instant::now();
    let (mut packets, mut bytes, mut hash) = (0, 0, 0);
    for seed in first..first + count {
        let caught = std::panic::catch_unwind(|| transfer(seed));
        let outcome = caught.unwrap_or_else(|_| panic!("the transfer of seed {seed} failed"));
        packets += outcome.packets.sent;
        bytes += outcome.flows.iter().map(|flow| flow.received.count()).sum::<u64>();
        hash = link::mix(hash ^ outcome.hash());
    }
    let (megabytes, took) = (bytes / 1_000_000, began.elapsed());
    println!(
        "{count} transfers of {megabytes} MB, {packets} packets in {took:.1?}, of hash {hash:016x}"
    );
}

fn transfer(seed: u64) -> Outcome {
    let mut draw = Stream::new(seed, "transfer");
    let rate = draw.log_uniform(1_000_000, 300_000_000);
    let (there, back) = (drawn_link(&mut draw, rate), drawn_link(&mut draw, rate));
    let mtu = if draw.one_in(4) { draw.log_uniform(1228, 1500) } else { 1500 };
    let by = ["tcpa", "tcpa", "bbr", "cubic"][draw.log_uniform(0, 3) as usize];
    let (topology, from, to) = hosts(&there, &back);
    let gather =
        if draw.one_in(3) { Span::from_micros(draw.log_uniform(10, 1000)) } else { Span::ZERO };
    let spec = TunnelSpec::new(from, to, congestion(by));
    let tunnels = vec![TunnelSpec { mtu: Bytes::new(mtu), gather, ..spec }];
    let most = (rate / 4).clamp(2000, 2_000_000);
    let flows: Vec<FlowSpec> = (0..draw.log_uniform(1, 6))
        .map(|_| {
            let size = Demand::Size(Bytes::new(draw.log_uniform(1, most)));
            let start = Time::from_nanos(draw.log_uniform(0, 2_000_000_000));
            FlowSpec::tunnelled(from, to, 0, size).starting(start)
        })
        .collect();
    let sizes: Vec<_> = flows.iter().map(|flow| flow.traffic.clone()).collect();
    let config = WorldConfig { seed, until: seconds(600), tunnels, ..WorldConfig::default() };
    let outcome = World::new(&topology, flows, config).unwrap().run();
    assert_eq!(outcome.end, End::Finished, "{by} over {there:?}: {:?}", outcome.tunnels);
    assert!(outcome.packets.holds(), "{:?}", outcome.packets);
    for (flow, traffic) in outcome.flows.iter().zip(sizes) {
        let Traffic::Tunnelled { demand: Demand::Size(size), .. } = traffic else { panic!() };
        assert_eq!(flow.received, size);
        assert!(flow.completion.is_some());
    }
    outcome
}

fn drawn_link(draw: &mut Stream, rate: u64) -> LinkConfig {
    let mut link = LinkConfig {
        rate: link::Capacity::Fixed(Rate::from_bits_per_second(rate)),
        delay: Span::from_micros(draw.log_uniform(50, 100_000)),
        queue: format!("droptail:{}p", draw.log_uniform(8, 200)).parse().unwrap(),
        ..LinkConfig::default()
    };
    if draw.one_in(2) {
        link.loss = link::Loss::Bernoulli(percent(draw, 8));
    }
    if draw.one_in(3) {
        let spread =
            Span::from_micros(draw.log_uniform(10, 10_000)).nanos().min(link.delay.nanos());
        link.jitter.spread = Span::from_nanos(spread);
        link.jitter.reorder = draw.one_in(2);
    }
    if draw.one_in(4) {
        link.duplicate = percent(draw, 5);
    }
    if draw.one_in(4) {
        link.corrupt = percent(draw, 3);
    }
    link
}

fn percent(draw: &mut Stream, most: u64) -> Share {
    Share::from_percent(draw.unit() * most as f64).unwrap()
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}
