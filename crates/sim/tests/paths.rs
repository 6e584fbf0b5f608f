//! Compares whole worlds with theory.

#![allow(clippy::unwrap_used)]

use cc::Algorithm;
use link::LinkConfig;
use sim::{
    Demand, Dumbbell, Ecn, End, FlowSpec, Opening, Outcome, Spacing, TcpConfig, World, WorldConfig,
};
use std::sync::Arc;
use units::{Bytes, Rate, Share, Span, Time};

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

/// Builds a pair of hosts with a bottleneck between them. Each direction has half of the round
/// trip.
fn pair(rate: &str, rtt: Span, queue: &str, loss: &str) -> Dumbbell {
    let there = LinkConfig {
        rate: rate.parse().unwrap(),
        delay: rtt / 2,
        queue: queue.parse().unwrap(),
        loss: loss.parse().unwrap(),
        ..LinkConfig::default()
    };
    let back = LinkConfig { delay: rtt / 2, ..LinkConfig::default() };
    Dumbbell::new(&[LinkConfig::default()], &there, &back)
}

fn bulk(shape: &Dumbbell, algorithm: Algorithm, until: u64, from: u64) -> Outcome {
    let flow = FlowSpec::bulk(shape.senders[0], shape.receivers[0], algorithm);
    let config = WorldConfig {
        until: seconds(until),
        measure_from: seconds(from),
        ..WorldConfig::default()
    };
    World::new(&shape.topology, vec![flow], config).unwrap().run()
}

#[test]
fn one_flow_fills_a_path_without_loss() {
    let shape = pair("100mbit", Span::from_millis(20), "droptail:250KB", "none");
    let outcome = bulk(&shape, Algorithm::Reno, 20, 5);
    assert_eq!(outcome.end, End::TimeUp);
    // 1448 of 1514 bytes are payload.
    let share = outcome.flows[0].goodput.mbit_per_second() / (100.0 * 1448.0 / 1514.0);
    assert!((0.99..=1.0001).contains(&share), "{share}");
    assert_eq!(outcome.flows[0].timeouts, 0);
    assert!(outcome.packets.holds());
}

/// Mathis, Semke, Mahdavi, Ott 1997: MSS/RTT · C/√p. With an acknowledgement for each segment and
/// byte counting C is √(3/2).
#[test]
fn reno_goodput_under_random_loss_follows_mathis() {
    for (loss, p) in [("0.1%", 0.001), ("0.3%", 0.003), ("1%", 0.01)] {
        let shape = pair("10gbit", Span::from_millis(50), "droptail:100MB", loss);
        let outcome = bulk(&shape, Algorithm::Reno, 320, 20);
        let expected = 1448.0 * 8.0 / 0.050 * (1.5f64 / p).sqrt() / 1e6;
        let measured = outcome.flows[0].goodput.mbit_per_second();
        let ratio = measured / expected;
        println!("loss {loss}: {measured:.2} Mbit/s, Mathis {expected:.2}, ratio {ratio:.3}");
        assert!((0.8..1.2).contains(&ratio), "loss {loss}: {measured} of {expected}");
    }
}

#[test]
fn a_sized_flow_finishes_in_the_time_of_slow_start() {
    let shape = pair("1gbit", Span::from_millis(100), "droptail:10MB", "none");
    let size = Bytes::new(1448 * 70);
    let flow = FlowSpec::sized(shape.senders[0], shape.receivers[0], Algorithm::Reno, size);
    let outcome = World::new(&shape.topology, vec![flow], WorldConfig::default()).unwrap().run();
    assert_eq!(outcome.end, End::Finished);
    // The handshake and 10, 20 and 40 segments take three and a half round trips.
    let took = outcome.flows[0].completion.unwrap();
    assert!(took > Span::from_millis(350) && took < Span::from_millis(353), "{took}");
    assert_eq!(outcome.flows[0].received, size);
    assert_eq!(outcome.packets.inside, 0);
}

