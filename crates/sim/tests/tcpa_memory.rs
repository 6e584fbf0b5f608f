//! The memory that files leave of a path, and its benefit for the next file.

#![allow(clippy::unwrap_used)]

use cc::{Algorithm, Memory};
use link::LinkConfig;
use sim::{FlowOutcome, FlowSpec, Opening, ReceiveWindow, TcpConfig, Topology, World, WorldConfig};
use std::sync::Arc;
use units::{Bytes, Span, Time};

/// A download by a client that opens its window as Linux does.
fn download(rate: &str, rtt: Span, size: Bytes, memory: Option<Memory>) -> FlowOutcome {
    let receive_window = ReceiveWindow::Auto { initial: Bytes::kib(64), max: Bytes::kib(3072) };
    let hosts =
        TcpConfig { opening: Opening::ByReceiver, receive_window, memory, ..TcpConfig::default() };
    let mut topology = Topology::new();
    let (server, client) = (topology.node(), topology.node());
    let delay = rtt / 2;
    let there = LinkConfig {
        rate: rate.parse().unwrap(),
        delay,
        queue: "droptail:100p".parse().unwrap(),
        ..LinkConfig::default()
    };
    topology.link("there", server, client, &there);
    topology.link("back", client, server, &LinkConfig { delay, ..LinkConfig::default() });
    let flow = FlowSpec::sized(server, client, Algorithm::Tcpa, size).with(Arc::new(hosts));
    let config = WorldConfig { until: Time::ZERO + Span::from_secs(60), ..WorldConfig::default() };
    World::new(&topology, vec![flow], config).unwrap().run().flows.remove(0)
}

/// The file ends before start-up does. The second download takes the time that the client's window
/// makes unavoidable: four round trips, of which two carry 64 KiB each, and the rest at the path's
/// rate.
#[test]
fn a_file_that_ends_before_the_path_is_full_helps_the_next() {
    let (rtt, size) = (Span::from_millis(88), Bytes::kib(640));
    let first = download("41.3mbit", rtt, size, None);
    let second = download("41.3mbit", rtt, size, first.noted);
    let (cold, warm) = (first.completion.unwrap(), second.completion.unwrap());
    let rest = (size.count() - (128 << 10)) as f64 * 1514.0 / 1448.0;
    let least = rtt * 4 + Span::from_secs_f64(rest * 8.0 / 41.3e6);
    assert!(warm <= least + least / 20, "{warm} of {least}, {cold} without");
    assert!(warm + rtt / 2 <= cold, "{warm} after {cold}");
}

#[test]
fn the_rate_of_a_first_window_is_not_noted() {
    let noted = download("41.3mbit", Span::from_millis(88), Bytes::kib(64), None).noted;
    assert_eq!(noted, None);
}
