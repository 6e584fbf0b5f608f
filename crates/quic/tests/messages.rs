//! The duration of small transfers beside bulk transfers, and after a loss, in virtual time.

#![allow(clippy::unwrap_used)]

mod world;

use units::Span;
use world::{CLIENT, Change, PathConfig, SERVER, Transfer, Windows, World, seconds, settings};

/// The bulk transfers fill a send window of ten bandwidth-delay products. A request that waited
/// behind these transfers would take several round trips.
#[test]
fn a_request_beside_many_bulk_transfers_takes_little_more_than_a_round_trip() {
    let path = PathConfig::new("20mbit", "40ms", "droptail:200KB");
    let windows = Windows { receive: 64 << 20, stream: 64 << 20, send: 1 << 20 };
    let mut world = World::new(5, settings("fixed 18mbit"), &path).with_windows(windows);
    assert!(world.run_until_confirmed(seconds(10)));
    for _ in 0..BULK {
        world.transfer(CLIENT, Transfer { up: 1 << 40, ..Transfer::default() });
    }
    world.run_for(Span::from_secs(3));
    let received = world.hosts[SERVER].application.received;
    let began = world.now();
    let mut longest = Span::ZERO;
    for _ in 0..40 {
        let (asked, whole) = (world.now(), world.hosts[CLIENT].application.whole);
        world.transfer(CLIENT, Transfer { up: 500, down: 500, ..Transfer::default() });
        while world.hosts[CLIENT].application.whole == whole {
            world.run_for(Span::from_micros(500));
            assert!(world.now().since(asked) < Span::from_secs(20), "{:?}", world.lost());
        }
        longest = longest.max(world.now().since(asked));
        world.run_for(Span::from_millis(20));
    }
    assert!(longest < Span::from_millis(80), "a request took {longest}");
    // The bulk transfers keep the path busy meanwhile.
    let received = world.hosts[SERVER].application.received - received;
    let seconds = world.now().since(began).nanos() as f64 / 1e9;
    let mbit = received as f64 * 8.0 / 1e6 / seconds;
    assert!(mbit > 14.0, "all transfers together carried {mbit:.1} Mbit/s");
}

/// The engine alone would find the loss by its probe timeout, and retransmit after two more round
/// trips.
#[test]
fn a_lost_last_packet_is_repaired_within_one_more_round_trip() {
    let open = PathConfig::new("50mbit", "80ms", "droptail:100p");
    let mut broken = open.clone();
    broken.up.loss = "100%".parse().unwrap();
    let mut world = World::new(7, settings("tcpa"), &open);
    assert!(world.run_until_confirmed(seconds(10)));
    let began = world.now();
    // The path loses all packets of the transfer, but carries the probe that follows.
    world.change_at(began + Span::from_millis(1), Change::PathConfig(Box::new(broken)));
    world.change_at(began + Span::from_millis(8), Change::PathConfig(Box::new(open)));
    world.run_for(Span::from_millis(2));
    world.transfer(CLIENT, Transfer { up: 3000, ..Transfer::default() });
    // A packet that is not lost arrives after half a round trip.
    world.run_for(Span::from_millis(60));
    assert_eq!(world.hosts[SERVER].application.received, 0);
    world.run_for(Span::from_millis(90));
    assert_eq!(world.hosts[SERVER].application.received, 3000);
}

const BULK: u64 = 32;
