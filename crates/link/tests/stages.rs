//! Follows single packets through each stage, with numbers that a reader can check by hand.

#![allow(clippy::unwrap_used)]

mod support;

use link::{Link, LinkConfig, LinkError};
use support::{TestPacket, at, drain, link};
use units::{Bytes, Rate, Share, Span};

/// Returns a link of 8 Gbit/s, on which 1000 bytes take 1 µs.
fn eight_gbit() -> LinkConfig {
    LinkConfig {
        rate: "8gbit".parse().unwrap(),
        delay: Span::from_micros(10),
        ..LinkConfig::default()
    }
}

fn times(deliveries: &[(u64, TestPacket)]) -> Vec<(u64, u64)> {
    deliveries.iter().map(|(t, p)| (*t, p.number)).collect()
}

#[test]
fn a_perfect_wire_delivers_at_once() {
    let mut wire = link(&LinkConfig::default());
    wire.arrive(at(5), TestPacket::new(1, 1514));
    assert_eq!(wire.next_event(), Some(at(5)));
    let delivery = wire.deliver(at(5)).unwrap();
    assert_eq!((delivery.at, delivery.arrived), (at(5), at(5)));
    assert_eq!(wire.deliver(at(5)), None);
    assert_eq!(wire.next_event(), None);
}

#[test]
fn packets_queue_are_serialised_and_propagate() {
    let mut link = link(&eight_gbit());
    link.arrive(at(0), TestPacket::new(1, 1000));
    link.arrive(at(0), TestPacket::new(2, 500));
    link.arrive(at(1200), TestPacket::new(3, 1000));
    assert_eq!(link.queued(), (1, Bytes::new(1000)));
    assert_eq!(link.in_flight(), 2);
    assert_eq!(link.next_event(), Some(at(1500)));
    assert_eq!(link.next_delivery(), Some(at(11_000)));
    link.arrive(at(9000), TestPacket::new(4, 1000));
    assert_eq!(times(&drain(&mut link)), [(11_000, 1), (11_500, 2), (12_500, 3), (20_000, 4)]);
    assert!(link.balance().holds());
    let stats = link.stats();
    assert_eq!(stats.sojourns.packets(), 4);
    assert_eq!(stats.sojourns.max(), Span::from_nanos(1000));
}

#[test]
fn a_lost_packet_has_used_the_rate() {
    let mut link = link(&LinkConfig { loss: "trace:10".parse().unwrap(), ..eight_gbit() });
    link.arrive(at(0), TestPacket::new(1, 1000));
    link.arrive(at(0), TestPacket::new(2, 1000));
    assert_eq!(times(&drain(&mut link)), [(12_000, 2)]);
    assert_eq!(link.stats().dropped.loss.packets, 1);
}

#[test]
fn overhead_affects_only_the_rate() {
    let mut link = link(&LinkConfig {
        overhead: "ethernet".parse().unwrap(),
        queue: "droptail:1000B".parse().unwrap(),
        ..eight_gbit()
    });
    link.arrive(at(0), TestPacket::new(1, 1000));
    link.arrive(at(0), TestPacket::new(2, 1000));
    assert_eq!(times(&drain(&mut link)), [(11_024, 1), (12_048, 2)]);
    assert_eq!(link.stats().delivered.bytes, Bytes::new(2000));
}

#[test]
fn duplicates_follow_their_originals_and_corruption_is_counted() {
    let mut link = link(&LinkConfig { duplicate: Share::ONE, corrupt: Share::ONE, ..eight_gbit() });
    link.arrive(at(0), TestPacket::new(1, 1000));
    link.arrive(at(0), TestPacket::new(2, 1000));
    let deliveries = drain(&mut link);
    assert_eq!(times(&deliveries), [(11_000, 1), (11_000, 1), (12_000, 2), (12_000, 2)]);
    let flips: Vec<u64> = deliveries.iter().filter_map(|(_, p)| p.corrupted).collect();
    assert_eq!(flips.len(), 4);
    assert!(flips[0] == flips[1] && flips[1] != flips[2], "{flips:?}");
    let stats = link.stats();
    assert_eq!((stats.duplicated.packets, stats.corrupted.packets), (2, 2));
    assert!(link.balance().holds());
}

#[test]
fn a_packet_held_back_is_overtaken() {
    let mut link = link(&LinkConfig { reorder: "10%,5us".parse().unwrap(), ..eight_gbit() });
    for number in 0..10_000 {
        link.arrive(at(number * 1000), TestPacket::new(number, 1000));
    }
    let deliveries = drain(&mut link);
    let late = |(t, p): &&(u64, TestPacket)| *t == (p.number + 1) * 1000 + 15_000;
    let held_back = deliveries.iter().filter(late).count();
    assert!((880..1120).contains(&held_back), "{held_back}");
    let on_time = |(t, p): &&(u64, TestPacket)| *t == (p.number + 1) * 1000 + 10_000;
    assert_eq!(deliveries.iter().filter(on_time).count(), 10_000 - held_back);
    let reordered = link.stats().reordered.packets;
    assert!(reordered > 800 && reordered <= held_back as u64, "{reordered}");
}

