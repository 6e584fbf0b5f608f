//! Each discipline behaves as its paper or RFC describes.

#![allow(clippy::unwrap_used)]

mod support;

use link::{Link, LinkConfig, LinkStats};
use support::tcp::{Sender, transfer};
use support::{TestPacket, at, drain, link};
use units::{Share, Span};
use wire::caqm::Info;

/// Returns a link of 10 Mbit/s, on which 1250 bytes take 1 ms.
fn ten_mbit(queue: &str) -> LinkConfig {
    LinkConfig {
        rate: "10mbit".parse().unwrap(),
        queue: queue.parse().unwrap(),
        ..LinkConfig::default()
    }
}

/// Sends a steady stream that ignores every signal: one packet of 1250 bytes every `gap`, starting
/// at `from`.
fn stream(link: &mut Link<TestPacket>, from: Span, until: Span, gap: Span, ecn: bool) {
    let mut now = from.nanos();
    while now < until.nanos() {
        let packet = TestPacket { ecn, ..TestPacket::new(now, 1250) };
        link.arrive(at(now), packet);
        now += gap.nanos();
    }
}

fn median_wait(stats: &LinkStats) -> f64 {
    stats.sojourns.quantile(Share::new(0.5).unwrap()).millis_f64()
}

fn four_senders(queue: &str, ecn: bool) -> (Link<TestPacket>, u64) {
    let config = LinkConfig { delay: Span::from_millis(40), ..ten_mbit(queue) };
    let mut senders: Vec<Sender> = (0..4).map(|flow| Sender::new(flow, ecn)).collect();
    let link = transfer(&config, &mut senders, 60);
    let delivered = senders.iter().map(|sender| sender.delivered).sum();
    (link, delivered)
}

/// The number of frames of 1514 bytes that a link of 10 Mbit/s carries in 60 s.
const FULL: u64 = 60 * 10_000_000 / (1514 * 8);

#[test]
fn a_full_head_drop_queue_keeps_the_newest_packets() {
    let delivered = |queue: &str| {
        let mut link = link(&ten_mbit(queue));
        for number in 0..6 {
            link.arrive(at(0), TestPacket::new(number, 1250));
        }
        let numbers: Vec<u64> = drain(&mut link).iter().map(|(_, p)| p.number).collect();
        numbers
    };
    assert_eq!(delivered("droptail:2p"), [0, 1, 2]);
    assert_eq!(delivered("headdrop:2p"), [0, 4, 5]);
    assert_eq!(delivered("droptail:2500B"), [0, 1, 2]);
    assert_eq!(delivered("headdrop:2500B"), [0, 4, 5]);
}

#[test]
fn a_frame_larger_than_the_queue_drops_no_queued_packet() {
    for queue in ["droptail:2500B", "headdrop:2500B", "fq_codel:2500B", "codel:2500B"] {
        let mut link = link(&ten_mbit(queue));
        for (number, size) in [(0, 1250), (1, 1250), (2, 1250), (3, 3000)] {
            link.arrive(at(0), TestPacket::new(number, size));
        }
        let numbers: Vec<u64> = drain(&mut link).iter().map(|(_, p)| p.number).collect();
        assert_eq!(numbers, [0, 1, 2], "{queue}");
    }
}

/// DCTCP's threshold: from K upwards, every ECN-capable packet is marked and none is dropped early.
#[test]
fn red_with_step_marks_all_packets_above_its_threshold() {
    let mut link = link(&ten_mbit("red:limit=20p,min=5p,step"));
    for number in 0..30 {
        // The first packet is in transmission, so that packet n finds n - 1 in the queue.
        let packet = TestPacket { ecn: number % 2 == 0, ..TestPacket::new(number, 1250) };
        link.arrive(at(0), packet);
    }
    let stats = link.stats();
    // The queue marks packets 6, 8, ... 20, which find room.
    assert_eq!(stats.marked.packets, 8);
    assert_eq!((stats.dropped.early.packets, stats.dropped.overflow.packets), (0, 9));
    let text = "red:limit=1000p,min=65p,max=1000p,p=10%,weight=0.2%,ecn,step";
    assert_eq!(
        "red:65p,min=6p,step".parse::<link::QueueConfig>().unwrap().limit().to_string(),
        "65p"
    );
    let parsed: link::QueueConfig = "red:limit=1000p,min=65p,step".parse().unwrap();
    assert_eq!(parsed.to_string(), text);
    assert_eq!(text.parse::<link::QueueConfig>().unwrap(), parsed);
}

