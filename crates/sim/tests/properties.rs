//! Invariants of every world.

#![allow(clippy::unwrap_used)]

use cc::Algorithm;
use link::LinkConfig;
use proptest::prelude::*;
use sim::{
    Dumbbell, End, FatTree, FlowSpec, Incast, Opening, Outcome, ParkingLot, Spacing, TcpConfig,
    World, WorldConfig,
};
use std::sync::Arc;
use units::{Bytes, Rate, Share, Span, Time};

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

prop_compose! {
    fn any_link()(
        rate in prop_oneof![Just("unlimited"), Just("5mbit"), Just("100mbit"), Just("trace:1,2,3,9")],
        delay in 0u64..30,
        jitter in prop_oneof![Just("none"), Just("1ms"), Just("3ms,normal,reorder")],
        loss in prop_oneof![Just("none"), Just("2%"), Just("20%"), Just("gilbert:p=2%,r=30%")],
        reorder in prop_oneof![Just("none"), Just("5%,10ms")],
        duplicate in prop_oneof![Just(0.0), Just(0.05)],
        corrupt in prop_oneof![Just(0.0), Just(0.02)],
        queue in prop_oneof![
            Just("droptail:20KB"), Just("headdrop:10p"), Just("codel:ecn"), Just("fq_codel:ecn"),
            Just("pie:ecn"), Just("red:limit=60p,ecn"), Just("red:limit=100p,min=10p,step"),
            Just("caqm:20KB,limit=60p"), Just("caqm:0B,limit=20p,period=1ms,p=50%,spread=off"),
        ],
    ) -> LinkConfig {
        LinkConfig {
            rate: rate.parse().unwrap(),
            // Without a rate and a delay no time would pass, and windows would grow for ever.
            delay: Span::from_millis(if rate == "unlimited" { delay.max(1) } else { delay }),
            jitter: jitter.parse().unwrap(),
            loss: loss.parse().unwrap(),
            reorder: reorder.parse().unwrap(),
            duplicate: Share::new(duplicate).unwrap(),
            corrupt: Share::new(corrupt).unwrap(),
            queue: queue.parse().unwrap(),
            ..LinkConfig::default()
        }
    }
}

fn transfers(there: &LinkConfig, back: &LinkConfig, tcp: TcpConfig, seed: u64) -> Outcome {
    let access = LinkConfig { delay: Span::from_millis(1), ..LinkConfig::default() };
    let shape = Dumbbell::new(&[access.clone(), access], there, back);
    let tcp = Arc::new(tcp);
    let mut flows = Vec::new();
    for (index, algorithm) in Algorithm::ALL.iter().enumerate() {
        let pair = index % 2;
        let size = Bytes::new(30_000 + 7 * index as u64);
        let flow = FlowSpec::sized(shape.senders[pair], shape.receivers[pair], *algorithm, size);
        flows.push(flow.with(tcp.clone()).traced());
    }
    let noise = FlowSpec::datagrams(
        shape.senders[0],
        shape.receivers[1],
        Rate::from_bits_per_second(300_000),
        Bytes::new(500),
        Spacing::Poisson,
    );
    flows.push(noise.stopping(seconds(5)));
    let config = WorldConfig {
        seed,
        until: seconds(20_000),
        sample_every: Span::from_secs(1),
        ..WorldConfig::default()
    };
    World::new(&shape.topology, flows, config).unwrap().run()
}

