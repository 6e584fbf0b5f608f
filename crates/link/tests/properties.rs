//! Checks properties of links with any configuration and any traffic.

#![allow(clippy::unwrap_used)]

mod support;

use link::{Limit, Link, LinkConfig};
use proptest::prelude::*;
use support::{TestPacket, at, drain};
use units::{Bytes, Share, Span, Time};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_packet_is_lost_without_being_counted(
        configs in prop::collection::vec(config(), 1..4),
        arrivals in arrivals(),
    ) {
        let mut link = Link::new(&configs[0], Time::ZERO).unwrap();
        let each = arrivals.len().div_ceil(configs.len());
        for (index, (when, packet)) in arrivals.iter().enumerate() {
            let config = &configs[index / each];
            if index % each == 0 && index > 0 {
                link.reconfigure(*when, config).unwrap();
                prop_assert!(link.balance().holds(), "{config:?}: {:?}", link.balance());
                prop_assert!(within(config.queue.limit(), link.queued()), "{config:?}");
            }
            link.arrive(*when, packet.clone());
            prop_assert!(link.balance().holds(), "{config:?}: {:?}", link.balance());
            prop_assert!(within(config.queue.limit(), link.queued()), "{config:?}");
            let mut shown = 0;
            link.for_each(|_| shown += 1);
            prop_assert_eq!(shown, link.queued().0 + link.in_flight());
            if index % 3 == 0 {
                while link.deliver(*when).is_some() {
                    prop_assert!(link.balance().holds());
                }
            }
        }
        drain(&mut link);
        let balance = link.balance();
        prop_assert!(balance.holds(), "{balance:?}");
        prop_assert_eq!((balance.queued.packets, balance.in_flight.packets), (0, 0));
        prop_assert_eq!(link.next_event(), None);
    }

    /// A caller that polls promptly, in batches, or only at the end gets the same packets at the
    /// same logical times, and the same statistics.
    #[test]
    fn late_calls_change_neither_deliveries_nor_statistics(config in config(), arrivals in arrivals(), batch in 1usize..20) {
        let prompt = run(&config, &arrivals, |link, until, _| {
            let mut out = Vec::new();
            while let Some(event) = link.next_event().filter(|event| *event <= until) {
                let possible = link.next_delivery();
                while let Some(delivery) = link.deliver(event) {
                    assert_eq!(delivery.at, event, "delivered when due");
                    assert!(possible.is_some_and(|lower| lower <= event), "{possible:?} {event}");
                    out.push((delivery.at.nanos(), delivery.packet));
                }
            }
            out
        });
        let batched = run(&config, &arrivals, |link, until, index| {
            let mut out = Vec::new();
            if index % batch == 0 {
                while let Some(delivery) = link.deliver(until) {
                    out.push((delivery.at.nanos(), delivery.packet));
                }
            }
            out
        });
        let late = run(&config, &arrivals, |_, _, _| Vec::new());
        prop_assert_eq!(&prompt, &batched);
        prop_assert_eq!(&prompt, &late);
        prop_assert!(prompt.0.is_sorted_by_key(|(when, _)| *when));
    }

    #[test]
    fn equal_seeds_give_equal_runs(config in config(), arrivals in arrivals()) {
        let once = run(&config, &arrivals, |_, _, _| Vec::new());
        prop_assert_eq!(&once, &run(&config, &arrivals, |_, _, _| Vec::new()));
    }

    /// With a discipline without early drops, a link with a backlog sends at exactly its rate.
    #[test]
    fn a_backlog_leaves_at_the_configured_rate(
        mbit in 1u64..10_000,
        sizes in prop::collection::vec(60u64..9000, 2..300),
    ) {
        let config = LinkConfig {
            rate: format!("{mbit}mbit").parse().unwrap(),
            ..LinkConfig::default()
        };
        let mut link = Link::new(&config, Time::ZERO).unwrap();
        for (number, size) in sizes.iter().enumerate() {
            link.arrive(at(0), TestPacket::new(number as u64, *size));
        }
        let mut bits = 0u128;
        for (when, packet) in drain(&mut link) {
            bits += u128::from(packet.size) * 8;
            prop_assert_eq!(u128::from(when), bits * 1000 / u128::from(mbit));
        }
    }
}

type Outcome = (Vec<(u64, TestPacket)>, String);