#[test]
fn a_deep_queue_without_management_stays_full() {
    let (link, delivered) = four_senders("droptail:300p", false);
    assert!(median_wait(link.stats()) > 150.0, "{}", median_wait(link.stats()));
    assert!(delivered > FULL * 98 / 100);
}

/// RFC 8289, section 1: CoDel keeps good throughput, and a standing queue near the target.
#[test]
fn codel_keeps_the_standing_queue_near_its_target() {
    let (link, delivered) = four_senders("codel:limit=300p", false);
    let wait = median_wait(link.stats());
    assert!(wait < 15.0, "{wait} ms");
    assert!(delivered > FULL * 90 / 100, "{delivered} of {FULL}");
    assert!(link.stats().dropped.early.packets > 0);
    assert_eq!(link.stats().dropped.overflow.packets, 0);
}

#[test]
fn codel_marks_instead_of_dropping() {
    let (link, delivered) = four_senders("codel:limit=300p,ecn", true);
    let wait = median_wait(link.stats());
    assert!(wait < 15.0, "{wait} ms");
    assert!(delivered > FULL * 90 / 100);
    assert!(link.stats().marked.packets > 0);
    assert_eq!(link.stats().dropped.total().packets, 0);
    let (link, _) = four_senders("codel:limit=300p,ecn", false);
    assert_eq!(link.stats().marked.packets, 0);
    assert!(link.stats().dropped.early.packets > 0);
}

/// RFC 8289, section 5: CoDel drops no packet during the first interval above the target, and then
/// drops packets at intervals that shrink with the square root.
#[test]
fn codel_drops_by_its_control_law() {
    let mut link = link(&ten_mbit("codel:limit=10000p,target=5ms,interval=100ms"));
    let mut drops = Vec::new();
    for number in 0..4000u64 {
        // The stream has 25 % more than the link's rate.
        link.arrive(at(number * 800_000), TestPacket::new(number, 1250));
        while drops.len() < link.stats().dropped.early.packets as usize {
            drops.push(number as f64 * 0.8);
        }
    }
    // The wait grows by 0.25 ms per millisecond. The wait reaches 5 ms after about 20 ms + 5 ms,
    // and the first drop follows one interval later.
    assert!((120.0..130.0).contains(&drops[0]), "{}", drops[0]);
    let mut due = drops[0];
    for (index, drop) in drops.iter().enumerate().take(20) {
        assert!((drop - due).abs() < 6.0, "drop {index} at {drop}, due {due}");
        due += 100.0 / ((index + 1) as f64).sqrt();
    }
}

#[test]
fn codel_drops_nothing_from_a_queue_below_its_target() {
    let mut link = link(&ten_mbit("codel"));
    // Bursts of five packets wait up to 4 ms.
    for burst in 0..1000u64 {
        for number in 0..5 {
            link.arrive(at(burst * 6_000_000), TestPacket::new(number, 1250));
        }
    }
    drain(&mut link);
    assert_eq!(link.stats().delivered.packets, 5000);
    assert!(link.stats().sojourns.max() < Span::from_millis(5));
}