fn any_tcp() -> impl Strategy<Value = TcpConfig> {
    let opening =
        prop_oneof![Just(Opening::BySender), Just(Opening::ByReceiver), Just(Opening::Established)];
    let ecn =
        prop_oneof![Just(sim::Ecn::Off), Just(sim::Ecn::ByAlgorithm), Just(sim::Ecn::Classic)];
    let coalesce = prop_oneof![Just(None), Just(Some(Span::from_micros(100)))];
    let window = prop_oneof![
        Just(sim::ReceiveWindow::Fixed(Bytes::new(4000))),
        Just(TcpConfig::default().receive_window)
    ];
    let caqm = (any::<bool>(), any::<bool>(), 0_u8..2).prop_map(|(receiver, trusts_path, kind)| {
        sim::CaqmHosts { receiver, trusts_path, kind, ..sim::CaqmHosts::default() }
    });
    (opening, ecn, coalesce, window, any::<bool>(), any::<bool>(), caqm).prop_map(
        |(opening, ecn, coalesce, receive_window, paces, tail_loss_probe, caqm)| TcpConfig {
            caqm,
            opening,
            ecn,
            coalesce,
            receive_window,
            paces,
            tail_loss_probe,
            ..TcpConfig::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Links may lose, duplicate, damage and reorder packets. Every flow still arrives complete,
    /// and the counts account for every packet.
    #[test]
    fn every_flow_arrives_complete_and_the_counts_add_up(
        there in any_link(), back in any_link(), tcp in any_tcp(), seed in any::<u64>(),
    ) {
        let outcome = transfers(&there, &back, tcp, seed);
        prop_assert_eq!(outcome.end, End::Finished, "{:?}", outcome.flows);
        prop_assert!(outcome.packets.holds(), "{:?}", outcome.packets);
        prop_assert_eq!(outcome.packets.inside, 0);
        for (index, flow) in outcome.flows.iter().take(Algorithm::ALL.len()).enumerate() {
            prop_assert_eq!(flow.received, Bytes::new(30_000 + 7 * index as u64));
            prop_assert!(flow.completion.is_some());
            prop_assert_eq!(flow.sent - flow.retransmitted, flow.received);
        }
    }

    /// The counts of a world that is stopped at any time also account for every packet.
    #[test]
    fn the_counts_of_a_stopped_world_add_up(there in any_link(), millis in 1u64..2000, seed in any::<u64>()) {
        let shape = Dumbbell::new(&[LinkConfig::default()], &there, &LinkConfig::default());
        let flows = Algorithm::ALL
            .iter()
            .map(|algorithm| FlowSpec::bulk(shape.senders[0], shape.receivers[0], *algorithm))
            .collect();
        let until = Time::ZERO + Span::from_millis(millis);
        let config =
            WorldConfig { seed, until, max_events: 20_000, ..WorldConfig::default() };
        let outcome = World::new(&shape.topology, flows, config).unwrap().run();
        prop_assert!(outcome.packets.holds(), "{:?}", outcome.packets);
    }
}

/// The same world has the same outcome on every thread and in every order.
#[test]
fn a_world_depends_on_its_inputs_alone() {
    let there = LinkConfig {
        rate: "20mbit".parse().unwrap(),
        delay: Span::from_millis(10),
        loss: "1%".parse().unwrap(),
        jitter: "1ms,normal,reorder".parse().unwrap(),
        ..LinkConfig::default()
    };
    let hash = |seed| transfers(&there, &there, TcpConfig::default(), seed).hash();
    let alone: Vec<u64> = (0..8).map(hash).collect();
    for threads in [2, 8] {
        let chunk = 8 / threads;
        let together: Vec<u64> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let seeds = thread * chunk..(thread + 1) * chunk;
                        seeds.map(hash).collect::<Vec<_>>()
                    })
                })
                .collect();
            handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
        });
        assert_eq!(alone, together);
    }
    let different: std::collections::BTreeSet<u64> = alone.iter().copied().collect();
    assert_eq!(different.len(), 8);
}

fn gigabit(delay_us: u64) -> LinkConfig {
    LinkConfig {
        rate: "1gbit".parse().unwrap(),
        delay: Span::from_micros(delay_us),
        queue: "droptail:200p".parse().unwrap(),
        ..LinkConfig::default()
    }
}

/// In a fat tree of k = 4 every host sends to another pod. ECMP puts some flows on the same links,
/// but every flow gets some goodput, and a single flow has a path alone.
#[test]
fn every_flow_of_a_fat_tree_has_goodput() {
    let shape = FatTree::new(4, &gigabit(5), &gigabit(5));
    assert_eq!(shape.hosts.len(), 16);
    let flows: Vec<_> = (0..16)
        .map(|host| {
            FlowSpec::bulk(shape.hosts[host], shape.hosts[(host + 4) % 16], Algorithm::Cubic)
        })
        .collect();
    let until = Time::ZERO + Span::from_millis(500);
    let config = WorldConfig { until, ..WorldConfig::default() };
    let one = World::new(&shape.topology, flows[..1].to_vec(), config.clone()).unwrap().run();
    assert!(one.flows[0].goodput > Rate::from_mbit(900), "{}", one.flows[0].goodput);
    let all = World::new(&shape.topology, flows, config).unwrap().run();
    assert!(all.flows.iter().all(|flow| flow.goodput > Rate::from_mbit(50)));
    let sum: f64 = all.flows.iter().map(|flow| flow.goodput.mbit_per_second()).sum();
    assert!(sum > 6000.0, "{sum}");
    assert!(all.packets.holds());
}

