//! Several threads that use one table.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datapath::Tracked;
use datapath::conntrack::{Conntrack, Settings};
use flow::connection::Connection;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::{Span, Time};

use crate::frames::{End, udp};
use crate::tracking::{commit, dnat, look, snat, track_at, v4};

/// Threads commit, translate, reply and flush on the same few hosts. Afterwards no two connections
/// have the same tuple, and every reply finds its connection.
#[test]
fn tuples_stay_unique_when_threads_share_a_table() {
    let table = Conntrack::new(&Settings { threads: 4, seed: 3, ..Settings::default() });
    let now = Time::from_nanos(1_000_000_000);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let table = &table;
            scope.spawn(move || run(table, seed, now));
        }
    });
    check_unique(&table, now);
    let mut replies = Vec::new();
    table.dump(None, now, |connection, _| replies.push(connection.clone()));
    assert!(replies.len() > 100);
    for connection in replies {
        let mut frame = udp(
            (connection.reply.source, connection.reply.source_port),
            (connection.reply.destination, connection.reply.destination_port),
        );
        assert_eq!(track_at(&table, &mut frame, &look(connection.zone), now), Tracked::Continues);
        let source = (connection.original.source, connection.original.source_port);
        assert_eq!(frame.ends().1, source, "{connection:?}");
    }
    assert_eq!(u64::from(table.connections()), table.flush(None));
    assert_eq!(table.connections(), 0);
}

/// Two threads ask for more ports than the range has. Each port goes to exactly one client, and no
/// port stays free.
#[test]
fn two_threads_never_translate_to_the_same_port() {
    let table = Conntrack::new(&Settings { threads: 2, seed: 8, ..Settings::default() });
    let now = Time::from_nanos(1_000_000_000);
    let track = snat(0, "192.0.2.1-192.0.2.4", Some((1000, 1024)));
    let count = |thread: u8| {
        let clients = (0..80u16).map(move |number| (v4(thread), 2000 + number));
        let send = |client: End| track_at(&table, &mut udp(client, (v4(200), 80)), &track, now);
        clients.map(send).filter(|outcome| *outcome == Tracked::Continues).count()
    };
    let (one, two) = std::thread::scope(|scope| {
        let other = scope.spawn(|| count(2));
        (count(1), other.join().expect("no panic"))
    });
    assert_eq!(one + two, 100);
    assert_eq!(table.statistics().exhausted, 60);
    check_unique(&table, now);
}

/// The number of packet threads changes: shards move to other locks while threads use them.
#[test]
fn a_change_of_the_thread_number_loses_no_connection() {
    let table = Conntrack::new(&Settings { threads: 4, seed: 6, ..Settings::default() });
    let now = Time::from_nanos(1_000_000_000);
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for seed in 20..23 {
            let (table, ended) = (&table, &ended);
            scope.spawn(move || {
                run(table, seed, now);
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        for threads in [1, 2, 3, 4, 100, 0].into_iter().cycle() {
            table.set_threads(threads);
            std::thread::yield_now();
            if ended.load(Ordering::Relaxed) == 3 {
                break;
            }
        }
    });
    check_unique(&table, now);
    let before = table.connections();
    assert!(before > 100);
    table.set_threads(1);
    assert_eq!(table.counts(None, now).total, before);
    assert_eq!(u64::from(before), table.flush(None));
}

/// Expiry, dumps and limits run while another thread tracks packets.
#[test]
fn commands_run_while_another_thread_tracks_packets() {
    let table = Conntrack::new(&Settings { threads: 2, seed: 5, ..Settings::default() });
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut now = Time::from_nanos(1_000_000_000);
            for seed in 10..14 {
                run(&table, seed, now);
                now += Span::from_secs(40);
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let mut now = Time::from_nanos(1_000_000_000);
        while !is_done.load(Ordering::Relaxed) {
            now += Span::from_millis(100);
            table.expire(now);
            let counts = table.counts(None, now);
            assert_eq!(counts.total, counts.udp);
            table.set_zone_limit(1, 50_000);
            std::thread::yield_now();
        }
    });
    for _ in 0..1000 {
        table.expire(Time::from_nanos(u64::MAX / 2));
    }
    assert_eq!(table.connections(), 0);
    assert_eq!(table.zone_limit(1).count, 0);
}

fn run(table: &Conntrack, seed: u64, now: Time) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let calls = [
        commit(0),
        snat(0, "10.0.0.1-10.0.0.3", None),
        dnat(0, "10.0.0.7-10.0.0.9", None),
        snat(1, "10.0.0.1", Some((3000, 3200))),
        look(0),
        look(1),
    ];
    for number in 0..20_000 {
        let mut end = || (v4(random.random_range(1..10)), random.random_range(3000..3040));
        let (from, to) = (end(), end());
        // A packet whose source equals its destination has the same tuple in both directions.
        if from == to {
            continue;
        }
        let mut frame = udp(from, to);
        let call = &calls[random.random_range(0..calls.len())];
        if track_at(table, &mut frame, call, now) == Tracked::Continues {
            frame.check();
        }
        if number % 5000 == 4999 && seed.is_multiple_of(2) {
            table.flush(Some(1));
        }
    }
}

fn check_unique(table: &Conntrack, now: Time) {
    let mut tuples = HashMap::new();
    let mut total = 0;
    table.dump(None, now, |connection, _| {
        let Connection { original, reply, zone, .. } = connection;
        for tuple in [original, reply] {
            let other = tuples.insert(format!("{tuple:?} {zone}"), connection.clone());
            assert!(other.is_none(), "both have {tuple:?}: {connection:?} {other:?}");
        }
        total += 1;
    });
    assert_eq!(tuples.len(), 2 * total);
}
