//! Megaflows: reuse, changes of rules, expiry, counts and memory.

use datapath::{Settings, Stages};
use units::{Span, Time};

use super::bridge::{Bridge, tables};
use super::frames::frame;

#[test]
fn later_packets_of_a_megaflow_need_no_upcall() {
    let mut bridge = Bridge::new(&["ip,nw_dst=10.0.0.0/8 actions=output:2"]);
    let frames: Vec<_> =
        (1..=100).map(|low| frame(&format!("udp,nw_dst=10.0.0.{low},tp_src={low}"))).collect();
    let sent = bridge.process(1, &frames).sent;
    assert_eq!(sent.len(), 100);
    assert!(sent.iter().zip(&frames).all(|((port, bytes), frame)| *port == 2 && bytes == frame));
    let statistics = bridge.datapath.statistics();
    assert_eq!((statistics.upcalls, statistics.megaflow_hits), (1, 99));
    assert_eq!((bridge.datapath.len(), bridge.datapath.masks()), (1, 1));
    let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
    assert_eq!(bridge.counts(), [(100, bytes)]);
    let megaflow = bridge.datapath.megaflows().next().expect("a megaflow");
    // The first packet counts for the rules, but not for the megaflow.
    let bytes = bytes - frames[0].len() as u64;
    assert_eq!((megaflow.packets, megaflow.bytes, megaflow.used_ms), (99, bytes, Some(0)));
}

#[test]
fn a_change_of_rules_applies_to_the_next_packet() {
    let mut bridge = Bridge::new(&["priority=1 actions=output:2"]);
    let packet = [frame("udp,nw_dst=10.0.0.1"), frame("tcp,nw_dst=10.0.0.2")];
    let ports = |bridge: &mut Bridge| -> Vec<u16> {
        bridge.process(1, &packet).sent.iter().map(|(port, _)| *port).collect()
    };
    assert_eq!(ports(&mut bridge), [2, 2]);
    bridge.add("priority=2,udp actions=output:3");
    let mut changed = ports(&mut bridge);
    changed.sort_unstable();
    assert_eq!(changed, [2, 3]);
    assert_eq!(ports(&mut bridge).len(), 2);
    // Each rule has counted all its packets: four and two.
    let mut counts: Vec<_> = bridge.counts().iter().map(|(packets, _)| *packets).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 4]);
}

#[test]
fn an_unchanged_megaflow_keeps_its_counts_over_a_change_of_other_rules() {
    let mut bridge = Bridge::new(&["ip,nw_dst=10.0.0.1 actions=output:2"]);
    bridge.process(1, &[frame("udp,nw_dst=10.0.0.1")]);
    bridge.add("table=7,arp actions=output:3");
    bridge.process(1, &[frame("udp,nw_dst=10.0.0.1")]);
    assert_eq!(bridge.datapath.statistics().revalidated, 1);
    let megaflow = bridge.datapath.megaflows().next().expect("a megaflow");
    assert_eq!(megaflow.packets, 1);
    assert_eq!(bridge.counts()[0].0 + bridge.counts()[1].0, 2);
}

#[test]
fn a_megaflow_of_a_narrower_mask_continues_the_former_counts() {
    for narrower in ["vlan_tci=0x0000/0x1fff", "ip,nw_dst=10.0.0.1", "udp,tp_dst=53"] {
        let mut bridge = Bridge::new(&["cookie=1,in_port=1 actions=output:2"]);
        let packet = [frame("udp,nw_dst=10.0.0.1,tp_dst=53")];
        let counted = |bridge: &mut Bridge| {
            for _ in 0..3 {
                bridge.process(1, &packet);
            }
            let megaflows: Vec<_> = bridge.datapath.megaflows().collect();
            let [megaflow] = &megaflows[..] else { panic!("{}", megaflows.len()) };
            (megaflow.packets, megaflow.bytes / packet[0].len() as u64)
        };
        assert_eq!(counted(&mut bridge), (2, 2), "{narrower}");
        bridge.add(&format!("cookie=2,priority=50000,{narrower} actions=output:3"));
        assert_eq!(counted(&mut bridge), (5, 5), "{narrower}");
        // Each rule counts only its own packets.
        let packets: Vec<_> = bridge.counts().iter().map(|(packets, _)| *packets).collect();
        assert_eq!(packets, [3, 3], "{narrower}");
    }
}

#[test]
fn idle_megaflows_are_removed_after_ten_seconds() {
    let mut bridge = Bridge::new(&["ip,nw_dst=10.0.0.1 actions=output:2", "actions=output:3"]);
    let packets: Vec<_> = (1..50).map(|low| frame(&format!("udp,nw_dst=10.0.0.{low}"))).collect();
    bridge.process(1, &packets);
    let before = bridge.datapath.len();
    assert!(before >= 2, "{before}");
    for _ in 0..95 {
        bridge.now += Span::from_millis(100);
        bridge.maintain();
    }
    assert_eq!(bridge.datapath.len(), before);
    bridge.process(1, &packets[..1]);
    for _ in 0..25 {
        bridge.now += Span::from_millis(100);
        bridge.maintain();
    }
    assert_eq!(bridge.datapath.len(), 1);
    assert_eq!(bridge.datapath.statistics().expired, before as u64 - 1);
    // Expired megaflows have added their counts to the counts of the rules.
    let total: u64 = bridge.counts().iter().map(|(packets, _)| packets).sum();
    assert_eq!(total, 50);
}