#[test]
fn senders_of_an_incast_share_the_port() {
    let shape = Incast::new(32, &gigabit(10), &gigabit(10));
    let flows = shape
        .senders
        .iter()
        .map(|sender| {
            FlowSpec::sized(*sender, shape.receiver, Algorithm::Reno, Bytes::new(200_000))
        })
        .collect();
    let config = WorldConfig { until: seconds(60), ..WorldConfig::default() };
    let outcome = World::new(&shape.topology, flows, config).unwrap().run();
    assert_eq!(outcome.end, End::Finished);
    let port = outcome.link(shape.port).unwrap();
    assert!(port.dropped.overflow.packets > 0, "32 senders overflow 200 packets");
    assert!(outcome.flows.iter().all(|flow| flow.received == Bytes::new(200_000)));
}

#[test]
fn a_parking_lot_favours_flows_with_one_bottleneck() {
    let bottleneck = LinkConfig { delay: Span::from_millis(5), ..gigabit(0) };
    let bottleneck = LinkConfig { rate: "50mbit".parse().unwrap(), ..bottleneck };
    let access = LinkConfig { delay: Span::from_millis(1), ..LinkConfig::default() };
    let shape = ParkingLot::new(3, &access, &bottleneck);
    let mut flows = vec![FlowSpec::bulk(shape.first, shape.last, Algorithm::Reno)];
    flows.extend(shape.crossing.iter().map(|(a, b)| FlowSpec::bulk(*a, *b, Algorithm::Reno)));
    let config =
        WorldConfig { until: seconds(30), measure_from: seconds(10), ..WorldConfig::default() };
    let outcome = World::new(&shape.topology, flows, config).unwrap().run();
    let long = outcome.flows[0].goodput.mbit_per_second();
    for short in &outcome.flows[1..] {
        let short = short.goodput.mbit_per_second();
        assert!(short > 2.0 * long && short + long > 45.0, "{short} {long}");
    }
}

#[test]
fn a_world_that_cannot_finish_ends_with_a_reason() {
    let dead = LinkConfig { loss: "100%".parse().unwrap(), ..LinkConfig::default() };
    let live = LinkConfig::default();
    let shape = Dumbbell::new(std::slice::from_ref(&live), &dead, &live);
    let flow =
        FlowSpec::sized(shape.senders[0], shape.receivers[0], Algorithm::Reno, Bytes::new(1));
    let world = |config| World::new(&shape.topology, vec![flow.clone()], config).unwrap().run();
    let outcome = world(WorldConfig { until: seconds(1000), ..WorldConfig::default() });
    assert_eq!(outcome.end, End::Unfinished { flows: 1 });
    assert_eq!(outcome.flows[0].completion, None);
    let outcome =
        world(WorldConfig { until: Time::NEVER, max_events: 5, ..WorldConfig::default() });
    assert_eq!(outcome.end, End::EventBudget);
    assert!(outcome.events <= 5);
}

#[test]
fn an_invalid_world_is_refused() {
    let shape =
        Dumbbell::new(&[LinkConfig::default()], &LinkConfig::default(), &LinkConfig::default());
    let refused = |flow: FlowSpec| {
        World::new(&shape.topology, vec![flow], WorldConfig::default()).unwrap_err().to_string()
    };
    let (a, b) = (shape.senders[0], shape.receivers[0]);
    assert!(refused(FlowSpec::bulk(a, a, Algorithm::Reno)).contains("to itself"));
    assert!(
        refused(FlowSpec::sized(a, b, Algorithm::Reno, Bytes::ZERO)).contains("at least 1 byte")
    );
    let tcp = TcpConfig { initial_window: 0, ..TcpConfig::default() };
    let flow = FlowSpec::bulk(a, b, Algorithm::Reno).with(Arc::new(tcp));
    assert!(refused(flow).contains("initial_window"));
    let mut broken = sim::Topology::new();
    let (left, right) = (broken.node(), broken.node());
    broken.link("one way", left, right, &LinkConfig::default());
    let flow = FlowSpec::bulk(left, right, Algorithm::Reno);
    let error = World::new(&broken, vec![flow], WorldConfig::default()).unwrap_err();
    assert!(error.to_string().contains("no way leads from node 1 to node 0"), "{error}");
}
