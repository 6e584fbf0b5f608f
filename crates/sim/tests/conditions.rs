//! Tests links that change, policers, links that release packets periodically, and results of the
//! measured time.
#![allow(clippy::unwrap_used)]

use cc::Algorithm;
use link::{Capacity, LinkConfig};
use sim::{
    Demand, Dumbbell, End, FlowSpec, Outcome, Policer, Spacing, TcpConfig, Topology, World,
    WorldConfig,
};
use std::sync::Arc;
use units::{Bytes, Rate, Span, Time};

fn seconds(count: u64) -> Time {
    Time::ZERO + Span::from_secs(count)
}

fn bottleneck(mbit: u64) -> LinkConfig {
    LinkConfig {
        rate: Capacity::Fixed(Rate::from_mbit(mbit)),
        delay: Span::from_millis(10),
        queue: "droptail:50KB".parse().unwrap(),
        ..LinkConfig::default()
    }
}

fn wire() -> LinkConfig {
    LinkConfig { delay: Span::from_millis(10), ..LinkConfig::default() }
}

fn run(topology: &Topology, flow: FlowSpec, measure_from: Time, until: Time) -> Outcome {
    let opening_until = Time::ZERO + Span::from_millis(500);
    let config = WorldConfig { until, measure_from, opening_until, ..WorldConfig::default() };
    World::new(topology, vec![flow], config).unwrap().run()
}

#[test]
fn a_flow_fills_a_link_before_and_after_its_rate_changes() {
    let shape = Dumbbell::new(&[LinkConfig::default()], &bottleneck(20), &wire());
    let flow = || FlowSpec::bulk(shape.senders[0], shape.receivers[0], Algorithm::Cubic);
    let mut topology = shape.topology.clone();
    topology.change(shape.bottleneck, seconds(10), &bottleneck(5));
    let goodput = |from, until| {
        run(&topology, flow(), seconds(from), seconds(until)).flows[0].goodput.mbit_per_second()
    };
    let (before, after) = (goodput(2, 10), goodput(12, 20));
    assert!((17.0..19.5).contains(&before), "{before}");
    assert!((4.2..4.9).contains(&after), "{after}");
    let outcome = run(&topology, flow(), seconds(2), seconds(20));
    assert!(outcome.packets.holds(), "{:?}", outcome.packets);
}

#[test]
fn a_wrong_change_is_refused_before_the_world_begins() {
    let shape = Dumbbell::new(&[LinkConfig::default()], &bottleneck(20), &wire());
    let mut topology = shape.topology;
    let dead = LinkConfig { rate: Capacity::Fixed(Rate::default()), ..LinkConfig::default() };
    topology.change(shape.bottleneck, seconds(1), &dead);
    let error = World::new(&topology, Vec::new(), WorldConfig::default()).unwrap_err();
    assert!(error.to_string().contains("bottleneck"), "{error}");
}

#[test]
fn a_policer_drops_the_packets_above_its_rate() {
    let shape = Dumbbell::new(&[LinkConfig::default()], &bottleneck(100), &wire());
    let mut topology = shape.topology;
    let policer = Policer { rate: Rate::from_mbit(10), burst: Bytes::new(30_000) };
    topology.police(shape.bottleneck, policer);
    let (from, to) = (shape.senders[0], shape.receivers[0]);
    let twice = FlowSpec::datagrams(from, to, Rate::from_mbit(20), Bytes::new(1000), Spacing::Even);
    let outcome = run(&topology, twice, seconds(1), seconds(5));
    assert!(outcome.packets.holds(), "{:?}", outcome.packets);
    let passed = outcome.flows[0].goodput.mbit_per_second();
    assert!((9.9..10.1).contains(&passed), "{passed}");
    let link = outcome.link(shape.bottleneck).unwrap();
    // 4 s of 20 Mbit/s are 10,000 frames.
    assert!((4950..5050).contains(&link.dropped_measured), "{}", link.dropped_measured);
}

#[test]
fn a_periodic_release_delays_packets_and_loses_none() {
    let every = Span::from_millis(8);
    let shape = Dumbbell::new(&[LinkConfig::default()], &bottleneck(20), &wire());
    let flow = || FlowSpec::bulk(shape.senders[0], shape.receivers[0], Algorithm::Reno);
    let smooth = run(&shape.topology, flow(), seconds(1), seconds(6));
    let mut topology = shape.topology.clone();
    topology.release_every(shape.back, every);
    let lumpy = run(&topology, flow(), seconds(1), seconds(6));
    assert!(lumpy.packets.holds(), "{:?}", lumpy.packets);
    let rtt = |outcome: &Outcome| outcome.flows[0].min_rtt.unwrap();
    assert!(rtt(&lumpy) >= rtt(&smooth), "{} {}", rtt(&lumpy), rtt(&smooth));
    assert!(lumpy.flows[0].goodput.mbit_per_second() > 15.0);
}

#[test]
fn results_of_the_measured_time_exclude_the_opening() {
    let shape = Dumbbell::new(&[LinkConfig::default()], &bottleneck(20), &wire());
    let flow = FlowSpec::bulk(shape.senders[0], shape.receivers[0], Algorithm::Cubic);
    let outcome = run(&shape.topology, flow, seconds(5), seconds(10));
    let measured = outcome.measured(0);
    assert!(measured.received < outcome.flows[0].received);
    assert!(measured.sent >= measured.received);
    assert!(measured.retransmitted <= outcome.flows[0].retransmitted);
    let rate = measured.received.count() as f64 * 8.0 / 5.0 / 1e6;
    assert!((rate / outcome.flows[0].goodput.mbit_per_second() - 1.0).abs() < 1e-3, "{rate}");
    let peak = outcome.opening_peak(shape.bottleneck).unwrap();
    assert!(peak > Bytes::ZERO && peak <= Bytes::new(50_000), "{peak}");
}

#[test]
fn a_world_can_be_ended_when_all_flows_are_done() {
    let shape = Dumbbell::new(&[LinkConfig::default()], &bottleneck(20), &wire());
    let (from, to) = (shape.senders[0], shape.receivers[0]);
    let bulk = FlowSpec::bulk(from, to, Algorithm::Reno);
    let size = Demand::Size(Bytes::new(100_000));
    let sized = FlowSpec::tcp(from, to, Algorithm::Reno, size, Arc::new(TcpConfig::default()));
    let config = WorldConfig { until: seconds(100), ..WorldConfig::default() };
    let mut world = World::new(&shape.topology, vec![bulk, sized], config).unwrap();
    assert_eq!(world.unfinished(), 1);
    let mut at = Time::ZERO;
    while world.unfinished() > 0 {
        at += Span::from_millis(50);
        assert_eq!(world.run_until(at), None);
    }
    let outcome = world.end_here();
    assert_eq!(outcome.end, End::TimeUp);
    assert!(outcome.at <= at && at < seconds(10));
    assert!(outcome.flows[1].completion.is_some());
}
