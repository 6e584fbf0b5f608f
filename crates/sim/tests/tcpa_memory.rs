//! The memory of a path that a download leaves, and its benefit for the next download.

#![allow(clippy::unwrap_used)]

use cc::{Algorithm, Memory};
use link::LinkConfig;
use sim::{FlowOutcome, FlowSpec, Opening, ReceiveWindow, TcpConfig, Topology, World, WorldConfig};
use std::sync::Arc;
use units::{Bytes, Span, Time};

const RATE: &str = "41.3mbit";
const RTT: Span = Span::from_millis(88);
/// Linux's first window.
const LINUX: Bytes = Bytes::kib(64);

/// Runs a download by a client that offers `window` at first and opens the window as Linux does.
fn download(window: Bytes, size: Bytes, memory: Option<Memory>) -> FlowOutcome {
    let receive_window = ReceiveWindow::Auto { initial: window, max: Bytes::kib(3072) };
    let hosts =
        TcpConfig { opening: Opening::ByReceiver, receive_window, memory, ..TcpConfig::default() };
    let mut topology = Topology::new();
    let (server, client) = (topology.node(), topology.node());
    let delay = RTT / 2;
    let there = LinkConfig {
        rate: RATE.parse().unwrap(),
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

/// The file ends before start-up ends. The second download takes the time that the client's window
/// makes unavoidable: two round trips before the first data, then 64 KiB in the first round trip
/// and 80 KiB in the second. The third round trip has three times this amount, because the window
/// opens by twice the arriving data. The remaining data follows at the path's rate.
#[test]
fn a_download_that_ends_in_start_up_speeds_up_the_next_download() {
    let size = Bytes::kib(640);
    let first = download(LINUX, size, None);
    let second = download(LINUX, size, first.noted);
    let (cold, warm) = (first.completion.unwrap(), second.completion.unwrap());
    let rest = (size.count() - ((64 + 80 + 240) << 10)) as f64 * 1514.0 / 1448.0;
    let least = RTT * 5 + Span::from_secs_f64(rest * 8.0 / 41.3e6);
    assert!(warm <= least + least / 20, "{warm} of {least}, {cold} without");
    assert!(warm < cold, "{warm} after {cold}");
}

/// The benefit of a memory if the client's window is wide.
#[test]
fn a_memory_saves_a_round_trip_if_the_receive_window_is_wide() {
    let (window, size) = (Bytes::kib(256), Bytes::kib(640));
    let first = download(window, size, None);
    let second = download(window, size, first.noted);
    let (cold, warm) = (first.completion.unwrap(), second.completion.unwrap());
    assert!(warm + RTT <= cold, "{warm} after {cold}");
}

#[test]
fn the_rate_of_a_first_window_is_not_noted() {
    let noted = download(LINUX, Bytes::kib(64), None).noted;
    assert_eq!(noted, None);
}
