//! Whole worlds against what theory says of them.

#![allow(clippy::unwrap_used)]

use cc::Algorithm;
use link::LinkConfig;
use sim::{Dumbbell, End, FlowSpec, Outcome, World, WorldConfig};
use units::{Bytes, Span, Time};

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

/// One pair of hosts: the bottleneck, and half of the round trip on each way.
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
fn a_clean_path_is_filled() {
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
fn reno_follows_mathis() {
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
    // The handshake, 10, 20 and 40 segments: three and a half round trips.
    let took = outcome.flows[0].completion.unwrap();
    assert!(took > Span::from_millis(350) && took < Span::from_millis(353), "{took}");
    assert_eq!(outcome.flows[0].received, size);
    assert_eq!(outcome.packets.inside, 0);
}
