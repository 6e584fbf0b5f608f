//! Clients whose address changes while they transfer.

#![allow(clippy::unwrap_used)]

mod world;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use units::Bytes;
use world::{CLIENT, Change, PathConfig, SERVER, Transfer, World, millis, seconds, settings};

fn port(number: u16) -> Change {
    Change::Address(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), number)))
}

fn address(last: u8) -> Change {
    Change::Address(SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 4000)))
}

fn impatient(congestion: &str) -> quic::Settings {
    quic::Settings { keepalive: Duration::from_millis(500), ..settings(congestion) }
}

/// Returns the window of `side` and the bytes that the other side received, for equal times before
/// and after the change.
fn around(side: usize, change: Change, path: &PathConfig) -> ([Bytes; 2], [u64; 2]) {
    let mut world = World::new(11, impatient("tcpa"), path);
    let bulk = 1 << 40;
    let (up, down) = if side == CLIENT { (bulk, 0) } else { (0, bulk) };
    world.transfer(CLIENT, Transfer { up, down, ..Transfer::default() });
    world.change_at(seconds(5), change);
    world.run_until(seconds(4));
    let first = world.hosts[1 - side].application.received;
    world.run_until(seconds(5));
    let second = world.hosts[1 - side].application.received;
    let before = world.statistics(side).reading.cwnd;
    // The client's next packet tells the server the new address.
    world.transfer(CLIENT, Transfer { up: 1, ..Transfer::default() });
    // Take the largest window in two round trips: a pause of tcpa reduces the window for a round
    // trip, and a pause may come just after the change.
    let mut after = Bytes::ZERO;
    for at in (5600..=6300).step_by(100) {
        world.run_until(millis(at));
        after = after.max(world.statistics(side).reading.cwnd);
    }
    world.run_until(seconds(8));
    let third = world.hosts[1 - side].application.received;
    world.run_until(seconds(9));
    let fourth = world.hosts[1 - side].application.received;
    assert!(world.lost().is_none(), "{:?}", world.lost());
    ([before, after], [second - first, fourth - third])
}

#[test]
fn a_new_port_keeps_the_window_and_a_new_address_resets_it() {
    // The path holds 7.5 MB per round trip, so a window that starts anew stays small for some time.
    let path = PathConfig::new("200mbit", "300ms", "droptail:4MB");
    let ([before, after], [rate, later]) = around(SERVER, port(4001), &path);
    assert!(after.count() > before.count() / 2, "{before} became {after}");
    assert!(later > rate * 8 / 10, "{rate} became {later}");
    let ([before, after], _) = around(SERVER, address(2), &path);
    assert!(after.count() < before.count() / 4, "{before} became {after}");
    // The client's own path to the server does not change.
    let ([before, after], [rate, later]) = around(CLIENT, address(2), &path);
    assert!(after.count() > before.count() / 2, "{before} became {after}");
    assert!(later > rate * 8 / 10, "{rate} became {later}");
}

#[test]
fn transfers_continue_after_each_address_change() {
    let path = PathConfig::new("50mbit", "20ms", "droptail:100p");
    for side in [CLIENT, SERVER] {
        for change in [port(4001), address(2)] {
            let (_, [rate, later]) = around(side, change.clone(), &path);
            assert!(later > rate * 9 / 10, "{side} {change:?}: {rate} became {later}");
        }
    }
}

#[test]
fn clients_that_change_address_often_lose_no_byte_on_lossy_paths() {
    for (loss, seed) in [("5%", 1), ("10%", 2), ("5%", 3), ("10%", 4), ("8%", 5)] {
        for congestion in ["tcpa", "bbr", "cubic"] {
            let path = PathConfig::new("30mbit", "30ms", "droptail:60p").loss(loss);
            let mut world = World::new(seed, impatient(congestion), &path);
            world.transfer(
                CLIENT,
                Transfer { up: 1_500_000, down: 1_500_000, ..Transfer::default() },
            );
            world.transfer(CLIENT, Transfer { up: 3000, down: 700_000, ..Transfer::default() });
            for change in 1..12_u8 {
                let to =
                    if change % 2 == 0 { address(change) } else { port(4000 + u16::from(change)) };
                world.change_at(millis(u64::from(change) * 280), to);
            }
            let done = world.run_to_the_end(seconds(120));
            let (progress, lost) = (world.progress(), world.lost());
            assert!(done, "{loss} {congestion}: {lost:?} {progress:?}");
        }
    }
}