/// M/D/1: Poisson arrivals and equal packets wait rho / (2 (1 - rho)) service times on average
/// (Pollaczek and Khinchine).
#[test]
fn poisson_datagrams_wait_as_long_as_in_an_m_d_1_queue() {
    let shape = pair("1gbit", Span::ZERO, "droptail:1000000p", "none");
    for load in [0.3, 0.6, 0.8] {
        let rate = Rate::from_bits_per_second((load * 1e9) as u64);
        let (from, to) = (shape.senders[0], shape.receivers[0]);
        let flow = FlowSpec::datagrams(from, to, rate, Bytes::new(1250), Spacing::Poisson);
        let config = WorldConfig { until: seconds(4), ..WorldConfig::default() };
        let outcome = World::new(&shape.topology, vec![flow], config).unwrap().run();
        let expected = 10_000.0 * load / (2.0 * (1.0 - load));
        let wait = outcome.links[0].sojourns.mean().nanos() as f64;
        println!("load {load}: {wait:.0} ns, M/D/1 {expected:.0}");
        assert!((wait / expected - 1.0).abs() < 0.05, "load {load}: {wait}, not {expected}");
        assert!(outcome.packets.holds());
    }
}

/// A download takes half a round trip more than an upload, because the client sends a request.
#[test]
fn a_download_waits_for_its_request() {
    let shape = pair("1gbit", Span::from_millis(100), "droptail:10MB", "none");
    let took = |opening| {
        let config = Arc::new(TcpConfig { opening, ..TcpConfig::default() });
        let size = Bytes::new(1448 * 10);
        let flow = FlowSpec::sized(shape.senders[0], shape.receivers[0], Algorithm::Reno, size);
        let world = World::new(&shape.topology, vec![flow.with(config)], WorldConfig::default());
        world.unwrap().run().flows[0].completion.unwrap().millis_f64().round()
    };
    assert_eq!(took(Opening::Established), 50.0);
    assert_eq!(took(Opening::BySender), 150.0);
    assert_eq!(took(Opening::ByReceiver), 200.0);
}

/// DCTCP keeps the queue at its threshold without any loss after slow start (RFC 8257).
#[test]
fn dctcp_keeps_the_queue_at_the_marking_threshold() {
    let shape = pair("1gbit", Span::from_micros(200), "red:limit=2000p,min=20p,step", "none");
    let flows = (0..2)
        .map(|_| FlowSpec::bulk(shape.senders[0], shape.receivers[0], Algorithm::Dctcp))
        .collect();
    let config =
        WorldConfig { until: seconds(2), measure_from: seconds(1), ..WorldConfig::default() };
    let outcome = World::new(&shape.topology, flows, config).unwrap().run();
    let link = &outcome.links[0];
    let packets = |share| link.occupancy.quantile(Share::new(share).unwrap()).count() / 1514;
    assert!(link.marked.packets > 0 && outcome.packets.dropped == 0);
    assert!(link.throughput > Rate::from_mbit(990), "{}", link.throughput);
    assert!((5..45).contains(&packets(0.95)), "{}", packets(0.95));
    assert!(outcome.jain() > 0.9, "{}", outcome.jain());
}

/// RFC 3168 with Reno: the flow reduces its window without any loss.
#[test]
fn with_classic_ecn_marks_replace_losses() {
    let shape =
        pair("50mbit", Span::from_millis(20), "red:limit=400p,min=30p,max=120p,gentle,ecn", "none");
    let config = Arc::new(TcpConfig { ecn: Ecn::Classic, ..TcpConfig::default() });
    let flow = FlowSpec::bulk(shape.senders[0], shape.receivers[0], Algorithm::Reno).with(config);
    let world =
        WorldConfig { until: seconds(20), measure_from: seconds(5), ..WorldConfig::default() };
    let outcome = World::new(&shape.topology, vec![flow], world).unwrap().run();
    let (flow, link) = (&outcome.flows[0], &outcome.links[0]);
    assert!(link.marked.packets > 5 && link.dropped_measured == 0);
    assert!(flow.recoveries > 5, "{}", flow.recoveries);
    assert!(flow.goodput > Rate::from_mbit(35), "{}", flow.goodput);
}