#[test]
fn packets_due_together_keep_their_order() {
    let mut link = link(&LinkConfig { reorder: "50%,1us".parse().unwrap(), ..eight_gbit() });
    // Let a packet that is held back be due together with the next packet.
    for number in 0..1000 {
        link.arrive(at(number * 1000), TestPacket::new(number, 1000));
    }
    assert!(drain(&mut link).is_sorted_by_key(|(_, p)| p.number));
    assert_eq!(link.stats().reordered.packets, 0);
}

#[test]
fn an_idle_queue_counts_as_empty_time() {
    let mut link = link(&eight_gbit());
    link.arrive(at(0), TestPacket::new(1, 1000));
    link.arrive(at(0), TestPacket::new(2, 1000));
    assert_eq!(link.deliver(at(10_000)), None);
    let occupancy = &link.stats().occupancy;
    assert_eq!(occupancy.observed(), Span::from_micros(10));
    assert!((occupancy.mean() - 100.0).abs() < 1e-9);
    assert_eq!(occupancy.max(), Bytes::new(1000));
}

#[test]
fn jitter_keeps_the_order_unless_it_may_reorder() {
    let reordered = |jitter: &str| {
        let mut link = link(&LinkConfig { jitter: jitter.parse().unwrap(), ..eight_gbit() });
        for number in 0..10_000 {
            link.arrive(at(number * 1000), TestPacket::new(number, 1000));
        }
        let deliveries = drain(&mut link);
        assert!(deliveries.is_sorted_by_key(|(t, _)| *t));
        assert_eq!(deliveries.len(), 10_000);
        let sorted = deliveries.is_sorted_by_key(|(_, p)| p.number);
        assert_eq!(sorted, link.stats().reordered.packets == 0);
        !sorted
    };
    assert!(!reordered("5us"));
    assert!(!reordered("5us,normal"));
    assert!(reordered("5us,uniform,reorder"));
    assert!(reordered("5us,normal,reorder"));
}

/// The trace has opportunities at 2, 5, 5 and 10 ms, and repeats after 10 ms: 12, 15, …
#[test]
fn a_trace_delivers_at_the_times_of_mahimahi() {
    let mut link =
        link(&LinkConfig { rate: "trace:2,5,5,10".parse().unwrap(), ..LinkConfig::default() });
    let ms = |ms: u64| at(ms * 1_000_000);
    for (number, size) in [(1, 1504), (2, 752), (3, 752), (4, 3000), (5, 8)] {
        link.arrive(ms(2), TestPacket::new(number, size));
    }
    assert_eq!(link.next_event(), Some(ms(5)));
    // No packet waits at 12 and 15 ms, so these opportunities are lost. The remainder of the
    // opportunity at 22 ms is lost too, because packet 7 arrives later.
    link.arrive(ms(21), TestPacket::new(6, 100));
    link.arrive(ms(22), TestPacket::new(7, 100));
    let deliveries: Vec<(u64, u64)> =
        times(&drain(&mut link)).into_iter().map(|(t, number)| (t / 1_000_000, number)).collect();
    assert_eq!(deliveries, [(5, 1), (5, 2), (5, 3), (12, 4), (12, 5), (22, 6), (25, 7)]);
}

#[test]
fn a_trace_begins_when_its_link_begins() {
    let config = LinkConfig { rate: "trace:2,5".parse().unwrap(), ..LinkConfig::default() };
    let mut link = Link::new(&config, at(7_000_000)).unwrap();
    link.arrive(at(7_500_000), TestPacket::new(1, 100));
    assert_eq!(link.next_event(), Some(at(9_000_000)));
}

#[test]
fn a_slower_rate_applies_to_the_packet_being_serialised() {
    let mut link = link(&eight_gbit());
    for number in 1..=4 {
        link.arrive(at(0), TestPacket::new(number, 1000));
    }
    // The link has sent half of the first packet. The second half takes ten times as long.
    let slower = LinkConfig {
        rate: "800mbit".parse().unwrap(),
        delay: Span::from_micros(1),
        ..eight_gbit()
    };
    link.reconfigure(at(500), &slower).unwrap();
    assert_eq!(link.next_event(), Some(at(5500)));
    link.reconfigure(at(6000), &LinkConfig::default()).unwrap();
    // The first packet left at 5500 ns with a delay of 1 µs, so later packets may not arrive
    // before 6500 ns.
    assert_eq!(times(&drain(&mut link)), [(6500, 1), (6500, 2), (6500, 3), (6500, 4)]);
    assert!(link.balance().holds());
}