/// RFC 8289, section 4: on a slow link one packet takes longer than the target, but one packet is
/// not a standing queue.
#[test]
fn codel_never_drops_the_only_packet() {
    let config = LinkConfig { rate: "1mbit".parse().unwrap(), ..ten_mbit("codel") };
    let mut link = link(&config);
    link.arrive(at(0), TestPacket::new(0, 1250));
    for number in 0..100 {
        // Each packet waits 8 ms for the packet before it.
        let now = at(number * 10_000_000 + 2_000_000);
        link.arrive(now, TestPacket::new(number + 1, 1250));
    }
    drain(&mut link);
    assert!(link.stats().sojourns.mean() > Span::from_millis(7));
    assert_eq!(link.stats().dropped.total().packets, 0);
}

/// RFC 8033, section 4.2: the delay settles at the target, and the drop rate at the excess load.
#[test]
fn pie_holds_its_delay_against_an_unresponsive_stream() {
    let mut link = link(&ten_mbit("pie:limit=2000p"));
    let (second, gap) = (Span::from_secs(1), Span::from_micros(800));
    stream(&mut link, Span::ZERO, second * 30, gap, false);
    let before = link.stats().clone();
    stream(&mut link, second * 30, second * 60, gap, false);
    let stats = link.stats();
    let early = stats.dropped.early.packets - before.dropped.early.packets;
    let arrived = stats.arrived.packets - before.arrived.packets;
    let dropped = early as f64 / arrived as f64;
    assert!((dropped - 0.2).abs() < 0.02, "{dropped}");
    let (_, bytes) = link.queued();
    let wait = bytes.count() as f64 / 1250.0;
    assert!((5.0..35.0).contains(&wait), "{wait} ms at the end");
    assert_eq!(stats.dropped.overflow.packets, 0);
}

/// RFC 8033, section 4.4: a burst shorter than the allowance passes.
#[test]
fn pie_drops_no_packet_of_a_short_burst() {
    let early = |millis| {
        let mut link = link(&ten_mbit("pie:limit=2000p"));
        let gap = Span::from_micros(500);
        stream(&mut link, Span::ZERO, Span::from_millis(millis), gap, false);
        link.stats().dropped.early.packets
    };
    assert_eq!(early(140), 0);
    assert!(early(2000) > 0);
}

/// RFC 8033, section 5.1: PIE marks up to a probability of 10 %, and drops above it.
#[test]
fn pie_marks_up_to_a_probability_of_ten_percent() {
    let (link, delivered) = four_senders("pie:limit=300p,ecn", true);
    let stats = link.stats();
    assert!(stats.marked.packets > 0);
    assert!(stats.dropped.early.packets < stats.marked.packets / 10);
    let wait = median_wait(stats);
    assert!((3.0..30.0).contains(&wait), "{wait} ms");
    assert!(delivered > FULL * 90 / 100, "{delivered} of {FULL}");
    let mut flood = support::link(&ten_mbit("pie:limit=300p,ecn"));
    stream(&mut flood, Span::ZERO, Span::from_secs(10), Span::from_micros(500), true);
    assert!(flood.stats().dropped.early.packets > 0);
}

/// Floyd and Jacobson 1993, section 6: the average stays between the thresholds.
#[test]
fn red_holds_the_average_between_its_thresholds() {
    for (queue, ecn) in [
        ("red:limit=200p,min=10p,max=40p,p=10%", false),
        ("red:limit=200p,min=10p,max=40p,p=10%,ecn", true),
        ("red:limit=300KB,min=15140B,max=60560B,p=10%,gentle", false),
    ] {
        let (link, delivered) = four_senders(queue, ecn);
        let stats = link.stats();
        let packets = stats.occupancy.mean() / 1514.0;
        assert!((8.0..40.0).contains(&packets), "{queue}: {packets}");
        assert!(delivered > FULL * 90 / 100, "{queue}: {delivered} of {FULL}");
        assert_eq!(stats.dropped.overflow.packets, 0, "{queue}");
        assert_eq!(stats.marked.packets > 0, ecn);
    }
}

#[test]
fn red_passes_all_packets_below_its_lower_threshold() {
    let mut link = link(&ten_mbit("red:limit=100p,min=10p,max=30p,p=100%,weight=100%"));
    for burst in 0..1000u64 {
        for number in 0..10 {
            link.arrive(at(burst * 20_000_000), TestPacket::new(number, 1250));
        }
    }
    drain(&mut link);
    assert_eq!(link.stats().dropped.total().packets, 0);
}

