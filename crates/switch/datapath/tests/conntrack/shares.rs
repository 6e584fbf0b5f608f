//! Connections of other ports and zones in a connection table that a flood has filled.

use datapath::conntrack::Settings;
use flow::Field;
use units::Span;

use crate::frames::{ACK, End, Frame, SYN, Tcp, end, tcp, udp};
use crate::tracking::{Tracker, commit, look};

fn at_port(port: u128, mut frame: Frame) -> Frame {
    frame.key.write(Field::InPort, port);
    frame
}

fn client(number: u32) -> End {
    end(&format!("10.{}.{}.{}:{}", number >> 16 & 255, number >> 8 & 255, number & 255, 1024))
}

fn full(threads: usize, most: u32) -> Tracker {
    Tracker::with(&Settings { threads, max_connections: most, ..Settings::default() })
}

const SERVER: &str = "192.0.2.1:53";

/// Opens UDP connections. Returns the number of connections that later packets find.
fn opened(tracker: &Tracker, port: u128, zone: u16, numbers: std::ops::Range<u32>) -> usize {
    let server = end(SERVER);
    for number in numbers.clone() {
        tracker.state(at_port(port, udp(client(number), server)), &commit(zone));
    }
    numbers.filter(|number| is_known(tracker, port, zone, *number)).count()
}

fn is_known(tracker: &Tracker, port: u128, zone: u16, number: u32) -> bool {
    let reply = at_port(port + 100, udp(end(SERVER), client(number)));
    tracker.state(reply, &look(zone)) == "est|rpl|trk"
}

#[test]
fn a_flood_from_one_port_leaves_space_for_others() {
    for (threads, most) in [(1, 64), (1, 1000), (2, 5000), (4, 20_000)] {
        let tracker = full(threads, most);
        for number in 0..3 * most {
            tracker.state(at_port(1, udp(client(number), end(SERVER))), &commit(0));
        }
        assert_eq!(tracker.table.connections(), most);
        let few = most / 8;
        for port in [2, 3] {
            let numbers = 1_000_000 * port..1_000_000 * port + few;
            let opened = opened(&tracker, port.into(), 0, numbers);
            assert_eq!(opened as u32, few, "{threads} {most} port {port}");
        }
        assert!(tracker.table.connections() <= most);
        // The flood continues, but replaces no connection of another port.
        for number in 5 * most..6 * most {
            tracker.state(at_port(1, udp(client(number), end(SERVER))), &commit(0));
        }
        for number in 2_000_000..2_000_000 + few {
            assert!(is_known(&tracker, 2, 0, number), "{threads} {most} {number}");
        }
    }
}

#[test]
fn a_flood_of_half_open_connections_leaves_space_for_others() {
    let tracker = full(2, 512);
    let syn = |port, number: u32| {
        at_port(port, tcp(client(number), end("192.0.2.1:80"), Tcp::new(SYN, 1, 0)))
    };
    (0..2000).for_each(|number| drop(tracker.state(syn(4, number), &commit(0))));
    assert_eq!(tracker.table.connections(), 512);
    for number in 9000..9050 {
        tracker.state(syn(5, number), &commit(0));
        let answer = tcp(end("192.0.2.1:80"), client(number), Tcp::new(SYN | ACK, 7, 2));
        assert_eq!(tracker.state(at_port(6, answer), &look(0)), "est|rpl|trk", "{number}");
    }
}

#[test]
fn a_flood_with_replies_leaves_space_for_others() {
    let tracker = full(2, 800);
    assert_eq!(opened(&tracker, 1, 0, 0..800), 800);
    opened(&tracker, 1, 0, 800..4000);
    assert_eq!(opened(&tracker, 2, 0, 9000..9050), 50);
    assert!(tracker.table.connections() <= 800);
}

#[test]
fn a_flood_in_one_zone_leaves_space_in_other_zones_and_in_its_own_zone() {
    let tracker = full(2, 1200);
    tracker.table.set_zone_limit(7, 300);
    opened(&tracker, 1, 7, 0..2000);
    assert_eq!(tracker.table.zone_limit(7).count, 300);
    // Another port in the full zone opens connections, and so does the first port in another zone.
    assert_eq!(opened(&tracker, 2, 7, 5000..5030), 30);
    assert!(tracker.table.zone_limit(7).count <= 300);
    opened(&tracker, 1, 8, 0..3000);
    assert_eq!(tracker.table.connections(), 1200);
    assert_eq!(opened(&tracker, 3, 9, 6000..6040), 40);
    assert!(tracker.table.connections() <= 1200);
}

#[test]
fn ports_with_equal_shares_keep_their_connections() {
    let tracker = full(1, 900);
    for port in 1..4 {
        let first = port * 10_000;
        assert_eq!(opened(&tracker, port.into(), 0, first..first + 300), 300);
    }
    opened(&tracker, 1, 0, 50_000..51_000);
    for port in 1..4 {
        let numbers = port * 10_000..port * 10_000 + 300;
        assert_eq!(
            numbers.filter(|number| is_known(&tracker, port.into(), 0, *number)).count(),
            300
        );
    }
}

#[test]
fn a_flood_returns_its_memory_and_the_next_flood_takes_no_more() {
    let mut tracker = full(2, 3_000_000);
    opened(&tracker, 1, 0, 0..10);
    let before = tracker.table.statistics().bytes;
    let mut most = Vec::new();
    for _ in 0..3 {
        for number in 0..150_000 {
            tracker.state(at_port(1, udp(client(number), end(SERVER))), &commit(0));
        }
        most.push(tracker.table.statistics().bytes);
        tracker.pass(Span::from_secs(70));
        // For a minute, `expire` is called as often as a thread without packets calls it.
        for _ in 0..600 {
            tracker.table.expire(tracker.now);
            tracker.pass(Span::from_millis(100));
        }
        assert_eq!(tracker.table.connections(), 0);
        let left = tracker.table.statistics().bytes;
        assert!(left < before + (1 << 20), "{before} {most:?} {left}");
    }
    assert!(most[0] > 16 << 20 && most[2] <= most[0] + most[0] / 8, "{most:?}");
}