/// After a change to an equal configuration, random streams continue, and a controller keeps its
/// learnt state.
#[test]
fn reconfiguring_with_equal_settings_changes_nothing() {
    let run = |queue: &str, larger: &str| {
        let config = |queue: &str| LinkConfig {
            // 1000 bytes take 1 ms.
            rate: "8mbit".parse().unwrap(),
            queue: queue.parse().unwrap(),
            loss: "gilbert:p=5%,r=30%".parse().unwrap(),
            jitter: "5ms,normal,reorder".parse().unwrap(),
            ..eight_gbit()
        };
        let mut link = link(&config(queue));
        for number in 0..5000u64 {
            if number == 2500 {
                link.reconfigure(at(number * 900_000), &config(larger)).unwrap();
            }
            link.arrive(at(number * 900_000), TestPacket::new(number, 1000));
        }
        let early = link.stats().dropped.early.packets;
        assert!(early > 0, "{queue}");
        drain(&mut link)
    };
    for rest in
        ["red:min=5p,max=30p,weight=1%,limit=", "codel:limit=", "fq_codel:limit=", "pie:limit="]
    {
        let (queue, larger) = (format!("{rest}1000p"), format!("{rest}2000p"));
        assert_eq!(run(&queue, &queue), run(&queue, &larger), "{queue}");
    }
}

#[test]
fn a_smaller_queue_drops_the_excess_packets() {
    let mut link = link(&eight_gbit());
    for number in 1..=5 {
        link.arrive(at(0), TestPacket::new(number, 1000));
    }
    let smaller = LinkConfig { queue: "droptail:2p".parse().unwrap(), ..eight_gbit() };
    link.reconfigure(at(0), &smaller).unwrap();
    assert_eq!(link.queued(), (2, Bytes::new(2000)));
    assert_eq!(link.stats().dropped.overflow.packets, 2);
    let delivered: Vec<u64> = drain(&mut link).iter().map(|(_, p)| p.number).collect();
    assert_eq!(delivered, [1, 2, 3]);
    assert!(link.balance().holds());
}

#[test]
fn a_link_that_could_deliver_no_packet_is_refused() {
    let refused = |config: LinkConfig| match Link::<TestPacket>::new(&config, at(0)) {
        Err(LinkError::Invalid { setting, .. }) => setting,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(LinkConfig {
            rate: link::Capacity::Fixed(Rate::default()),
            ..LinkConfig::default()
        }),
        "rate"
    );
    assert_eq!(
        refused(LinkConfig {
            queue: link::QueueConfig::DropTail(link::DropTailConfig {
                limit: link::Limit::Packets(0)
            }),
            ..LinkConfig::default()
        }),
        "the queue's limit"
    );
}

#[test]
fn a_packet_that_waits_for_an_opportunity_of_a_trace_is_queued() {
    let config = LinkConfig { rate: "trace:5".parse().unwrap(), ..LinkConfig::default() };
    let mut link = link(&config);
    link.arrive(at(1_000_000), TestPacket::new(1, 1000));
    assert_eq!((link.queued(), link.in_flight()), ((1, Bytes::new(1000)), 0));
    assert_eq!(link.next_event(), Some(at(5_000_000)));
    assert_eq!(drain(&mut link).len(), 1);
    assert_eq!(link.stats().sojourns.max(), Span::from_millis(4));
}

#[test]
fn the_sizes_of_a_caqm_port_have_bounds() {
    let is_valid = |setting: &str, bytes: u64| {
        format!("caqm:target=143KB,{setting}={bytes}B").parse::<link::QueueConfig>().is_ok()
    };
    for setting in ["unit", "beta"] {
        assert!(is_valid(setting, 1) && is_valid(setting, 65_536), "{setting}");
        assert!(!is_valid(setting, 0) && !is_valid(setting, 65_537), "{setting}");
        assert!(!is_valid(setting, 100_000), "{setting}");
    }
    let target = |bytes: u64| format!("caqm:target={bytes}B").parse::<link::QueueConfig>();
    assert!(target(1 << 40).is_ok() && target((1 << 40) + 1).is_err());
}

#[test]
fn a_smaller_limit_of_the_same_discipline_holds_for_later_packets() {
    for (larger, smaller) in [
        ("droptail:20p", "droptail:2p"),
        ("headdrop:20p", "headdrop:2p"),
        ("red:limit=20p,min=15p,max=20p", "red:limit=2p,min=1p,max=2p"),
        ("codel:limit=20p", "codel:limit=2p"),
        ("fq_codel:limit=20p", "fq_codel:limit=2p"),
        ("pie:limit=20p", "pie:limit=2p"),
        ("caqm:target=143KB,limit=20p", "caqm:target=143KB,limit=2p"),
    ] {
        let of = |queue: &str| LinkConfig { queue: queue.parse().unwrap(), ..eight_gbit() };
        let mut link = link(&of(larger));
        link.reconfigure(at(0), &of(smaller)).unwrap();
        (0..10).for_each(|number| link.arrive(at(0), TestPacket::new(number, 1000)));
        let queued = link.queued().0;
        assert!((1..=2).contains(&queued), "{smaller}: {queued}");
    }
}