/// Runs a link and returns its deliveries and statistics. Calls `poll` before each arrival with the
/// arrival's time.
fn run(
    config: &LinkConfig,
    arrivals: &[(Time, TestPacket)],
    mut poll: impl FnMut(&mut Link<TestPacket>, Time, usize) -> Vec<(u64, TestPacket)>,
) -> Outcome {
    let mut link = Link::new(config, Time::ZERO).unwrap();
    let mut deliveries = Vec::new();
    for (index, (when, packet)) in arrivals.iter().enumerate() {
        deliveries.extend(poll(&mut link, *when, index));
        link.arrive(*when, packet.clone());
    }
    deliveries.extend(drain(&mut link));
    (deliveries, format!("{:?}", link.stats()))
}

fn within(limit: Limit, (packets, bytes): (usize, Bytes)) -> bool {
    match limit {
        Limit::Bytes(limit) => bytes <= limit,
        Limit::Packets(limit) => packets as u64 <= limit,
    }
}

fn arrivals() -> impl Strategy<Value = Vec<(Time, TestPacket)>> {
    let gap = prop_oneof![
        3 => Just(0u64),
        5 => 0u64..200_000,
        1 => 0u64..50_000_000,
    ];
    let packet = (gap, 60u64..3000, 0u64..5, any::<bool>());
    prop::collection::vec(packet, 1..300).prop_map(|packets| {
        let mut now = 0;
        let numbered = packets.into_iter().enumerate();
        numbered
            .map(|(number, (gap, size, flow, ecn))| {
                now += gap;
                let packet = TestPacket { flow, ecn, ..TestPacket::new(number as u64, size) };
                (at(now), packet)
            })
            .collect()
    })
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let rate = prop_oneof![
        Just("unlimited"),
        Just("10mbit"),
        Just("97mbit"),
        Just("1gbit"),
        Just("trace:1,1,2,5,5,9"),
    ];
    let queue = prop_oneof![
        Just("droptail:20p"),
        Just("droptail:9000B"),
        Just("headdrop:20p"),
        Just("headdrop:9000B"),
        Just("red:limit=60p,min=5p,max=20p,p=10%,weight=10%"),
        Just("red:limit=90KB,min=5KB,max=20KB,p=10%,weight=10%,gentle,ecn"),
        Just("codel:limit=100p,target=1ms,interval=5ms"),
        Just("codel:limit=50KB,target=1ms,interval=5ms,ecn"),
        Just("fq_codel:limit=100p,target=1ms,interval=5ms"),
        Just("fq_codel:limit=30KB,target=1ms,interval=5ms,flows=3,ecn"),
        Just("pie:limit=100p,target=2ms,update=2ms,burst=5ms"),
        Just("pie:limit=90KB,target=2ms,update=2ms,burst=5ms,ecn"),
        Just("caqm:20KB,limit=100p"),
        Just("caqm:0B,limit=90KB,period=1ms,p=100%"),
        proptest::sample::select(link::QueueConfig::examples().collect::<Vec<_>>()),
    ];
    let loss = prop_oneof![
        Just("none"),
        Just("10%"),
        Just("100%"),
        Just("gilbert:p=5%,r=30%,h=10%,k=99%"),
        Just("gilbert:p=5%,r=30%,h=10%,k=99%,every=1ms"),
        Just("trace:0010"),
    ];
    let jitter = prop_oneof![
        Just("none"),
        Just("1ms"),
        Just("3ms,normal"),
        Just("1ms,uniform,reorder"),
        Just("1ms,normal,reorder"),
    ];
    let reorder = prop_oneof![Just("none"), Just("20%,2ms")];
    let overhead = prop_oneof![Just("0"), Just("ethernet"), Just("ip"), Just("-22")];
    let share = prop_oneof![Just(Share::ZERO), Just(Share::new(0.2).unwrap())];
    let delay = prop_oneof![Just(Span::ZERO), Just(Span::from_millis(2))];
    let parts =
        (rate, queue, loss, jitter, reorder, overhead, share.clone(), share, delay, any::<u64>());
    parts.prop_map(
        |(rate, queue, loss, jitter, reorder, overhead, duplicate, corrupt, delay, seed)| {
            LinkConfig {
                rate: rate.parse().unwrap(),
                delay,
                jitter: jitter.parse().unwrap(),
                loss: loss.parse().unwrap(),
                reorder: reorder.parse().unwrap(),
                duplicate,
                corrupt,
                queue: queue.parse().unwrap(),
                overhead: overhead.parse().unwrap(),
                seed,
            }
        },
    )
}