/// RFC 8290, section 1.3: a flow that sends three times as much as another flow gets no larger
/// share.
#[test]
fn fq_codel_gives_unequal_flows_equal_rates() {
    let mut link = link(&ten_mbit("fq_codel"));
    let mut delivered = [0u64; 2];
    for step in 0..40_000u64 {
        let now = at(step * 400_000);
        // A packet takes 1 ms of link time. One flow sends a packet every 0.4 ms, the other flow
        // every 1.2 ms.
        link.arrive(now, TestPacket::new(step, 1250));
        if step % 3 == 0 {
            let other = TestPacket { flow: 1, ..TestPacket::new(step, 1250) };
            link.arrive(now, other);
        }
        while let Some(delivery) = link.deliver(now) {
            delivered[delivery.packet.flow as usize] += 1;
        }
    }
    let share = delivered[0] as f64 / (delivered[0] + delivered[1]) as f64;
    assert!((share - 0.5).abs() < 0.01, "{delivered:?}");
}

#[test]
fn fq_codel_gives_flows_of_unequal_packet_sizes_equal_bytes() {
    let mut link = link(&ten_mbit("fq_codel:limit=2000p"));
    let mut bytes = [0u64; 2];
    for step in 0..40_000u64 {
        let now = at(step * 400_000);
        for (flow, size) in [(0, 1500), (1, 300), (1, 300), (1, 300)] {
            let packet = TestPacket { flow, ..TestPacket::new(step, size) };
            link.arrive(now, packet);
        }
        while let Some(delivery) = link.deliver(now) {
            bytes[delivery.packet.flow as usize] += delivery.packet.size;
        }
    }
    let share = bytes[0] as f64 / (bytes[0] + bytes[1]) as f64;
    assert!((share - 0.5).abs() < 0.01, "{bytes:?}");
}

/// RFC 8290, section 1.3: sparse flows overtake bulk flows, however long the bulk queue is.
#[test]
fn fq_codel_serves_sparse_flows_before_bulk_flows() {
    let longest = |queue: &str| {
        let mut link = link(&ten_mbit(queue));
        let mut longest = Span::ZERO;
        for step in 0..20_000u64 {
            let now = at(step * 500_000);
            link.arrive(now, TestPacket::new(step, 1250));
            if step % 100 == 50 {
                let sparse = TestPacket { flow: 7, ..TestPacket::new(step, 100) };
                link.arrive(now, sparse);
            }
            while let Some(delivery) = link.deliver(now) {
                if delivery.packet.flow == 7 {
                    longest = longest.max(delivery.at.since(delivery.arrived));
                }
            }
        }
        longest
    };
    // A sparse packet waits for the packet in transmission, and takes 80 µs itself.
    assert!(longest("fq_codel") <= Span::from_micros(1080));
    assert!(longest("codel") > Span::from_millis(5));
}

/// RFC 8290, section 4.2: a flow that empties and returns at once does not count as new again.
/// Otherwise two such flows could keep the link to themselves.
#[test]
fn fq_codel_is_not_starved_by_flows_that_look_sparse() {
    let mut link = link(&ten_mbit("fq_codel:limit=10000p,target=10s,interval=100s"));
    for number in 0..3000 {
        link.arrive(at(0), TestPacket::new(number, 1250));
    }
    let mut delivered = [0u64; 3];
    // The bulk flow has the first three turns. Then another flow has a packet whenever the link is
    // free.
    for step in 2..3002u64 {
        let now = at(step * 1_000_000 + 1000);
        let flow = 1 + step % 2;
        let eager = TestPacket { flow, ..TestPacket::new(step, 1250) };
        link.arrive(now, eager);
        while let Some(delivery) = link.deliver(now) {
            delivered[delivery.packet.flow as usize] += 1;
        }
    }
    let share = delivered[0] as f64 / delivered.iter().sum::<u64>() as f64;
    assert!((share - 1.0 / 3.0).abs() < 0.05, "{delivered:?}");
}

