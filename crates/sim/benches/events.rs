//! Measures events per second on one core, for several numbers of flows. An event is an entry of
//! the event queue: a delivery by a link, a timer, a write.

#![allow(missing_docs, clippy::unwrap_used)]

use cc::Algorithm;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use link::LinkConfig;
use sim::{Demand, Dumbbell, FlowSpec, World, WorldConfig};
use std::hint::black_box;
use std::sync::Arc;
use units::{Bytes, Rate, Span, Time};

/// Builds a world of `flows` flows over a bottleneck with 10 Mbit/s per flow, or 1 Gbit/s for a
/// single flow. The round trip is 20 ms.
fn world(flows: usize, until: Span) -> World {
    let rate = if flows == 1 { 1000 } else { 10 * flows as u64 };
    let bottleneck = LinkConfig {
        rate: link::Capacity::Fixed(Rate::from_mbit(rate)),
        queue: format!("droptail:{}p", (rate * 2).max(100)).parse().unwrap(),
        ..LinkConfig::default()
    };
    let access = LinkConfig { delay: Span::from_millis(5), ..LinkConfig::default() };
    let shape = Dumbbell::new(&[access], &bottleneck, &LinkConfig::default());
    let specs = (0..flows)
        .map(|index| {
            let start = Time::ZERO + Span::from_micros(index as u64 * 200_000 / flows as u64);
            let flow = FlowSpec::bulk(shape.senders[0], shape.receivers[0], Algorithm::Reno);
            flow.starting(start)
        })
        .collect();
    let config = WorldConfig { until: Time::ZERO + until, ..WorldConfig::default() };
    World::new(&shape.topology, specs, config).unwrap()
}

/// Measures the memory of a connected idle flow, including its links.
fn memory() {
    let flows = 100_000;
    let demand = Demand::Pieces { size: Bytes::new(20_000), every: Span::from_secs(1000) };
    let wire = LinkConfig { delay: Span::from_millis(5), ..LinkConfig::default() };
    let shape = Dumbbell::new(std::slice::from_ref(&wire), &wire, &wire);
    let (from, to) = (shape.senders[0], shape.receivers[0]);
    let hosts = Arc::default();
    let specs: Vec<_> = (0..flows)
        .map(|index| {
            let start = Time::ZERO + Span::from_millis(index as u64);
            let flow = FlowSpec::tcp(from, to, Algorithm::Reno, demand, Arc::clone(&hosts));
            flow.starting(start)
        })
        .collect();
    let given = specs.len() * size_of::<FlowSpec>();
    let before = resident();
    let config = WorldConfig { until: Time::ZERO + Span::from_secs(900), ..WorldConfig::default() };
    let mut world = World::new(&shape.topology, specs, config).unwrap();
    let end = world.run_until(Time::ZERO + Span::from_secs(800));
    let bytes = (resident() - before + given) / flows;
    println!("{bytes} bytes for each of {flows} idle flows, {} events, {end:?}", world.events());
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn events(criterion: &mut Criterion) {
    memory();
    let mut group = criterion.benchmark_group("events");
    group.sample_size(10);
    for (flows, until) in
        [(1, Span::from_secs(5)), (100, Span::from_secs(5)), (10_000, Span::from_millis(600))]
    {
        let outcome = world(flows, until).run();
        println!(
            "{flows} flows: {} events, {} packets over links, {} dropped",
            outcome.events, outcome.hops, outcome.packets.dropped
        );
        group.throughput(Throughput::Elements(outcome.events));
        group.bench_function(BenchmarkId::from_parameter(flows), |bencher| {
            bencher.iter_batched(
                || world(flows, until),
                |world| black_box(world.run().events),
                criterion::BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