/// If the path reorders by more than a few packets, RACK waits and undoes spurious reductions, and
/// the flow stays near the link's rate.
#[test]
fn reordering_is_not_treated_as_congestion() {
    let there = LinkConfig {
        rate: "20mbit".parse().unwrap(),
        delay: Span::from_millis(10),
        queue: "droptail:200KB".parse().unwrap(),
        reorder: "2%,4ms".parse().unwrap(),
        ..LinkConfig::default()
    };
    let back = LinkConfig { delay: Span::from_millis(10), ..LinkConfig::default() };
    let shape = Dumbbell::new(&[LinkConfig::default()], &there, &back);
    let outcome = bulk(&shape, Algorithm::Reno, 20, 5);
    let flow = &outcome.flows[0];
    assert!(flow.goodput > Rate::from_mbit(17), "{}", flow.goodput);
    assert_eq!(flow.timeouts, 0);
}

/// The window does not grow while the application sends less than the window allows.
#[test]
fn an_unused_congestion_window_does_not_grow() {
    let shape = pair("100mbit", Span::from_millis(20), "droptail:250KB", "none");
    let demand = Demand::Pieces { size: Bytes::new(3000), every: Span::from_millis(10) };
    let (from, to) = (shape.senders[0], shape.receivers[0]);
    let flow = FlowSpec::tcp(from, to, Algorithm::Reno, demand, Arc::default()).traced();
    let outcome = World::new(&shape.topology, vec![flow], WorldConfig::default()).unwrap().run();
    let flow = &outcome.flows[0];
    let last = flow.trace.as_ref().unwrap().points().last().copied().unwrap();
    // In slow start the window grows up to twice the flight of nine segments, some of them small.
    assert!(last.window <= Bytes::new(2 * 9 * 1448 + 3000), "{}", last.window);
    let rate = flow.goodput.mbit_per_second();
    assert!((2.3..2.5).contains(&rate), "{rate}");
}

/// Receive coalescing and pacing change the timing of packets, but not the throughput.
#[test]
fn coalescing_and_pacing_keep_the_rate() {
    let shape = pair("1gbit", Span::from_millis(10), "droptail:2MB", "none");
    let config =
        TcpConfig { coalesce: Some(Span::from_micros(50)), paces: true, ..TcpConfig::default() };
    let flow = FlowSpec::bulk(shape.senders[0], shape.receivers[0], Algorithm::Cubic);
    let world =
        WorldConfig { until: seconds(6), measure_from: seconds(3), ..WorldConfig::default() };
    let plain = World::new(&shape.topology, vec![flow.clone()], world.clone()).unwrap().run();
    let other =
        World::new(&shape.topology, vec![flow.with(Arc::new(config))], world).unwrap().run();
    assert!(other.flows[0].goodput > Rate::from_mbit(930), "{}", other.flows[0].goodput);
    assert!(plain.flows[0].goodput > Rate::from_mbit(930), "{}", plain.flows[0].goodput);
    let acks = |outcome: &Outcome| outcome.packets.sent - outcome.flows[0].packets_sent;
    assert!(acks(&other) * 3 < acks(&plain) * 2, "{} {}", acks(&other), acks(&plain));
}

/// Windows of tens of thousands of segments with losses at many places.
#[test]
fn losses_in_windows_of_thousands_of_segments_are_repaired() {
    let shape = pair("10gbit", Span::from_millis(50), "droptail:400MB", "0.1%");
    let outcome = bulk(&shape, Algorithm::Bbr, 2, 1);
    let flow = &outcome.flows[0];
    assert!(flow.goodput > Rate::from_mbit(7000), "{}", flow.goodput);
    assert_eq!((flow.timeouts, flow.undone), (0, 0));
    assert!(flow.retransmitted.count() * 500 < flow.sent.count(), "{}", flow.retransmitted);
    println!("{} events, {} recoveries", outcome.events, flow.recoveries);
}
