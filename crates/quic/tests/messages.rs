//! Small requests beside bulk transfers on one connection, in virtual time.

#![allow(clippy::unwrap_used)]

mod world;

use units::Span;
use world::{CLIENT, PathConfig, SERVER, Transfer, Windows, World, seconds, settings};

/// Bulk transfers fill a send window of ten bandwidth-delay products. A request that waits for its
/// turn among them would take several round trips.
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

const BULK: u64 = 32;