#[test]
fn a_flood_of_different_packets_takes_bounded_memory() {
    let rules = ["priority=2,udp,nw_dst=10.0.0.1,tp_src=1 actions=output:2", "actions=output:3"];
    let rules: Vec<_> = (0..16)
        .map(|bit| format!("priority=3,udp,tp_dst={0}/{0:#x} actions=output:4", 1 << bit))
        .chain(rules.map(String::from))
        .collect();
    let mut bridge = Bridge::new(&rules);
    bridge.datapath.limit_megaflows(1000);
    for high in 0..40_u32 {
        let packets: Vec<_> = (0..100_u32)
            .map(|low| {
                let number = high * 100 + low;
                let address = format!("{}.{}", number >> 8, number & 255);
                frame(&format!("udp,nw_dst=10.0.{address},tp_src={low},tp_dst={number}"))
            })
            .collect();
        let sent = bridge.process(1, &packets).sent;
        assert_eq!(sent.len(), 100);
        assert!(bridge.datapath.len() <= 1000);
        bridge.now += Span::from_millis(100);
        bridge.maintain();
    }
}

#[test]
fn many_megaflows_of_many_masks_are_found_again() {
    // Each VLAN has its own table, whose rules match on other fields than the rules of the other
    // tables.
    let fields = [
        "ip,nw_dst=10.0.0.1",
        "ip,nw_src=10.0.0.1",
        "udp,tp_dst=1",
        "udp,tp_src=1",
        "dl_src=02:00:00:00:00:01",
        "dl_dst=02:00:00:00:00:01",
        "ip,nw_tos=8",
        "udp,tp_src=1,tp_dst=1,nw_src=10.0.0.1,nw_dst=10.0.0.1",
    ];
    let mut rules = Vec::new();
    for (index, matching) in fields.iter().enumerate() {
        let table = index + 1;
        rules.push(format!("dl_vlan={table} actions=resubmit(,{table})"));
        rules.push(format!("table={table},{matching} actions=output:2"));
        rules.push(format!("table={table},priority=0 actions=output:3"));
    }
    let mut bridge = Bridge::new(&rules);
    let packets: Vec<_> = (0..3000_u32)
        .map(|number| {
            let vlan = number % 8 + 1;
            let address = format!("10.0.{}.{}", number >> 8, number & 255);
            let ports = format!("tp_src={},tp_dst={}", number % 7, number % 5);
            frame(&format!("udp,dl_vlan={vlan},nw_dst={address},{ports}"))
        })
        .collect();
    assert_eq!(bridge.process(1, &packets).sent.len(), 3000);
    let upcalls = bridge.datapath.statistics().upcalls;
    assert_eq!(bridge.process(1, &packets).sent.len(), 3000);
    assert_eq!(bridge.datapath.statistics().upcalls, upcalls);
    assert_eq!(bridge.datapath.len() as u64, upcalls);
    // After a second, the masks are sorted by their hits.
    for _ in 0..30 {
        bridge.now += Span::from_millis(100);
        bridge.maintain();
    }
    bridge.datapath.clear_statistics();
    bridge.process(1, &packets);
    let statistics = bridge.datapath.statistics();
    assert_eq!(statistics.megaflow_hits, 3000);
    assert!(bridge.datapath.masks() >= 8);
    assert!((3000..4500).contains(&statistics.masks_probed), "{}", statistics.masks_probed);
    bridge.datapath.clear();
    assert!(bridge.datapath.is_empty());
    let total: u64 = bridge.counts().iter().map(|(packets, _)| packets).sum();
    // Each packet counts for rules of two tables.
    assert_eq!(total, 18_000);
}

#[test]
fn each_stage_of_the_datapath_is_measured_in_clock_ticks() {
    fn ticks() -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NOW: AtomicU64 = AtomicU64::new(0);
        NOW.fetch_add(1, Ordering::Relaxed)
    }
    let settings = Settings { ticks, ..Settings::default() };
    let mut bridge = Bridge::with(tables(&["actions=output:2"]), settings);
    for _ in 0..Stages::SAMPLING * 3 {
        bridge.process(1, &[frame("udp"), frame("tcp")]);
    }
    let stages = bridge.datapath.statistics().stages;
    assert_eq!(stages.packets, 6);
    assert!(stages.parse >= 3 && stages.cache >= 3 && stages.actions >= 3);
    assert!(stages.transmit >= 3 && stages.classifier >= 1);
    assert_eq!(stages.conntrack, 0);
}

#[test]
fn a_jump_of_the_clock_loses_no_count() {
    let mut bridge = Bridge::new(&["actions=output:2"]);
    bridge.process(1, &[frame("udp")]);
    bridge.now = Time::ZERO + Span::from_secs(1 << 32);
    bridge.maintain();
    bridge.maintain();
    bridge.process(1, &[frame("udp")]);
    assert_eq!(bridge.counts()[0].0, 2);
}