/// RFC 8290, section 4.1: an overload drops packets of the flow that causes it.
#[test]
fn fq_codel_drops_from_the_fattest_flow() {
    let mut link = link(&ten_mbit("fq_codel:limit=100p"));
    let thin = |number| TestPacket { flow: 1, ..TestPacket::new(number, 1250) };
    for number in 0..10 {
        link.arrive(at(0), thin(number));
    }
    for number in 0..500 {
        link.arrive(at(0), TestPacket::new(number, 1250));
    }
    assert!(link.queued().0 <= 100);
    let deliveries = drain(&mut link);
    let of_thin = deliveries.iter().filter(|(_, p)| p.flow == 1).count();
    assert_eq!(of_thin, 10);
    // FQ-CoDel drops from the head of the larger flow, so the last packets of this flow remain.
    assert!(deliveries.iter().any(|(_, p)| p.flow == 0 && p.number == 499));
}

/// FQ-CoDel drops half of the fattest flow at once, at most 64 packets, so that it rarely searches
/// for this flow.
#[test]
fn fq_codel_drops_in_batches() {
    let queued = |limit: u64, size: u64| {
        let mut link = link(&ten_mbit(&format!("fq_codel:limit={limit}p")));
        // The first packet is in transmission at once, and the last packet exceeds the limit.
        for number in 0..limit + 2 {
            link.arrive(at(0), TestPacket::new(number, size));
        }
        link.queued().0 as u64
    };
    assert_eq!(queued(99, 1250), 50);
    assert_eq!(queued(999, 1250), 1000 - 64);
    assert_eq!(queued(99, 0), 99, "frames without bytes still go");
}

/// Returns the number of approved requests out of a thousand, if frames arrive at `percent` of the
/// link's rate.
fn approved(percent: u64) -> usize {
    let mut link = link(&ten_mbit("caqm:15KB,limit=1000p"));
    for number in 0..1000 {
        let asks = Some(Info::request(16));
        link.arrive(
            at(number * 1_000_000 * 100 / percent),
            TestPacket { asks, ..TestPacket::new(number, 1250) },
        );
    }
    let delivered = drain(&mut link);
    let refused =
        delivered.iter().filter(|(_, packet)| packet.asks == Some(Info::request(16).refused()));
    assert_eq!(refused.count() as u64, link.stats().marked.packets);
    delivered.iter().filter(|(_, packet)| packet.asks == Some(Info::request(16))).count()
}

#[test]
fn a_caqm_port_approves_requests_up_to_its_capacity() {
    assert_eq!(approved(50), 1000);
    let most = approved(99);
    assert!(most > 950, "{most}");
    // A growing queue reaches the target, and from then on the port approves nothing.
    let few = approved(200);
    assert!((10..60).contains(&few), "{few}");
}

#[test]
fn queued_packets_stay_when_the_discipline_changes() {
    let queues = [
        "droptail:100p",
        "fq_codel:limit=100p",
        "pie:limit=100p",
        "red:limit=100p,min=50p,max=90p",
        "codel:limit=100p",
        "headdrop:100p",
        "caqm:9KB,limit=100p",
    ];
    let mut link = link(&ten_mbit(queues[0]));
    for number in 0..51 {
        link.arrive(at(0), TestPacket::new(number, 1250));
    }
    for queue in queues.iter().cycle().take(20) {
        link.reconfigure(at(0), &ten_mbit(queue)).unwrap();
        assert_eq!(link.queued().0, 50, "{queue}");
    }
    link.reconfigure(at(0), &ten_mbit("droptail")).unwrap();
    let numbers: Vec<u64> = drain(&mut link).iter().map(|(_, p)| p.number).collect();
    assert_eq!(numbers, (0..51).collect::<Vec<u64>>());
}
